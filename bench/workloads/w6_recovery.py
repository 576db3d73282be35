"""W6: a process with 1,000 half-done flows is killed with SIGKILL. How long until all are done?

Each flow has 5 of its 10 steps behind it, recorded, and one under way, which must run again: see `bench/records.py`.
Then the same database is opened again, and its flows go on by themselves. Nothing else may have run twice, and
nothing may be missing.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import apsw

import perdure
from bench import records
from bench.engines import DATABASE, engine
from bench.measure import Bar, Figure, Measures, Versus, Workload, verify
from bench.peers.environments import peers
from bench.sizes import W6_DONE, W6_RUNS, W6_STEPS

FLOWS = W6_RUNS
LEFT = FLOWS * (W6_STEPS - W6_DONE)


async def noted(flow: int, step: int) -> int:
    if records.note(flow, step):
        await asyncio.Event().wait()
    return step


@perdure.flow
async def long(ctx: perdure.Context, flow: int) -> int:
    total = flow
    for step in range(W6_STEPS):
        total += await ctx.step("noted", noted, flow, step)
    return total


def on_perdure(place: Path) -> Measures:
    code = f"from {__name__} import work; work({str(place)!r})"
    records.kill_in_the_middle([sys.executable, "-c", code], place)
    entries = _entries(place)
    verify(entries == FLOWS * (W6_DONE + 1), f"{entries} entries were durable when the process was killed")
    records.begin(place, stops=False)
    began = time.perf_counter()
    opened, results = asyncio.run(_finish(place))
    seconds = time.perf_counter() - began
    records.verify_all_done(place, results)
    return {"open": opened, "seconds": seconds, "steps": LEFT / seconds}


def _entries(place: Path) -> int:
    connection = apsw.Connection(str(place / DATABASE))
    try:
        return int(connection.execute("SELECT count(*) FROM journal").get)
    finally:
        connection.close()


async def _finish(place: Path) -> tuple[float, list[int]]:
    began = time.perf_counter()
    async with engine(place, [long], settled=False) as opened:
        seconds = time.perf_counter() - began
        handles = [opened.handle(long, str(n)) for n in range(FLOWS)]
        return seconds, await asyncio.gather(*(handle.result() for handle in handles))


def work(place: str) -> None:
    """What the process does that is killed."""
    records.begin(Path(place), stops=True)
    asyncio.run(_work(Path(place)))


async def _work(place: Path) -> None:
    async with engine(place, [long], settled=False) as opened:
        await start_all(opened)


async def start_all(opened: perdure.Engine) -> None:
    handles = await asyncio.gather(*(opened.start(long, n, key=str(n)) for n in range(FLOWS)))
    await asyncio.gather(*(handle.result() for handle in handles))


BY_HAND = {
    "langgraph": "not like for like: nothing recovers by itself; all 1,000 threads are invoked again by hand, at once"
}

WORKLOAD = Workload(
    "W6",
    "1,000 half-done flows after SIGKILL",
    (
        Figure("until all are done", "seconds", "s"),
        Figure("until the engine is open", "open", "s"),
        Figure("remaining steps", "steps", "/s"),
        Figure("remaining steps against the floor", "steps", "x", of="rate"),
    ),
    {"perdure": on_perdure},
    peers=peers("W6", "sqlite", FLOWS, trial_runs=100),
    versus=Versus("until all are done", "seconds", "time", {"dbos": Bar(">=", 10)}),
    remarks=BY_HAND,
)
