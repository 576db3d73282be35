"""The floor of PostgreSQL: what the server gives to a single connection of asyncpg that does nothing but write.

One row per commit is what one sequential flow cannot beat; 50 and 500 rows per commit are what many flows at once could
share. A statement that writes nothing is the round trip alone.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from bench import server
from bench.floor import BODY
from bench.measure import Figure, Measures

FIGURES: Final = (
    Figure("commits of 1 row", "commits", "/s"),
    Figure("rows, 50 per commit", "rows_50", "/s"),
    Figure("rows, 500 per commit", "rows_500", "/s"),
    Figure("round trips that write nothing", "round_trips", "/s"),
)

TABLE: Final = """CREATE TABLE IF NOT EXISTS bench_floor (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)"""
INSERT: Final = "INSERT INTO bench_floor (body) VALUES ($1)"
INSERT_MANY: Final = "INSERT INTO bench_floor (body) SELECT * FROM unnest($1::bytea[])"


def whole(place: Path) -> Measures:
    """Everything, once per run."""

    async def measure() -> Measures:
        async with server.connection() as opened:
            await opened.execute(TABLE)
            return {
                "commits": await _rate(500, lambda: opened.execute(INSERT, BODY)),
                "rows_50": 50 * await _rate(100, lambda: opened.execute(INSERT_MANY, [BODY] * 50)),
                "rows_500": 500 * await _rate(20, lambda: opened.execute(INSERT_MANY, [BODY] * 500)),
                "round_trips": await _rate(1_000, lambda: opened.fetchval("SELECT 1")),
            }

    return asyncio.run(measure())


def beside(place: Path) -> Measures:
    """What every pass is compared with; short enough to be measured around each of them."""

    async def measure() -> Measures:
        async with server.connection() as opened:
            await opened.execute(TABLE)
            return {"commits": await _rate(300, lambda: opened.execute(INSERT, BODY))}

    return asyncio.run(measure())


async def _rate(times: int, action: Callable[[], Awaitable[Any]]) -> float:
    for _ in range(times // 10):
        await action()  # it is prepared and planned for good only after some
    began = time.perf_counter()
    for _ in range(times):
        await action()
    return times / (time.perf_counter() - began)


class Between:
    """Single-row commits between the pieces of a workload, in its process: see `bench.floor.Between`."""

    def __init__(self, opened: Any, body: bytes = BODY) -> None:
        self._connection = opened
        self._body = body
        self.times: list[float] = []

    async def commit(self, count: int = 1) -> None:
        for _ in range(count):
            began = time.perf_counter()
            await self._connection.execute(INSERT, self._body)
            self.times.append(time.perf_counter() - began)

    @property
    def seconds(self) -> float:
        return sum(self.times)

    @property
    def mean(self) -> float:
        return statistics.mean(self.times)

    @property
    def median(self) -> float:
        return statistics.median(self.times)
