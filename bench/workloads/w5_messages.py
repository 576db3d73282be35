"""W5: a message to a waiting flow, and its answer, 200 times. How long is the round trip?

The flow publishes its answer, and the caller reads it through the handle. Message and answer are one entry,
so one commit is the least. Reading is repeated until the answer is there, and the number of reads is
reported: it should be one.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench import sizes
from bench.engines import engine
from bench.floor import Between
from bench.measure import Bar, Figure, Measures, Versus, Workload, in_commits, latencies, percentiles, verify
from bench.peers.environments import peers

MESSAGES = sizes.W5_MESSAGES


@perdure.flow
async def echo(ctx: perdure.Context, messages: int) -> int:
    total = 0
    for _ in range(messages):
        message = await ctx.receive("ask")
        total += message.body
        ctx.publish("answer", {"asked": message.body, "total": total})
    return total


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    times, reads = [], 0
    floor = Between(place)
    async with engine(place, [echo]) as opened:
        handle = await opened.start(echo, MESSAGES)
        for n in range(MESSAGES):
            began = time.perf_counter()
            await handle.send("ask", n)
            answer = None
            while answer is None or answer["asked"] != n:
                answer = await handle.read("answer")
                reads += 1
            times.append(time.perf_counter() - began)
            await floor.commit()
            verify(answer["total"] == sum(range(n + 1)), f"answer {n} was {answer}")
        result = await handle.result()
    verify(result == sum(range(MESSAGES)), f"the flow ended with {result}")
    return {**in_commits(percentiles(times), floor.median), "reads": reads / MESSAGES}


NO_MESSAGES = {
    "langgraph": "not like for like: no run is waiting; the caller executes it until its next interrupt, "
    "with Command(resume=...), and the answer is what that returns"
}

WORKLOAD = Workload(
    "W5",
    "message to a waiting flow, and its answer",
    (*latencies("p50", "p95"), Figure("reads per answer", "reads")),
    {"perdure": on_perdure},
    peers=peers("W5", "sqlite"),
    versus=Versus("p50", "p50", "time", {"dbos": Bar(">=", 8)}),
    remarks=NO_MESSAGES,
)
