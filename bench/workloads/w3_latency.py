"""W3: start a flow of one step and wait for its result, 300 times in a row. How long does a caller wait?

Two commits are the least: the start with its open step, and the receipt with the end. What is above two is
perdure's.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench import floor_postgres
from bench.engines import engine, number
from bench.floor import Between
from bench.measure import Bar, Measures, Versus, Workload, in_commits, latencies, percentiles, verify
from bench.peers.environments import peers
from bench.sizes import W3_RUNS as RUNS


@perdure.flow
async def single(ctx: perdure.Context, n: int) -> int:
    return await ctx.step("number", number, n)


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    async with engine(place, [single]) as opened:
        return await measure(opened, Between(place))


async def measure(opened: perdure.Engine, floor: Between | floor_postgres.Between) -> Measures:
    times = []
    for n in range(RUNS):
        began = time.perf_counter()
        handle = await opened.start(single, n)
        result = await handle.result()
        times.append(time.perf_counter() - began)
        await floor.commit()
        verify(result == n, f"run {n} gave {result}")
    return in_commits(percentiles(times), floor.median)


WHY = (
    "two commits, of which neither can be left out, take most of an eighth of what DBOS takes; the Python of a start, "
    "a step and an end comes on top of them: PROFILE.md, at its end"
)

WORKLOAD = Workload(
    "W3",
    "start to result of a 1-step flow",
    latencies("p50", "p95", "p99"),
    {"perdure": on_perdure},
    peers=peers("W3", "sqlite"),
    versus=Versus("p50", "p50", "time", {"dbos": Bar(">=", 8, why=WHY)}),
)
