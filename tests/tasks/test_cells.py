"""Tasks of cells: in the one list with those of flows, and their ends are receipts."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import Actor, Next, ReceiptOf
from perdure.cells.effects import Publish, Task
from perdure.tasks.life import TaskStatus
from tests.tasks.desk import Verdict

ANN, BOSS = Actor("ann", roles=["clerk"]), Actor("max", roles=["boss"])


class Wanted(perdure.Record, name="test/Wanted@1"):
    key: str
    seconds: perdure.Nat | None = None


class Count(perdure.Record, name="test/Count@1"):
    asked: perdure.Nat = 0


@perdure.cell("test/buyer@1", key="key", effects=[Task, Publish])
def buyer(state: Count | None, event: Wanted | ReceiptOf[Task]) -> Next:
    if isinstance(event, Wanted):
        expire = None if event.seconds is None else timedelta(seconds=event.seconds)
        task = Task.of("approve", answer=Verdict, roles=["clerk"], managers=["boss"], data={"n": 1}, expire=expire)
        return Next(Count(1), effects=[task])
    said = {
        "status": event.status,
        "outcome": event.value and event.value.outcome,
        "by": event.value and event.value.by,
    }
    said["answer"] = event.value and event.value.value
    return Next(state, effects=[Publish.of("said", said)])


@perdure.cell("test/sloppy@1", key="key", effects=[Task])
def sloppy(state: Count | None, event: Wanted | ReceiptOf[Task]) -> Next:
    return Next(Count(1), effects=[Task.of("approve", role=["clerk"])])


@perdure.flow
async def asks(ctx: perdure.Context) -> str:
    return (await ctx.task("review", roles=["clerk"])).outcome


async def tasks(client: perdure.Client, count: int, **wanted: Any) -> list[perdure.TaskInfo]:
    async with asyncio.timeout(60):
        while len(found := await client.tasks.list(**wanted)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return found


async def said(engine: perdure.Engine, key: str) -> Any:
    async with asyncio.timeout(60):
        await tasks(engine, 1, key=key, workflow="test/buyer", status=list(TaskStatus))
        while (value := await engine.handle(buyer, key).read("said")) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return value


@pytest.fixture(params=["file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    return str(request.getfixturevalue("postgres") if request.param == "postgres" else tmp_path / "tasks.db")


async def test_tasks_of_a_flow_and_a_cell_are_in_one_list(url: str):
    async with perdure.open(url, workflows=[buyer, asks]) as engine:
        await engine.send(Wanted("k"))
        handle = await engine.start(asks, key="f")
        found = await tasks(engine, 2, by=ANN, candidate=True)
        assert {task.owner for task in found} == {"test/buyer/k", "asks/f"}
        by_name = {task.name: task.id for task in found}

        await engine.tasks.complete(by_name["review"], by=ANN)
        await engine.tasks.complete(by_name["approve"], {"outcome": "reject"}, by=ANN)

        assert await handle.result() == "done"
        assert await said(engine, "k") == {
            "status": "ok",
            "outcome": "reject",
            "by": "ann",
            "answer": {"outcome": "reject", "comment": ""},
        }
        assert await engine.queries.check() == []


async def test_an_expired_task_of_a_cell_is_a_timeout_and_a_cancelled_one_cancelled(url: str):
    async with perdure.open(url, workflows=[buyer]) as engine:
        await engine.send(Wanted("late", 0))
        assert (await said(engine, "late"))["status"] == "timeout"
        await engine.send(Wanted("gone"))
        (task,) = await tasks(engine, 1, key="gone", workflow="test/buyer")
        await engine.tasks.cancel(task.id, "no money", by=BOSS)

        assert (await said(engine, "gone"))["status"] == "cancelled"


async def test_a_bad_question_stops_the_cell_and_says_what_is_wrong():
    async with perdure.open(":memory:", workflows=[sloppy]) as engine:
        await engine.send(Wanted("k"))
        handle = engine.handle(sloppy, "k")
        await handle.until("stuck", 60)

        assert "a task has no role" in str(await handle.error())
        assert await engine.tasks.count() == 0


async def test_the_task_of_a_cell_on_another_shard_reaches_its_owner(postgres: str):
    keys = [f"k-{n}" for n in range(8)]
    async with perdure.open(postgres, workflows=[buyer]) as engine:
        for key in keys:
            await engine.send(Wanted(key))
        found = await tasks(engine, len(keys), workflow="test/buyer")
        rows = [await engine.queries.task(int(task.id)) for task in found]
        assert any(row is not None and row.owner and row.owner >> 48 != row.id >> 48 for row in rows)
        for task in found:
            await engine.tasks.complete(task.id, {"outcome": "approve"}, by=ANN)

        assert {(await said(engine, key))["outcome"] for key in keys} == {"approve"}
        assert await engine.queries.check() == []
