"""Retention: whole families go after their time, their names stay, and what lives is left alone."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import InstanceForgotten, KeyInUse, Retention
from perdure.processes import Activate, Complete, Fail, Process, Receive, SubProcess, Task, result, start
from perdure.runtime.retention import Swept, sweep

AT_ONCE = Retention(completed=timedelta(0))
SOON = Retention(completed=timedelta(seconds=1))
ANN = perdure.Actor("ann", ["manager"])
FAR = 2**62


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        yield request.getfixturevalue("postgres")
    else:
        yield ":memory:" if request.param == "memory" else str(tmp_path / "r.db")


kid = Process("kid", version="1.0.0", steps=[Complete({"secret": start.n})])
parent = Process(
    "parent",
    version="1.0.0",
    tasks=[Task("approve", roles=["manager"])],
    retention=SOON,
    steps=[SubProcess("s", kid, {"n": start.n}, result="s"), Activate("approve"), Complete(result.s)],
)
waiting = Process("waiting", version="1.0.0", retention=SOON, steps=[Receive("m", "go")])
failing = Process("failing", version="1.0.0", retention=SOON, steps=[Fail("no", "never")])


async def _approve(engine: perdure.Client) -> None:
    async with asyncio.timeout(60):
        while not (found := await engine.tasks.list()):  # noqa: ASYNC110  # it is in the database
            await asyncio.sleep(0.01)
    await engine.tasks.complete(found[0].id, None, by=ANN)


async def _ended(engine: perdure.Client, workflow: Process, key: str) -> perdure.Handle[Any]:
    handle = await engine.start(workflow, n=key, key=key)
    await _approve(engine)
    await handle.result(timeout=60)
    return handle


async def test_retention_keeps_live_families_and_tombstones(url: str):
    async with perdure.open(url, workflows=[parent, kid, waiting, failing]) as engine:
        handle = await _ended(engine, parent, "a")
        live = await engine.start(waiting, key="live")
        failed = await engine.start(failing, key="f")
        with pytest.raises(perdure.InstanceFailed):
            await failed.result(timeout=60)
        for number in range(16):  # the last entry of each shard stays
            await engine.start(waiting, key=f"last-{number}")

        assert await sweep(engine.queries, FAR, dry_run=True) == Swept(1, 0)
        assert await handle.result() == {"secret": "a"}
        assert await sweep(engine.queries, FAR) == Swept(1, 3)  # with its child and its task
        assert await sweep(engine.queries, FAR) == Swept(0, 0)

        assert "parent" not in {each.workflow for each in await engine.instances()}
        assert await engine.instances(workflow="parent") == []
        assert not [standing for standing in await engine.queries.counts() if standing[0] == "parent"]
        with pytest.raises(InstanceForgotten, match="parent/a ended as completed"):
            await handle.result(timeout=60)
        assert await handle.history() == [] and await engine.tasks.list(status=["completed"]) == []
        assert await failed.status() == "failed" and len(await failed.history()) == 1
        assert await live.status() == "waiting"
        assert (await engine.start(parent, n="a", key="a")).key == "a"  # the same start: the same instance
        with pytest.raises(KeyInUse):
            await engine.start(parent, n="other", key="a")
        await live.send("go")
        assert await live.result(timeout=60) is None
        assert await engine.queries.check() == []


async def test_a_forgotten_name_is_reused_where_the_caller_says_so(url: str):
    async with perdure.open(url, workflows=[parent, kid, waiting]) as engine:
        await _ended(engine, parent, "a")
        for number in range(16):
            await engine.start(waiting, key=f"last-{number}")
        assert (await sweep(engine.queries, FAR)).families == 1
        again = await engine.start(parent, n="a", key="a", reuse="always")
        await _approve(engine)
        assert await again.result(timeout=60) == {"secret": "a"}
        assert await engine.queries.check() == []


async def test_an_engine_says_how_long_instances_are_kept_that_do_not_say_it(tmp_path: Path):
    @perdure.flow
    async def once(ctx: perdure.Context) -> int:
        return 1

    url = str(tmp_path / "r.db")
    async with perdure.open(url, workflows=[once, waiting]) as engine:
        handle = await engine.start(once, key="a")
        await handle.result(timeout=60)
        await engine.start(waiting, key="last")
        assert await sweep(engine.queries, FAR) == Swept(0, 0)
    async with perdure.open(url, workflows=[once, waiting], retention=AT_ONCE) as engine:  # it removes what is due
        async with asyncio.timeout(60):
            while await engine.handle(once, "a").history():  # noqa: ASYNC110  # it is in the database
                await asyncio.sleep(0.01)


async def test_what_has_failed_and_is_retried_after_it_was_forgotten_is_refused(url: str):
    @perdure.flow
    async def broken(ctx: perdure.Context) -> None:
        raise ValueError("no")

    keep_none = Retention(failed=timedelta(0))
    async with perdure.open(url, workflows=[broken, waiting], retention=keep_none) as engine:
        handle = await engine.start(broken, key="a")
        with pytest.raises(perdure.InstanceFailed):
            await handle.result(timeout=60)
        for number in range(16):
            await engine.start(waiting, key=f"last-{number}")
        with pytest.raises(perdure.PerdureError):
            await handle.send("anything")  # now the engine has it in memory
        assert await sweep(engine.queries, FAR) == Swept(1, 1)
        with pytest.raises(perdure.PerdureError):
            await handle.retry()
        assert await engine.queries.check() == []
        with pytest.raises(perdure.PerdureError):
            await handle.retry()
