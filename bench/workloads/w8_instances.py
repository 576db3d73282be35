"""W8, instances: what does a run cost among 1,000 waiting ones, and among 1,000,000? And what do they cost, waiting?

At each size, with so many waiting for a message: new ones are started; those are sent their message while they are in
memory, and end with an answer; and so are some by chance out of all of them, which have to be read from the store and
rebuilt first. All of that a thousand at once, and the last also one after the other: at once, events among few share
pages of the store's tables, and among many they do not, which one by one they never do. For those that sleep an engine
with the least cache is used, so that they do sleep, among 1,000 too. Each that has ended is replaced by a new one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import perdure
from bench.growth import NOISE, PAGES, Meter, along, beside, database, in_process, insist, points
from bench.measure import Bar, Curve, Figure, Measures, Store, Workload, memory, verify

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
AT_ONCE: Final = 1_000
ROUNDS: Final = 5
PARTS: Final = 3
"""So many thousands are one round."""

ALONE: Final = 100


@perdure.flow
async def waiter(ctx: perdure.Context) -> int:
    message = await ctx.receive("ask")
    return int(message.body) + 1


def on_perdure(store: Store, sizes: tuple[int, ...]) -> Callable[[Path], Measures]:
    def run(place: Path) -> Measures:
        looks: list[Measures] = []
        with database(store, place) as url:
            for before, size in zip((0, *sizes), sizes, strict=False):
                made = in_process(make, url, before, size)
                looks.append(made | in_process(look, url, store, before, size))
        return along(sizes, looks)

    return run


async def make(url: str, first: int, size: int) -> Measures:
    """Start those that wait."""
    async with perdure.open(url, workflows=[waiter]) as opened:
        began = time.perf_counter()
        for start in range(first, size, AT_ONCE):
            keys = [f"w{n}" for n in range(start, start + AT_ONCE)]
            await insist(partial(_start, opened, keys))
        return {"starts": (size - first) / (time.perf_counter() - began)}


async def look(url: str, store: Store, before: int, size: int) -> Measures:
    world = World(before, size)
    async with beside(store) as server:
        began = time.perf_counter()
        async with perdure.open(url, workflows=[waiter]) as opened:
            seconds, opened_memory = time.perf_counter() - began, memory()
            new, awake = Meter("new", opened, server), Meter("awake", opened, server)
            for _ in range(ROUNDS):
                for _ in range(PARTS):
                    keys = world.new(AT_ONCE)
                    await new.time(AT_ONCE, _start(opened, keys))
                    await awake.time(AT_ONCE, _ask(opened, keys))
                new.end_round()
                awake.end_round()
            verify(opened.counts.get("rebuilt", 0) == 0, "one that was in use had to be rebuilt")
            used_memory = memory()
        async with perdure.open(url, workflows=[waiter], cache=1) as opened:
            asleep, alone = Meter("asleep", opened, server), Meter("alone", opened, server)
            for _ in range(ROUNDS):
                for _ in range(PARTS):
                    slots = world.chosen(AT_ONCE)
                    await asleep.time(AT_ONCE, _ask(opened, world.keys(slots)))
                    await _start(opened, world.replaced(slots))
                asleep.end_round()
                slots = world.chosen(ALONE)
                await alone.time(ALONE, _ask_one_by_one(opened, world.keys(slots)))
                await _start(opened, world.replaced(slots))
                alone.end_round()
            asked = ROUNDS * (PARTS * AT_ONCE + ALONE)
            rebuilt = opened.counts["rebuilt"]
            verify(rebuilt >= 0.98 * asked, f"of {asked} that should have slept, {rebuilt} did")
            waiting = await opened.instances(status="waiting", limit=1)
            verify(len(waiting) == 1, "nobody waits")
    return {
        "open": seconds,
        **{name: value for meter in (new, awake, asleep, alone) for name, value in meter.measures.items()},
        **({"rss": opened_memory["rss"], "rss_used": used_memory["rss"]} if opened_memory else {}),
    }


class World:
    """Who waits: one in each slot, of whom only those are kept in mind that were replaced. Slots below `before` were
    looked at when the world was that small: nobody is chosen there."""

    def __init__(self, before: int, size: int) -> None:
        self._before, self._size = before, size
        self._dice = random.Random(size)
        self._replaced: dict[int, str] = {}
        self._made = 0

    def new(self, count: int) -> list[str]:
        first, self._made = self._made, self._made + count
        return [f"{self._size}.{n}" for n in range(first, self._made)]

    def chosen(self, count: int) -> list[int]:
        return self._dice.sample(range(self._before, self._size), count)

    def keys(self, slots: Iterable[int]) -> list[str]:
        return [self._replaced.get(slot, f"w{slot}") for slot in slots]

    def replaced(self, slots: list[int]) -> list[str]:
        keys = self.new(len(slots))
        self._replaced.update(zip(slots, keys, strict=True))
        return keys


async def _start(opened: perdure.Engine, keys: Iterable[str]) -> None:
    await asyncio.gather(*(opened.start(waiter, key=key) for key in keys))


async def _ask(opened: perdure.Engine, keys: list[str]) -> None:
    answers = await asyncio.gather(*(_answer(opened, key, n) for n, key in enumerate(keys)))
    verify(answers == list(range(1, len(keys) + 1)), "an answer was another than it should be")


async def _ask_one_by_one(opened: perdure.Engine, keys: list[str]) -> None:
    for n, key in enumerate(keys):
        verify(await _answer(opened, key, n) == n + 1, "an answer was another than it should be")


async def _answer(opened: perdure.Engine, key: str, n: int) -> int:
    handle = opened.handle(waiter, key)
    await handle.send("ask", n)
    return await handle.result()


def _workload(name: str, store: Store, sizes: tuple[int, ...]) -> Workload:
    most = f"{sizes[-1]:,}"
    server = (Figure("the same, server", "asleep_server", "µs"),) if store == "postgres" else ()
    served = (Figure("of that the server's part: growth", "asleep_server_growth", "x"),) if store == "postgres" else ()
    return Workload(
        name,
        f"a run among {sizes[0]:,} waiting ones and among {most}, growth over each 10 x",
        (
            Figure("a new run: growth", "new_units_growth", "x", bar=NOISE),
            Figure("a message to one in use, and its answer: growth", "awake_units_growth", "x", bar=NOISE),
            Figure(
                "a message to one asleep, and its answer, 1,000 at once: growth", "asleep_units_growth", "x", bar=PAGES
            ),
            *served,
            Figure(f"a new run: {most} against {sizes[0]:,}", "new_units_whole", "x"),
            Figure(f"a message to one in use: {most} against {sizes[0]:,}", "awake_units_whole", "x"),
            Figure(f"a message to one asleep: {most} against {sizes[0]:,}", "asleep_units_whole", "x"),
            Figure("a message to one asleep, and its answer, one by one: growth", "alone_units_growth", "x"),
            Figure(f"opening, with {most}", "open_last", "s", bar=Bar("<", 5)),
            Figure(f"memory after that, with {most}", "rss_last", "MB", bar=Bar("<", 1e9)),
            Figure(
                f"memory after {ROUNDS * PARTS * AT_ONCE:,} runs, with {most}", "rss_used_last", "MB", bar=Bar("<", 1e9)
            ),
            Figure("starts, as quick as they come", "starts_last", "/s"),
        ),
        {"perdure": on_perdure(store, sizes)},
        once=True,
        needs_floor=False,
        store=store,
        curve=Curve(
            "waiting",
            points(sizes),
            (
                Figure("a new run", "new_engine", "µs"),
                Figure("a message to one in use", "awake_engine", "µs"),
                Figure("to one asleep", "asleep_engine", "µs"),
                *server,
                Figure("to one asleep, one by one", "alone_engine", "µs"),
                Figure("its wall time", "alone_wall", "µs"),
                Figure("opening", "open", "ms"),
                Figure("memory", "rss", "MB"),
                Figure("memory after use", "rss_used", "MB"),
            ),
        ),
    )


WORKLOAD = _workload("W8-instances", "sqlite", SIZES)
POSTGRES = _workload("postgres-W8-instances", "postgres", SIZES)
