"""World snapshots of worlds in which everything went wrong: crashes, zombies, lost commits, evicted instances.

Flows are among them, with their rewinds and forks: they are in a world snapshot by their histories.
"""

from __future__ import annotations

import random
from hashlib import sha256
from typing import Any

import pytest

from perdure.app.dialects import gather
from perdure.cells.replay import WorldReplay, value_workflows
from perdure.cells.snapshot import GENESIS, WorldSnapshot, reached
from perdure.kernel.batch import JournalRow
from perdure.kernel.workflows import Workflows
from perdure.testing.disks import Disk
from tests.simulation.sim import drawn, simulate

CELLS = [hundred * 100 + 70 + n for hundred in range(3) for n in range(20)]
FLOWS = list(range(21))


class Blobs(dict[bytes, bytes]):
    def put(self, body: bytes) -> bytes:
        digest = sha256(body).digest()
        self[digest] = body
        return digest


def replayed(
    rows: list[JournalRow], code: Workflows[Any], blobs: Blobs, base: WorldSnapshot = GENESIS, **options: int
) -> WorldSnapshot:
    replay = WorldReplay(blobs, code, base, **options)
    for row in rows:
        replay.take(row)
    try:
        return replay.snapshot()
    finally:
        replay.close()


@pytest.mark.parametrize("seed", CELLS + FLOWS)
def test_a_world_comes_to_the_same_snapshot_from_its_first_entry_and_from_any_other(seed: int) -> None:
    disk, dice = Disk(), random.Random(seed)
    assert simulate(seed, disk=disk).error == ""
    rows = disk.rows.journal
    workload, _ = drawn(seed)
    found = Workflows(gather(workload.workflows())[0])
    every = {(each.name, each.version): each for each in [*found, *value_workflows(found)]}
    code: Workflows[Any] = Workflows(every.values())

    whole = replayed(rows, code, Blobs())

    without_flows = replayed(rows, value_workflows(found), Blobs(), lives_max=2)
    assert without_flows.encode() == whole.encode()
    for _ in range(3):
        blobs = Blobs()
        cut = dice.randrange(len(rows) + 1)
        base = replayed(rows[:cut], code, blobs)
        needed = {digest: blobs[digest] for digest in reached(blobs, [blobs.put(base.encode())]) if digest in blobs}
        assert replayed(rows[cut:], code, Blobs(needed), base).encode() == whole.encode()
