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
from typing import Any

import perdure
from bench import floor_postgres, sizes
from bench.engines import DATABASE, engine, settle
from bench.floor import Between
from bench.measure import Bar, Figure, Measures, Versus, Workload, verify
from bench.peers.environments import peers

STEPS = sizes.W1_STEPS
STEPS_FRESH = 300
EVERY = 25
"""After so many steps the floor does as many commits, inside a step, and its time is taken off."""

_floor: Any = None  # the one of the store, when its commits go between


async def number_or_floor(n: int) -> int:
    if n % EVERY == 0 and _floor is not None:
        await _floor.commit(EVERY)
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
    async with engine(place, [sequence], settled=False) as opened:
        fresh = await seconds_of(opened, STEPS_FRESH)
        await settle(opened, place / DATABASE)
        worked = time.process_time()
        await seconds_of(opened, STEPS)
        worked = time.process_time() - worked
        found = await in_turns(opened, Between(place))
    return {**found, "fresh": STEPS_FRESH / fresh, "cpu": worked / STEPS}


async def in_turns(opened: perdure.Engine, floor: Between | floor_postgres.Between) -> Measures:
    """The steps, in turns with commits of the floor."""
    global _floor  # noqa: PLW0603  # a step takes plain data only, and this is none
    _floor = floor
    seconds = await seconds_of(opened, STEPS) - floor.seconds
    _floor = None
    return {
        "steps": STEPS / seconds,
        "steps_share": floor.mean / (seconds / STEPS),
        "above": seconds / STEPS - floor.mean,
    }


async def seconds_of(opened: perdure.Engine, steps: int) -> float:
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


WHY = (
    "a step is 3,980 bytecodes of Python beside a commit of 0.2 ms, on caches that are cold after each wait for the "
    "disk, and none of it is large; compiled it is hardly quicker: PROFILE.md, at its end"
)

WORKLOAD = Workload(
    "W1",
    "one flow of 1,000 sequential steps",
    (
        Figure("steps", "steps", "/s"),
        Figure("share of the floor", "steps", "%", of="rate", bar=Bar(">=", 0.6, why=WHY)),
        Figure("time above the floor per step", "above", "µs"),
        Figure("processor time per step", "cpu", "µs"),
        Figure("first steps of a new file", "fresh", "/s"),
        Figure("share of the floor, WAL still growing", "fresh", "%", of="rate", floor="growing"),
    ),
    {"perdure": on_perdure},
    peers=peers("W1", "sqlite"),
    versus=Versus("steps", "steps", "rate", {"dbos": Bar(">=", 5)}),
)
