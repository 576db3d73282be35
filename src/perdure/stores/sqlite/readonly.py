"""Reading a file that this user may only read, or whose directory they may not write.

SQLite keeps a log and an index of the log beside the file. If an engine left none, the file alone is the database. If
there is a log, SQLite reads it too, where it can.

SQLite never looks again at a file that it has opened alone. An engine may come and change the file, so a client
compares `form_of` before each question, and opens the file again when it has changed.
"""

import os
import stat
from urllib.parse import quote

import apsw

from perdure.errors import CannotOpen


def may_only_be_read(path: str) -> bool:
    """Whether the file is there and can be read, but not be written as SQLite would do it."""
    if not os.path.exists(path) or not stat.S_ISREG(os.stat(path).st_mode) or not os.access(path, os.R_OK):
        return False
    return not (os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK | os.X_OK))


def form_of(path: str) -> tuple[bool, int, int]:
    """It differs after an engine has opened the file, and after one has changed it."""
    try:
        found = os.stat(path)
    except OSError:  # it is told when it is opened
        return False, 0, 0
    return os.path.exists(f"{path}-wal"), found.st_mtime_ns, found.st_size


def connect_to_read(path: str) -> apsw.Connection:
    log, _, _ = form_of(path)
    uri = f"file:{quote(path)}?mode=ro{'' if log else '&immutable=1'}"
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, statementcachesize=200)
    try:
        connection.pragma("user_version")
    except apsw.Error as error:
        connection.close()
        if not log:
            raise
        raise CannotOpen(
            f"{path} may only be read, and its log cannot be read from here ({error}); copy {path} and {path}-wal to a "
            "directory that you may write, and read the copy"
        ) from error
    return connection
