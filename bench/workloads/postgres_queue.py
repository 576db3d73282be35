"""Jobs of a queue: 10,000 flows of one step that a worker process performs. How many per second?

All jobs are queued first, by the engine of this process. Then the worker starts, and the time runs from the first
result to the last: claims, the steps, their answers, and the ends of the flows. Engine and worker are one process each.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Final

import perdure
from bench import server
from bench.measure import Bar, Figure, Measures, Workload, verify

JOBS = 10_000
AT_ONCE = 1_000
CONCURRENCY = 500
QUEUE: Final = "bench"


@perdure.step(executor=QUEUE, retries=0)
async def double(n: int) -> int:
    return 2 * n


@perdure.flow
async def one_job(ctx: perdure.Context, n: int) -> int:
    return await ctx.step("double", double, n)


def on_perdure(place: Path) -> Measures:
    with server.schema() as url:
        return asyncio.run(_on_perdure(url))


async def _on_perdure(url: str) -> Measures:
    async with server.connection() as beside, perdure.open(url, workflows=[one_job]) as opened:
        began = time.perf_counter()
        handles = []
        for first in range(0, JOBS, AT_ONCE):
            handles += await asyncio.gather(*(opened.start(one_job, n) for n in range(first, first + AT_ONCE)))
        queued = time.perf_counter() - began
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perdure.cli", "worker", __name__, "--db", url),
            *("--queue", QUEUE, "--concurrency", str(CONCURRENCY)),
            stdout=sys.stderr,  # what this process prints are its measures
        )
        try:
            waiting = [asyncio.ensure_future(handle.result()) for handle in handles]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            before = sum(each.done() for each in waiting)
            began, worked, served = time.perf_counter(), time.process_time(), await server.processor_time(beside)
            results = await asyncio.gather(*waiting)
            seconds, worked = time.perf_counter() - began, time.process_time() - worked
            served = await server.processor_time(beside) - served
            work = server.processor_time_of(worker.pid)
        finally:
            worker.terminate()
            await worker.wait()
    verify(results == [2 * n for n in range(JOBS)], "the jobs gave other results than they should")
    jobs = JOBS - before
    return {
        "queued": JOBS / queued,
        "jobs": jobs / seconds,
        "engine": worked / jobs,
        "worker": work / JOBS,
        "server": served / jobs,
    }


WORKLOAD = Workload(
    "postgres-queue",
    "10,000 jobs of a queue, one worker process",
    (
        Figure("queued, with the start of their flows", "queued", "/s"),
        Figure("performed, with the ends of their flows", "jobs", "/s", bar=Bar(">=", 5_000)),
        Figure("processor time per job, engine", "engine", "µs"),
        Figure("processor time per job, worker", "worker", "µs"),
        Figure("processor time per job, server", "server", "µs"),
    ),
    {"perdure": on_perdure},
    store="postgres",
    needs_floor=False,
)
