"""W1: one flow of 1,000 steps, one after the other. How much does a step cost when nothing can be shared?

Each step's receipt must be durable before the next step may begin, so the flow needs 1,001 commits in a
row. SQLite's own single-row commits are the ceiling, and the share of it that is reached is the price of
everything that perdure does. Measured twice: in the first moments of a new database, where commits are
slower for everybody, and after that.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench.engines import DATABASE, engine, settle
from bench.floor import Between
from bench.measure import Bar, Figure, Measures, Workload, verify

STEPS = 1_000
STEPS_FRESH = 300
EVERY = 25
"""After so many steps the floor does as many commits, inside a step, and its time is taken off."""

_floor: Between | None = None


async def number_or_floor(n: int) -> int:
    if n % EVERY == 0 and _floor is not None:
        _floor.commit(EVERY)
    return n


@perdure.flow
async def sequence(ctx: perdure.Context, steps: int) -> int:
    total = 0
    for n in range(steps):
        total += await ctx.step("add", number_or_floor, n)
    return total


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    global _floor  # noqa: PLW0603  # a step takes plain data only, and this is none
    async with engine(place, [sequence], settled=False) as opened:
        fresh = await _seconds(opened, STEPS_FRESH)
        await settle(opened, place / DATABASE)
        worked = time.process_time()
        await _seconds(opened, STEPS)
        worked = time.process_time() - worked
        _floor = Between(place)
        seconds = await _seconds(opened, STEPS) - _floor.seconds
    commit = _floor.seconds / len(_floor.times)
    return {
        "steps": STEPS / seconds,
        "share": commit / (seconds / STEPS),
        "above": seconds / STEPS - commit,
        "fresh": STEPS_FRESH / fresh,
        "cpu": worked / STEPS,
    }


async def _seconds(opened: perdure.Engine, steps: int) -> float:
    before = opened.counts
    began = time.perf_counter()
    handle = await opened.start(sequence, steps)
    result = await handle.result()
    seconds = time.perf_counter() - began
    verify(result == sum(range(steps)), f"the sum of the steps is {result}")
    entries = opened.counts["entries"] - before.get("entries", 0)
    commits = opened.counts["commits"] - before.get("commits", 0)
    verify(entries == steps + 1, f"{steps} steps made {entries} entries")
    verify(commits == steps + 1, f"{steps} steps in a row made {commits} commits: one was not durable in time")
    return seconds


WORKLOAD = Workload(
    "W1",
    "one flow of 1,000 sequential steps",
    (
        Figure("steps", "steps", "/s"),
        Figure("share of the floor", "share", "%", bar=Bar(">=", 0.5, following=0.6)),
        Figure("time above the floor per step", "above", "µs"),
        Figure("processor time per step", "cpu", "µs"),
        Figure("first steps of a new file", "fresh", "/s"),
        Figure("share of the floor, WAL still growing", "fresh", "%", of="rate", floor="growing"),
    ),
    {"perdure": on_perdure},
)
