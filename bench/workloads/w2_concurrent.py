"""W2: 1,000 flows of 5 steps, started and awaited all at once. What does sharing commits give?

With many flows under way, one commit carries the entries of many. The rate of steps then no longer hangs on
the disk but on the work per step, and should be a multiple of the floor's single-row commits. Measured twice,
as W1 is: the first thousand of a new process, whose memory has yet to grow, and the thousand after them.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench import sizes
from bench.engines import engine, number
from bench.measure import Bar, Figure, Measures, Versus, Workload, verify
from bench.peers.environments import peers

FLOWS = sizes.W2_RUNS
STEPS = sizes.W2_STEPS


@perdure.flow
async def short(ctx: perdure.Context, first: int) -> int:
    total = first
    for n in range(STEPS):
        total += await ctx.step("add", number, n)
    return total


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    async with engine(place, [short]) as opened:
        first = await seconds_of(opened)
        before, worked = opened.counts, time.process_time()
        seconds = await seconds_of(opened)
        counts, worked = opened.counts, time.process_time() - worked
    entries = counts["entries"] - before["entries"]
    verify(entries == FLOWS * (STEPS + 1), f"{FLOWS} flows of {STEPS} steps made {entries} entries")
    return {
        "first": FLOWS * STEPS / first,
        "runs": FLOWS / seconds,
        "steps": FLOWS * STEPS / seconds,
        "cpu": worked / FLOWS / STEPS,
        "entries_per_commit": entries / (counts["commits"] - before["commits"]),
    }


async def seconds_of(opened: perdure.Engine) -> float:
    began = time.perf_counter()
    results = await asyncio.gather(*(_run(opened, n) for n in range(FLOWS)))
    seconds = time.perf_counter() - began
    expected = [n + sum(range(STEPS)) for n in range(FLOWS)]
    verify(results == expected, "the flows gave other results than they should")
    return seconds


async def _run(opened: perdure.Engine, n: int) -> int:
    handle = await opened.start(short, n)
    result: int = await handle.result()
    return result


WHY = (
    "processor time of one core, spread over the machine, the kernel and asyncio; a compiler would bring it over, and "
    "what that would cost: PROFILE.md, at its end"
)

WORKLOAD = Workload(
    "W2",
    "1,000 flows of 5 steps at once",
    (
        Figure("runs", "runs", "/s"),
        Figure("steps", "steps", "/s"),
        Figure("steps against the floor", "steps", "x", of="rate", bar=Bar(">=", 3, why=WHY)),
        Figure("steps of the first thousand of a process", "first", "/s"),
        Figure("processor time per step, starts and results included", "cpu", "µs"),
        Figure("entries per commit", "entries_per_commit"),
    ),
    {"perdure": on_perdure},
    peers=peers("W2", "sqlite", FLOWS),
    versus=Versus("steps", "steps", "rate", {"dbos": Bar(">=", 80, why=WHY), "langgraph": Bar(">=", 40, why=WHY)}),
)
