"""W6 on PostgreSQL: an engine with 1,000 half-done flows is killed with SIGKILL. How long until another has done them?

The other engine is started right after the kill. It must not touch the shards before their leases have expired, by the
clock of the database; so the time of the lease is the least, and what comes on top is the price of the recovery.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import perdure
from bench import records, server
from bench.measure import Bar, Figure, Measures, Versus, Workload, verify
from bench.peers.environments import peers
from bench.records import PATIENCE_SECONDS
from bench.sizes import W6_DONE
from bench.workloads.w6_recovery import BY_HAND, FLOWS, LEFT, long, start_all
from perdure.stores.postgres.database import LEASE_SECONDS


def on_perdure(place: Path) -> Measures:
    with server.schema() as url:
        code = f"from {__name__} import work; work({str(place)!r}, {url!r})"
        records.kill_in_the_middle([sys.executable, "-c", code], place)
        killed = time.perf_counter()
        records.begin(place, stops=False)
        found, results = asyncio.run(_finish(url, killed))
    records.verify_all_done(place, results)
    return found


async def _finish(url: str, killed: float) -> tuple[Measures, list[int]]:
    async with server.connection() as beside:
        await beside.execute(f"SET search_path TO {url.rpartition('schema=')[2]}")
        entries = await beside.fetchval("SELECT count(*) FROM journal")
        verify(entries == FLOWS * (W6_DONE + 1), f"{entries} entries were durable when the process was killed")
        async with perdure.open(url, workflows=[long]) as opened:
            taken = await _when(beside, "SELECT count(*) = 0 FROM shards WHERE pid <> $1", os.getpid()) - killed
            done = await _when(beside, "SELECT count(*) = $1 FROM instances WHERE status = 'completed'", FLOWS) - killed
            results = [await opened.handle(long, str(n)).result() for n in range(FLOWS)]
    return {"taken": taken, "seconds": done, "above": done - LEASE_SECONDS, "steps": LEFT / done}, results


async def _when(beside: Any, question: str, *arguments: object) -> float:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await beside.fetchval(question, *arguments):
        verify(time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s: {question}")
        await asyncio.sleep(0.02)
    return time.perf_counter()


def work(place: str, url: str) -> None:
    """What the process does that is killed."""
    records.begin(Path(place), stops=True)
    asyncio.run(_work(url))


async def _work(url: str) -> None:
    async with perdure.open(url, workflows=[long]) as opened:
        await start_all(opened)


WORKLOAD = Workload(
    "postgres-W6",
    "1,000 half-done flows after SIGKILL",
    (
        Figure("until all are done", "seconds", "s", bar=Bar("<=", LEASE_SECONDS + 3)),
        Figure("until another engine has all shards", "taken", "s"),
        Figure("above the time of a lease", "above", "s"),
        Figure("remaining steps", "steps", "/s"),
        Figure("remaining steps against the floor", "steps", "x", of="rate"),
    ),
    {"perdure": on_perdure},
    store="postgres",
    peers=peers("W6", "postgres", FLOWS, trial_runs=100),
    versus=Versus("until all are done", "seconds", "time"),
    remarks={
        "perdure": f"another engine takes over, after the {LEASE_SECONDS:g} s of a lease; counted from the kill",
        "dbos": "not like for like: an executor with the same id recovers its own workflows at once; nobody else "
        "would, without its Conductor",
        **BY_HAND,
    },
)
