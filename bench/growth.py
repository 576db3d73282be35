"""What workloads of growth share: a database of each size, processes that look at them, and costs by size.

What an event costs is processor time: of this process, and on PostgreSQL of the server, too. A machine is not as quick
in every minute, so one process opens all sizes and measures them in turns: growth is what the turns of one round say of
each other, and of all rounds the median. A turn ends when nothing is written any more, and is long enough to have its
share of checkpoints. Before each round the databases are read through, so that the operating system has them in memory:
else what grows is how often a disk is asked, which is a property of the machine and of what it did before.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import perdure
from bench.engines import DATABASE
from bench.measure import Bar, Measures, Store

FLAT: Final = Bar("<=", 1.2)
"""Over each factor of ten."""

PAGES: Final = Bar(
    "<=", 1.2, why="pages that many do not share are read and written one by one: PROFILE.md, What grows"
)

QUIET: Final = 0.03
"""Seconds without a commit..."""

IDLE: Final = 0.002
"""...in which this process works no longer than that: a thread may be copying pages."""


@contextmanager
def databases(store: Store, place: Path, sizes: Iterable[int]) -> Iterator[dict[int, str]]:
    """The URLs of empty databases, one for each size."""
    with ExitStack() as stack:
        urls = {}
        for size in sizes:
            home = place / str(size)
            home.mkdir()
            urls[size] = stack.enter_context(database(store, home))
        yield urls


@contextmanager
def database(store: Store, place: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if store == "sqlite":
        yield str(place / DATABASE)
        return
    from bench import server

    with server.schema() as url:
        yield url


def in_process(look: Callable[..., Awaitable[Measures]], *arguments: Any) -> Measures:
    """What an async function of a module finds, in a new process."""
    words = ", ".join(map(repr, arguments))
    code = f"from bench.growth import tell; from {look.__module__} import {look.__name__} as look; tell(look({words}))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    found: Measures = json.loads(done.stdout)
    return found


def tell(found: Any) -> None:
    print(json.dumps(asyncio.run(found)))


async def insist(work: Callable[[], Awaitable[None]]) -> None:
    """Do work that may be done twice until it is done. When a disk stands still for seconds, which it may do while a
    million rows come in, an engine of a server loses its lease, and takes its shards again."""
    while True:
        try:
            return await work()
        except perdure.StoreFailed as error:
            print(f"once more: {error}", file=sys.stderr)
            await asyncio.sleep(1)


@asynccontextmanager
async def engines(
    urls: Mapping[int, str], workflows: Sequence[Any], **options: Any
) -> AsyncIterator[dict[int, perdure.Engine]]:
    """An engine for each size."""
    async with AsyncExitStack() as stack:
        yield {
            size: await stack.enter_async_context(perdure.open(url, workflows=workflows, **options))
            for size, url in urls.items()
        }


async def rounds(count: int, sizes: Iterable[int], places: Sequence[Path]) -> AsyncIterator[list[int]]:
    """For each round the sizes in the order of their turns: every other one begins with the last, so that none is
    always the first after a pause. What is in `places` is in memory by then."""
    for number in range(count):
        await asyncio.to_thread(_read_through, places)
        yield list(sizes)[:: -1 if number % 2 else 1]


def _read_through(places: Sequence[Path]) -> None:
    for path in _files(places):
        with suppress(OSError), path.open("rb", buffering=0) as file:  # one that is gone, or that we may not read
            while file.read(1 << 20):
                pass


def out_of_memory(places: Sequence[Path]) -> bool:
    """The opposite: the operating system forgets what it has read of them. False where it cannot be told."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in _files(places):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def _files(places: Sequence[Path]) -> list[Path]:
    return [path for place in places for path in place.rglob("*") if path.is_file()]


class Meter:
    """Costs per event of one kind, by size: `engine`, `server` and `wall`, in seconds."""

    def __init__(self, kind: str, opened: Mapping[int, perdure.Engine], server: Any = None) -> None:
        self.kind = kind
        self._opened = opened
        self._server = server
        self._rounds: list[dict[int, Measures]] = []
        self._parts: dict[int, list[tuple[int, Measures]]] = {size: [] for size in opened}

    async def time(self, size: int, events: int, work: Awaitable[object]) -> None:
        """A part of a turn. What it leaves behind for later counts, too: states of those that go to sleep."""
        before, began = await self._processors(), time.perf_counter()
        await work
        wall = time.perf_counter() - began
        await self._quiet(self._opened[size])
        after = await self._processors()
        taken = {name: reading - before[name] for name, reading in after.items()} | {"wall": wall}
        self._parts[size].append((events, taken))

    def end_round(self) -> None:
        """All sizes have had their turn."""
        self._rounds.append({size: _per_event(parts) for size, parts in self._parts.items()})
        for parts in self._parts.values():
            parts.clear()

    async def _quiet(self, opened: perdure.Engine) -> None:
        commits, worked = -1, 0.0
        while True:  # nothing tells
            before = commits, worked
            commits, worked = opened.counts["commits"], time.process_time()
            if commits == before[0] and worked - before[1] < IDLE:
                return
            await asyncio.sleep(QUIET)

    async def _processors(self) -> Measures:
        if self._server is None:
            return {"engine": time.process_time()}
        from bench.server import processor_time

        served = await processor_time(self._server)
        return {"engine": time.process_time(), "server": served}

    @property
    def measures(self) -> Measures:
        """The costs as points of a curve; and as `KIND_growth` the most that they grew over a factor of ten, as
        `KIND_whole` from the first size to the last: engine and server together."""
        sizes, found = list(self._opened), {}
        for point, size in enumerate(sizes):
            for name in self._rounds[0][size]:
                found[f"{self.kind}_{name}@{point}"] = statistics.median(each[size][name] for each in self._rounds)
        found[f"{self.kind}_growth"] = max(self._grown(*pair) for pair in pairwise(sizes))
        found[f"{self.kind}_whole"] = self._grown(sizes[0], sizes[-1])
        return found

    def cost(self, size: int) -> float:
        """Of one event, engine and server together."""
        return statistics.median(_together(each[size]) for each in self._rounds)

    def _grown(self, smaller: int, larger: int) -> float:
        return statistics.median(_together(each[larger]) / _together(each[smaller]) for each in self._rounds)


def _per_event(parts: Sequence[tuple[int, Measures]]) -> Measures:
    events = sum(count for count, _ in parts)
    return {name: sum(taken[name] for _, taken in parts) / events for name in parts[0][1]}


def _together(costs: Measures) -> float:
    return costs["engine"] + costs.get("server", 0.0)


async def places_of(urls: Mapping[int, str], server: Any) -> list[Path]:
    """Where the files of the databases are. Of a server on another machine nothing is found: it has its own memory."""
    if server is None:
        return [Path(url).parent for url in urls.values()]
    return [Path(await server.fetchval("SHOW data_directory"), "base")]


@asynccontextmanager
async def beside(store: Store) -> AsyncIterator[Any]:
    """A connection to the server, to ask for its processor time; None where there is no server.

    What the server would do by itself in the minutes after so many rows came in, it has done by then: else it counts
    for whoever has a turn meanwhile.
    """
    if store == "sqlite":
        yield None
        return
    from bench import server

    async with server.connection() as opened:
        await opened.execute("VACUUM (ANALYZE)")
        yield opened


def along(sizes: Sequence[int], looks: Sequence[Measures]) -> Measures:
    """The measures of each size as points of a curve; for each of them the most that it grew over a factor of ten, as
    `NAME_growth`, and how much from the first size to the last, as `NAME_whole`."""
    assert all(larger == 10 * smaller for smaller, larger in pairwise(sizes))
    found: Measures = {}
    for name in looks[0]:
        values = [look[name] for look in looks]
        found |= {f"{name}@{n}": value for n, value in enumerate(values)}
        steps = [after / before for before, after in pairwise(values) if before > 0]
        if steps:
            found[f"{name}_growth"] = max(steps)
        if values[0] > 0:
            found[f"{name}_whole"] = values[-1] / values[0]
        found[f"{name}_last"] = values[-1]
    return found


def points(sizes: Sequence[int]) -> dict[int, str]:
    return {n: f"{size:,}" for n, size in enumerate(sizes)}
