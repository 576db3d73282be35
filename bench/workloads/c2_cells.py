"""C2, growth of cells: what does an event cost among 1,000 and among 1,000,000 cells, and how soon is the world open?

Three kinds of events at each size: to cells that were just used, to cells of the whole world by chance, and to cells
that do not exist yet. By chance, all are in use among 1,000, and nearly all asleep among 50,000 and more: they are read
from the file and woken. So two things are told apart: what it costs to wake a cell, and how that grows. Processor time,
because the disk has its own benchmark. Memory is that of the process after an open, and after all of it.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import perdure
from bench.engines import DATABASE
from bench.measure import Bar, Figure, Measures, Workload, memory, verify
from bench.workloads.c1_cells import Added, Total, counter

FEW = 1_000
SOME = 50_000
MANY = 1_000_000
AT_ONCE = 1_000
SAMPLE = 10_000
ROUNDS = 3


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    dice = random.Random(4)
    found: Measures = {}
    made = 0
    for name, size in (("few", FEW), ("some", SOME), ("many", MANY)):
        async with perdure.open(place / DATABASE, workflows=[counter]) as opened:
            while made < size:
                await _send(opened, [f"c{n}" for n in range(made, min(size, made + AT_ONCE))])
                made += AT_ONCE
        began = time.perf_counter()
        async with perdure.open(place / DATABASE, workflows=[counter]) as opened:
            found[f"open_{name}"] = time.perf_counter() - began
            found[f"rss_{name}"] = memory().get("rss", 0)
            hot = [f"c{n}" for n in dice.sample(range(size), FEW)] * (SAMPLE // FEW)
            await _send(opened, hot)
            found[f"hot_{name}"] = await _quickest(opened, [hot] * ROUNDS)
            asleep = [[f"c{dice.randrange(size)}" for _ in range(SAMPLE)] for _ in range(ROUNDS)]
            found[f"asleep_{name}"] = await _quickest(opened, asleep)
            fresh = [[f"{name}{r}.{n}" for n in range(SAMPLE)] for r in range(ROUNDS)]
            found[f"fresh_{name}"] = await _quickest(opened, fresh)
            found[f"rss_after_{name}"] = memory().get("rss", 0)
            state = await opened.state(counter, f"{name}0.0")
            verify(state == Total(1, 1), f"a new cell has {state}")
    for kind in ("open", "hot", "asleep", "fresh", "rss", "rss_after"):
        found[f"{kind}_growth"] = found[f"{kind}_many"] / found[f"{kind}_few"]
    found["waking"] = found["asleep_some"] / found["asleep_few"]
    found["waking_growth"] = found["asleep_many"] / found["asleep_some"]
    return found


async def _quickest(opened: perdure.Engine, rounds: list[list[str]]) -> float:
    """Seconds of processor time per event, in the quickest round."""
    best = float("inf")
    for keys in rounds:
        worked = time.process_time()
        await _send(opened, keys)
        best = min(best, (time.process_time() - worked) / len(keys))
    return best


async def _send(opened: perdure.Engine, keys: list[str]) -> None:
    before = opened.counts.get("entries", 0)
    for start in range(0, len(keys), AT_ONCE):
        await asyncio.gather(*(opened.send(Added(key, 1)) for key in keys[start : start + AT_ONCE]))
    while opened.counts["entries"] - before < 2 * len(keys):  # noqa: ASYNC110  # nothing tells
        await asyncio.sleep(0)


FLAT = Bar("<=", 1.2)

WORKLOAD = Workload(
    "C2",
    f"an event among {FEW:,} and among {MANY:,} cells",
    (
        Figure(f"to a cell in use, among {FEW:,}", "hot_few", "µs"),
        Figure(f"to a cell in use, among {MANY:,}", "hot_many", "µs"),
        Figure("growth", "hot_growth", "x", bar=FLAT),
        Figure("to a new cell: growth", "fresh_growth", "x", bar=FLAT),
        Figure(f"to any cell by chance, among {FEW:,} (all in use)", "asleep_few", "µs"),
        Figure(f"to any cell by chance, among {MANY:,} (nearly all asleep)", "asleep_many", "µs"),
        Figure("that is", "asleep_growth", "x"),
        Figure(f"of which waking is (among {SOME:,}, nearly all asleep)", "waking", "x"),
        Figure(f"growth from {SOME:,} to {MANY:,}", "waking_growth", "x", bar=FLAT),
        Figure(f"opening a world of {MANY:,}", "open_many", "s", bar=Bar("<", 2)),
        Figure("memory after the open", "rss_many", "MB"),
        Figure("memory after all of it", "rss_after_many", "MB"),
        Figure("growth of that", "rss_after_growth", "x"),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
)
