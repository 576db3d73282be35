"""R2, loop: a loop of 100,000 iterations. Do memory, and what the flow would be rebuilt from, stay as they are?

A look every so often, from inside a step, when everything before is durable: the memory of the process, the rows that
an engine would read to rebuild the flow (the snapshot and what came after it), and the processor time since the last
look. Of the looks within one tenth of the way the highest counts, and the mean of the times.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Final

import apsw

import perdure
from bench.engines import DATABASE, engine, fill
from bench.floor import FILL_BYTES
from bench.measure import Bar, Curve, Figure, Measures, Workload, memory, verify
from perdure.flows.loop import Enclosure
from perdure.kernel.events import Address
from perdure.kernel.replay import fold, rebuild
from perdure.stores.sqlite import reads
from perdure.stores.sqlite.connection import CACHE_KIBIBYTES

ITERATIONS: Final = 100_000
TENTHS: Final = 10
LOOKS: Final = 10
"""In each tenth of the way."""

KEY: Final = "r2"


class Looks:
    """What was seen on the way: by name, one value per tenth."""

    def __init__(self, connection: apsw.Connection, iterations: int) -> None:
        self.highest: dict[str, list[float]] = {}
        self._connection = connection
        self._every = iterations // TENTHS // LOOKS
        self._worked = time.process_time()

    def look(self, iteration: int) -> None:
        if iteration == 0 or iteration % self._every:
            return
        worked = time.process_time()
        record = reads.record(self._connection, Address(turns.name, KEY))
        verify(record is not None, "the flow is gone")
        assert record is not None
        snapshot = b"" if record.snapshot is None else record.snapshot.body
        seen = {
            **{name: value for name, value in memory().items() if name == "rss"},
            "rows": len(record.rows) + (record.snapshot is not None),
            "bytes": len(snapshot) + sum(len(row.body) for row in record.rows),
            "cpu": (worked - self._worked) / self._every,
        }
        for name, value in seen.items():
            tenths = self.highest.setdefault(name, [])
            if iteration % (self._every * LOOKS) == self._every:
                tenths.append(0)
            tenths[-1] = tenths[-1] + value / LOOKS if name == "cpu" else max(tenths[-1], value)
        self._worked = time.process_time()


_looks: Looks | None = None


async def looked_at(n: int) -> int:
    if _looks is not None:
        _looks.look(n)
    return n


@perdure.flow
async def turns(ctx: perdure.Context, iterations: int) -> int:
    async def body(ctx: perdure.Context, total: int) -> perdure.Continue[int] | perdure.Break[int]:
        n = await ctx.step("add", looked_at, total)
        return perdure.Continue(n + 1) if n < iterations else perdure.Break(n)

    total = await ctx.loop("loop", body, 0)
    await ctx.receive("end")
    return total


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    global _looks  # noqa: PLW0603  # a step takes plain data only, and this is none
    async with engine(place, [turns]) as opened:
        await _fill_page_cache(opened)
        connection = apsw.Connection(str(place / DATABASE), flags=apsw.SQLITE_OPEN_READONLY)
        looks = _looks = Looks(connection, ITERATIONS)
        before = opened.counts["entries"]
        began = time.perf_counter()
        handle = await opened.start(turns, ITERATIONS, key=KEY)
        while await handle.status() != "waiting":  # noqa: ASYNC110  # nothing tells that a flow waits
            await asyncio.sleep(0.05)
        seconds = time.perf_counter() - began
        counts = opened.counts
        verify(counts["entries"] - before == ITERATIONS + 2, f"{counts['entries'] - before} entries were made")
        again = _rebuild(connection)
        connection.close()
        await handle.send("end")
        verify(await handle.result() == ITERATIONS, "it went round another number of times")
    found = looks.highest
    verify(all(len(tenths) == TENTHS for tenths in found.values()), "a look was left out")
    return {
        "hot": counts.get("rebuilt", 0),
        "iterations": ITERATIONS / seconds,
        **{f"{name}@{n}": value for name, tenths in found.items() for n, value in enumerate(tenths, 1)},
        **{f"{name}_growth": tenths[-1] / tenths[0] for name, tenths in found.items()},
        "again": again,
    }


async def _fill_page_cache(opened: perdure.Engine) -> None:
    """SQLite keeps pages of the file, up to a bound. Until that is reached, memory grows with the file."""
    for _ in range(2 * CACHE_KIBIBYTES * 1024 // FILL_BYTES):
        await (await opened.start(fill)).result()


def _rebuild(connection: apsw.Connection) -> float:
    """Seconds of processor time from the file to a live machine, after the last iteration."""
    seconds: list[float] = []
    for _ in range(LOOKS):
        with Enclosure():
            began = time.process_time()
            record = reads.record(connection, Address(turns.name, KEY))
            assert record is not None
            machine = rebuild(fold(Address(turns.name, KEY), record.snapshot, record.rows), turns)
            seconds.append(time.process_time() - began)
            machine.dispose()
    return statistics.median(seconds)


FLAT = Bar("<=", 1.05)

WORKLOAD = Workload(
    "R2-loop",
    f"a loop of {ITERATIONS:,} iterations",
    (
        Figure("iterations", "iterations", "/s"),
        Figure("rebuilt while it was hot", "hot", bar=Bar("<=", 0)),
        Figure("memory, last tenth against the first", "rss_growth", "x", bar=FLAT),
        Figure("rows to rebuild it from, last tenth against the first", "rows_growth", "x", bar=FLAT),
        Figure("processor time per iteration, last tenth against the first", "cpu_growth", "x"),
        Figure("rebuilding it after the last iteration", "again", "ms"),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
    curve=Curve(
        "iterations",
        {n: f"{n * ITERATIONS // TENTHS:,}" for n in range(1, TENTHS + 1)},
        (
            Figure("memory", "rss", "MB"),
            Figure("rows to rebuild it from", "rows"),
            Figure("their size", "bytes", "KB"),
            Figure("processor time per iteration", "cpu", "µs"),
        ),
    ),
)
