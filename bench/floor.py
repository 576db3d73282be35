"""The floor: what the disk and SQLite give by themselves. All other numbers are read against it.

One row per commit is what one sequential flow cannot beat; 50 and 500 rows per commit are what many flows
at once could share; fdatasync alone is the disk. All with WAL and synchronous=FULL through apsw, as perdure
does it.

A write-ahead log that still grows makes every commit about twice as slow as one that has gone round once,
because the file system must record the new size too. An engine lives in the second state, so floor and
workloads are brought there first (`FILL_BYTES`); the first state is measured as well, as `growing`.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import apsw

from bench.measure import Figure, Measures
from perdure.stores.sqlite.connection import WAL_PAGES  # the same number of checkpoints
from perdure.stores.sqlite.schema import PAGE_BYTES  # and the same pages: smaller ones are quicker

FILL_BYTES: Final = 40_000
BODY: Final = bytes(100)

FIGURES: Final = (
    Figure("commits of 1 row", "commits", "/s"),
    Figure("commits of 1 row, WAL still growing", "growing", "/s"),
    Figure("rows, 50 per commit", "rows_50", "/s"),
    Figure("rows, 500 per commit", "rows_500", "/s"),
    Figure("fdatasync of 4 KiB", "fdatasync", "/s"),
)


def whole(place: Path) -> Measures:
    """Everything, once per run."""
    with tempfile.TemporaryDirectory(dir=place) as directory:
        return {
            **beside(place),
            "rows_50": _rows(Path(directory, "50.db"), 50, commits=200),
            "rows_500": _rows(Path(directory, "500.db"), 500, commits=40),
            "fdatasync": _fdatasync(Path(directory, "plain")),
        }


def beside(place: Path) -> Measures:
    """What every pass is compared with; short enough to be measured around each of them."""
    with tempfile.TemporaryDirectory(dir=place) as directory:
        file = Path(directory, "floor.db")
        connection = _open(file)
        growing = _commits(connection, 500)
        _settle(connection, file)
        commits = _commits(connection, 1_000)
        connection.close()
    return {"commits": commits, "growing": growing}


class Between:
    """Single-row commits between the pieces of a workload, in its process: for ratios that hang on the disk.

    A shared disk changes its pace within seconds. What takes turns with it meets the same disk.
    """

    def __init__(self, place: Path, body: bytes = BODY) -> None:
        file = place / "between.db"
        self._connection = _open(file)
        _settle(self._connection, file)
        self._body = body
        self.times: list[float] = []

    async def commit(self, count: int = 1) -> None:
        """Without an await: the other store needs one."""
        for _ in range(count):
            self.times.append(1 / _commits(self._connection, 1, self._body))

    def close(self) -> None:
        self._connection.close()

    @property
    def seconds(self) -> float:
        return sum(self.times)

    @property
    def mean(self) -> float:
        return statistics.mean(self.times)

    @property
    def median(self) -> float:
        return statistics.median(self.times)


def mean(one: Measures, other: Measures) -> Measures:
    """Of two rates around a pass: the harmonic mean, as if both were one longer measurement."""
    return {name: 2 / (1 / one[name] + 1 / other[name]) for name in one.keys() & other.keys()}


def wal_round(database: Path) -> bytes:
    """Which round of the log it is: SQLite counts them in the log's header."""
    with open(f"{database}-wal", "rb") as file:  # SQLite has no locks on it that the close could drop
        return file.read(16)[12:]


def _open(file: Path) -> apsw.Connection:
    connection = apsw.Connection(str(file))
    connection.pragma("page_size", PAGE_BYTES)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL")
    connection.pragma("wal_autocheckpoint", WAL_PAGES)
    connection.execute("CREATE TABLE floor (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")
    return connection


def _commits(connection: apsw.Connection, count: int, body: bytes = BODY) -> float:
    began = time.perf_counter()
    for _ in range(count):
        connection.execute("INSERT INTO floor (body) VALUES (?)", (body,))
    return count / (time.perf_counter() - began)


def _settle(connection: apsw.Connection, file: Path) -> None:
    """Fill the log until it goes round."""
    first = wal_round(file)
    while wal_round(file) == first:
        connection.execute("INSERT INTO floor (body) VALUES (?)", (bytes(FILL_BYTES),))


def _rows(file: Path, rows: int, commits: int) -> float:
    connection = _open(file)
    _settle(connection, file)
    batch = [(BODY,)] * rows
    began = time.perf_counter()
    for _ in range(commits):
        with connection:
            connection.executemany("INSERT INTO floor (body) VALUES (?)", batch)
    seconds = time.perf_counter() - began
    connection.close()
    return rows * commits / seconds


def _fdatasync(file: Path) -> float:
    count, blocks, block = 1_000, 100, bytes(4096)
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR)
    try:
        os.pwrite(descriptor, block * blocks, 0)
        os.fsync(descriptor)
        began = time.perf_counter()
        for n in range(count):
            os.pwrite(descriptor, block, n % blocks * len(block))
            os.fdatasync(descriptor)
        return count / (time.perf_counter() - began)
    finally:
        os.close(descriptor)
