"""W8, instances: what does a run cost among 1,000 waiting ones, and among 1,000,000? And what do they cost, waiting?

At each size, with so many waiting for a message: some by chance out of all of them, which have to be read from the
store and rebuilt first, are sent their message, and end with an answer; new ones are started; and those are sent theirs
while they are in memory. All of that a thousand at once, and the first also one after the other: at once, events among
few share pages of the store's tables, and among many they do not, which one by one they never do. For those that sleep
an engine with the least cache is used, so that they do sleep, among 1,000 too. Each that has ended is replaced by a new
one.
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
    places_of,
    points,
    rounds,
)
from bench.measure import Bar, Curve, Figure, Measures, Store, Workload, memory, verify

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
AT_ONCE: Final = 1_000
ROUNDS: Final = 7
PARTS: Final = 4
"""So many thousands are one turn."""

USED: Final = 15_000
"""New runs before memory is looked at again."""

ALONE: Final = 100


@perdure.flow
async def waiter(ctx: perdure.Context) -> int:
    message = await ctx.receive("ask")
    return int(message.body) + 1


def on_perdure(store: Store, sizes: tuple[int, ...]) -> Callable[[Path], Measures]:
    def run(place: Path) -> Measures:
        with databases(store, place, sizes) as urls:
            looks = [in_process(make, url, size) | in_process(look, url) for size, url in urls.items()]
            return along(sizes, looks) | in_process(take_turns, urls, store)

    return run


async def make(url: str, size: int) -> Measures:
    """Start those that wait."""
    async with perdure.open(url, workflows=[waiter]) as opened:
        began = time.perf_counter()
        for start in range(0, size, AT_ONCE):
            keys = [f"w{n}" for n in range(start, start + AT_ONCE)]
            await insist(partial(_start, opened, keys))
        return {"starts": size / (time.perf_counter() - began)}


async def look(url: str) -> Measures:
    began = time.perf_counter()
    async with perdure.open(url, workflows=[waiter]) as opened:
        seconds, opened_memory = time.perf_counter() - began, memory()
        for start in range(0, USED, AT_ONCE):
            keys = [f"used{n}" for n in range(start, start + AT_ONCE)]
            await _start(opened, keys)
            await _ask(opened, keys)
        used_memory = memory()
    found = {"open": seconds}
    return found | ({"rss": opened_memory["rss"], "rss_used": used_memory["rss"]} if opened_memory else {})


async def take_turns(urls: dict[int, str], store: Store) -> Measures:
    worlds = {size: World(size) for size in urls}
    async with beside(store) as server:
        places = await places_of(urls, server)
        async with engines(urls, [waiter], cache=1) as opened:
            asleep, alone = Meter("asleep", opened, server), Meter("alone", opened, server)
            async for turns in rounds(ROUNDS, urls, places):
                for size in turns:
                    await _wake(asleep, alone, worlds[size], opened[size])
                asleep.end_round()
                alone.end_round()
            for size, each in opened.items():
                asked = ROUNDS * (PARTS * AT_ONCE + ALONE)
                rebuilt = each.counts["rebuilt"]
                verify(rebuilt >= 0.98 * asked, f"of {asked} that should have slept among {size}, {rebuilt} did")
                verify(len(await each.instances(status="waiting", limit=1)) == 1, "nobody waits")
        async with engines(urls, [waiter]) as opened:
            new, awake = Meter("new", opened, server), Meter("awake", opened, server)
            async for turns in rounds(ROUNDS, urls, places):
                for size in turns:
                    for _ in range(PARTS):
                        keys = worlds[size].new(AT_ONCE)
                        await new.time(size, AT_ONCE, _start(opened[size], keys))
                        await awake.time(size, AT_ONCE, _ask(opened[size], keys))
                new.end_round()
                awake.end_round()
            for each in opened.values():
                verify(each.counts.get("rebuilt", 0) == 0, "one that was in use had to be rebuilt")
    return {name: value for meter in (asleep, alone, new, awake) for name, value in meter.measures.items()}


async def _wake(asleep: Meter, alone: Meter, world: World, opened: perdure.Engine) -> None:
    for _ in range(PARTS):
        slots = world.chosen(AT_ONCE)
        await asleep.time(world.size, AT_ONCE, _ask(opened, world.keys(slots)))
        await _start(opened, world.replaced(slots))
    slots = world.chosen(ALONE)
    await alone.time(world.size, ALONE, _ask_one_by_one(opened, world.keys(slots)))
    await _start(opened, world.replaced(slots))


class World:
    """Who waits: one in each slot, of whom only those are kept in mind that were replaced."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._dice = random.Random(size)
        self._replaced: dict[int, str] = {}
        self._made = 0

    def new(self, count: int) -> list[str]:
        first, self._made = self._made, self._made + count
        return [f"new{n}" for n in range(first, self._made)]

    def chosen(self, count: int) -> list[int]:
        return self._dice.sample(range(self.size), count)

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
    return Workload(
        name,
        f"a run among {sizes[0]:,} waiting ones and among {most}, growth over each 10 x",
        (
            Figure("a new run: growth", "new_growth", "x", bar=FLAT),
            Figure("a message to one in use, and its answer: growth", "awake_growth", "x", bar=FLAT),
            Figure("a message to one asleep, and its answer, 1,000 at once: growth", "asleep_growth", "x", bar=PAGES),
            Figure(f"a new run: {most} against {sizes[0]:,}", "new_whole", "x"),
            Figure(f"a message to one in use: {most} against {sizes[0]:,}", "awake_whole", "x"),
            Figure(f"a message to one asleep: {most} against {sizes[0]:,}", "asleep_whole", "x"),
            Figure("a message to one asleep, and its answer, one by one: growth", "alone_growth", "x"),
            Figure(f"opening, with {most}", "open_last", "s", bar=Bar("<", 5)),
            Figure(f"memory after that, with {most}", "rss_last", "MB", bar=Bar("<", 1e9)),
            Figure(f"memory after {USED:,} runs, with {most}", "rss_used_last", "MB", bar=Bar("<", 1e9)),
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
