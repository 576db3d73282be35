"""What workloads on perdure share: an engine on a new database whose write-ahead log has gone round once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import perdure
from bench.floor import FILL_BYTES, wal_round

DATABASE: Final = "perdure.db"


async def number(n: int) -> int:
    """The step of most workloads: it does nothing, so that what is measured is everything around it."""
    return n


@perdure.flow(name="bench.fill")
async def fill(ctx: perdure.Context) -> None:
    await ctx.step("fill", _some_bytes)


async def _some_bytes() -> bytes:
    return bytes(FILL_BYTES)


@asynccontextmanager
async def engine(place: Path, workflows: Iterable[Any], *, settled: bool = True) -> AsyncIterator[perdure.Engine]:
    async with perdure.open(place / DATABASE, workflows=[*workflows, fill]) as opened:
        if settled:
            await settle(opened, place / DATABASE)
        yield opened


async def settle(engine: perdure.Engine, database: Path) -> None:
    """Fill the log until it goes round: see `bench/floor.py`. This warms up the code, too."""
    first = wal_round(database)
    while wal_round(database) == first:
        await (await engine.start(fill)).result()
