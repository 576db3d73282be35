"""C2, growth of cells: what does an event cost among 1,000 and among 1,000,000 cells, and how soon is the world open?

Three kinds of events at each size: to cells in use, to cells that do not exist yet, and to cells of the whole world by
chance, which sleep: they are read from the store and woken, and leave their state there when they go. For those an
engine with the least cache is used, so that they do sleep, among 1,000 too. All of that a thousand at once: then cells
among few share pages of the store's tables, and among many they do not, so that this is where growth would show.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import perdure
from bench.growth import PAGES, Meter, along, beside, database, in_process, insist, points
from bench.measure import Bar, Curve, Figure, Measures, Store, Workload, memory, verify
from bench.workloads.c1_cells import Added, Total, counter

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
AT_ONCE: Final = 1_000
PARTS: Final = 3
"""So many thousands are one round."""

ROUNDS: Final = 5
PAUSE: Final = 0.001


def on_perdure(store: Store) -> Callable[[Path], Measures]:
    def run(place: Path) -> Measures:
        looks: list[Measures] = []
        with database(store, place) as url:
            for before, size in zip((0, *SIZES), SIZES, strict=False):
                made = in_process(make, url, before, size)
                looks.append(made | in_process(look, url, store, size))
        return along(SIZES, looks)

    return run


async def make(url: str, first: int, size: int) -> Measures:
    """Cells that sleep, all of them, and so have left their state."""
    async with perdure.open(url, workflows=[counter], cache=1) as opened:
        began = time.perf_counter()
        for start in range(first, size, AT_ONCE):
            await insist(partial(send, opened, [f"c{n}" for n in range(start, start + AT_ONCE)]))
        return {"made": (size - first) / (time.perf_counter() - began)}


async def look(url: str, store: Store, size: int) -> Measures:
    dice = random.Random(4)
    async with beside(store) as server:
        began = time.perf_counter()
        async with perdure.open(url, workflows=[counter]) as opened:
            seconds, opened_memory = time.perf_counter() - began, memory()
            hot, fresh = Meter("hot", opened, server), Meter("fresh", opened, server)
            used = [f"c{n}" for n in dice.sample(range(size), AT_ONCE)]
            await send(opened, used)
            for number in range(ROUNDS):
                for part in range(PARTS):
                    await hot.time(AT_ONCE, send(opened, used))
                    new = [f"{size}.{number}.{part}.{n}" for n in range(AT_ONCE)]
                    await fresh.time(AT_ONCE, send(opened, new))
                hot.end_round()
                fresh.end_round()
            state = await opened.state(counter, f"{size}.0.0.0")
            verify(state == Total(1, 1), f"a new cell has {state}")
            used_memory = memory()
        async with perdure.open(url, workflows=[counter], cache=1) as opened:
            asleep = Meter("asleep", opened, server)
            for _ in range(ROUNDS):
                for _ in range(PARTS):
                    chosen = [f"c{n}" for n in dice.sample(range(size), AT_ONCE)]
                    await asleep.time(AT_ONCE, send(opened, chosen))
                asleep.end_round()
            sent = ROUNDS * PARTS * AT_ONCE
            rebuilt = opened.counts["rebuilt"]
            verify(rebuilt >= 0.98 * sent, f"of {sent} that should have slept, {rebuilt} did")
    return {
        "open": seconds,
        **{name: value for meter in (hot, fresh, asleep) for name, value in meter.measures.items()},
        **({"rss": opened_memory["rss"], "rss_used": used_memory["rss"]} if opened_memory else {}),
    }


async def send(opened: perdure.Engine, keys: list[str]) -> None:
    """An event to each, all at once; until the cells have taken them."""
    before = opened.counts.get("entries", 0)
    await asyncio.gather(*(opened.send(Added(key, 1)) for key in keys))
    while opened.counts["entries"] - before < 2 * len(keys):  # noqa: ASYNC110  # nothing tells
        await asyncio.sleep(PAUSE)


def _workload(name: str, store: Store) -> Workload:
    least, most = f"{SIZES[0]:,}", f"{SIZES[-1]:,}"
    server = (Figure("the same, server", "asleep_server", "µs"),) if store == "postgres" else ()
    served = (Figure("of that the server's part: growth", "asleep_server_growth", "x"),) if store == "postgres" else ()
    return Workload(
        name,
        f"an event among {least} cells and among {most}, growth over each 10 x",
        (
            Figure("to a new cell: growth", "fresh_units_growth", "x", bar=PAGES),
            Figure("to one in use: growth", "hot_units_growth", "x", bar=PAGES),
            Figure("to one asleep: growth", "asleep_units_growth", "x", bar=PAGES),
            *served,
            Figure(f"to a new cell: {most} against {least}", "fresh_units_whole", "x", bar=PAGES),
            Figure(f"to one in use: {most} against {least}", "hot_units_whole", "x", bar=PAGES),
            Figure(f"to one asleep: {most} against {least}", "asleep_units_whole", "x", bar=PAGES),
            Figure(f"opening a world of {most}", "open_last", "s", bar=Bar("<", 2)),
            Figure(f"memory after that, with {most}", "rss_last", "MB", bar=Bar("<", 1e9)),
            Figure(f"memory after {2 * ROUNDS * PARTS * AT_ONCE:,} events, with {most}", "rss_used_last", "MB"),
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
