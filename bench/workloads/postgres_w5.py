"""W5 on PostgreSQL: a message to a waiting flow, and its answer, 200 times. How long is the round trip?

From the process of the engine, message and answer are one entry and one commit, and reading the answer is one more
round trip. From another process the message is posted into the inbox first (a commit of its own), the engine is told by
a notification, and so is whoever waits for the answer.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import perdure
from bench import server
from bench.floor_postgres import TABLE, Between
from bench.measure import Bar, Figure, Measures, Versus, Workload, in_commits, percentiles, verify
from bench.peers.environments import peers
from bench.workloads.w5_messages import MESSAGES, NO_MESSAGES, echo

KEY = "w5"


def on_perdure(place: Path) -> Measures:
    with server.schema() as url:
        near = asyncio.run(_near(url))
    with server.schema() as url:
        far = asyncio.run(_far(url))
    return {**near, **{f"far_{name}": value for name, value in far.items()}}


async def _near(url: str) -> Measures:
    async with perdure.open(url, workflows=[echo]) as opened:
        return await _talk(await opened.start(echo, MESSAGES))


async def _far(url: str) -> Measures:
    async with _engine_elsewhere(url), perdure.connect(url, workflows=[echo]) as client:
        return await _talk(await client.start(echo, MESSAGES, key=KEY))


async def _talk(handle: Any) -> Measures:
    times = []
    async with server.connection() as beside, aclosing(handle.watch("answer")) as answers:
        await beside.execute(TABLE)
        floor = Between(beside)
        for n in range(MESSAGES):
            began = time.perf_counter()
            await handle.send("ask", n)
            answer = await _answer(answers, n)
            times.append(time.perf_counter() - began)
            await floor.commit()
            verify(answer["total"] == sum(range(n + 1)), f"answer {n} was {answer}")
    result = await handle.result()
    verify(result == sum(range(MESSAGES)), f"the flow ended with {result}")
    return in_commits(percentiles(times), floor.median)


async def _answer(answers: AsyncIterator[Any], n: int) -> Any:
    async for answer in answers:
        if answer["asked"] == n:
            return answer
    raise AssertionError("the flow ended without an answer")


@asynccontextmanager
async def _engine_elsewhere(url: str) -> AsyncIterator[None]:
    code = f"from {__name__} import serve; serve({url!r})"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=PIPE, stdout=PIPE)
    assert child.stdin is not None and child.stdout is not None
    try:
        verify(await child.stdout.readline() == b"open\n", "the engine did not open")
        yield
    finally:
        child.stdin.close()
        await child.wait()


def serve(url: str) -> None:
    """What the other process does: an engine, until its input ends."""

    async def main() -> None:
        async with perdure.open(url, workflows=[echo]):
            print("open", flush=True)
            await asyncio.to_thread(sys.stdin.read)

    asyncio.run(main())


WORKLOAD = Workload(
    "postgres-W5",
    "message to a waiting flow, and its answer",
    (
        Figure("p50", "p50", "ms"),
        Figure("p95", "p95", "ms"),
        Figure("p50 in commits", "p50", "commits", of="commits", bar=Bar("<", 4)),
        Figure("p95 in commits", "p95", "commits", of="commits"),
        Figure("from another process, p50", "far_p50", "ms"),
        Figure("from another process, p50 in commits", "far_p50_commits", "commits"),
        Figure("from another process, p95 in commits", "far_p95_commits", "commits"),
    ),
    {"perdure": on_perdure},
    store="postgres",
    peers=peers("W5", "postgres"),
    versus=Versus("p50", "p50", "time", {"dbos": Bar(">=", 8)}),
    remarks=NO_MESSAGES,
)
