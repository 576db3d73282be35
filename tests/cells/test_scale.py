"""Many cells: every event arrives once, and what an event costs does not depend on how many cells there are.

Cost is counted in calls of functions, not in seconds: `python -m bench C1 C2` measures those.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

import perdure


class Added(perdure.Record, name="scale/Added@1"):
    id: str
    n: perdure.Nat


class Total(perdure.Record, name="scale/Total@1"):
    n: perdure.Nat
    events: perdure.Nat


@perdure.cell("scale/counter@1", key="id", effects=[])
def counter(state: Total | None, event: Added) -> perdure.Next:
    before = state or Total(0, 0)
    return perdure.Next(Total(before.n + event.n, before.events + 1))


async def send(engine: perdure.Engine, keys: list[str]) -> None:
    before = engine.counts.get("entries", 0)
    await asyncio.gather(*(engine.send(Added(key, 1)) for key in keys))
    while engine.counts["entries"] - before < 2 * len(keys):  # noqa: ASYNC110  # nothing tells when all have arrived
        await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["memory", "sqlite"])
async def test_10_000_events_over_1_000_cells_arrive_once_each(url, tmp_path):
    async with perdure.open(":memory:" if url == "memory" else tmp_path / "cells.db", workflows=[counter]) as engine:
        await send(engine, [f"c{n % 1000}" for n in range(10_000)])

        for n in range(0, 1000, 37):
            assert await engine.state(counter, f"c{n}") == Total(10, 10)
        assert await engine.queries.check() == []


async def calls_of(engine: perdure.Engine, keys: list[str]) -> int:
    """How many functions are called for these events."""
    count = 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        await send(engine, keys)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
async def test_an_event_costs_the_same_among_few_cells_and_among_many(tmp_path):
    async with perdure.open(tmp_path / "cells.db", workflows=[counter]) as engine:
        await send(engine, [f"c{n}" for n in range(500)])
        few = await calls_of(engine, [f"c{n}" for n in range(300)])
        fresh_among_few = await calls_of(engine, [f"x{n}" for n in range(300)])
        for start in range(500, 20_000, 1500):
            await send(engine, [f"c{n}" for n in range(start, start + 1500)])
        await send(engine, [f"c{n}" for n in range(300)])
        many = await calls_of(engine, [f"c{n}" for n in range(300)])
        fresh_among_many = await calls_of(engine, [f"y{n}" for n in range(300)])

    assert many < 1.2 * few
    assert fresh_among_many < 1.2 * fresh_among_few
