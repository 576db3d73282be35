"""W4: 1,000 flows that sleep one second and end. How late do they wake up?

Lateness is counted from the recorded due time to the moment in which a caller has the result, so it holds
the alarm, the entry, its commit and the answer. All were started at once, so they fall due within a moment
too: the worst case.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench import sizes
from bench.engines import engine
from bench.measure import Bar, Figure, Measures, Versus, Workload, percentiles, verify
from bench.peers.environments import peers

FLOWS = sizes.W4_RUNS
SECONDS = sizes.W4_SECONDS


@perdure.flow
async def sleeper(ctx: perdure.Context) -> float:
    due = ctx.now().timestamp() + SECONDS
    await ctx.sleep("nap", SECONDS)
    return due


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    async with engine(place, [sleeper]) as opened:
        return await measure(opened)


async def measure(opened: perdure.Engine) -> Measures:
    late = await asyncio.gather(*(_lateness(opened) for _ in range(FLOWS)))
    verify(len(late) == FLOWS, f"{len(late)} of {FLOWS} flows woke up")
    verify(min(late) >= 0, f"a flow woke up {-min(late):.6f} s too early")
    return percentiles(late)


async def _lateness(opened: perdure.Engine) -> float:
    handle = await opened.start(sleeper)
    due: float = await handle.result()
    return time.time() - due


def figures(bar: Bar) -> tuple[Figure, ...]:
    return (
        Figure("p50", "p50", "ms"),
        Figure("p99", "p99", "ms", bar=bar),
        Figure("p50 in commits", "p50", "commits", of="commits"),
        Figure("p99 in commits", "p99", "commits", of="commits"),
    )


NO_TIMER = {"langgraph": "not offered: it has no durable timer"}

WORKLOAD = Workload(
    "W4",
    "1,000 flows that sleep 1 s: lateness",
    figures(Bar("<=", 0.100)),
    {"perdure": on_perdure},
    peers=peers("W4", "sqlite", FLOWS, of=("dbos",)),
    versus=Versus("p99", "p99", "time"),
    remarks=NO_TIMER,
)
