"""Who asks, under which id, and for which last entry: with every verb of a handle, here and from another process."""

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Actor, VersionConflict
from perdure.kernel.events import asked_of
from tests.entries import entries_of


@perdure.flow
async def patient(ctx: perdure.Context) -> object:
    await ctx.receive("first")
    return ctx.started_by, (await ctx.receive("second")).body


async def events(client: perdure.Client, handle: perdure.Handle[Any]) -> list[Any]:
    head = await client.queries.head((await handle.summary()).id)
    assert head is not None
    return [entry.event for entry in entries_of(await client.queries.history(head.id))]


@pytest.fixture(params=[":memory:", "file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres"))
    return str(tmp_path / "asked.db") if request.param == "file" else ":memory:"


async def test_who_asks_is_recorded_and_a_flow_knows_who_started_it(url: str):
    async with perdure.open(url, workflows=[patient]) as engine:
        handle = await engine.start(patient, by=Actor("ann", roles=["clerk"]))
        await handle.send("first", by="bob", reason="it was late")
        await handle.send("second", 2)

        assert await handle.result() == ["ann", 2]
        started, first, second = [asked_of(event) for event in await events(engine, handle)]
        assert started is not None and started.by == Actor("ann", ("clerk",))
        assert first is not None and (first.by, first.reason) == (Actor("bob"), "it was late")
        assert second is None


async def test_a_verb_for_another_last_entry_is_refused_and_leaves_nothing(url: str):
    async with perdure.open(url, workflows=[patient]) as engine:
        handle = await engine.start(patient)
        await handle.send("first", if_entry=1)
        for verb in (handle.send("second", if_entry=1), handle.cancel(if_entry=1), handle.tag("a", "b", if_entry=1)):
            with pytest.raises(VersionConflict, match="is 2, not 1"):
                await verb

        assert len(await events(engine, handle)) == 2
        await handle.cancel(if_entry=2, by="ann")


async def test_another_process_is_told_of_the_conflict_too(tmp_path: Path):
    url = str(tmp_path / "asked.db")
    async with perdure.open(url, workflows=[patient]) as engine, perdure.connect(url) as client:
        await engine.start(patient, key="k")
        handle = client.handle("patient", "k")
        with pytest.raises(VersionConflict):
            await handle.send("first", if_entry=7)
        await handle.send("first", if_entry=1)
        await handle.send("second", 2)

        assert await handle.result() == [None, 2]


async def test_the_same_id_twice_is_one_event_for_every_verb(url: str):
    async with perdure.open(url, workflows=[patient]) as engine:
        handle = await engine.start(patient)
        for _ in range(2):
            await handle.tag("team", "red", id="click-1")
        for _ in range(2):
            await handle.send("first", id="click-2")

        assert [type(event).__name__ for event in await events(engine, handle)] == ["Started", "Tagged", "Message"]
        with pytest.raises(perdure.CallerError, match="an id names one"):
            await handle.tag("team", "blue", id="click-2")


async def test_a_message_for_a_wait_that_is_over_does_nothing(url: str):
    async with perdure.open(url, workflows=[patient]) as engine:
        handle = await engine.start(patient)
        (wait,) = await handle.waiting()
        for name in ("first", "second"):
            await handle.send(name, intent=wait.intent)

        (wait,) = await handle.waiting()
        assert wait.what == "second"
        await handle.send("second", "x", intent=wait.intent)
        assert (await handle.result())[1] == "x"  # type: ignore[index]


@perdure.flow
async def two_waits(ctx: perdure.Context) -> dict[str, Any]:
    async def hear() -> object:
        return (await ctx.receive("answer")).body

    return await ctx.join("both", {"left": hear, "right": hear})


async def test_a_message_goes_to_the_wait_that_it_names():
    async with perdure.open(":memory:", workflows=[two_waits]) as engine:
        handle = await engine.start(two_waits)
        left, right = sorted(await handle.waiting(), key=lambda wait: wait.location)
        assert "right" in right.location
        await handle.send("answer", "R", intent=right.intent)
        await handle.send("answer", "L", intent=left.intent)

        assert await handle.result() == {"left": "L", "right": "R"}


@pytest.mark.parametrize(
    ("said", "told"),
    [({"by": ""}, "an actor has an id"), ({"by": 7}, "by= takes"), ({"if_entry": "x"}, "number of an entry")],
)
async def test_what_is_wrong_is_refused_before_it_is_sent(said: dict[str, Any], told: str):
    async with perdure.open(":memory:", workflows=[patient]) as engine:
        handle = await engine.start(patient)
        with pytest.raises(perdure.PerdureError, match=told):
            await handle.send("first", **said)
