"""Children: other workflows, started and finished atomically with their parent's entries."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure import ChildFailed, Context
from tests.simulation.workloads import Tally

from .conftest import Stage
from .rig import Rig


async def echo(value: Any) -> Any:
    return value


@dataclass
class Parcel:
    weight: int


@perdure.flow
async def weigh(ctx: Context, parcel: Parcel, factor: int = 1) -> Parcel:
    return Parcel(await ctx.step("weigh", echo, parcel.weight * factor))


@perdure.flow
async def broken(ctx: Context) -> None:
    raise ValueError("broken child")


@perdure.flow
async def patient(ctx: Context) -> str:
    return str((await ctx.receive("go")).body)


async def test_a_child_gives_its_result(stage: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> list[Any]:
        one = await ctx.child(weigh, Parcel(3), factor=2)
        by_name = await ctx.child("weigh", parcel={"weight": 5})
        both = await asyncio.gather(*(ctx.child(weigh, Parcel(n)) for n in (1, 2)))
        return [one.weight, by_name, [parcel.weight for parcel in both]]

    async with stage.open(parent, weigh) as engine:
        handle = await engine.start(parent, key="p")
        assert await handle.result(60) == [6, {"weight": 5}, [1, 2]]
        keys = {summary.key for summary in await engine.instances(workflow="weigh")}
        assert keys == {"p/weigh", "p/weigh#2", "p/&1/weigh", "p/&2/weigh"}


async def test_a_child_of_another_dialect_gives_its_result(stage: Stage) -> None:
    tally = Tally("tally")

    @perdure.flow
    async def parent(ctx: Context) -> Any:
        return await ctx.child(tally, 2, key="t")

    async with stage.open(parent, tally) as engine:
        handle = await engine.start(parent)
        for n in (3, 4):
            await engine.handle("tally", "t").send("added", {"n": n})

        assert await handle.result(60) == 7


async def test_a_child_that_fails_is_an_error_at_the_await(stage: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> list[str]:
        found = []
        for call in (
            lambda: ctx.child(broken),
            lambda: ctx.child("nobody knows this"),
            lambda: ctx.child(broken, key="taken"),
            lambda: ctx.child(broken, key="taken"),
        ):
            try:
                await call()
            except ChildFailed as failed:
                found.append(f"{failed.status}: {failed.error}")
        return found

    async with stage.open(parent, broken) as engine:
        found = await (await engine.start(parent)).result(60)

    assert found[0] == found[2] == "failed: ValueError: broken child"
    assert found[1].startswith("refused: ") and "nobody knows this" in found[1]
    assert found[3].startswith("refused: ")


async def test_a_child_that_is_not_registered_says_where_to_register_it(stage: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> None:
        await ctx.child(broken)

    async with stage.open(parent) as engine:
        with pytest.raises(perdure.InstanceFailed, match=r"'broken' here; registered: parent; register it: workflows="):
            await (await engine.start(parent)).result(60)


async def test_a_key_that_is_used_again_has_children_of_its_own(stage: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context, n: int) -> int:
        parcel: Parcel = await ctx.child(weigh, Parcel(n))
        return parcel.weight

    async with stage.open(parent, weigh) as engine:
        assert await (await engine.start(parent, 1, key="p")).result(60) == 1
        assert await (await engine.start(parent, 2, key="p", reuse="always")).result(60) == 2


async def test_a_parent_that_is_started_again_uses_the_keys_of_its_children_again(stage: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context, n: int) -> list[Any]:
        found: list[Any] = [(await ctx.child(weigh, Parcel(n), key="parcel")).weight]
        try:
            await ctx.child(weigh, Parcel(n), key="parcel")
        except ChildFailed as twice:
            found.append(twice.status)
        return found

    async with stage.open(parent, weigh) as engine:
        assert await (await engine.start(parent, 1, key="p")).result(60) == [1, "refused"]
        assert await (await engine.start(parent, 2, key="p", reuse="always")).result(60) == [2, "refused"]
        assert (await engine.handle(weigh, "parcel").summary()).generation == 2


async def test_the_children_of_a_child_are_started_again_too(stage: Stage) -> None:
    @perdure.flow
    async def middle(ctx: Context, n: int) -> int:
        parcel: Parcel = await ctx.child(weigh, Parcel(n), key="parcel")
        return parcel.weight

    @perdure.flow
    async def top(ctx: Context, n: int) -> int:
        return int(await ctx.child(middle, n))

    async with stage.open(top, middle, weigh) as engine:
        assert await (await engine.start(top, 1, key="p")).result(60) == 1
        assert await (await engine.start(top, 2, key="p", reuse="always")).result(60) == 2


async def test_a_parent_that_is_started_again_does_not_take_the_key_of_an_instance_that_is_no_child(
    stage: Stage,
) -> None:
    @perdure.flow
    async def parent(ctx: Context, n: int) -> str:
        try:
            await ctx.child(weigh, Parcel(n), key="parcel")
        except ChildFailed as refused:
            return refused.status
        return "done"

    async with stage.open(parent, weigh) as engine:
        await (await engine.start(weigh, Parcel(9), key="parcel")).result(60)
        assert await (await engine.start(parent, 1, key="p")).result(60) == "refused"
        assert await (await engine.start(parent, 2, key="p", reuse="always")).result(60) == "refused"


async def test_a_child_takes_reuse_and_tags_and_a_delay(disk: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> list[int]:
        first = await ctx.child(weigh, Parcel(1), key="parcel", tags={"city": "Oslo"})
        second = await ctx.child("weigh", parcel={"weight": 2}, key="parcel", reuse="always")
        await ctx.child(weigh, Parcel(3), key="later", delay=3600, detach=True)
        return [first.weight, second["weight"]]

    async with disk.open(parent, weigh) as engine:
        assert await (await engine.start(parent, key="p")).result(60) == [1, 2]
        assert [each.generation for each in await engine.instances(tags={"city": "Oslo"})] == [1]
    async with disk.open(parent, weigh) as engine:
        later = engine.handle(weigh, "later")
        await later.until("waiting", timeout=60)
        await later.wake()
        assert (await later.result(60)).weight == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"reuse": "no"}, "reuse='no': a used key is started again"),
        ({"tags": {"a": b"1"}}, "tags are texts, numbers, bools or times by name"),
        ({"tags": "a"}, "tags are texts, numbers, bools or times by name"),
        ({"delay": -1}, "delay=-1: a child is delayed by no time or more"),
        ({"delay": "soon"}, "a duration is a number of seconds or a timedelta"),
    ],
)
def test_an_option_of_a_child_that_is_none_is_refused_at_the_call(options: dict[str, Any], text: str) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> str:
        try:
            await ctx.child(weigh, Parcel(1), **options)
        except perdure.BadCall as error:
            return str(error)
        return ""

    assert text in Rig(parent).result


async def test_a_detached_child_outlives_its_parent(stage: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> str:
        return str(await ctx.child(patient, detach=True))

    async with stage.open(parent, patient) as engine:
        key = await (await engine.start(parent, key="p")).result(60)
        child = engine.handle(patient, key)
        assert await child.status() == "waiting"
        await child.send("go", "on")
        assert await child.result(60) == "on"


async def test_cancel_cascades(stage: Stage) -> None:
    @perdure.flow
    async def grandparent(ctx: Context) -> Any:
        return await ctx.child(parent, key="p")

    @perdure.flow
    async def parent(ctx: Context) -> Any:
        return await asyncio.gather(ctx.child(patient, key="one"), ctx.child(patient, key="two"))

    async with stage.open(grandparent, parent, patient) as engine:
        handle = await engine.start(grandparent)
        await handle.cancel("enough")
        with pytest.raises(perdure.InstanceCancelled, match="enough"):
            await handle.result(60)
        for workflow, key in ((parent, "p"), (patient, "one"), (patient, "two")):
            with pytest.raises(perdure.InstanceCancelled):
                await engine.handle(workflow, key).result(60)


async def test_a_cancelled_child_is_an_error_of_its_parent(stage: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> str:
        try:
            await ctx.child(patient, key="c")
        except ChildFailed as failed:
            return f"{failed.status}: {failed.error}"
        return ""

    async with stage.open(parent, patient) as engine:
        handle = await engine.start(parent)
        await engine.handle(patient, "c").cancel("no more")
        assert await handle.result(60) == "cancelled: Cancelled: no more"


async def test_a_child_that_loses_a_race_is_cancelled(stage: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> str:
        winner, _ = await ctx.race(
            "r", {"child": lambda: ctx.child(patient, key="c"), "quick": lambda: ctx.step("q", echo, 1)}
        )
        return winner

    async with stage.open(parent, patient) as engine:
        assert await (await engine.start(parent)).result(60) == "quick"
        with pytest.raises(perdure.InstanceCancelled):
            await engine.handle(patient, "c").result(60)


async def test_a_crash_between_parent_and_child_loses_nothing(disk: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> Any:
        return [await ctx.child(patient, key="c"), await ctx.child(weigh, Parcel(4))]

    async with disk.open(parent, patient, weigh) as engine:
        await engine.start(parent, key="p")
        disk.crash()
    async with disk.open(parent, patient, weigh) as engine:
        await engine.handle(patient, "c").send("go", "x")
        disk.crash()
    async with disk.open(parent, patient, weigh) as engine:
        assert await engine.handle(parent, "p").result(60) == ["x", {"weight": 4}]


def test_a_child_known_by_name_takes_keywords_only() -> None:
    @perdure.flow
    async def parent(ctx: Context) -> str:
        try:
            await ctx.child("weigh", 5)
        except perdure.BadCall as error:
            return str(error)
        return ""

    assert "keyword arguments" in Rig(parent).result


def test_a_bad_argument_of_a_child_is_refused_at_the_call() -> None:
    @perdure.flow
    async def parent(ctx: Context) -> str:
        try:
            await ctx.child(weigh, "no parcel")
        except perdure.NotConvertible as error:
            return error.path
        return ""

    assert Rig(parent).result == "$.parcel"
