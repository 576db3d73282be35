"""S3: a thousand watchers of one list, and ten changes a second: does each hear of each change, once, and how late?

Each watcher is a connection of its own to `/stream`. A change is a start over HTTP; its time counts from when
the request is sent, so it has the commit in it. Memory is that of the server's process, divided.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from bench.measure import Bar, Figure, Measures, Workload, percentiles, verify
from bench.served import INSTANCES, Connection, resident_of, running, watchers
from bench.server import processor_time_of

WATCHERS: Final = 1_000
A_SECOND: Final = 10
CHANGES: Final = 80
BEFORE: Final = 5_000
"""Changes before: a server has such behind it, and remembers the last ones."""


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_measure(place))


async def _measure(place: Path) -> Measures:
    async with running("perdure", str(place / "web.db")) as served:
        await served.open()
        async with watchers(served, 20, "list:workflow:waiting"):
            await served.order("fill", BEFORE)
            before = resident_of(served)
            async with watchers(served, WATCHERS, "list:workflow:waiting") as found, Connection(served) as connection:
                memory, worked = resident_of(served) - before, processor_time_of(served.pid)
                sent: dict[str, float] = {}
                begun = time.perf_counter()
                for n in range(CHANGES):
                    await asyncio.sleep(max(0.0, begun + n / A_SECOND - time.perf_counter()))
                    sent[f"waiting/change-{n}"] = time.perf_counter()
                    await connection.ask(INSTANCES, b'{"workflow": "waiting", "key": "change-%d"}' % n)
                async with asyncio.timeout(60):
                    while any(len(each.heard) < CHANGES for each in found):  # noqa: ASYNC110  # each has its own
                        await asyncio.sleep(0.05)
                worked = processor_time_of(served.pid) - worked
                late = [at - sent[key] for each in found for key, times in each.heard.items() for at in times]
        verify(all(set(each.heard) == set(sent) for each in found), "a watcher did not hear of a change")
        verify(len(late) == WATCHERS * CHANGES, "a watcher heard of a change twice")
    return {
        **percentiles(late),
        "memory": memory / WATCHERS,
        "work": worked / (WATCHERS * CHANGES),
        "heard": len(late) / (WATCHERS * CHANGES),
    }


WHY: Final = (
    "a change for a thousand is 35 ms of one core, of which this machine left the server a part: its load was above 9 "
    "on two cores, and the client that reads a thousand streams is another process on them"
)

WORKLOAD = Workload(
    "S3-watchers",
    f"{WATCHERS:,} watchers of a list, {A_SECOND} changes a second",
    (
        Figure("each change heard by each watcher, times", "heard", bar=Bar(">=", 1)),
        Figure("from the request of a change until a watcher has it, p50", "p50", "ms"),
        Figure("the same, p99", "p99", "ms", bar=Bar("<=", 0.15, WHY)),
        Figure("memory of a watcher", "memory", "KB", bar=Bar("<=", 40e3)),
        Figure("processor time of a change for a watcher", "work", "µs"),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
)
