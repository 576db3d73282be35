"""`queue(...)` with workers in processes of their own, on PostgreSQL: answers, errors, killed workers."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import perdure
from perdure.processes import Call, Complete, Process, error, queue, result, start

FAR = "tests.processes.far"


@asynccontextmanager
async def worker(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = ["-m", "perdure", "worker", FAR, "--queue", "far", "--db", url]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr is not None and b"serving far" in await process.stderr.readline()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def small(*steps: Any) -> Process:
    return Process("small", version="1.0.0", steps=list(steps))


async def begun(place: Path, count: int = 1) -> list[str]:
    """The idempotency keys of the runs, once there are so many."""
    async with asyncio.timeout(60):
        while len(keys := place.read_text().splitlines() if place.exists() else []) < count:  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.02)
    return keys


async def test_a_worker_process_performs_the_call_and_its_error_takes_the_branch(postgres: str):
    process = small(
        Call("price", queue("far", f"{FAR}:price"), {"sku": start.sku, "count": 2}, result="price"),
        Call("no", queue("far", f"{FAR}:refuse"), retries=0, on_failure=[Complete([result.price, error.message])]),
    )

    async with perdure.open(postgres, workflows=[process]) as engine, worker(postgres) as far:
        found = await (await engine.start(process, sku="x", key="a")).result(timeout=60)
        assert await engine.queries.check() == []

    assert found == [{"sku": "x", "sum": 6, "pid": far.pid}, "ValueError: no such part"]
    assert far.pid != os.getpid()


async def test_the_call_of_a_killed_worker_is_repeated_by_another_under_the_same_key(postgres: str, tmp_path: Path):
    place, go = tmp_path / "keys", tmp_path / "go"
    payload = {"place": start.place, "go": start.go}
    process = small(
        Call("wait", queue("far", f"{FAR}:wait"), payload, attempt_timeout=timedelta(minutes=5), result="r"),
        Complete(result.r),
    )

    async with perdure.open(postgres, workflows=[process]) as engine:
        handle = await engine.start(process, place=str(place), go=str(go), key="a")
        async with worker(postgres) as first:
            await begun(place)
            first.send_signal(signal.SIGKILL)
            await first.wait()
        async with worker(postgres):
            keys = await begun(place, 2)
            go.touch()
            assert await handle.result(timeout=60) == "done"

    assert len(keys) == 2 and len(set(keys)) == 1


async def test_a_once_call_whose_worker_was_killed_is_unknown(postgres: str, tmp_path: Path):
    place, go = tmp_path / "keys", tmp_path / "go"
    payload = {"place": start.place, "go": start.go}
    process = small(
        Call(
            "pay", queue("far", f"{FAR}:wait"), payload, once=True, on_unknown=[Complete([error.code, error.location])]
        )
    )

    async with perdure.open(postgres, workflows=[process]) as engine:
        handle = await engine.start(process, place=str(place), go=str(go), key="a")
        async with worker(postgres) as first:
            await begun(place)
            first.send_signal(signal.SIGKILL)
            await first.wait()
        async with worker(postgres):
            assert await handle.result(timeout=60) == ["unknown", "pay"]

    assert len(await begun(place)) == 1
