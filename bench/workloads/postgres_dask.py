"""Jobs on a Dask cluster: 1,000 of 10 ms, and 1,000 empty ones. How long, against Dask alone?

The cluster is local: two workers of one thread each. Dask alone has 1,000 tasks of one `map`, and the time runs until
all results are there. perdure has one flow that fans out to 1,000 steps, and the time runs from its start to its
result. Both are measured in turns in one run; scheduler, server and engine share the machine with the workers.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import perdure
from bench import server
from bench.measure import Bar, Figure, Measures, Workload, verify
from perdure.clusters.dask import distributed_of_dask

JOBS: Final = 1_000
TURNS: Final = 2
QUEUE: Final = "bench"


def work(n: int, seconds: float) -> int:
    time.sleep(seconds)
    return n


@perdure.step(executor=QUEUE, retries=0)
def job(n: int, seconds: float) -> int:
    return work(n, seconds)


@perdure.flow
async def fan_out(ctx: perdure.Context, seconds: float) -> int:
    return sum(await ctx.map("jobs", lambda n: ctx.step("job", job, n, seconds), range(JOBS)))


def on_perdure(place: Path) -> Measures:
    with (
        server.schema() as url,
        distributed_of_dask().LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address=None
        ) as cluster,
    ):
        return asyncio.run(_on_perdure(url, cluster))


async def _on_perdure(url: str, cluster: Any) -> Measures:
    found: dict[str, list[float]] = {"dask": [], "dask_empty": [], "perdure": [], "perdure_empty": []}
    dispatch = perdure.Dispatch(QUEUE, dask=cluster.scheduler_address)
    async with perdure.open(url, workflows=[fan_out], dispatch=[dispatch]) as engine:
        await _ours(engine, 0.0)  # the workers import and connect
        await asyncio.to_thread(_dasks, cluster, 0.0)
        for _ in range(TURNS):
            for seconds, suffix in ((0.01, ""), (0.0, "_empty")):
                found["dask" + suffix].append(await asyncio.to_thread(_dasks, cluster, seconds))
                found["perdure" + suffix].append(await _ours(engine, seconds))
    best = {name: min(each) for name, each in found.items()}
    ratios = {"against": best["perdure"] / best["dask"], "against_empty": best["perdure_empty"] / best["dask_empty"]}
    return {**best, **ratios}


def _dasks(cluster: Any, seconds: float) -> float:
    with distributed_of_dask().Client(cluster, set_as_default=False) as client:
        began = time.perf_counter()
        results = client.gather(client.map(work, range(JOBS), seconds=seconds, pure=False))
        took = time.perf_counter() - began
    verify(sum(results) == sum(range(JOBS)), "Dask lost a task")
    return took


async def _ours(engine: perdure.Engine, seconds: float) -> float:
    began = time.perf_counter()
    handle = await engine.start(fan_out, seconds)
    total = await handle.result(120)
    took = time.perf_counter() - began
    verify(total == sum(range(JOBS)), "a job was lost")
    return took


WORKLOAD = Workload(
    "postgres-dask",
    "1,000 jobs on a local Dask cluster of 2 workers",
    (
        Figure("1,000 jobs of 10 ms, Dask alone", "dask", "s"),
        Figure("1,000 jobs of 10 ms", "perdure", "s"),
        Figure("1,000 jobs of 10 ms, against Dask alone", "against", "x", bar=Bar("<=", 1.3)),
        Figure("1,000 empty jobs, Dask alone", "dask_empty", "s"),
        Figure("1,000 empty jobs", "perdure_empty", "s"),
        Figure("1,000 empty jobs, against Dask alone", "against_empty", "x"),
    ),
    {"perdure": on_perdure},
    store="postgres",
    needs_floor=False,
)
