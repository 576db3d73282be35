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
from bench.measure import Bar, Figure, Measures, Versus, Workload
from bench.peers.environments import peers
from bench.workloads.w1_sequential import STEPS, in_turns, seconds_of, sequence

WARM = 200


def on_perdure(place: Path) -> Measures:
    with server.schema() as url:
        return asyncio.run(_on_perdure(url))


async def _on_perdure(url: str) -> Measures:
    async with server.connection() as beside, perdure.open(url, workflows=[sequence]) as opened:
        await beside.execute(TABLE)
        await seconds_of(opened, WARM)
        worked, served = time.process_time(), await server.processor_time(beside)
        await seconds_of(opened, STEPS)
        worked, served = time.process_time() - worked, await server.processor_time(beside) - served
        found = await in_turns(opened, Between(beside))
    return {**found, "cpu": worked / STEPS, "server_cpu": served / STEPS}


WHY = (
    "it is at the bar: the passes of a quieter run were above it, those of a busy one on both sides; above the floor "
    "are the Python of a step and its rounds of asyncio's loop: PROFILE.md"
)

WORKLOAD = Workload(
    "postgres-W1",
    "one flow of 1,000 sequential steps",
    (
        Figure("steps", "steps", "/s"),
        Figure("share of the floor", "steps", "%", of="rate", bar=Bar(">=", 0.6, why=WHY)),
        Figure("time above the floor per step", "above", "µs"),
        Figure("processor time per step, engine", "cpu", "µs"),
        Figure("processor time per step, server", "server_cpu", "µs"),
    ),
    {"perdure": on_perdure},
    store="postgres",
    peers=peers("W1", "postgres"),
    versus=Versus("steps", "steps", "rate", {"dbos": Bar(">=", 5)}),
)
