"""What processes need of the layers below: names of their own, hidden built-ins, async steps on the engine's loop."""

import asyncio
import threading
from typing import Any

import pytest

import perdure
from perdure import CallerError
from perdure.processes import Activate, Call, Complete, Process, Task, python, result
from tests.processes import far

asks = Process("asks", version="1.0.0", tasks=[Task("t", roles=["manager"])], steps=[Activate("t")])


async def test_names_of_perdure_are_refused_for_users():
    @perdure.flow(name="perdure.mine")
    async def mine(ctx: perdure.Context) -> None: ...

    with pytest.raises(CallerError, match=r"names that begin with 'perdure\.' belong to perdure"):
        async with perdure.open(":memory:", workflows=[mine]):
            pass
    (problem,) = Process("perdure.mine", version="1.0.0", steps=[Complete(1)]).problems
    assert problem.code == "PD004" and "belong to perdure" in problem.text


async def test_built_in_instances_are_listed_only_where_they_are_asked_for():
    async with perdure.open(":memory:", workflows=[asks]) as engine:
        handle: perdure.Handle[Any] = await engine.start(asks, key="a")
        async with asyncio.timeout(60):
            while not await engine.tasks.list():  # noqa: ASYNC110  # it is in the database
                await asyncio.sleep(0.01)
        assert [each.workflow for each in await engine.instances()] == ["asks"]
        assert [each.workflow for each in await engine.instances(workflow="perdure.task")] == ["perdure.task"]
        assert [(each.kind, each.location) for each in await handle.waiting()] == [("task", "t")]


async def test_an_async_step_runs_on_the_loop_of_the_engine():
    process = Process(
        "where", version="1.0.0", steps=[Call("a", python(f"{far.__name__}:thread"), result="a"), Complete(result.a)]
    )
    async with perdure.open(":memory:", workflows=[process]) as engine:
        assert await (await engine.start(process, key="a")).result(timeout=60) == threading.get_ident()
