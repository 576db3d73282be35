"""W8, history: does a step cost more after 100,000 others of the same flow than after 100?

One flow of each size does its steps one after the other, and then waits. A new process opens the database and wakes one
of them: what it takes to open and to rebuild it, and the memory. That rebuilding takes longer the more there is to
rebuild is its nature; per step it should not. Then all are woken in turns, for a hundred steps each time, so that all
sizes meet the same disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import perdure
from bench.growth import FLAT, along, database, in_process, points
from bench.measure import Curve, Figure, Measures, Store, Workload, memory, verify

SIZES: Final = (100, 1_000, 10_000, 100_000)
WINDOW: Final = 100
ROUNDS: Final = 8
"""Each size has so many windows, and the quickest counts."""

PAUSE: Final = 0.02

_clocks: list[tuple[float, float]] = []


@perdure.flow
async def sequence(ctx: perdure.Context, size: int) -> int:
    total = 0
    for n in range(size):
        total += await ctx.step("add", number, n)
    while (await ctx.receive("on")).body:
        await ctx.step("look", look_at_clocks)
        for n in range(WINDOW - 1):
            total += await ctx.step("add", number, n)
        await ctx.step("look", look_at_clocks)
    return total


async def number(n: int) -> int:
    return n


async def look_at_clocks() -> None:
    _clocks.append((time.process_time(), time.perf_counter()))


def on_perdure(store: Store, sizes: tuple[int, ...]) -> Callable[[Path], Measures]:
    def run(place: Path) -> Measures:
        with database(store, place) as url:
            in_process(begin, url, sizes)
            looks = [in_process(wake, url, size) for size in sizes]
            costs = in_process(take_turns, url, sizes)
        for size, look in zip(sizes, looks, strict=True):
            look |= {name: costs[f"{name}_{size}"] for name in ("engine", "wall")}
        return along(sizes, looks)

    return run


async def begin(url: str, sizes: tuple[int, ...]) -> Measures:
    async with perdure.open(url, workflows=[sequence]) as opened:
        handles = [await opened.start(sequence, size, key=str(size)) for size in sizes]
        for handle in handles:
            await _until_it_waits(handle)
    return {}


async def wake(url: str, size: int) -> Measures:
    began = time.perf_counter()
    async with perdure.open(url, workflows=[sequence]) as opened:
        seconds = time.perf_counter() - began
        handle = opened.handle(sequence, str(size))
        worked = time.process_time()
        await handle.send("on", True)
        rebuilding = time.process_time() - worked
        await _until_it_waits(handle)
        verify(opened.counts["rebuilt"] == 1, f"it was rebuilt {opened.counts['rebuilt']} times")
        used = memory()
    return {
        "open": seconds,
        "rebuilding": rebuilding,
        "rebuilt_step": rebuilding / size,
        **({"rss": used["rss"]} if used else {}),
    }


async def take_turns(url: str, sizes: tuple[int, ...]) -> Measures:
    """What a step costs, by size."""
    windows: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    async with perdure.open(url, workflows=[sequence]) as opened:
        for number in range(ROUNDS + 1):
            for size in sizes:
                handle = opened.handle(sequence, str(size))
                _clocks.clear()
                await handle.send("on", True)
                await _until_it_waits(handle)
                (worked, began), (worked_then, ended) = _clocks
                if number > 0:  # in the first round it was rebuilt
                    windows[size].append((worked_then - worked, ended - began))
        for size in sizes:
            handle = opened.handle(sequence, str(size))
            await handle.send("on", False)
            expected = sum(range(size)) + (ROUNDS + 2) * sum(range(WINDOW - 1))
            result = await handle.result()
            verify(result == expected, f"the sum of the steps is {result}")
    return {
        **{f"engine_{size}": min(worked for worked, _ in found) / WINDOW for size, found in windows.items()},
        **{f"wall_{size}": min(wall for _, wall in found) / WINDOW for size, found in windows.items()},
    }


async def _until_it_waits(handle: perdure.Handle[int]) -> None:
    while await handle.status() != "waiting":  # noqa: ASYNC110  # nothing tells that a flow waits
        await asyncio.sleep(PAUSE)


def _workload(name: str, store: Store, sizes: tuple[int, ...]) -> Workload:
    most = f"{sizes[-1]:,}"
    return Workload(
        name,
        f"a step after {sizes[0]:,} and after {most} others of its run, growth over each 10 x",
        (
            Figure("processor time of a step: growth", "engine_growth", "x", bar=FLAT),
            Figure("wall time of a step: growth", "wall_growth", "x"),
            Figure(f"processor time of a step after {most}", "engine_last", "µs"),
            Figure(f"opening, with a run of {most} that waits", "open_last", "ms"),
            Figure(f"rebuilding it from {most} steps", "rebuilding_last", "ms"),
            Figure(f"memory with it, after {most}", "rss_last", "MB"),
        ),
        {"perdure": on_perdure(store, sizes)},
        once=True,
        needs_floor=False,
        store=store,
        curve=Curve(
            "steps",
            points(sizes),
            (
                Figure("processor time of a step", "engine", "µs"),
                Figure("its wall time", "wall", "µs"),
                Figure("opening", "open", "ms"),
                Figure("rebuilding", "rebuilding", "ms"),
                Figure("rebuilding, per step", "rebuilt_step", "µs"),
                Figure("memory", "rss", "MB"),
            ),
        ),
    )


WORKLOAD = _workload("W8-history", "sqlite", SIZES)
POSTGRES = _workload("postgres-W8-history", "postgres", SIZES)
