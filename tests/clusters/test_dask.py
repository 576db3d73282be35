"""Dask beyond fences: code that it cannot import, resources, versions, and engines that dispatch by themselves."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.clusters.dask import problems_of
from tests.clusters.processes import Cluster
from tests.clusters.steps import fan_out, impatient, placed
from tests.fleet.processes import ROOT, until
from tests.runtime.queue_jobs import doubling

UNKNOWN = """
import perdure

@perdure.step(executor="work")
def secret_sauce() -> str:
    return "tasty"

@perdure.flow
async def cooking(ctx: perdure.Context) -> str:
    return await ctx.step("cook", secret_sauce)
"""


def told(*words: str, code: int = 0) -> str:
    process = subprocess.run([sys.executable, "-m", "perdure.cli", *words], capture_output=True, text=True, check=False)
    assert process.returncode == code, process.stderr
    return " ".join((process.stdout + process.stderr).split())


async def test_code_that_the_cluster_cannot_import_is_left_open_with_the_reason_until_a_machine_has_it(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text(UNKNOWN)
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    cluster.worker()
    dispatcher = cluster.dispatcher()
    async with perdure.open(cluster.url, workflows=[only_here.cooking]) as engine:
        handle = await engine.start(only_here.cooking, key="k")
        await until(lambda: "rest for" in dispatcher.words)
        tries = dispatcher.words
        why = ""

        async def is_said() -> bool:
            nonlocal why
            why = await asyncio.to_thread(told, "why", "cooking/k", "--db", cluster.url)
            return "No module named 'only_here'" in why

        await until(is_said)
        assert dispatcher.words == tries, "it is not a loop"
        assert f"dask {cluster.address} cannot begin it: the function only_here:secret_sauce" in why
        assert await handle.status() == "waiting"

        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        cluster.worker("--preload", str(tmp_path / "only_here.py"))
        assert await handle.result(180) == "tasty"
        dispatcher.terminate()
        assert await dispatcher.ended() == 0
    assert "failed" in dispatcher.words


async def test_a_step_gets_the_resources_that_it_asks_for(cluster: Cluster) -> None:
    cluster.worker("--name", "plain")
    cluster.worker("--name", "gpu elsewhere", "--resources", "GPU=1")
    cluster.worker("--name", "gpu here", "--resources", "GPU=1 CITY=1")
    cluster.dispatcher()
    async with perdure.open(cluster.url, workflows=[placed]) as engine:
        handles = [await engine.start(placed) for _ in range(6)]
        assert {await handle.result(180) for handle in handles} == {"gpu here"}


async def test_a_timeout_cuts_the_step_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    cluster.worker()
    cluster.dispatcher()
    place = tmp_path / "trace"
    async with perdure.open(cluster.url, workflows=[impatient]) as engine:
        handle = await engine.start(impatient, str(place))
        assert await handle.result(180) == "too long"
        await until(place.exists)


async def test_an_engine_dispatches_by_itself(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER_DB", cluster.url)
    cluster.worker()
    dispatch = perdure.Dispatch("work", dask=cluster.address, slots=5, db="env:CLUSTER_DB")
    async with perdure.open(cluster.url, workflows=[fan_out], dispatch=[dispatch]) as engine:
        handle = await engine.start(fan_out, str(tmp_path / "runs"), 50)
        assert await handle.result(180) == sum(range(50))


async def test_doctor_tells_the_versions_of_a_cluster(cluster: Cluster) -> None:
    cluster.worker()
    await until(lambda: '"workers": {"tcp' in doctor(cluster))
    document = json.loads(doctor(cluster))
    [worker] = document["cluster"]["workers"].values()
    here = document["versions"]
    assert (worker["python"], worker["perdure"]) == (here["python"], here["perdure"])
    assert [problem for problem in document["problems"] if "dask" in problem] == []

    cluster.scheduler.kill()
    away = told("doctor", "--dask", cluster.address, code=1)
    assert f"dask {cluster.address} cannot be reached" in away


def doctor(cluster: Cluster) -> str:
    command = [sys.executable, "-m", "perdure.cli", "doctor", "--dask", cluster.address, "--db", cluster.url, "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def versions(**packages: str | None) -> dict[str, Any]:
    return {"packages": {"python": "3.11.7.final.0", "perdure": "1.2", "distributed": "2026.8.0", **packages}}


def test_doctor_finds_workers_with_other_versions() -> None:
    workers = {
        "a": versions(),
        "b": versions(perdure=None),
        "c": versions(perdure="1.1"),
        "d": versions(python="3.12.1.final.0", distributed="2026.1.0"),
    }
    assert problems_of("tcp://x:1", {"client": versions(), "workers": workers}) == [
        "the dask worker b has no perdure: install perdure[dask] 1.2 there",
        "the dask worker c has perdure 1.1, here it is 1.2",
        "the dask worker d has Python 3.12.1, here it is 3.11.7",
        "the dask worker d has distributed 2026.1.0, here 2026.8.0",
    ]
    [none] = problems_of("tcp://x:1", {"client": versions(), "workers": {}})
    assert "has no workers" in none


async def test_a_file_cannot_be_dispatched_and_the_error_says_so(tmp_path: Path) -> None:
    dispatch = perdure.Dispatch("gpu", dask="tcp://127.0.0.1:8786")
    file = tmp_path / "shop.db"
    with pytest.raises(perdure.BadCall, match=r"the queue gpu cannot be dispatched from .*shop\.db: .*PostgreSQL only"):
        async with perdure.open(file, workflows=[doubling], dispatch=[dispatch]):
            pass
    said = told("dispatch", "gpu", "--dask", "tcp://127.0.0.1:8786", "--db", str(file), code=2)
    assert "PostgreSQL only" in said and not file.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dask": "127.0.0.1:8786"}, "the address of a scheduler, like tcp://"),
        ({"dask": "tcp://h:1", "slots": 0}, "at least 1"),
        ({"dask": "tcp://h:1", "db": "shop.db"}, "postgresql://... or env:NAME"),
    ],
)
def test_a_dispatch_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(perdure.BadCall, match=message):
        perdure.Dispatch("gpu", **options)


@pytest.mark.parametrize("resources", [{"GPU": -1}, {"GPU": "1"}, ["GPU"], {"": 1}, {"GPU": float("nan")}])
def test_resources_that_cannot_be_are_refused(resources: Any) -> None:
    with pytest.raises(perdure.BadCall, match="amounts by name"):
        perdure.step(executor="gpu", resources=resources)


def test_resources_are_for_steps_of_queues() -> None:
    with pytest.raises(perdure.BadCall, match="executor=NAME"):
        perdure.step(resources={"GPU": 1})


def test_nothing_of_dask_is_imported_by_an_engine_without_it() -> None:
    script = (
        "import asyncio, sys, perdure\n"
        "async def main():\n"
        "    async with perdure.open(':memory:'): pass\n"
        "asyncio.run(main())\n"
        "perdure.Dispatch\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('dask', 'distributed', 'tornado')])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert out.stdout == "[]\n"
