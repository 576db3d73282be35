"""Workers in processes of their own, on PostgreSQL: killed, cancelled, drained, and of other code."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import perdure

from . import queue_jobs
from .queue_jobs import careful, doubling, waiting

FLOWS = [doubling, waiting, careful]
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def worker(url: str, *options: str, module: str = queue_jobs.__name__) -> AsyncIterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "perdure.cli", "worker", module, "--queue", "work", "--db", url, *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    process = subprocess.Popen(  # noqa: ASYNC220  # it returns when the process has begun
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert "serving" in await asyncio.to_thread(process.stderr.readline)  # the engine's loop is this one
        yield process
    finally:
        process.kill()
        process.communicate()


@asynccontextmanager
async def engine(url: str) -> AsyncIterator[perdure.Engine]:
    async with perdure.open(url, workflows=FLOWS) as opened:
        yield opened
        assert await opened.queries.check() == []


async def said(place: Path, word: str, count: int = 1) -> list[str]:
    """The traces, once one of them is there so often."""
    async with asyncio.timeout(60):
        while (text := place.read_text() if place.exists() else "").count(word) < count:  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.02)
    return [line.partition(" ")[0] for line in text.splitlines()]


async def test_a_worker_process_performs_what_flows_ask_for(postgres: str) -> None:
    async with engine(postgres) as client, worker(postgres) as process:
        handles = [await client.start(doubling, n) for n in range(100)]
        assert [await handle.result(60) for handle in handles] == [2 * n for n in range(100)]
        process.send_signal(signal.SIGTERM)
        out, _ = await asyncio.to_thread(process.communicate, timeout=60)

    assert process.returncode == 0
    assert "100 answered" in out and "100 claimed" in out


async def test_the_job_of_a_killed_worker_is_delivered_to_another(postgres: str, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    async with engine(postgres) as client:
        handle = await client.start(waiting, str(place), str(go))
        async with worker(postgres) as first:
            await said(place, "begun:1")
            first.kill()
        async with worker(postgres):
            await said(place, "begun:2")
            go.touch()
            assert await handle.result(60) == "done"
    assert (await said(place, "ended")) == ["begun:1", "begun:2", "ended"]


async def test_a_paused_worker_that_wakes_is_fenced(postgres: str, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    async with engine(postgres) as client:
        handle = await client.start(waiting, str(place), str(go))
        async with worker(postgres) as first:
            await said(place, "begun:1")
            first.send_signal(signal.SIGSTOP)
            async with worker(postgres) as second:
                await said(place, "begun:2")
                go.touch()
                assert await handle.result(60) == "done"
                second.send_signal(signal.SIGTERM)
            first.send_signal(signal.SIGCONT)
            await said(place, "ended", 2)
            await asyncio.sleep(0.1)
            first.send_signal(signal.SIGTERM)
            out, _ = await asyncio.to_thread(first.communicate, timeout=60)
    assert "1 claimed" in out and "1 fenced" in out and "answered" not in out, out


async def test_why_says_who_has_the_job_or_that_nobody_has(postgres: str, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    async with engine(postgres) as client:
        handle = await client.start(waiting, str(place), str(go), key="k")
        before = await why(postgres)
        async with worker(postgres):
            await said(place, "begun:1")
            after = await why(postgres)
            go.touch()
            await handle.result(60)

    assert "is in the queue work since " in before and f"for {queue_jobs.__name__}:waits" in before
    assert f"perdure worker {queue_jobs.__name__} --queue work" in before
    assert "queue work, worker " in after


async def why(url: str) -> str:
    command = [sys.executable, "-m", "perdure.cli", "why", "waiting/k", "--db", url]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=subprocess.PIPE)
    out, _ = await process.communicate()
    return " ".join(out.decode().split())


async def test_a_step_that_may_run_once_is_unknown_when_its_worker_is_killed(postgres: str, tmp_path: Path) -> None:
    place = tmp_path / "traces"
    async with engine(postgres) as client:
        handle = await client.start(careful, str(place))
        async with worker(postgres) as process:
            await said(place, "begun:1")
            process.kill()
        assert await handle.result(60) == "unknown"


async def test_cancelling_reaches_the_worker_and_progress_comes_back(postgres: str, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    async with engine(postgres) as client:
        handle = await client.start(waiting, str(place), str(go))
        async with worker(postgres):
            async with asyncio.timeout(30):
                while not (frames := await handle.progress()):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert [(frame.done, frame.note) for frame in frames] == [(1, "waiting")]

            await handle.cancel()

            assert await said(place, "cut") == ["begun:1", "cut"]


async def test_a_stopped_worker_lets_its_steps_end(postgres: str, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    async with engine(postgres) as client:
        handle = await client.start(waiting, str(place), str(go))
        async with worker(postgres) as process:
            await said(place, "begun:1")
            process.send_signal(signal.SIGTERM)
            go.touch()
            await asyncio.to_thread(process.communicate, timeout=60)
        assert await handle.result(60) == "done"
    assert await said(place, "ended") == ["begun:1", "ended"]


async def test_what_a_stopped_worker_does_not_end_is_given_back(postgres: str, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    async with engine(postgres) as client:
        handle = await client.start(waiting, str(place), str(go))
        async with worker(postgres, "--drain", "0") as process:
            await said(place, "begun:1")
            process.send_signal(signal.SIGTERM)
            out, _ = await asyncio.to_thread(process.communicate, timeout=60)
        assert "1 given back" in out
        async with worker(postgres):
            assert await said(place, "begun:1", 2) == ["begun:1", "cut", "begun:1"]
            go.touch()
            assert await handle.result(60) == "done"


async def test_a_worker_of_other_code_leaves_the_job_alone(postgres: str) -> None:
    async with engine(postgres) as client:
        handle = await client.start(doubling, 4)
        async with worker(postgres, module="json.tool") as strange:
            async with worker(postgres, "--concurrency", "1"):
                assert await handle.result(60) == 8
            strange.send_signal(signal.SIGTERM)
            out, _ = await asyncio.to_thread(strange.communicate, timeout=60)
    assert out == "nothing was claimed\n"


async def test_an_engine_of_a_fleet_serves_queues_itself(postgres: str) -> None:
    async with perdure.open(postgres, workflows=FLOWS, queues={"work": 3}) as client:
        handles = [await client.start(doubling, n) for n in range(20)]
        assert [await handle.result(60) for handle in handles] == [2 * n for n in range(20)]


async def test_signed_receipts(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORK_KEY", "ab" * 32)
    keys = perdure.Keyring({"work": [perdure.Key.hmac("k1", "env:WORK_KEY")]})
    async with perdure.open(postgres, workflows=FLOWS, keys=keys) as client:
        handle = await client.start(doubling, 4)
        async with worker(postgres, "--key", "k1=env:WORK_KEY"):
            assert await handle.result(60) == 8
