"""W6 on PostgreSQL: an engine with 1,000 half-done flows is killed with SIGKILL. How long until another has done them?

The other engine is started right after the kill. It must not touch the shards before their leases have expired, by the
clock of the database; so the time of the lease is the least, and what comes on top is the price of the recovery.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import perdure
from bench import server
from bench.measure import Bar, Figure, Measures, Workload, verify
from bench.workloads import w6_recovery
from bench.workloads.w6_recovery import FLOWS, PATIENCE_SECONDS, RECORD, STEPS, executed, long, open_records
from perdure.stores.postgres.database import LEASE_SECONDS


def on_perdure(place: Path) -> Measures:
    with server.schema() as url:
        kill_in_the_middle(place, url)
        killed = time.perf_counter()
        before = executed(place)
        found = asyncio.run(_finish(place, url, killed))
    after = executed(place)
    steps = FLOWS * STEPS
    repeated = after.total() - steps
    verify(len(after) == steps, f"{len(after)} of {steps} steps were executed")
    verify(repeated <= before.total() - found["recorded"], f"{repeated} steps ran again")
    return {**found, "repeated": repeated}


def kill_in_the_middle(place: Path, url: str) -> None:
    code = f"from {__name__} import work; work({str(place)!r}, {url!r})"
    child = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while w6_recovery.size_of_records(place) < FLOWS * STEPS // 2 * RECORD.size:
            verify(child.poll() is None, "the process ended before it could be killed")
            verify(time.monotonic() < deadline, f"half of the steps took longer than {PATIENCE_SECONDS} s")
            time.sleep(0.005)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


async def _finish(place: Path, url: str, killed: float) -> Measures:
    open_records(place)
    async with server.connection() as beside:
        await beside.execute(f"SET search_path TO {url.rpartition('schema=')[2]}")
        recorded = await beside.fetchval("SELECT count(*) FROM journal") - FLOWS
        async with perdure.open(url, workflows=[long]) as opened:
            taken = await _when(beside, "SELECT count(*) = 0 FROM shards WHERE pid <> $1", os.getpid())
            done = await _when(beside, "SELECT count(*) = $1 FROM instances WHERE status = 'completed'", FLOWS)
            results = [await opened.handle(long, str(n)).result() for n in range(FLOWS)]
        verify(results == [n + sum(range(STEPS)) for n in range(FLOWS)], "the flows gave other results")
    return {
        "taken": taken - killed,
        "seconds": done - killed,
        "above": done - killed - LEASE_SECONDS,
        "recorded": recorded,
    }


async def _when(beside: Any, question: str, *arguments: object) -> float:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await beside.fetchval(question, *arguments):
        verify(time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s: {question}")
        await asyncio.sleep(0.02)
    return time.perf_counter()


def work(place: str, url: str) -> None:
    """What the process does that is killed."""
    asyncio.run(_work(Path(place), url))


async def _work(place: Path, url: str) -> None:
    open_records(place)
    async with perdure.open(url, workflows=[long]) as opened:
        handles = await asyncio.gather(*(opened.start(long, n, key=str(n)) for n in range(FLOWS)))
        await asyncio.gather(*(handle.result() for handle in handles))


WORKLOAD = Workload(
    "postgres-W6",
    "1,000 half-done flows after SIGKILL",
    (
        Figure("from the kill until another engine has all shards", "taken", "s"),
        Figure("from the kill until all are done", "seconds", "s", bar=Bar("<=", LEASE_SECONDS + 3)),
        Figure("of it above the time of a lease", "above", "s"),
        Figure("steps recorded before the kill", "recorded"),
        Figure("steps that ran again", "repeated"),
    ),
    {"perdure": on_perdure},
    store="postgres",
    needs_floor=False,
)
