"""S4: what a server takes from its engine, which runs on the same loop; and what it takes while nothing happens.

Throughput is W2's: 1,000 flows of 5 steps at once. In turns: without a server, with one that is asked nothing, and with
one that is asked for a hundred lists a second and has a hundred watchers of a list. An engine is one thread, so what it
loses is processor time; wall time says the same where nobody else uses the machine. Then all is idle, and the
processor time of seconds is compared: of the engine alone, with its server, and with a hundred watchers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bench.measure import Bar, Figure, Measures, Workload
from bench.served import INSTANCES, Connection, Served, running, watchers
from bench.server import processor_time_of

ROUNDS: Final = 7
A_SECOND: Final = 100
WATCHERS: Final = 100
IDLE_SECONDS: Final = 6.0
LIST: Final = "list:workflow:waiting"


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_measure(place))


async def _measure(place: Path) -> Measures:
    async with running("perdure", str(place / "web.db")) as served:
        await served.order("fill", 1_000)
        found: Measures = {}
        lost: dict[str, list[float]] = {}
        await served.order("work", "warm")
        for turn in range(ROUNDS):
            taken = {"alone": await _work(served, f"alone-{turn}")}
            await served.open()
            taken["idle"] = await _work(served, f"idle-{turn}")
            async with watchers(served, WATCHERS, LIST), _asking(served):
                taken["loaded"] = await _work(served, f"loaded-{turn}")
            await served.order("close_server")
            for name in ("idle", "loaded"):
                for how in ("wall", "work"):
                    share = 1 - taken["alone"][how] / taken[name][how]
                    lost.setdefault(f"{name}_{how}", []).append(share)
        for name, values in lost.items():
            found |= {name: sorted(values)[ROUNDS // 2], f"{name}_least": min(values), f"{name}_most": max(values)}
        return found | await _idle(served)


async def _work(served: Served, name: str) -> Measures:
    """The seconds that the flows take, and the processor time of the process meanwhile."""
    before = processor_time_of(served.pid)
    wall = await served.order("work", name)
    return {"wall": wall, "work": processor_time_of(served.pid) - before}


@asynccontextmanager
async def _asking(served: Served) -> AsyncIterator[None]:
    """Lists at a steady pace, over a few connections."""

    async def ask(first: float, pace: float) -> None:
        async with Connection(served) as connection:
            due = first
            while True:
                await asyncio.sleep(due - time.perf_counter())
                await connection.ask(f"{INSTANCES}?limit=50")
                due = max(due + pace, time.perf_counter())

    connections = 4
    now = time.perf_counter()
    asking = [asyncio.ensure_future(ask(now + n / A_SECOND, connections / A_SECOND)) for n in range(connections)]
    yield
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


async def _idle(served: Served) -> Measures:
    engine = (await _seconds(served))[0]
    await served.open()
    alone, questions = await _seconds(served)
    async with watchers(served, WATCHERS, LIST):
        watched, more = await _seconds(served)
    return {
        "engine_cpu": engine, "server_cpu": alone - engine, "watched_cpu": watched - engine,
        "questions": questions, "watched_questions": more,
    }  # fmt: skip


async def _seconds(served: Served) -> tuple[float, float]:
    """The share of a core that the process takes, and questions a second, while nothing happens."""
    await asyncio.sleep(1)
    worked, asked = processor_time_of(served.pid), await served.order("questions")
    await asyncio.sleep(IDLE_SECONDS)
    worked, asked = processor_time_of(served.pid) - worked, await served.order("questions") - asked
    return worked / IDLE_SECONDS, asked / IDLE_SECONDS


WHY: Final = (
    "on a busy machine the flows take three times as long by the clock, and so have three times as many lists and "
    "events beside them; of processor time that is told in ticks of 10 ms, a turn has 30"
)


def _lost(label: str, name: str, bar: Bar) -> tuple[Figure, ...]:
    return (
        Figure(f"throughput {label}, by processor time", f"{name}_work", "%", bar=bar),
        Figure(f"the same, the least of {ROUNDS} turns", f"{name}_work_least", "%"),
        Figure("the same, the most", f"{name}_work_most", "%"),
        Figure(f"{label}, by wall time", f"{name}_wall", "%"),
        Figure(f"the same, the least of {ROUNDS} turns", f"{name}_wall_least", "%"),
        Figure("the same, the most", f"{name}_wall_most", "%"),
    )


WORKLOAD = Workload(
    "S4-engine",
    "what a server takes from its engine",
    (
        *_lost("lost to an idle server", "idle", Bar("<=", 0.03, WHY)),
        *_lost(f"lost to {A_SECOND} lists a second and {WATCHERS} watchers", "loaded", Bar("<=", 0.12, WHY)),
        Figure("idle engine, of a core", "engine_cpu", "%"),
        Figure("idle server, beyond its engine", "server_cpu", "%", bar=Bar("<=", 0.005)),
        Figure(f"with {WATCHERS} idle watchers", "watched_cpu", "%", bar=Bar("<=", 0.01)),
        Figure("questions a second of an idle server", "questions", bar=Bar("<=", 0)),
        Figure(f"with {WATCHERS} idle watchers", "watched_questions"),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
)
