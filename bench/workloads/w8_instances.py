"""W8, instances: does a start cost more with 100,000 instances waiting than with 1,000?"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench.engines import engine
from bench.measure import Figure, Measures, Workload, verify

FEW = 1_000
MANY = 100_000
AT_ONCE = 1_000


@perdure.flow
async def waiter(ctx: perdure.Context) -> None:
    await ctx.receive("go")


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    async with engine(place, [waiter]) as opened:
        before = opened.counts["entries"]
        await _start(opened, FEW)
        few = await _start(opened, 3 * AT_ONCE)
        await _start(opened, MANY - FEW - 6 * AT_ONCE)
        many = await _start(opened, 3 * AT_ONCE)
        entries = opened.counts["entries"] - before
        verify(entries == MANY, f"{MANY} starts made {entries} entries")
    return {"few": few, "many": many, "growth": many / few}


async def _start(opened: perdure.Engine, count: int) -> float:
    """Seconds per start."""
    began = time.perf_counter()
    for _ in range(count // AT_ONCE):
        await asyncio.gather(*(opened.start(waiter) for _ in range(AT_ONCE)))
    return (time.perf_counter() - began) / count


WORKLOAD = Workload(
    "W8-instances",
    "a start with 1,000 and with 100,000 waiting",
    (
        Figure("with 1,000", "few", "ms"),
        Figure("with 100,000", "many", "ms"),
        Figure("growth", "growth", "x"),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
)
