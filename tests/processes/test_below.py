"""What processes need of the layers below: names of their own, hidden built-ins, async steps on the engine's loop, tags
that change, definitions that come from another process.
"""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import CallerError
from perdure.processes import Activate, Call, Complete, Process, Receive, Reference, SetReference, Task, python, result
from tests.processes import far


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that outlives its engine."""
    yield request.getfixturevalue("postgres") if request.param == "postgres" else str(tmp_path / "p.db")


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


async def test_a_reference_that_changes_is_found_by_its_new_tags_alone(kept: str):
    process = Process(
        "refers",
        version="1.0.0",
        reference=Reference("o-1", company="acme"),
        steps=[Receive("m", "go"), SetReference("o-2", city="ulm"), Receive("n", "end")],
    )

    async def found(engine: Any, reference: str, **parts: str) -> list[str]:
        return [each.key for each in await engine.instances(reference=reference, parts=parts)]

    async with perdure.open(kept, workflows=[process]) as engine:
        for key in "ab":
            await engine.start(process, key=key)
        await engine.handle(process, "a").send("go")
        async with asyncio.timeout(60):
            while not await found(engine, "o-2"):  # noqa: ASYNC110  # it is in the database
                await asyncio.sleep(0.01)
    async with perdure.open(kept, workflows=[process]) as engine:
        assert await found(engine, "o-2", city="ulm") == ["a"]
        assert await found(engine, "o-1", company="acme") == ["b"]
        tags = (await engine.handle(process, "a").summary()).tags
        assert tags == {"reference": "o-2", "reference.city": "ulm"}
        assert await engine.queries.check() == [], "the rows of tags are those of the journal"


async def test_another_process_puts_a_definition(kept: str):
    late = Process("late", version="1.0.0", steps=[Complete("late")])
    async with perdure.open(kept, workflows=[asks]), perdure.connect(kept) as client:
        assert await client.processes.put(late, by="ann") == "1.0.0"
        (put,) = await client.processes.versions("late")
    async with perdure.open(kept, workflows=[asks]) as engine:
        assert put.version == "1.0.0"
        assert await (await engine.start("late", key="a")).result(timeout=60) == "late"
