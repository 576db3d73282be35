"""C1, cells: 10,000 events over 1,000 cells, sent at once. How many a second, from the caller to the durable state?"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench.engines import engine
from bench.measure import Figure, Measures, Workload, verify

EVENTS = 10_000
CELLS = 1_000


class Added(perdure.Record, name="bench/Added@1"):
    id: str
    n: perdure.Nat


class Total(perdure.Record, name="bench/Total@1"):
    n: perdure.Nat
    events: perdure.Nat


@perdure.cell("bench/counter@1", key="id", effects=[])
def counter(state: Total | None, event: Added) -> perdure.Next:
    before = state or Total(0, 0)
    return perdure.Next(Total(before.n + event.n, before.events + 1))


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    async with engine(place, [counter]) as opened:
        before = opened.counts["entries"]
        began, worked = time.perf_counter(), time.process_time()
        await asyncio.gather(*(opened.send(Added(f"c{n % CELLS}", 1)) for n in range(EVENTS)))
        while opened.counts["entries"] - before < 2 * EVENTS:  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0)
        seconds, cpu = time.perf_counter() - began, time.process_time() - worked
        for n in (0, CELLS - 1):
            state = await opened.state(counter, f"c{n}")
            verify(state == Total(EVENTS // CELLS, EVENTS // CELLS), f"cell {n} has {state}")
    return {"events": EVENTS / seconds, "cpu": cpu / EVENTS}


WORKLOAD = Workload(
    "C1",
    f"{EVENTS:,} events over {CELLS:,} cells",
    (
        Figure("events", "events", "/s"),
        Figure("against single-row commits", "events", "x", of="rate"),
        Figure("processor time per event", "cpu", "µs"),
    ),
    {"perdure": on_perdure},
)
