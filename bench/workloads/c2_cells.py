"""C2, growth of cells: what does an event cost among 1,000 and among 1,000,000 cells, and how soon is the world open?

Three kinds of events at each size: to cells of the whole world by chance, which sleep: they are read from the store and
woken, and leave their state there when they go; to cells in use; and to cells that do not exist yet. For the first an
engine with the least cache is used, so that they do sleep, among 1,000 too. All of that a thousand at once: then cells
among few share pages of the store's tables, and among many they do not, so that this is where growth would show.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import perdure
from bench.growth import (
    FLAT,
    PAGES,
    Meter,
    along,
    beside,
    databases,
    engines,
    in_process,
    insist,
    out_of_memory,
    places_of,
    points,
    rounds,
)
from bench.measure import Bar, Curve, Figure, Measures, Store, Workload, memory, verify
from bench.workloads.c1_cells import Added, Total, counter

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
AT_ONCE: Final = 1_000
PARTS: Final = 5
"""So many thousands are one turn."""

ROUNDS: Final = 7
USED: Final = 15_000
"""New cells before memory is looked at again."""

PAUSE: Final = 0.001


def on_perdure(store: Store) -> Callable[[Path], Measures]:
    def run(place: Path) -> Measures:
        with databases(store, place, SIZES) as urls:
            looks = [in_process(make, url, size) | in_process(look, url) for size, url in urls.items()]
            return along(SIZES, looks) | in_process(take_turns, urls, store)

    return run


async def make(url: str, size: int) -> Measures:
    """Cells that sleep, all of them, and so have left their state."""
    async with perdure.open(url, workflows=[counter], cache=1) as opened:
        began = time.perf_counter()
        for start in range(0, size, AT_ONCE):
            await insist(partial(send, opened, [f"c{n}" for n in range(start, start + AT_ONCE)]))
        return {"made": size / (time.perf_counter() - began)}


async def look(url: str) -> Measures:
    began = time.perf_counter()
    async with perdure.open(url, workflows=[counter]) as opened:
        seconds, opened_memory = time.perf_counter() - began, memory()
        for start in range(0, USED, AT_ONCE):
            await send(opened, [f"used{n}" for n in range(start, start + AT_ONCE)])
        used_memory = memory()
    found = {"open": seconds}
    return found | ({"rss": opened_memory["rss"], "rss_used": used_memory["rss"]} if opened_memory else {})


async def take_turns(urls: dict[int, str], store: Store) -> Measures:
    async with beside(store) as server:
        places = await places_of(urls, server)
        async with engines(urls, [counter], cache=1) as opened:
            asleep = Meter("asleep", opened, server)
            chosen = Chosen()
            await _rounds(asleep, opened, places, chosen.some)
            for size, each in opened.items():
                rebuilt = each.counts["rebuilt"]
                sent = ROUNDS * PARTS * AT_ONCE
                verify(rebuilt >= 0.98 * sent, f"of {sent} that should have slept among {size}, {rebuilt} did")
            cold = await _from_disk(opened, places, chosen) if store == "sqlite" else {}
        async with engines(urls, [counter]) as opened:
            hot, fresh = Meter("hot", opened, server), Meter("fresh", opened, server)
            used = {size: Chosen().some(size) for size in urls}
            for size in urls:
                await send(opened[size], used[size])
            await _rounds(hot, opened, places, used.__getitem__)
            await _rounds(fresh, opened, places, Chosen().new)
            for size, each in opened.items():
                state = await each.state(counter, "new0")
                verify(state == Total(1, 1), f"a new cell among {size} has {state}")
    measures = {name: value for meter in (asleep, hot, fresh) for name, value in meter.measures.items()}
    return measures | cold | {"waking": asleep.cost(SIZES[-1]) / hot.cost(SIZES[0])}


async def _rounds(
    meter: Meter, opened: dict[int, perdure.Engine], places: list[Path], keys: Callable[[int], list[str]]
) -> None:
    async for turns in rounds(ROUNDS, opened, places):
        for size in turns:
            for _ in range(PARTS):
                await meter.time(size, AT_ONCE, send(opened[size], keys(size)))
        meter.end_round()


async def _from_disk(opened: dict[int, perdure.Engine], places: list[Path], chosen: Chosen) -> Measures:
    """The same to cells asleep, the least and the most, when nothing of their files is in the system's memory."""
    ends = {size: opened[size] for size in (SIZES[0], SIZES[-1])}
    cold = Meter("cold", ends)
    for _ in range(ROUNDS):
        for size, engine in ends.items():
            if not out_of_memory(places):
                return {}
            await cold.time(size, AT_ONCE, send(engine, chosen.some(size)))
        cold.end_round()
    return {"cold": cold.measures["cold_whole"]}


class Chosen:
    """Cells of a world: some by chance, or some that there are not yet."""

    def __init__(self) -> None:
        self._dice = random.Random(4)
        self._new: Counter[int] = Counter()

    def some(self, size: int) -> list[str]:
        return [f"c{n}" for n in self._dice.sample(range(size), AT_ONCE)]

    def new(self, size: int) -> list[str]:
        self._new[size] += AT_ONCE
        return [f"new{n}" for n in range(self._new[size] - AT_ONCE, self._new[size])]


async def send(opened: perdure.Engine, keys: list[str]) -> None:
    """An event to each, all at once; until the cells have taken them."""
    before = opened.counts.get("entries", 0)
    await asyncio.gather(*(opened.send(Added(key, 1)) for key in keys))
    while opened.counts["entries"] - before < 2 * len(keys):  # noqa: ASYNC110  # nothing tells
        await asyncio.sleep(PAUSE)


def _workload(name: str, store: Store) -> Workload:
    least, most = f"{SIZES[0]:,}", f"{SIZES[-1]:,}"
    server = (Figure("the same, server", "asleep_server", "µs"),) if store == "postgres" else ()
    from_disk = (Figure("the same, when the file is on the disk only", "cold", "x"),) if store == "sqlite" else ()
    return Workload(
        name,
        f"an event among {least} cells and among {most}, files in memory, growth over each 10 x",
        (
            Figure("to a new cell: growth", "fresh_growth", "x", bar=FLAT),
            Figure("to one in use: growth", "hot_growth", "x", bar=PAGES),
            Figure("to one asleep: growth", "asleep_growth", "x", bar=PAGES),
            Figure(f"to a new cell: {most} against {least}", "fresh_whole", "x", bar=FLAT),
            Figure(f"to one in use: {most} against {least}", "hot_whole", "x", bar=PAGES),
            Figure(f"to one asleep: {most} against {least}", "asleep_whole", "x", bar=PAGES),
            *from_disk,
            Figure(f"to one asleep among {most}, against one in use among {least} (not in turns)", "waking", "x"),
            Figure(f"opening a world of {most}", "open_last", "s", bar=Bar("<", 2)),
            Figure(f"memory after that, with {most}", "rss_last", "MB", bar=Bar("<", 1e9)),
            Figure(f"memory after {USED:,} events, with {most}", "rss_used_last", "MB"),
            Figure("events to new cells, as quick as they come", "made_last", "/s"),
        ),
        {"perdure": on_perdure(store)},
        once=True,
        needs_floor=False,
        store=store,
        curve=Curve(
            "cells",
            points(SIZES),
            (
                Figure("to a new cell", "fresh_engine", "µs"),
                Figure("to one in use", "hot_engine", "µs"),
                Figure("to one asleep", "asleep_engine", "µs"),
                *server,
                Figure("its wall time", "asleep_wall", "µs"),
                Figure("opening", "open", "ms"),
                Figure("memory", "rss", "MB"),
                Figure("memory after use", "rss_used", "MB"),
            ),
        ),
    )


WORKLOAD = _workload("C2", "sqlite")
POSTGRES = _workload("postgres-C2", "postgres")
