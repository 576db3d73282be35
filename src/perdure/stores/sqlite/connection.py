"""Opening the file, and saying what is wrong with it when that fails.

The header of a file is read before it is opened for writing, which takes no lock and makes no files: a
database of somebody else is left as it was, to the byte. It is read through SQLite's own layer of files
(`open()` would be dangerous: on POSIX, closing any descriptor of a file drops all locks that this process has
on it), and as bytes: without its WAL, a file whose checkpoint was cut looks damaged to SQLite, and is not.
"""

import os
import stat
import time
from typing import Final

import apsw

from perdure.errors import CannotOpen, NewerSchema, NotADatabase, StoreFailed

from . import schema
from .readonly import connect_to_read, may_only_be_read

PATIENCE_SECONDS: Final = 30.0
"""How long a connection waits for the transaction of another process before it gives up."""

MAGIC: Final = b"SQLite format 3\x00"
HEADER_SIZE: Final = 100
CACHE_KIBIBYTES: Final = 16 * 1024
WAL_PAGES: Final = 8_000
"""A checkpoint after so many pages: 16 MiB, or 32 in files of an earlier perdure, whose pages have 4 KiB."""


class Patience:
    """The busy handler of one connection.

    SQLite's own sleeps up to 100 ms at a time: the gaps between two commits of a busy engine are shorter, and
    a client would miss them.
    """

    def __init__(self) -> None:
        self.waits = True
        self.seconds = PATIENCE_SECONDS
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        if not self.waits:
            return False
        now = time.monotonic()
        if tries == 0:
            self._until = now + self.seconds
        time.sleep(0.0002 + 0.0001 * (tries * 7 % 11))  # uneven, so as not to stay in step with the writer
        return now < self._until


def connect(path: str, *, create: bool) -> tuple[apsw.Connection, Patience]:
    """A connection to a perdure database, or (`create`) to a file that can become one.

    Clients read a file that may only be read; what they write there is refused when they write it.
    """
    read_only = not create and may_only_be_read(path)
    if not read_only:
        _check_place(path, create)
    if os.path.exists(path):
        recognise(path)
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    patience = Patience()
    try:
        connection = (
            connect_to_read(path) if read_only else apsw.Connection(path, flags=flags, statementcachesize=200)
        )
        connection.set_busy_handler(patience)
        # Plans do not depend on bound values. Without this, SQLite (STAT4) prepares every statement with an
        # ORDER BY again at each execution: 19 µs instead of 6 for a head by name.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if connection.readonly("main") and not read_only:
            connection.close()
            raise CannotOpen(f"{path} can only be read; make the file and its directory writable")
        connection.pragma("synchronous", "FULL")
        connection.pragma("cache_size", -CACHE_KIBIBYTES)
        connection.pragma("wal_autocheckpoint", WAL_PAGES)
        # What a statement of many rows would need to be undone by itself goes through here, page by page. On the disk
        # that were two writes for each event to a cell.
        connection.pragma("temp_store", "MEMORY")
        version = schema.version_of(connection)
    except apsw.Error as error:
        raise open_error(path, error) from error
    _check_version(path, version, create)
    return connection, patience


def enter_wal(connection: apsw.Connection, path: str) -> None:
    """A lasting property of the file. The change needs the file for itself, so it is tried until it works."""
    patience = Patience()
    tries = 0
    while True:
        try:
            if connection.pragma("journal_mode", "wal") == "wal":
                return
        except apsw.BusyError:
            pass
        if not patience(tries):
            raise StoreFailed(f"{path} cannot be put into WAL mode: other processes use it, or its disk is remote")
        tries += 1


def recognise(path: str) -> None:
    """Raise unless the file is empty, or its header says that perdure made it."""
    size = os.stat(path).st_size
    if size == 0:
        return
    header = read_header(path) if size >= HEADER_SIZE else b""
    if header[: len(MAGIC)] != MAGIC:
        raise NotADatabase(f"{path} is not a database; nothing was changed: name another file")
    if int.from_bytes(header[68:72], "big") != schema.APPLICATION_ID:
        raise NotADatabase(
            f"{path} is a SQLite database, but not one of perdure; nothing was changed: name another file"
        )


def read_header(path: str) -> bytes:
    try:
        file = apsw.VFSFile("", path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
        try:
            return file.xRead(HEADER_SIZE, 0)
        finally:
            file.xClose()
    except apsw.Error as error:
        raise open_error(path, error) from error


def open_error(path: str, error: apsw.Error) -> CannotOpen | NotADatabase | StoreFailed:
    """What an error of SQLite while opening means, in words."""
    match error:
        case apsw.NotADBError():
            return NotADatabase(f"{path} is not a database; nothing was changed: name another file")
        case apsw.CorruptError():
            return NotADatabase(f"{path} is damaged ({error}); restore it from a backup")
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return CannotOpen(f"{path} cannot be opened ({error}); check the permissions of the file and its directory")
        case apsw.ReadOnlyError():
            return CannotOpen(f"{path} can only be read; make the file and its directory writable")
        case apsw.BusyError():
            return StoreFailed(
                f"{path} was locked by another process for {PATIENCE_SECONDS:.0f} s; find it with `lsof`"
            )
        case _:
            return StoreFailed(f"{path}: {error}")


def _check_place(path: str, create: bool) -> None:
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise CannotOpen(f"{path} cannot be opened: there is no directory {directory}; create it first")
    if not os.path.exists(path):
        if not create:
            raise CannotOpen(f"there is no database {path}; an engine makes it when it opens it the first time")
    elif os.path.isdir(path):
        raise CannotOpen(f"{path} is a directory; name a file in it")
    elif not stat.S_ISREG(os.stat(path).st_mode):
        raise CannotOpen(f"{path} is not a regular file; name another one")
    elif not os.access(path, os.R_OK | os.W_OK):
        raise CannotOpen(f"{path} may not be read and written by this user; change its permissions")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise CannotOpen(f"{directory} may not be written by this user: SQLite keeps files beside {path}")


def _check_version(path: str, version: int, create: bool) -> None:
    if version > schema.VERSION:
        raise NewerSchema(
            f"{path} has schema {version}, of a newer perdure (this one knows {schema.VERSION}): upgrade; "
            "nothing was changed"
        )
    if version < schema.VERSION and not create:
        raise CannotOpen(
            f"{path} has schema {version}, this perdure {schema.VERSION}: open it with an engine once, "
            "which brings it up to date"
        )
