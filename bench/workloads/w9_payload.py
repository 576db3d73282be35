"""W9, payload: a step whose result is 100 bytes, and up to 1 MB. How much of the disk is left for the data?

One flow, one step after the other, as in W1, side by side with the peers; and 100 flows at once. The floor is a commit
of one row with a body of the same size, made between the steps: what SQLite or a connection of PostgreSQL needs for
that alone. No two results are the same, and none can be compressed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import perdure
from bench import floor
from bench.engines import DATABASE, fill, settle
from bench.growth import database
from bench.measure import NOISE, Curve, Figure, Measures, Store, Versus, Workload, payload, verify
from bench.peers.environments import peers
from bench.sizes import W9_STEPS

AT_ONCE: Final = {100: 10, 1_000: 10, 10_000: 10, 100_000: 4, 1_000_000: 2}
"""Bytes: how many steps each of the 100 flows does."""

FLOWS: Final = 100
EVERY: Final = 10
"""After so many steps the floor does as many commits, inside a step, and its time is taken off."""

_floor: Callable[[int], Awaitable[None]] | None = None


@perdure.flow
async def carry(ctx: perdure.Context, first: int, steps: int, size: int) -> int:
    total = 0
    for n in range(first, first + steps):
        total += len(await ctx.step("load", load, n, size))
    return total


async def load(n: int, size: int) -> bytes:
    if n % EVERY == 0 and _floor is not None:
        await _floor(EVERY)
    return payload(n, size)


def on_perdure(store: Store) -> Callable[[Path], Measures]:
    def run(place: Path) -> Measures:
        found: Measures = {}
        for point, size in enumerate(W9_STEPS):
            directory = place / str(size)
            directory.mkdir()
            with database(store, directory) as url:
                look = asyncio.run(_look(store, url, directory, size))
            found |= {f"{name}@{point}": value for name, value in look.items()}
            found |= {f"{name}_{size}": value for name, value in look.items()}
        return found

    return run


async def _look(store: Store, url: str, directory: Path, size: int) -> Measures:
    global _floor  # noqa: PLW0603  # a step takes plain data only, and this is none
    alone, each = W9_STEPS[size], AT_ONCE[size]
    async with perdure.open(url, workflows=[carry, fill]) as opened, _between(store, directory, size) as between:
        if store == "sqlite":
            await settle(opened, directory / DATABASE)
        await _seconds(opened, range(1), EVERY, size)
        _floor = between.commit
        seconds = await _seconds(opened, range(1, 2), alone, size) - between.seconds
        _floor = None
        commit = between.seconds / len(between.times)
        together = await _seconds(opened, range(2, 2 + FLOWS), each, size)
    return {
        "steps": alone / seconds,
        "bytes": alone * size / seconds,
        "commits": 1 / commit,
        "share": commit / (seconds / alone),
        "steps_at_once": FLOWS * each / together,
        "bytes_at_once": FLOWS * each * size / together,
        "against": commit / (together / FLOWS / each),
    }


async def _seconds(opened: perdure.Engine, flows: range, steps: int, size: int) -> float:
    began = time.perf_counter()
    handles = await asyncio.gather(*(opened.start(carry, flow * 1_000, steps, size) for flow in flows))
    results = await asyncio.gather(*(handle.result() for handle in handles))
    seconds = time.perf_counter() - began
    verify(results == [steps * size] * len(flows), "some bytes were lost")
    return seconds


@asynccontextmanager
async def _between(store: Store, directory: Path, size: int) -> AsyncIterator[Any]:
    """The floor of either store, with rows of this size."""
    body = NOISE[:size]
    if store == "sqlite":
        with closing(floor.Between(directory, body)) as between:
            yield between
        return
    from bench import floor_postgres, server

    async with server.connection() as opened:
        await opened.execute(floor_postgres.TABLE)
        yield floor_postgres.Between(opened, body)


def _workload(name: str, store: Store) -> Workload:
    return Workload(
        name,
        "a step with a result of 100 bytes, and up to 1 MB",
        (
            *(
                Figure(f"steps of one run, {label}", f"steps_{size}", "/s")
                for size, label in zip(W9_STEPS, LABELS, strict=True)
            ),
            *(
                Figure(f"share of the floor, {label}", f"share_{size}", "%")
                for size, label in zip(W9_STEPS, LABELS, strict=True)
            ),
            Figure("data of 100 flows at once, results of 1 MB, per second", "bytes_at_once_1000000", "MB"),
        ),
        {"perdure": on_perdure(store)},
        once=True,
        needs_floor=False,  # it has its own, between the steps
        store=store,
        peers=peers("W9", store),
        versus=Versus("steps of one run, 100 KB", "steps_100000", "rate"),
        curve=Curve(
            "result",
            dict(enumerate(LABELS)),
            (
                Figure("floor: commits of one row", "commits", "/s"),
                Figure("steps, one flow", "steps", "/s"),
                Figure("share of the floor", "share", "%"),
                Figure("data per second", "bytes", "MB"),
                Figure("steps, 100 flows at once", "steps_at_once", "/s"),
                Figure("against the floor", "against", "x"),
                Figure("data per second", "bytes_at_once", "MB"),
            ),
        ),
    )


LABELS: Final = ("100 B", "1 KB", "10 KB", "100 KB", "1 MB")
WORKLOAD = _workload("W9", "sqlite")
POSTGRES = _workload("postgres-W9", "postgres")
