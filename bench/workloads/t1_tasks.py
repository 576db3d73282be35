"""T1, tasks: 300 owners ask at once, a person answers each. How many a second, against flows that wait for a message?

The bars are ratios in one run: at least 0.4 of the flow's round trips, 0.3 with a claim in between. The first page
of 50 among 100,000 open tasks takes at most 1.5 times what it takes among 1,000.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import apsw

import perdure
from bench.engines import engine
from bench.measure import Bar, Figure, Measures, Workload, verify
from perdure.kernel.batch import Batch
from perdure.kernel.task import TaskRows
from perdure.ports.store import TaskFilter
from perdure.stores.answers import asked
from perdure.stores.sqlite import SqliteStore
from perdure.testing.stores.rows import entry
from perdure.testing.stores.tasks import task

OWNERS = 300
ROUNDS = 3
FEW, MANY = 1_000, 100_000
PAGES = 200
ANN = perdure.Actor("ann", roles=["clerk"])


@perdure.flow
async def hears(ctx: perdure.Context) -> object:
    return (await ctx.receive("go")).body


@perdure.flow
async def asks(ctx: perdure.Context) -> str:
    return (await ctx.task("approve", roles=["clerk"])).outcome


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    rates: dict[str, list[float]] = {"flows": [], "tasks": [], "claimed": []}
    async with engine(place, [hears, asks]) as opened:
        for number in range(ROUNDS + 1):
            found = {
                "flows": await _messages(opened, number),
                "tasks": await _tasks(opened, f"{number}", claim=False),
                "claimed": await _tasks(opened, f"{number}c", claim=True),
            }
            if number:  # the first round gets warm
                for name, rate in found.items():
                    rates[name].append(rate)
    best = {name: max(found) for name, found in rates.items()}
    ratios = {"ratio": best["tasks"] / best["flows"], "claimed_ratio": best["claimed"] / best["flows"]}
    return {**best, **ratios, "page": await _page_ratio(place), "timers": float(await _timers(place))}


async def _messages(opened: perdure.Engine, number: int) -> float:
    async def one(key: str) -> None:
        handle = await opened.start(hears, key=key)
        await handle.send("go", 1)
        await handle.result()

    began = time.perf_counter()
    await asyncio.gather(*(one(f"m{number}.{n}") for n in range(OWNERS)))
    return OWNERS / (time.perf_counter() - began)


async def _tasks(opened: perdure.Engine, number: str, *, claim: bool) -> float:
    began = time.perf_counter()
    handles = await asyncio.gather(*(opened.start(asks, key=f"t{number}.{n}") for n in range(OWNERS)))
    found: list[perdure.TaskInfo] = []
    while len(found) < OWNERS:
        found = await opened.tasks.list(by=ANN, limit=OWNERS)

    async def one(id: str) -> None:
        if claim:
            await opened.tasks.claim(id, by=ANN)
        await opened.tasks.complete(id, by=ANN)

    await asyncio.gather(*(one(each.id) for each in found))
    results = await asyncio.gather(*(handle.result() for handle in handles))
    verify(set(results) == {"done"}, f"owners ended with {set(results)}")
    return OWNERS / (time.perf_counter() - began)


async def _timers(place: Path) -> int:
    """How many rows of timers open tasks without times have, while no instance stays in memory."""
    file = place / "idle.db"
    async with perdure.open(file, workflows=[asks], cache=0) as opened:
        for n in range(OWNERS):
            await opened.start(asks, key=str(n))
        while await opened.tasks.count() < OWNERS:  # noqa: ASYNC110
            await asyncio.sleep(0)
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        ((found,),) = connection.execute("SELECT count(*) FROM open_work WHERE kind = 'timer'")
        connection.close()
    return int(found)


async def _page_ratio(place: Path) -> float:
    """How much longer a page takes among many tasks than among few."""
    store = SqliteStore(place / "pages.db")
    await asked(store.acquire, "bench")
    times = []
    for begin, end in ((1, FEW + 1), (FEW + 1, MANY + 1)):
        for first in range(begin, end, 1000):
            batch = Batch()
            rows: list[TaskRows] = [task(n, due=10**9 * (n % 977)) for n in range(first, min(first + 1000, end))]
            batch.journal = [entry(each.row.id, each.row.id) for each in rows]
            batch.tasks = {each.row.id: each for each in rows}
            await asked(store.commit, batch)
        taken = []
        for _ in range(PAGES):
            began = time.perf_counter()
            rows_found = await store.tasks(TaskFilter(who=(("r:clerk", False),), order="due"))
            taken.append(time.perf_counter() - began)
            verify(len(rows_found) == 50, f"a page has {len(rows_found)} tasks")
        times.append(statistics.median(taken))
    store.close()
    return times[1] / times[0]


WORKLOAD = Workload(
    "T1",
    f"{OWNERS} owners at once ask a person",
    (
        Figure("tasks", "tasks", "/s"),
        Figure("against flows that wait for a message", "ratio", "x", bar=Bar(">=", 0.4)),
        Figure("with a claim", "claimed", "/s"),
        Figure("with a claim, against the flows", "claimed_ratio", "x", bar=Bar(">=", 0.3)),
        Figure(f"timers of {OWNERS} open tasks", "timers", bar=Bar("<=", 0)),
        Figure(f"a page among {MANY:,} tasks against {FEW:,}", "page", "x", bar=Bar("<=", 1.5)),
    ),
    {"perdure": on_perdure},
)
