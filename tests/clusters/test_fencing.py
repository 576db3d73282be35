"""What holds for the workers of a fleet holds on Dask: the stories of `tests/runtime/test_workers_of_a_fleet.py`."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import perdure
from tests.clusters.processes import Cluster
from tests.fleet.processes import until
from tests.runtime import queue_jobs
from tests.runtime.queue_jobs import careful, doubling, waiting

FLOWS = [doubling, waiting, careful]


@asynccontextmanager
async def engine(url: str, **options: perdure.Keyring) -> AsyncIterator[perdure.Engine]:
    async with perdure.open(url, workflows=FLOWS, **options) as opened:  # type: ignore[arg-type]
        yield opened
        assert await opened.queries.check() == []


async def said(place: Path, word: str, count: int = 1) -> list[str]:
    """The traces, once one of them is there so often."""
    text = ""

    def there() -> bool:
        nonlocal text
        text = place.read_text() if place.exists() else ""
        return text.count(word) >= count

    await until(there)
    return [line.partition(" ")[0] for line in text.splitlines()]


async def perdure_says(url: str, *words: str) -> str:
    command = [sys.executable, "-m", "perdure.cli", *words, "--db", url]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return " ".join(out.decode().split())


async def test_a_cluster_performs_what_flows_ask_for(cluster: Cluster) -> None:
    cluster.worker()
    dispatcher = cluster.dispatcher()
    async with engine(cluster.url) as client:
        handles = [await client.start(doubling, n) for n in range(100)]
        assert [await handle.result(180) for handle in handles] == [2 * n for n in range(100)]
        dispatcher.terminate()

    assert await dispatcher.ended() == 0
    assert "100 submitted" in dispatcher.words


async def test_the_job_of_a_killed_dask_worker_is_delivered_to_another(cluster: Cluster, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    first = cluster.worker()
    cluster.dispatcher()
    async with engine(cluster.url) as client:
        handle = await client.start(waiting, str(place), str(go))
        await said(place, "begun:1")
        first.kill()
        cluster.worker()
        await said(place, "begun:2")
        go.touch()
        assert await handle.result(180) == "done"
    assert (await said(place, "ended")) == ["begun:1", "begun:2", "ended"]


async def test_a_paused_dask_worker_that_wakes_is_fenced(cluster: Cluster, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    first = cluster.worker()
    cluster.dispatcher()
    async with engine(cluster.url) as client:
        handle = await client.start(waiting, str(place), str(go), key="k")
        await said(place, "begun:1")
        first.stop()
        cluster.worker()
        await said(place, "begun:2")
        go.touch()
        assert await handle.result(180) == "done"
        first.go_on()
        await said(place, "ended", 2)
        entries = await handle.history()
    receipts = [line for line in entries if line.event == "receipt"]
    assert len(receipts) == 1


async def test_why_and_show_say_on_which_machine_a_step_runs(cluster: Cluster, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    async with engine(cluster.url) as client:
        handle = await client.start(waiting, str(place), str(go), key="k")
        before = await perdure_says(cluster.url, "why", "waiting/k")
        cluster.worker()
        cluster.dispatcher()
        await said(place, "begun:1")
        why = await perdure_says(cluster.url, "why", "waiting/k")
        show = await perdure_says(cluster.url, "show", "waiting/k")
        go.touch()
        await handle.result(180)

    assert "is in the queue work since " in before and f"for {queue_jobs.__name__}:waits" in before
    assert "perdure dispatch work --dask ADDRESS" in before
    machine = r"on the cluster: dask worker tcp://127\.0\.0\.1:\d+ \S+ since \d"
    assert re.search(machine, why) and re.search(machine, show)


async def test_a_step_that_may_run_once_is_unknown_when_its_dask_worker_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    place = tmp_path / "traces"
    worker = cluster.worker()
    cluster.dispatcher()
    async with engine(cluster.url) as client:
        handle = await client.start(careful, str(place))
        await said(place, "begun:1")
        worker.kill()
        cluster.worker()
        assert await handle.result(180) == "unknown"
    assert await said(place, "begun") == ["begun:1"]


async def test_cancelling_reaches_the_dask_worker_and_progress_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    cluster.worker()
    cluster.dispatcher()
    async with engine(cluster.url) as client:
        handle = await client.start(waiting, str(place), str(go))
        frames: list[perdure.Frame] = []

        async def seen() -> bool:
            frames[:] = await handle.progress()
            return bool(frames)

        await until(seen)
        assert [(frame.done, frame.note) for frame in frames] == [(1, "waiting")]

        await handle.cancel()

        assert await said(place, "cut") == ["begun:1", "cut"]


async def test_a_stopped_dispatcher_lets_steps_end(cluster: Cluster, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    cluster.worker()
    dispatcher = cluster.dispatcher()
    async with engine(cluster.url) as client:
        handle = await client.start(waiting, str(place), str(go))
        await said(place, "begun:1")
        dispatcher.terminate()
        assert await dispatcher.ended() == 0
        go.touch()
        assert await handle.result(180) == "done"
    assert await said(place, "ended") == ["begun:1", "ended"]


async def test_what_a_stopped_dask_worker_does_not_end_is_given_back(cluster: Cluster, tmp_path: Path) -> None:
    place, go = tmp_path / "traces", tmp_path / "go"
    first = cluster.worker()
    cluster.dispatcher()
    async with engine(cluster.url) as client:
        handle = await client.start(waiting, str(place), str(go))
        await said(place, "begun:1")
        first.process.send_signal(signal.SIGTERM)
        await said(place, "cut")
        cluster.worker()
        assert await said(place, "begun:1", 2) == ["begun:1", "cut", "begun:1"]
        go.touch()
        assert await handle.result(180) == "done"


async def test_signed_receipts(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORK_KEY", "ab" * 32)
    cluster.worker()
    cluster.dispatcher("--key", "k1=env:WORK_KEY")
    keys = perdure.Keyring({"work": [perdure.Key.hmac("k1", "env:WORK_KEY")]})
    async with engine(cluster.url, keys=keys) as client:
        handle = await client.start(doubling, 4)
        assert await handle.result(180) == 8
