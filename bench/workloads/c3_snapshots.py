"""C3, snapshots: what does a snapshot of the world cost after 100 events, among 1,000 and among 20,000 cells?

And the difference of two roots: how many nodes are read for it. Both should depend on what changed, not on how much
there is.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench.engines import DATABASE
from bench.measure import Figure, Measures, Workload, verify
from bench.workloads.c1_cells import counter
from bench.workloads.c2_cells import AT_ONCE, send
from perdure.cells.index import CellIndex, diff
from perdure.cells.snapshot import read_snapshot
from perdure.worlds.snapshots import Snapshots, StoredBlobs, in_thread

FEW = 1_000
MANY = 20_000
EVENTS = 100


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    found: Measures = {}
    for name, size in (("few", FEW), ("many", MANY)):
        directory = place / name
        directory.mkdir()
        async with perdure.open(directory / DATABASE, workflows=[counter]) as opened:
            for start in range(0, size, AT_ONCE):
                await send(opened, [f"c{n}" for n in range(start, start + AT_ONCE)])
            snapshots = Snapshots(opened)
            before = await snapshots.take()
            await send(opened, [f"c{n}" for n in range(EVENTS)])
            worked = time.process_time()
            after = await snapshots.take()
            found[f"next_{name}"] = time.process_time() - worked
            found[f"blobs_{name}"] = after.written
            found[f"reads_{name}"] = await _reads(opened, before.hash, after.hash)
    for kind in ("next", "blobs", "reads"):
        found[f"{kind}_growth"] = found[f"{kind}_many"] / found[f"{kind}_few"]
    return found


async def _reads(opened: perdure.Engine, before: str, after: str) -> int:
    """How many nodes are read to find what differs."""
    blobs = StoredBlobs(opened.queries)
    count = 0

    class Counted:
        def get(self, digest: bytes) -> bytes | None:
            nonlocal count
            count += 1
            return blobs.get(digest)

        def put(self, body: bytes) -> bytes:
            return blobs.put(body)

    def compare() -> int:
        roots = [read_snapshot(blobs, bytes.fromhex(hash[7:])).cells["bench/counter"] for hash in (before, after)]
        return sum(1 for _ in diff(*(CellIndex(Counted(), root) for root in roots)))

    changed = await in_thread(compare)
    verify(changed == EVENTS, f"{changed} cells differ, {EVENTS} had events")
    return count


WORKLOAD = Workload(
    "C3",
    f"a snapshot after {EVENTS} events, among {FEW:,} and among {MANY:,} cells",
    (
        Figure(f"processor time, among {FEW:,}", "next_few", "ms"),
        Figure(f"processor time, among {MANY:,}", "next_many", "ms"),
        Figure("growth", "next_growth", "x"),
        Figure("blobs written: growth", "blobs_growth", "x"),
        Figure("nodes read for the difference of the roots: growth", "reads_growth", "x"),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
)
