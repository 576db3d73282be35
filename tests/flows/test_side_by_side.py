"""Several versions of a flow in one engine: an instance runs on the version that it started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure import Context
from perdure.kernel.receipt import Failure

from .conftest import Stage, becomes


async def note(text: str) -> str:
    return text


@dataclass
class Order:
    steps: list[str]


@perdure.flow(name="order", version="9")
async def order_v9(ctx: Context, first: str = "nine") -> list[str]:
    done = [await ctx.step("charge", note, first)]
    await ctx.receive("go")
    return [*done, await ctx.step("ship", note, "ship")]


@perdure.flow(name="order", version="10")
async def order_v10(ctx: Context, first: str = "ten") -> Order:
    done = [await ctx.step("reserve", note, first), await ctx.step("charge", note, "charge")]
    await ctx.receive("go")
    return Order([*done, await ctx.step("ship", note, "ship")])


OLD = ["nine", "ship"]
NEW = Order(["ten", "charge", "ship"])


async def version_of(handle: perdure.Handle[Any]) -> str:
    return (await handle.summary()).version


async def test_two_versions_run_side_by_side(stage: Stage) -> None:
    async with stage.open(order_v10, order_v9) as engine:
        old, new = await engine.start(order_v9, key="old"), await engine.start(order_v10, key="new")
        await becomes(old, "waiting")
        await becomes(new, "waiting")
        for handle in (old, new):
            await handle.send("go")

        assert (await old.result(60), await new.result(60)) == (OLD, NEW)
        assert [await version_of(old), await version_of(new)] == ["9", "10"]


async def test_a_name_means_the_newest_version_and_an_object_its_own(stage: Stage) -> None:
    @perdure.flow
    async def parent(ctx: Context) -> list[Any]:
        await ctx.child("order", key="by name", detach=True)
        await ctx.child(order_v9, key="by object", detach=True)
        return []

    async with stage.open(order_v9, parent, order_v10) as engine:
        assert await version_of(await engine.start("order", key="a")) == "10"
        assert await version_of(await engine.start(order_v9, key="b")) == "9"
        assert await version_of(await engine.start_plain("order", {}, key="c")) == "10"
        assert await version_of(await engine.start_plain(order_v9, {}, key="d")) == "9"
        await (await engine.start(parent)).result(60)
        assert await version_of(engine.handle("order", "by name")) == "10"
        assert await version_of(engine.handle("order", "by object")) == "9"


async def test_a_result_has_the_type_of_the_version_that_gave_it(stage: Stage) -> None:
    async with stage.open(order_v9, order_v10) as engine:
        for flow, key in ((order_v9, "old"), (order_v10, "new")):
            await (await engine.start(flow, key=key)).send("go")

        assert await engine.handle("order", "old").result(60) == OLD
        assert await engine.handle("order", "new").result(60) == NEW
        assert await engine.handle(order_v10, "old").result(60) == OLD  # type: ignore[comparison-overlap]


async def test_the_same_key_and_input_are_the_same_instance_in_whatever_version(stage: Stage) -> None:
    async with stage.open(order_v9, order_v10) as engine:
        first = await engine.start(order_v9, "x", key="k")
        again = await engine.start(order_v10, "x", key="k")
        with pytest.raises(perdure.KeyInUse):
            await engine.start(order_v10, "y", key="k")

        assert (await again.summary()).id == (await first.summary()).id
        assert await version_of(again) == "9"


async def test_after_a_restart_each_goes_on_with_its_version(disk: Stage) -> None:
    async with disk.open(order_v9) as engine:
        await becomes(await engine.start(order_v9, key="old"), "waiting")
    async with disk.open(order_v9, order_v10) as engine:
        await becomes(await engine.start("order", key="new"), "waiting")
    disk.crash()
    async with disk.open(order_v10, order_v9) as engine:
        for key in ("old", "new"):
            await engine.handle("order", key).send("go")

        assert await engine.handle("order", "old").result(60) == OLD
        assert await engine.handle("order", "new").result(60) == NEW


async def test_a_version_that_is_gone_runs_on_the_newest_one(disk: Stage) -> None:
    @perdure.flow(name="order", version="11")
    async def compatible(ctx: Context, first: str = "eleven") -> list[str]:
        done = [await ctx.step("charge", note, first)]
        await ctx.receive("go")
        return [*done, "on eleven"]

    async with disk.open(order_v9) as engine:
        await becomes(await engine.start(order_v9, key="k"), "waiting")
    async with disk.open(order_v10, compatible) as engine:
        await engine.handle("order", "k").send("go")

        assert await engine.handle("order", "k").result(60) == ["nine", "on eleven"]
        assert await version_of(engine.handle("order", "k")) == "9", "it is recorded as it started"


async def test_a_newest_version_that_does_not_fit_is_found_out_and_the_old_one_helps(disk: Stage) -> None:
    async with disk.open(order_v9) as engine:
        await becomes(await engine.start(order_v9, key="k"), "waiting")
    async with disk.open(order_v10, replay=False) as engine:
        handle = engine.handle("order", "k")
        await handle.send("go")
        await becomes(handle, "stuck")
        error = await handle.error()

        assert isinstance(error, Failure) and error.type == "Divergence"
        assert "It started with version 9, which is not registered: it was replayed on version 10." in error.message
    async with disk.open(order_v10, order_v9, replay=False) as engine:  # it retries by itself
        assert await engine.handle("order", "k").result(60) == OLD


async def test_a_start_in_a_version_that_the_engine_does_not_have_is_refused(stage: Stage) -> None:
    async with stage.open(order_v10) as engine:
        with pytest.raises(perdure.UnknownVersion, match=r"has no version '9' here; registered: '10'; register it too"):
            await engine.start(order_v9)

        assert await engine.instances() == []


async def test_a_remote_start_in_a_version_that_the_engine_does_not_have_is_refused(disk: Stage) -> None:
    async with disk.open(order_v10) as engine, perdure.connect(disk.url) as client:
        with pytest.raises(perdure.UnknownVersion, match=r"has no version '9' here; registered: '10'") as refused:
            await client.start(order_v9, key="k")
        registered = await client.start(order_v10, key="registered")
        await registered.send("go")

        assert isinstance(refused.value, perdure.UnknownWorkflow)
        assert await registered.result(60) == NEW
        assert [each.key for each in await engine.instances()] == ["registered"]


async def test_a_start_by_name_from_elsewhere_takes_the_defaults_of_the_newest_version(disk: Stage) -> None:
    async with disk.open(order_v9, order_v10) as engine, perdure.connect(disk.url) as client:
        handle = await client.start("order", key="k")
        await handle.send("go")

        assert await handle.result(60) == {"steps": NEW.steps}
        assert await version_of(engine.handle("order", "k")) == "10"


async def test_the_same_flow_may_be_registered_twice_and_another_of_its_version_may_not() -> None:
    async with perdure.open(":memory:", workflows=[order_v9, order_v10, order_v9]):
        pass
    double = perdure.flow(name="order", version="9")(order_v10.function)
    with pytest.raises(perdure.CallerError, match=r"named 'order' and have version '9'"):
        async with perdure.open(":memory:", workflows=[order_v9, double]):
            pass


def test_a_version_is_a_text() -> None:
    assert perdure.flow(version=2)(order_v9.function).version == "2"  # type: ignore[call-overload]
    with pytest.raises(perdure.BadCall, match="the version of a flow must be a text"):
        perdure.flow(version="")(order_v9.function)
