"""W8, history: does a step cost more after 100,000 others of the same flow than after 100?

One flow does its steps one after the other, and stops at each size until somebody tells it to go on. Meanwhile its
engine is closed. A new process opens the database, lets the flow be rebuilt, and measures the steps that come then.
That the rebuilding takes longer the more there is to rebuild is its nature; per step it should not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import perdure
from bench.calibration import unit
from bench.growth import FLAT, along, database, in_process, points
from bench.measure import Curve, Figure, Measures, Store, Workload, memory, verify

SIZES: Final = (100, 1_000, 10_000, 100_000)
WINDOW: Final = 100
WINDOWS: Final = 8
"""So many windows are measured after each size."""

KEY: Final = "w8"
PAUSE: Final = 0.02


class Look(NamedTuple):
    """Processor and wall time when one window ends and when the next begins; between them, a unit of plain Python."""

    ended: tuple[float, float]
    unit: float
    began: tuple[float, float]


_looks: list[Look] = []
_measured = asyncio.Event()


@perdure.flow
async def sequence(ctx: perdure.Context, sizes: list[int]) -> int:
    total = done = 0
    for size in sizes:
        while done < size:
            total += await ctx.step("add", number, done)
            done += 1
        await ctx.receive("on")
        for _ in range(WINDOWS):
            await ctx.step("look", look_at_clocks)
            for _ in range(WINDOW - 1):
                total += await ctx.step("add", number, done)
                done += 1
        await ctx.step("look", look_at_clocks)
    await ctx.receive("on")
    return total


async def number(n: int) -> int:
    return n


async def look_at_clocks() -> None:
    ended = time.process_time(), time.perf_counter()
    _looks.append(Look(ended, unit(), (time.process_time(), time.perf_counter())))
    if len(_looks) > WINDOWS:
        _measured.set()


def on_perdure(store: Store, sizes: tuple[int, ...]) -> Callable[[Path], Measures]:
    def run(place: Path) -> Measures:
        with database(store, place) as url:
            in_process(begin, url, sizes)
            looks = [in_process(go_on, url, size) for size in sizes]
            in_process(end, url, sizes)
        return along(sizes, looks)

    return run


async def begin(url: str, sizes: tuple[int, ...]) -> Measures:
    async with perdure.open(url, workflows=[sequence]) as opened:
        await _until_it_waits(await opened.start(sequence, list(sizes), key=KEY))
    return {}


async def go_on(url: str, size: int) -> Measures:
    """Measure behind one size, and go on to the next."""
    began = time.perf_counter()
    async with perdure.open(url, workflows=[sequence]) as opened:
        seconds = time.perf_counter() - began
        handle = opened.handle(sequence, KEY)
        worked = time.process_time()
        await handle.send("on")
        rebuilding = time.process_time() - worked
        await _measured.wait()
        used = memory()
        verify(opened.counts["rebuilt"] == 1, f"it was rebuilt {opened.counts['rebuilt']} times")
        await _until_it_waits(handle)
    verify(len(_looks) == WINDOWS + 1, f"{len(_looks)} looks at the clocks")
    windows = list(pairwise(_looks))
    return {
        "engine": min(b.ended[0] - a.began[0] for a, b in windows) / WINDOW,
        "units": min(b.ended[0] - a.began[0] for a, b in windows) / WINDOW / min(look.unit for look in _looks),
        "wall": min(b.ended[1] - a.began[1] for a, b in windows) / WINDOW,
        "open": seconds,
        "rebuilding": rebuilding,
        "rebuilt_step": rebuilding / size,
        **({"rss": used["rss"]} if used else {}),
    }


async def end(url: str, sizes: tuple[int, ...]) -> Measures:
    async with perdure.open(url, workflows=[sequence]) as opened:
        handle = opened.handle(sequence, KEY)
        await handle.send("on")
        result = await handle.result()
    steps = sizes[-1] + WINDOWS * (WINDOW - 1)
    verify(result == sum(range(steps)), f"the sum of the steps is {result}")
    return {}


async def _until_it_waits(handle: perdure.Handle[int]) -> None:
    while await handle.status() != "waiting":  # noqa: ASYNC110  # nothing tells that a flow waits
        await asyncio.sleep(PAUSE)


def _workload(name: str, store: Store, sizes: tuple[int, ...]) -> Workload:
    most = f"{sizes[-1]:,}"
    return Workload(
        name,
        f"a step after {sizes[0]:,} and after {most} others of its run, growth over each 10 x",
        (
            Figure("processor time of a step: growth", "units_growth", "x", bar=FLAT),
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
