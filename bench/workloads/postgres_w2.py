"""W2 on PostgreSQL: 1,000 flows of 5 steps, started and awaited all at once. What does sharing commits give?

The flows are spread over the 16 shards of a new database, all of them in one engine; what waits on a shard shares one
commit, and the commits of several shards are under way at once. Measured twice: the first thousand of a new process,
and the thousand after them.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench import server
from bench.measure import Bar, Figure, Measures, Versus, Workload, verify
from bench.peers.environments import peers
from bench.workloads.w2_concurrent import FLOWS, STEPS, seconds_of, short


def on_perdure(place: Path) -> Measures:
    with server.schema() as url:
        return asyncio.run(_on_perdure(url))


async def _on_perdure(url: str) -> Measures:
    async with server.connection() as beside, perdure.open(url, workflows=[short]) as opened:
        first = await seconds_of(opened)
        before, worked, served = opened.counts, time.process_time(), await server.processor_time(beside)
        seconds = await seconds_of(opened)
        counts, worked = opened.counts, time.process_time() - worked
        served = await server.processor_time(beside) - served
    entries = counts["entries"] - before["entries"]
    verify(entries == FLOWS * (STEPS + 1), f"{FLOWS} flows of {STEPS} steps made {entries} entries")
    return {
        "first": FLOWS * STEPS / first,
        "runs": FLOWS / seconds,
        "steps": FLOWS * STEPS / seconds,
        "cpu": worked / FLOWS / STEPS,
        "server_cpu": served / FLOWS / STEPS,
        "entries_per_commit": entries / (counts["commits"] - before["commits"]),
    }


WORKLOAD = Workload(
    "postgres-W2",
    "1,000 flows of 5 steps at once",
    (
        Figure("runs", "runs", "/s"),
        Figure("steps", "steps", "/s"),
        Figure("steps against the floor", "steps", "x", of="rate"),
        Figure("steps of the first thousand of a process", "first", "/s"),
        Figure("processor time per step, engine", "cpu", "µs"),
        Figure("processor time per step, server", "server_cpu", "µs"),
        Figure("entries per commit", "entries_per_commit"),
    ),
    {"perdure": on_perdure},
    store="postgres",
    peers=peers("W2", "postgres", FLOWS),
    versus=Versus("steps", "steps", "rate", {"dbos": Bar(">=", 30)}),
)
