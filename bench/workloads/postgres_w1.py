"""W1 on PostgreSQL: one flow of 1,000 steps, one after the other. How much does a step cost when nothing can be shared?

One flow lives on one shard, and each step's receipt must be durable before the next step may begin: 1,001 commits in a
row. A single connection's commits are the ceiling; they are made between the steps, so that both meet the same server.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench import server
from bench.floor_postgres import TABLE, Between
from bench.measure import Bar, Figure, Measures, Ratio, Workload, verify
from bench.peers import environments

STEPS = 1_000
WARM = 200
EVERY = 25
"""After so many steps the floor does as many commits, inside a step, and its time is taken off."""

_floor: Between | None = None


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
    with server.schema() as url:
        return asyncio.run(_on_perdure(url))


async def _on_perdure(url: str) -> Measures:
    global _floor  # noqa: PLW0603  # a step takes plain data only, and this is none
    async with server.connection() as beside, perdure.open(url, workflows=[sequence]) as opened:
        await beside.execute(TABLE)
        await _seconds(opened, WARM)
        worked, served = time.process_time(), await server.processor_time(beside)
        await _seconds(opened, STEPS)
        worked, served = time.process_time() - worked, await server.processor_time(beside) - served
        floor = _floor = Between(beside)
        seconds = await _seconds(opened, STEPS) - floor.seconds
        _floor = None
    return {
        "steps": STEPS / seconds,
        "share": floor.mean / (seconds / STEPS),
        "above": seconds / STEPS - floor.mean,
        "cpu": worked / STEPS,
        "server_cpu": served / STEPS,
    }


async def _seconds(opened: perdure.Engine, steps: int) -> float:
    before = opened.counts
    began = time.perf_counter()
    handle = await opened.start(sequence, steps)
    result = await handle.result()
    seconds = time.perf_counter() - began
    verify(result == sum(range(steps)), f"the sum of the steps is {result}")
    commits = opened.counts["commits"] - before.get("commits", 0)
    verify(commits == steps + 1, f"{steps} steps in a row made {commits} commits: one was not durable in time")
    return seconds


def on_dbos(place: Path) -> Measures:
    with server.database("dbos_w1") as url:
        return environments.run("dbos", "W1", url)


WORKLOAD = Workload(
    "postgres-W1",
    "one flow of 1,000 sequential steps",
    (
        Figure("steps", "steps", "/s"),
        Figure("share of the floor", "share", "%", bar=Bar(">=", 0.6)),
        Figure("time above the floor per step", "above", "µs"),
        Figure("processor time per step, engine", "cpu", "µs"),
        Figure("processor time per step, server", "server_cpu", "µs"),
        Figure("steps in workflows written with def", "plain", "/s"),
        Figure("steps in workflows written with async def", "async", "/s"),
    ),
    {"perdure": on_perdure, "dbos": on_dbos},
    store="postgres",
    ratios=(Ratio("steps", "steps", "dbos", Bar(">=", 5)),),
)
