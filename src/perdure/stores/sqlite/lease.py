"""One engine per file, known at once: a lock that the operating system frees when its process dies.

The lock is an exclusive transaction on a second, always empty SQLite file, `<database>-lease`. SQLite locks
portably, and nothing expires: after SIGKILL the next engine enters without waiting. The lock says who lives;
it is not the fence. That is the epoch in the database, which every commit checks: a file system whose locks
do not work (NFS) costs availability, never a duplicated entry.
"""

import os

import apsw

from . import files


def lease_path(database: str) -> str:
    return f"{database}-lease"


def is_locked(path: str) -> bool:
    """Whether an engine has the lock. Only looks: taking the lock for a moment could keep an engine out."""
    if not os.path.exists(path):
        return False
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    file = apsw.VFSFile("", path, flags)
    try:
        return file.xCheckReservedLock()
    finally:
        file.xClose()


class FileLock:
    def __init__(self, database: str) -> None:
        self._database = database
        self._connection: apsw.Connection | None = None

    @property
    def held(self) -> bool:
        return self._connection is not None

    def take(self) -> bool:
        """False: another process, or another engine of this one, has it."""
        assert self._connection is None
        path = lease_path(self._database)
        files.make(path, like=self._database)
        connection = apsw.Connection(path)
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except apsw.BusyError:
            connection.close()
            return False
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return True

    def free(self) -> None:
        """The file stays: deleting it could delete the lock of the engine that comes next."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
