"""W8, history: does a step cost more after 10,000 others of the same flow than after 100? It should not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench.engines import engine
from bench.measure import Figure, Measures, Workload, verify

STEPS = 10_000
FIRST = 100
WINDOW = 500


@perdure.flow
async def sequence(ctx: perdure.Context, steps: int) -> int:
    total = 0
    for n in range(steps):
        total += await ctx.step("add", stamped, n)
    return total


_times: list[float] = []


async def stamped(n: int) -> int:
    _times.append(time.perf_counter())
    return n


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    async with engine(place, [sequence]) as opened:
        result = await (await opened.start(sequence, STEPS)).result()
    verify(result == sum(range(STEPS)), f"the sum of the steps is {result}")
    verify(len(_times) == STEPS, f"{len(_times)} steps ran")
    early = (_times[FIRST + WINDOW] - _times[FIRST]) / WINDOW
    late = (_times[-1] - _times[-1 - WINDOW]) / WINDOW
    return {"early": early, "late": late, "growth": late / early}


WORKLOAD = Workload(
    "W8-history",
    "a step after 100 and after 10,000 others",
    (
        Figure("after 100", "early", "ms"),
        Figure("after 10,000", "late", "ms"),
        Figure("growth", "growth", "x"),
    ),
    {"perdure": on_perdure},
    needs_floor=False,
)
