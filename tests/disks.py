"""Disks for simulated worlds, and all that they hold, for tests that hold one store against the other."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from perdure.stores.memory import MemoryDatabase
from perdure.testing.disks import Disk, SqliteDisk

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where a file waits for no real disk: a test makes some thousand commits, and syncs each."""


@contextmanager
def sqlite_disk() -> Iterator[SqliteDisk]:
    """A file of its own, that is gone afterwards."""
    with TemporaryDirectory(dir=IN_MEMORY) as directory:
        disk = SqliteDisk(f"{directory}/world.db")
        try:
            yield disk
        finally:
            disk.close()


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
