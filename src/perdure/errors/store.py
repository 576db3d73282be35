"""The database is at fault: what it holds, or its state, needs an operator."""

from __future__ import annotations

from .base import StoreError


class Corrupt(StoreError):
    """What is stored is damaged: a body does not match its checksum, or rows are missing that others name.

    The disk, the file system or a program other than perdure changed it. Restore the database from a backup.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"a stored body is corrupt: {self.reason}; restore the database from a backup"


class FileDamaged(Corrupt):
    """Pages of a database file, or of its log, are damaged. The engine does not open it, or stops.

    Nothing is tried again: each write could damage more. The text says what to do.
    """

    def __str__(self) -> str:
        return self.reason


class NewerFormat(StoreError):
    """A stored body was written by a newer perdure: upgrade.

    Every perdure reads what older ones wrote, never the reverse. Nothing was changed.
    """

    def __init__(self, found: int, known: int) -> None:
        super().__init__(found, known)
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return f"format {self.found} was written by a newer perdure (this one reads up to {self.known}): upgrade"


class EngineRunning(StoreError):
    """Another engine runs on this database.

    One engine owns a SQLite file, or a shard of a PostgreSQL database. Talk to it with `perdure.connect(url)` from
    other processes, or stop it first.
    """


class Fenced(StoreError):
    """This engine no longer owns its shard: another one took over. Nothing of this commit was written."""


class LeaseLost(Fenced):
    """This engine may no longer own its shard. Whether the commit that was under way was written is not known here.

    Callers that waited for that commit hear a `StoreFailed`; all else was surely not written.
    """


class FileReplaced(Fenced):
    """The database file was deleted, moved or replaced while it was open. The engine has stopped.

    What was written last stands in a file that has no name any more. Put the file back, or restore a backup.
    """


class NotADatabase(StoreError):
    """The file is not a perdure database. Nothing was changed; name another file."""


class NewerSchema(StoreError):
    """The database was made by a newer perdure. Upgrade perdure; nothing was changed."""


class CannotOpen(StoreError):
    """The database cannot be opened: no such file or server, no permission, or a schema that is missing or older."""


class StoreFailed(StoreError):
    """The database could not write: the disk is full, or it failed.

    What was acknowledged before is safe. Whether the call that met this error was recorded is not known: repeat it
    with the same key or id, which is harmless.
    """
