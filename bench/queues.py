"""Queue throughput on PostgreSQL: jobs per second of one worker process, with one engine process.

    python bench/queues.py [--jobs 20000] [--concurrency 200]

All jobs are queued first; then the worker starts, and it is measured from its first answer to its last. The server is
the one of the tests (tests/postgres.py), with fsync on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import perdure
from perdure import Context
from perdure.app import run_async

ROOT = Path(__file__).parents[1]


@perdure.step(executor="bench", retries=0)
async def double(n: int) -> int:
    return 2 * n


@perdure.flow
async def one_job(ctx: Context, n: int) -> int:
    return await ctx.step("double", double, n)


async def recorded(engine: perdure.Engine, entries: int) -> None:
    """Each job is two entries of its flow: one that asks, one that has the answer."""
    while engine.counts["entries"] < entries:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def begun(url: str, concurrency: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "perdure.cli", "worker", "bench/queues.py", "--queue", "bench"]
    return subprocess.Popen([*command, "--concurrency", str(concurrency), "--db", url], cwd=ROOT)


async def measure(url: str, jobs: int, concurrency: int) -> None:
    async with perdure.open(url, workflows=[one_job]) as engine:
        began = time.perf_counter()
        for at in range(0, jobs, 1000):
            starts = [engine.start(one_job, n, key=f"k{n}") for n in range(at, min(at + 1000, jobs))]
            await asyncio.gather(*starts)
        print(f"queued     {jobs / (time.perf_counter() - began):8,.0f} jobs/s")
        worker = begun(url, concurrency)
        try:
            await recorded(engine, jobs + 1)
            began, cpu = time.perf_counter(), time.process_time()
            await recorded(engine, 2 * jobs)
            took = time.perf_counter() - began
            print(
                f"performed  {jobs / took:8,.0f} jobs/s  (engine: {(time.process_time() - cpu) / took:.0%} of a core)"
            )
        finally:
            worker.terminate()
            worker.wait()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--concurrency", type=int, default=200)
    options.add_argument("--shards", type=int, default=16)
    given = options.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.postgres import server

    found = server()
    found.execute("ALTER SYSTEM SET fsync = on", "ALTER SYSTEM SET full_page_writes = on", "SELECT pg_reload_conf()")
    with found.schema(given.shards) as url:
        os.environ.setdefault("PYTHONPATH", str(ROOT / "src"))
        run_async(lambda: measure(url, given.jobs, given.concurrency))


if __name__ == "__main__":
    main()
