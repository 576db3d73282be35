"""W3: start a flow of one step and wait for its result, 300 times in a row. How long does a caller wait?

Two commits are the least: the start with its open step, and the receipt with the end. What is above two is
perdure's.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench.engines import engine, number
from bench.floor import Between
from bench.measure import Measures, Workload, in_commits, latencies, percentiles, verify

RUNS = 300


@perdure.flow
async def single(ctx: perdure.Context, n: int) -> int:
    return await ctx.step("number", number, n)


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    times = []
    floor = Between(place)
    async with engine(place, [single]) as opened:
        for n in range(RUNS):
            began = time.perf_counter()
            handle = await opened.start(single, n)
            result = await handle.result()
            times.append(time.perf_counter() - began)
            floor.commit()
            verify(result == n, f"run {n} gave {result}")
    return in_commits(percentiles(times), floor.median)


WORKLOAD = Workload(
    "W3",
    "start to result of a 1-step flow",
    latencies("p50", "p95", "p99"),
    {"perdure": on_perdure},
    needs_floor=False,  # it has its own, between the runs
)
