"""Disks for simulated worlds, and all that they hold, for tests that hold one store against the other."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from tempfile import TemporaryDirectory

import pytest

from perdure.stores.memory import MemoryDatabase
from perdure.stores.rebuild import same_task
from perdure.testing.crashes import CALM, CrashPoint, RunEnding, Schedule, Trial, points_of
from perdure.testing.disks import Disk, SqliteDisk
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
