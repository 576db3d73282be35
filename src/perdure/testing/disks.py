"""What a simulated world keeps its rows on: memory, or a real SQLite file.

The auditor and the tests see the rows of either as a `MemoryDatabase`. Those of a file are read back from it after
every write, through a connection of their own: what is audited is what stands in the file.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw

from perdure.codec import unseal
from perdure.kernel.batch import Batch, HeadRow, InboxRow, JobRow, SnapshotRow, TagRow
from perdure.kernel.task import CandidateRow, TaskRow
from perdure.ports.store import Lease, Posted, Queries, Store
from perdure.runtime.virtual_clock import Life
from perdure.stores.memory import MemoryDatabase, MemoryStore
from perdure.stores.rebuild import tasks_of
from perdure.stores.sqlite import SqliteStore, reads
from perdure.stores.sqlite.lease import lease_path
from perdure.stores.sqlite.statements import SQL

T = TypeVar("T")

SNAPSHOTS = """
SELECT instance, max(seq), snapshot FROM (
    SELECT instance, seq, body AS snapshot FROM snapshots
    UNION ALL SELECT instance, seq, snapshot FROM journal WHERE snapshot IS NOT NULL
) GROUP BY instance
"""  # the newest of each instance: a bare column is that of the row with the maximum


class Disk:
    """Memory, which every world has that is given nothing else. It outlives the processes of its world."""

    def __init__(self) -> None:
        self.rows = MemoryDatabase()

    def connect(self, life: Life) -> Store:
        """A new process begins. The process that had the lease loses it when this one acquires it."""
        return MemoryStore(self.rows)

    def post(self, row: InboxRow, *, start: bytes | None = None, reuse: str = "") -> Posted:
        """What a client writes into the inbox table."""
        return at_once(MemoryStore(self.rows).post(row, start=start, reuse=reuse))

    @contextmanager
    def queries(self) -> Iterator[Queries]:
        """What a client has that writes past the engine: blobs, and world snapshots."""
        yield MemoryStore(self.rows)

    def close(self) -> None:
        """The world is over."""


class SqliteDisk(Disk):
    """One file, and the store as it is, with every commit on the thread of the world: virtual time stands meanwhile.

    A process that dies leaves the file as a kill does: its WAL stands beside it, and the next one recovers from that.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = os.path.realpath(path)
        self._stores: list[tuple[ReadBack, Life]] = []
        self._reader: apsw.Connection | None = None

    def connect(self, life: Life) -> Store:
        self._drop_the_dead()
        if self._stores:
            # One that lives is to become a zombie. As on a file system whose locks do not work, its lock keeps no other
            # out from here on: it locks a file that has lost its name.
            os.unlink(lease_path(self.path))
        store = ReadBack(self.path, self.read_back)
        self._stores.append((store, life))
        return store

    def _drop_the_dead(self) -> None:
        """Only now: a process may die deep inside a call of its store."""
        for store, life in self._stores:
            if not life.alive:
                store.drop()
        self._stores = [pair for pair in self._stores if pair[1].alive]
        self._stop_reading()

    def post(self, row: InboxRow, *, start: bytes | None = None, reuse: str = "") -> Posted:
        client = SqliteStore.open_client(self.path)
        try:
            return asyncio.run(client.post(row, start=start, reuse=reuse))
        finally:
            client.close()
            self.read_back()

    @contextmanager
    def queries(self) -> Iterator[Queries]:
        client = SqliteStore.open_client(self.path)
        try:
            yield client
        finally:
            client.close()

    def close(self) -> None:
        for store, _ in self._stores:
            store.close()
        self._stop_reading()

    # ---- reading back ------------------------------------------------------------------------------------

    def read_back(self) -> None:
        """Make `rows` what the file holds. The journal only grows, so only its end is read."""
        if self._reader is None:
            self._reader = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READONLY)
            leave_the_wal(self._reader)
        connection, rows = self._reader, self.rows
        with connection:  # one state of the file
            rows.epoch = connection.execute(SQL.epoch).get
            for row in reads.journal(connection, rows.journal[-1].seq if rows.journal else 0, reads.NO_LIMIT):
                rows.journal.append(row)
                rows.histories.setdefault(row.instance, []).append(row)
            rows.heads = {row[0]: HeadRow(*row) for row in connection.execute(SQL.all_heads)}
            rows.tags = {TagRow(*row): None for row in connection.execute(SQL.all_tags)}
            rows.counts = Counter(reads.counts(connection))
            rows.names = {(head.workflow, head.key): head.id for head in rows.heads.values()}
            rows.work = {work.intent: work for work in reads.due(connection, reads.LARGEST, reads.NO_LIMIT)}
            rows.work_order = [(work.due, work.intent) for work in rows.work.values()]
            inbox = connection.execute(SQL.inbox, (0, reads.NO_LIMIT))
            rows.inbox = {row[1]: (row[0], InboxRow(*row[1:])) for row in inbox}
            rows.jobs = {row[0]: JobRow(*row) for row in connection.execute(SQL.jobs)}
            rows.snapshots = {row[0]: SnapshotRow(*row) for row in connection.execute(SNAPSHOTS)}
            published = connection.execute(SQL.all_published)
            rows.published = {(instance, name): unseal(value) for instance, name, value in published}
            rows.tasks = tasks_of(
                (TaskRow(*row) for row in connection.execute(SQL.all_tasks)),
                (CandidateRow(*row) for row in connection.execute(SQL.all_candidates)),
            )
            rows.workflows = reads.workflows(connection)

    def _stop_reading(self) -> None:
        """As long as a process has the file open, it needs no recovery."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class ReadBack(SqliteStore):
    """The store as it is. After what it writes, and before anybody hears of that, the file is read."""

    def __init__(self, path: str, read: Callable[[], None]) -> None:
        super().__init__(path)
        self._read = read

    def acquire(self, owner: str, done: Callable[[Lease | Exception], None]) -> None:
        def heard(lease: Lease | Exception) -> None:
            self._read()
            done(lease)

        super().acquire(owner, heard)

    def commit(self, batch: Batch, done: Callable[[Exception | None], None]) -> None:
        def heard(error: Exception | None) -> None:
            self._read()
            done(error)

        super().commit(batch, heard)

    def drop(self) -> None:
        """What the system does with the connections of a process that was killed."""
        leave_the_wal(self._connection)
        self.close()


def leave_the_wal(connection: apsw.Connection) -> None:
    """Else the last connection that is closed moves the WAL into the file and deletes it."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing: the memory store's queries."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise RuntimeError("the memory store waited for something")
