"""The files of a database: made for their owner alone, and watched while they are open.

A file that is deleted or replaced stays open under its old inode, and SQLite writes on into it. So device and inode
of the name are compared with those of the open file: a `stat` for a commit, if the last one is some milliseconds old,
and one for each file whenever the inbox is looked at.
"""

import os
from contextlib import suppress
from typing import Final

from perdure.errors import FileReplaced

PRIVATE: Final = 0o600
BESIDE: Final = ("-wal", "-shm")

TRUST_SECONDS: Final = 0.005
"""How long a commit trusts the last look. What was committed just before a file is deleted is lost all the same."""


def make(path: str, like: str | None = None) -> None:
    """Make an empty file for its owner alone, or one with the owner and permissions of another file.

    SQLite gives its own files beside a database the permissions of the database.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
    if like is not None:
        wanted, found = os.stat(like), os.stat(path)
        with suppress(PermissionError):  # the file belongs to another user, who has to change it
            if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid) and os.geteuid() == 0:
                os.chown(path, wanted.st_uid, wanted.st_gid)
            if wanted.st_mode != found.st_mode:
                os.chmod(path, wanted.st_mode & 0o777)


class OpenFiles:
    """Which files this process has open under the name of a database."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._database = _identify(path)
        self._looked_at = 0.0
        self._beside: list[tuple[str, tuple[int, int] | None]] = []

    def watch_beside(self) -> None:
        """From now on the log and its index have to stay where they are. Both exist while a database is open."""
        self._beside = [(name, _identify(name)) for name in (self.path + ending for ending in BESIDE)]

    def replaced(self) -> FileReplaced | None:
        """Why nothing of the database that is open here can be found under its name any more."""
        return None if _identify(self.path) == self._database else _replaced(self.path)

    def replaced_by(self, now: float) -> FileReplaced | None:
        """The same, for commits: they may follow each other within microseconds."""
        if now < self._looked_at + TRUST_SECONDS:
            return None
        self._looked_at = now
        return self.replaced()

    def check(self) -> None:
        """Raise if one of the files is not there any more."""
        for path, was in (*self._beside, (self.path, self._database)):
            if _identify(path) != was:
                raise _replaced(path)


def _identify(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:  # most often: there is no such file
        return None
    return found.st_dev, found.st_ino


def _replaced(path: str) -> FileReplaced:
    what = "replaced by another file" if os.path.exists(path) else "deleted or moved"
    return FileReplaced(
        f"{path} was {what} while it was open; nothing more is written, and what was written last may be lost: put the "
        "file back or restore a backup, then open it again"
    )


def open_in(path: str) -> str:
    """The other processes that have a database open, those that are stopped first. Only Linux tells."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with suppress(OSError):  # it has ended, or belongs to another user
            names = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
            if path in names and int(pid) != os.getpid():
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                    name, _, rest = file.read().partition("(")[2].rpartition(")")
                stopped = rest.split()[0] in "Tt"
                found.append((not stopped, f"pid {pid} ({ascii(name)[1:-1]}{', stopped' if stopped else ''})"))
    return ", ".join(text for _, text in sorted(found)) or "no process that can be seen from here (try `lsof`)"
