"""Opening the file, and saying what is wrong with it when that fails.

The header of a file is read before it is opened for writing, which takes no lock and makes no files: a
database of another program is left as it was, to the byte. It is read through SQLite's own layer of files
(`open()` would be dangerous: on POSIX, closing any descriptor of a file drops all locks that this process has
on it), and as bytes: without its WAL, a file whose checkpoint was cut looks damaged to SQLite, and is not.
"""

import os
import stat
import time
from collections.abc import Callable
from typing import Final

import apsw

from perdure.errors import CannotOpen, FileDamaged, NewerSchema, NotADatabase, StoreError, StoreFailed

from . import files, log, schema
from .files import open_in
from .lease import is_locked, lease_path
from .readonly import connect_to_read, may_only_be_read

PATIENCE_SECONDS: Final = 30.0
"""How long a connection waits for the transaction of another process before it gives up."""

TELL_SECONDS: Final = 1.0
"""After so long an engine tells who it waits for."""

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
        self.tell: Callable[[], None] | None = None  # that it has waited for `tell_seconds`
        self.tell_seconds = TELL_SECONDS
        self._began = 0.0
        self._told = False

    def __call__(self, tries: int) -> bool:
        if not self.waits:
            return False
        now = time.monotonic()
        if tries == 0:
            self._began, self._told = now, False
        time.sleep(0.0002 + 0.0001 * (tries * 7 % 11))  # uneven, so as not to stay in step with the writer
        if self.tell is not None and not self._told and now >= self._began + self.tell_seconds:
            self._told = True
            self.tell()
        return now < self._began + self.seconds


def connect(path: str, *, create: bool, damaged: bool = False) -> tuple[apsw.Connection, Patience]:
    """A connection to a perdure database, or (`create`) to a file that can become one.

    Clients read a file that may only be read; what they write there is refused when they write it. `damaged`: the log
    may be so. It then stays as it is when this connection is closed.
    """
    read_only = not create and may_only_be_read(path)
    _check_place(path, create, read_only)
    if os.path.exists(path):
        recognise(path)
    else:
        files.make(path)
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    patience = Patience()
    try:
        connection = connect_to_read(path) if read_only else apsw.Connection(path, flags=flags, statementcachesize=200)
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
        # that were two writes for each event to an instance whose state is a value.
        connection.pragma("temp_store", "MEMORY")
        # A log that turns out to be damaged must outlive this connection.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        version = schema.version_of(connection)
        if not damaged:
            if not is_locked(lease_path(path)):  # else an engine has it open: nothing is left to recover
                _check_log(connection, path)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    except apsw.Error as error:
        raise open_error(path, error) from error
    _check_version(path, version, create)
    return connection, patience


def _check_log(connection: apsw.Connection, path: str) -> None:
    try:
        log.check(connection, path)
    except BaseException:
        connection.close()
        raise


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


def damaged_file(path: str, error: apsw.Error) -> FileDamaged:
    return FileDamaged(f"{path} is damaged ({error}); stop its engine, and restore it from a backup")


def open_error(path: str, error: apsw.Error) -> StoreError:
    """What an error of SQLite while opening means, in words."""
    match error:
        case apsw.NotADBError():
            return NotADatabase(f"{path} is not a database; nothing was changed: name another file")
        case apsw.CorruptError():
            return damaged_file(path, error)
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return CannotOpen(f"{path} cannot be opened ({error}); check the permissions of the file and its directory")
        case apsw.ReadOnlyError():
            return CannotOpen(f"{path} can only be read; make the file and its directory writable")
        case apsw.BusyError():
            return StoreFailed(
                f"{path} was locked by another process for {PATIENCE_SECONDS:.0f} s; it is open in {open_in(path)}"
            )
        case _:
            return StoreFailed(f"{path}: {error}")


def _check_place(path: str, create: bool, read_only: bool) -> None:
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
    elif os.stat(path).st_nlink > 1:
        raise CannotOpen(
            f"{path} has {os.stat(path).st_nlink} names (hard links). Its log belongs to one name, and an engine under "
            f"another name would not see it: keep one name (`find -samefile {os.path.basename(path)}`), or make a copy"
        )
    elif not read_only and not os.access(path, os.R_OK | os.W_OK):
        raise CannotOpen(f"{path} may not be read and written by this user; change its permissions")
    if not read_only and not os.access(directory, os.W_OK | os.X_OK):
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
