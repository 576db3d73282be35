"""Disks for simulated worlds, and all that they hold, for tests that hold one store against the other."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from tempfile import TemporaryDirectory

import pytest

from perdure.stores.memory import MemoryDatabase
from perdure.stores.rebuild import same_task
from perdure.testing.crashes import CALM, RunEnding, Schedule, Trial, points_of
from perdure.testing.disks import Disk, SqliteDisk
from perdure.testing.simulation import quiet_log

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where a file waits for no real disk: a test makes some thousand commits, and syncs each."""


everywhere = pytest.mark.parametrize(
    ("new_disk", "cache"),
    [("sqlite", 4096), ("sqlite", 0), ("postgres", 0)],
    ids=["sqlite hot", "sqlite evicted", "postgres evicted"],
    indirect=["new_disk"],
)
"""For a test with `crashed_everywhere`: on which disks, and how many instances stay in memory."""


@contextmanager
def sqlite_disk() -> Iterator[SqliteDisk]:
    """A file of its own, that is gone afterwards."""
    with TemporaryDirectory(dir=IN_MEMORY) as directory:
        disk = SqliteDisk(f"{directory}/world.db")
        try:
            yield disk
        finally:
            disk.close()


def crashed_everywhere(trial: Trial, new_disk: Callable[[], AbstractContextManager[Disk]]) -> list[RunEnding]:
    """Run a trial calmly, and with a crash before and after each commit, in memory and on another disk.

    Both must have the same rows in the end. The answer is how each run ended, the calm one first.
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
        return [calm, *(run(Schedule((point,))) for point in points_of(calm))]


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
