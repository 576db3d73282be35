"""W3 on PostgreSQL: start a flow of one step and wait for its result, 300 times in a row. How long does a caller wait?

Two commits are the least, as on SQLite, and each is a round trip to the server.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import perdure
from bench import server
from bench.floor_postgres import TABLE, Between
from bench.measure import Bar, Measures, Versus, Workload, latencies
from bench.peers.environments import peers
from bench.workloads.w3_latency import measure, single


def on_perdure(place: Path) -> Measures:
    with server.schema() as url:
        return asyncio.run(_on_perdure(url))


async def _on_perdure(url: str) -> Measures:
    async with server.connection() as beside, perdure.open(url, workflows=[single]) as opened:
        await beside.execute(TABLE)
        return await measure(opened, Between(beside))


WHY = (
    "two commits are half of it; the rest is the Python of a start, a step and an end, and 4 rounds of asyncio's loop "
    "for each commit: PROFILE.md"
)

WORKLOAD = Workload(
    "postgres-W3",
    "start to result of a 1-step flow",
    latencies("p50", "p95", "p99"),
    {"perdure": on_perdure},
    store="postgres",
    peers=peers("W3", "postgres"),
    versus=Versus("p50", "p50", "time", {"dbos": Bar(">=", 5, why=WHY)}),
)
