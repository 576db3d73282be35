"""W4 on PostgreSQL: 1,000 flows that sleep one second and end. How late do they wake up?

Counted as on SQLite. The flows are spread over 16 shards, so their entries go into 16 commits, side by side.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import perdure
from bench import server
from bench.measure import Bar, Measures, Versus, Workload
from bench.peers.environments import peers
from bench.workloads.w4_timers import FLOWS, NO_TIMER, figures, measure, sleeper


def on_perdure(place: Path) -> Measures:
    with server.schema() as url:
        return asyncio.run(_on_perdure(url))


async def _on_perdure(url: str) -> Measures:
    async with perdure.open(url, workflows=[sleeper]) as opened:
        return await measure(opened)


WORKLOAD = Workload(
    "postgres-W4",
    "1,000 flows that sleep 1 s: lateness",
    figures(Bar("<=", 0.150)),
    {"perdure": on_perdure},
    store="postgres",
    peers=peers("W4", "postgres", FLOWS, of=("dbos",)),
    versus=Versus("p99", "p99", "time"),
    remarks=NO_TIMER,
)
