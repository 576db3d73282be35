"""Transactions, and what SQLite's errors mean in words."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import apsw

from perdure.errors import Corrupt, StoreError, StoreFailed

from .connection import PATIENCE_SECONDS, damaged_file
from .files import open_in

GROUP: Final = 100
"""Rows by one statement. Fifteen columns each: far below the 32,766 parameters that SQLite takes."""


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """One short write: all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


def insert(connection: apsw.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Many rows, most of them a hundred by a statement: what SQLite does for a statement costs as much as a row."""
    many = len(rows) - len(rows) % GROUP
    for begin in range(0, many, GROUP):
        connection.execute(_of_many(statement), tuple(chain.from_iterable(rows[begin : begin + GROUP])))
    if many < len(rows):
        connection.executemany(statement, rows[many:])


@lru_cache(maxsize=16)
def _of_many(statement: str) -> str:
    before, sign, rest = statement.partition("VALUES ")
    row, end, after = rest.partition(")")
    return before + sign + ", ".join([row + end] * GROUP) + after


def roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:  # SQLite rolls some failures back by itself
        connection.execute("ROLLBACK")


def write_error(path: str, error: apsw.Error) -> StoreError:
    """What an error of SQLite in a write means, in words."""
    match error:
        case apsw.CorruptError() | apsw.NotADBError() | apsw.SQLError():  # the last: of a damaged schema
            return damaged_file(path, error)
        case apsw.FullError():
            return StoreFailed(f"{path}: the disk is full; nothing was written: free some space, then go on")
        case apsw.BusyError():
            return StoreFailed(
                f"{path} was locked by another process for {PATIENCE_SECONDS:.0f} s; nothing was written: "
                f"it is open in {open_in(path)}"
            )
        case apsw.ReadOnlyError():
            return StoreFailed(f"{path} can only be read now; nothing was written: make it writable again")
        case apsw.IOError():
            return StoreFailed(f"{path}: the disk failed ({error}); whether this was written is not known")
        case apsw.ConstraintError():
            return StoreFailed(f"{path}: {error}; nothing was written: this is an error in perdure, please report it")
        case _:
            return StoreFailed(f"{path}: {error}")


def read_error(path: str, error: apsw.Error | UnicodeDecodeError) -> StoreError:
    match error:
        case UnicodeDecodeError():
            return Corrupt(f"a text in {path} is none ({error})")
        case apsw.CorruptError() | apsw.NotADBError() | apsw.SQLError():  # the last: of a damaged schema
            return damaged_file(path, error)
        case _:
            return StoreFailed(f"{path} cannot be read: {error}")
