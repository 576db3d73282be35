"""R1, rebuild: how fast does a flow of 10,000 steps come back to life after an eviction or a crash?

First the hot run: the engine counts how often it had to rebuild a flow, and that must be never. Then the rows are
read and the flow is rebuilt, as often as it takes to be sure: by the kernel's own `fold` and `rebuild`, which is
all that stands between the rows and a live machine. Rates are per second of processor time: nothing waits here. At
last an engine is opened on the file, and the flow must go on.

The second flow has its steps in 100 tasks side by side: there the answers of one task come between those of others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perdure
from bench.engines import DATABASE, engine, number
from bench.measure import Bar, Figure, Measures, Workload, verify
from perdure.flows.loop import Enclosure
from perdure.kernel.events import Address
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.rows import StoredInstance
from perdure.runtime.collector import Paused
from perdure.stores.sqlite import reads
from perdure.stores.sqlite.connection import connect

STEPS = 10_000
TASKS = 100
ROUNDS = 9
KEY = "r1"


@perdure.flow
async def sequence(ctx: perdure.Context, steps: int) -> int:
    total = 0
    for n in range(steps):
        total += await ctx.step("add", number, n)
    await ctx.receive("end")
    return total


@perdure.flow
async def side_by_side(ctx: perdure.Context, steps: int) -> int:
    async def some(first: int) -> int:
        return sum([await ctx.step("add", number, n) for n in range(first, steps, TASKS)])

    total = sum(await ctx.map("tasks", some, range(TASKS)))
    await ctx.receive("end")
    return total


def on_perdure(place: Path) -> Measures:
    rebuilt = asyncio.run(_hot(place))
    connection, _ = connect(str(place / DATABASE), create=False)
    found = {
        name: _rates(flow, lambda flow=flow: reads.record(connection, Address(flow.name, KEY)))  # type: ignore[misc]
        for name, flow in (("sequence", sequence), ("tasks", side_by_side))
    }
    connection.close()
    seconds = asyncio.run(_again(place))
    return {
        "hot": rebuilt,
        "memory": found["sequence"][0],
        "disk": found["sequence"][1],
        "tasks": found["tasks"][0],
        "tasks_disk": found["tasks"][1],
        "again": seconds,
    }


async def _hot(place: Path) -> float:
    """How often flows were rebuilt while these ran."""
    async with engine(place, [sequence, side_by_side], settled=False) as opened:
        for flow in (sequence, side_by_side):
            handle = await opened.start(flow, STEPS, key=KEY)
            while await handle.status() != "waiting":  # noqa: ASYNC110  # nothing tells that a flow waits
                await asyncio.sleep(0.01)
        counts = opened.counts
        verify(counts["entries"] == 2 * (STEPS + 1), f"2 x {STEPS} steps made {counts['entries']} entries")
        return counts.get("rebuilt", 0)


def _rates(flow: perdure.Flow[..., Any], read: Callable[[], StoredInstance | None]) -> tuple[float, float]:
    """Operations per second of processor time, from rows in memory and with their read from the file.

    The quickest of some rounds: nothing in them is left to chance, so that whatever else uses the machine can only make
    them slower.
    """
    in_memory: list[float] = []
    with_read: list[float] = []
    for _ in range(ROUNDS):
        with Enclosure(), Paused():  # as in the turn of an engine
            began = time.process_time()
            record = read()
            verify(record is not None and len(record.rows) == STEPS + 1, "rows were lost")
            assert record is not None
            loaded = time.process_time()
            instance = fold(Address(flow.name, KEY), record.snapshot, record.rows)
            machine = rebuild(instance, flow)
            ended = time.process_time()
            verify([each.effect.location for each in instance.open.values()] == ["receive:end"], "it waits elsewhere")
            machine.dispose()
        in_memory.append(ended - loaded)
        with_read.append(ended - began)
    return STEPS / min(in_memory), STEPS / min(with_read)


async def _again(place: Path) -> float:
    """Seconds until an engine is open and the first flow has gone on to its end."""
    began = time.perf_counter()
    async with engine(place, [sequence, side_by_side], settled=False) as opened:
        handle = opened.handle(sequence, KEY)
        await handle.send("end")
        result = await handle.result()
        seconds = time.perf_counter() - began
        verify(result == sum(range(STEPS)), f"the sum of the steps is {result}")
        verify(opened.counts["rebuilt"] == 1, f"{opened.counts['rebuilt']} flows were rebuilt")
        return seconds


QUICK = Bar(">=", 100_000)

WORKLOAD = Workload(
    "R1-rebuild",
    f"a flow of {STEPS:,} steps is rebuilt",
    (
        Figure("rebuilt while it was hot", "hot", bar=Bar("<=", 0)),
        Figure("operations, from rows in memory", "memory", "/s", bar=QUICK),
        Figure("operations, with their read from SQLite", "disk", "/s", bar=QUICK),
        Figure(f"operations of {TASKS} tasks side by side, from rows in memory", "tasks", "/s"),
        Figure(f"operations of {TASKS} tasks side by side, with their read", "tasks_disk", "/s"),
        Figure("an engine opened, and its answer", "again", "ms"),
    ),
    {"perdure": on_perdure},
    needs_floor=False,
)
