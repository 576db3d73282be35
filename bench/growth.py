"""What workloads of growth share: the sizes, a database of either store, a process for each size, and costs by rounds.

Each size is looked at by a new process, so that none inherits memory or warm code of another. What an event costs is
processor time: of this process, and on PostgreSQL of the server, too. Others use the machine at the same time, so of
several rounds the quickest counts, and a round is long enough to have its share of checkpoints. Growth is counted in
units of some plain Python that runs between the parts (`bench/calibration.py`), the quickest of those, too: a machine
that is slower for a while is no growth.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import perdure
from bench.calibration import unit
from bench.engines import DATABASE
from bench.measure import Bar, Measures, Store

FLAT: Final = Bar("<=", 1.2)
"""Over each factor of ten."""

PAGES: Final = Bar(
    "<=", 1.2, why="pages that many do not share are written and read one by one: PROFILE.md, What grows"
)
NOISE: Final = Bar("<=", 1.2, why="one point of the curve stands out; the last is hardly above the first: this machine")

QUIET: Final = 0.03
"""Seconds without a commit."""


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


class Meter:
    """Costs per event of one kind, in the quickest round: `engine`, `server` and `wall`, in seconds; and the first two
    together in units of plain Python, `units`."""

    def __init__(self, kind: str, opened: perdure.Engine, server: Any = None) -> None:
        self.kind = kind
        self._opened = opened
        self._server = server
        self._rounds: list[Measures] = []
        self._parts: list[tuple[int, Measures]] = []
        self._units: list[float] = []

    async def time(self, events: int, work: Awaitable[object]) -> None:
        """One part of a round. What it leaves behind for later counts, too: states of those that go to sleep."""
        self._units.append(unit())
        before, began = await self._processors(), time.perf_counter()
        await work
        wall = time.perf_counter() - began
        await self._quiet()
        after = await self._processors()
        taken = {name: reading - before[name] for name, reading in after.items()} | {"wall": wall}
        self._parts.append((events, taken))

    def end_round(self) -> None:
        parts, self._parts = self._parts, []
        events = sum(count for count, _ in parts)
        self._rounds.append({name: sum(taken[name] for _, taken in parts) / events for name in parts[0][1]})

    async def _quiet(self) -> None:
        before = -1
        while (commits := self._opened.counts["commits"]) != before:  # nothing tells
            before = commits
            await asyncio.sleep(QUIET)

    async def _processors(self) -> Measures:
        if self._server is None:
            return {"engine": time.process_time()}
        from bench.server import processor_time

        served = await processor_time(self._server)
        return {"engine": time.process_time(), "server": served}

    @property
    def measures(self) -> Measures:
        best = {name: min(each[name] for each in self._rounds) for name in self._rounds[0]}
        best["units"] = (best["engine"] + best.get("server", 0.0)) / min(self._units)
        return {f"{self.kind}_{name}": value for name, value in best.items()}


@asynccontextmanager
async def beside(store: Store) -> AsyncIterator[Any]:
    """A connection to the server, to ask for its processor time; None where there is no server."""
    if store == "sqlite":
        yield None
        return
    from bench import server

    async with server.connection() as opened:
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
