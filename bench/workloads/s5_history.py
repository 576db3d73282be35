"""S5: the history of 10,000 entries over HTTP: its first page, further pages, and the state at any entry.

The first page of a history that was not read before folds all of it: it is compared with one fold in another process.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from statistics import median
from typing import Final

import perdure
from bench.growth import in_process
from bench.measure import Bar, Figure, Measures, Workload
from bench.served import INSTANCES, Connection, running

STEPS: Final = 9_998
TIMES: Final = 5
PAGES: Final = 40


def on_perdure(place: Path) -> Measures:
    file = str(place / "web.db")
    found = asyncio.run(_measure(file)) | in_process(fold, file)
    return found | {"first_fold": found["first"] / found["fold"]}


async def _measure(file: str) -> Measures:
    dice = random.Random(7)
    async with running("perdure", file) as served:
        await served.order("spread", STEPS)
        first: list[float] = []
        for _ in range(TIMES):
            await served.open()  # a new server has read nothing
            async with Connection(served) as connection:
                base = f"{INSTANCES}/spreading/c-{STEPS}/-"
                await connection.ask(f"{INSTANCES}?limit=1")
                first.append(await _time(connection, f"{base}/history?limit=50"))
                if len(first) == TIMES:
                    pages = [
                        await _time(connection, f"{base}/history?limit=50&after={dice.randrange(STEPS)}")
                        for _ in range(PAGES)
                    ]
                    states = [
                        await _time(connection, f"{base}/at/{dice.randrange(1, STEPS)}?limit=50") for _ in range(PAGES)
                    ]
            await served.order("close_server")
    return {"first": median(first), "page": median(pages), "at": median(states)}


async def _time(connection: Connection, path: str) -> float:
    began = time.perf_counter()
    await connection.ask(path)
    return time.perf_counter() - began


async def fold(file: str) -> Measures:
    """Read and fold it as the server does, without HTTP."""
    from perdure.kernel.events import Address
    from perdure.server.readers import FoldedHistory

    async with perdure.connect(file) as client:
        taken = []
        for _ in range(TIMES):
            began = time.perf_counter()
            head = await client.queries.head(Address("spreading", f"c-{STEPS}"))
            assert head is not None
            FoldedHistory().fold(await client.queries.history(head.id))
            taken.append(time.perf_counter() - began)
    return {"fold": median(taken)}


WORKLOAD = Workload(
    "S5-history",
    "a history of 10,000 entries over HTTP",
    (
        Figure("one fold", "fold", "ms"),
        Figure("first page, cold", "first", "ms"),
        Figure("first page, cold, against one fold", "first_fold", "x", bar=Bar("<=", 1.3)),
        Figure("a further page", "page", "ms", bar=Bar("<=", 0.005)),
        Figure("the state at an entry, with its last 50 operations", "at", "ms", bar=Bar("<=", 0.005)),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
)
