"""Disks for simulated worlds, and all that they hold, for tests that hold one store against the other.

The rows of a file are read back from it after every write, through a connection of their own: what the auditor and the
tests see is what stands in the file.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from tempfile import TemporaryDirectory

import apsw
import pytest

from perdure.codec import unseal
from perdure.kernel.batch import Batch, HeadRow, InboxRow, JobRow, SnapshotRow, TagRow
from perdure.kernel.task import CandidateRow, TaskRow
from perdure.ports.store import Lease, Posted, Queries, Store
from perdure.runtime.virtual_clock import Life
from perdure.stores.memory import MemoryDatabase
from perdure.stores.rebuild import same_task, tasks_of
from perdure.stores.sqlite import SqliteStore, reads
from perdure.stores.sqlite.lease import lease_path
from perdure.stores.sqlite.statements import SQL
from perdure.testing.crashes import CALM, TAKEN_OVER, CrashPoint, RunEnding, Schedule, Trial, points_of
from perdure.testing.disks import Disk
from perdure.testing.simulation import quiet_log
from tests.stages import LONG

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where a file waits for no real disk: a test makes some thousand commits, and syncs each."""


SOME = 4

everywhere = pytest.mark.parametrize(
    ("new_disk", "cache", "crashes"),
    [("sqlite", 0, None), ("sqlite", 4096, None if LONG else SOME), ("postgres", 0, None if LONG else SOME)],
    ids=["sqlite evicted", "sqlite hot", "postgres evicted"],
    indirect=["new_disk"],
)
"""For a test with `crashed_everywhere`: on which disks, how many instances stay in memory, and how many points crash.

Each point crashes on evicted instances, in memory and in a file. Whether another store does the same is up to its
answers, which the conformance suite holds; a few points show that the story reaches it. `make test-long` has all."""


SNAPSHOTS = """
SELECT instance, max(seq), snapshot FROM (
    SELECT instance, seq, body AS snapshot FROM snapshots
    UNION ALL SELECT instance, seq, snapshot FROM journal WHERE snapshot IS NOT NULL
) GROUP BY instance
"""  # the newest of each instance: a bare column is that of the row with the maximum


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


@contextmanager
def sqlite_disk() -> Iterator[SqliteDisk]:
    """A file of its own, that is gone afterwards."""
    with TemporaryDirectory(dir=IN_MEMORY) as directory:
        disk = SqliteDisk(f"{directory}/world.db")
        try:
            yield disk
        finally:
            disk.close()


def crashed_everywhere(
    trial: Trial, new_disk: Callable[[], AbstractContextManager[Disk]], crashes: int | None = None
) -> list[RunEnding]:
    """Run a trial calmly, and with a crash before and after each commit, in memory and on another disk.

    Both must have the same rows in the end. The answer is how each run ended, the calm one first. `crashes`: only at so
    many points, which are spread over all.
    """

    def run(schedule: Schedule) -> RunEnding:
        in_memory = Disk()
        ending = trial.run(schedule, disk=in_memory)
        with new_disk() as disk:
            other = trial.run(schedule, disk=disk)
            assert other.problem == ending.problem == "", f"{schedule}: {other.problem or ending.problem}"
            assert held(disk) == held(in_memory), schedule
            assert disk.rows.tasks.keys() == in_memory.rows.tasks.keys(), schedule
            assert all(same_task(rows, in_memory.rows.tasks[id]) for id, rows in disk.rows.tasks.items()), schedule
        return ending

    with quiet_log():
        calm = run(CALM)
        points = points_of(calm)
        return [calm, *(run(Schedule((point,))) for point in spread(points, crashes or len(points)))]


def take_overs_of(ending: RunEnding) -> list[CrashPoint]:
    """Where another owner could come in the middle of a run, and the one before still try to write."""
    return [CrashPoint(TAKEN_OVER, number + 1) for number in range(ending.commits)]


def spread(points: Sequence[CrashPoint], number: int) -> list[CrashPoint]:
    """So many of them, evenly; the first and the last are among them."""
    if number >= len(points):
        return list(points)
    return [points[n * (len(points) - 1) // (number - 1)] for n in range(number)]


class OnBoth(Trial):
    """A trial that runs in memory and in a SQLite file: it must end the same, and leave the same rows, byte for byte.

    Runs that only show what differs without a crash are in memory. `in_a_file`: the same trial with fewer checks.
    """

    def __init__(self, trial: Trial, in_a_file: Trial | None = None) -> None:
        super().__init__(cache=trial.cache)
        self.name = trial.name
        self._trial = trial
        self._in_a_file = in_a_file or trial

    def run(
        self, schedule: Schedule, *, variant: int = 0, story: list[str] | None = None, disk: Disk | None = None
    ) -> RunEnding:
        in_memory = disk or Disk()
        ending = self._trial.run(schedule, variant=variant, story=story, disk=in_memory)
        if variant or story is not None:
            return ending
        with sqlite_disk() as file:
            on_sqlite = self._in_a_file.run(schedule, disk=file)
            assert held(file) == held(in_memory), schedule
        assert on_sqlite._replace(runs=[]) == ending._replace(runs=[]), schedule
        return ending


def held(disk: Disk) -> dict[str, object]:
    """Every durable row. Places in the inbox are numbers of the store's own; their order counts."""
    rows = _read_anew(disk) if isinstance(disk, SqliteDisk) else disk.rows
    return {
        "journal": list(rows.journal),
        "heads": rows.heads,
        "work": rows.work,
        "inbox": [row for _, row in rows.inbox.values()],
        "snapshots": rows.snapshots,
        "published": rows.published,
        "workflows": rows.workflows,
        "epoch": rows.epoch,
        **_beside(disk),
    }


def _beside(disk: Disk) -> dict[str, object]:
    """What is written past the journal, without the time at which it was."""

    async def read() -> dict[str, object]:
        with disk.queries() as queries:
            snapshots = [(row.seq, row.at, row.hash, row.inbox) for row in await queries.world_snapshots()]
            return {"world snapshots": snapshots, "blobs": [row.digest for row in await queries.blobs()]}

    return asyncio.run(read())


def _read_anew(disk: SqliteDisk) -> MemoryDatabase:
    again = SqliteDisk(disk.path)
    again.read_back()
    again.close()
    return again.rows
