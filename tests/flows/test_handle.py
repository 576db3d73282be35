"""The handle: what callers can ask of an instance, and how it answers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import perdure
from perdure import Context

from .conftest import Stage


async def echo(value: Any) -> Any:
    return value


@perdure.flow
async def waits(ctx: Context, text: str = "x") -> str:
    ctx.publish("state", {"waiting for": "go"})
    got = await ctx.receive("go")
    ctx.publish("state", {"got": got.body})
    return text + str(await ctx.step("echo", echo, got.body))


async def test_result_and_status(stage: Stage) -> None:
    async with stage.open(waits) as engine:
        handle = await engine.start(waits, "a", key="k")
        assert await handle.status() == "waiting"
        with pytest.raises(perdure.ResultTimeout):
            await handle.result(timedelta(milliseconds=1))
        await handle.send("go", 1)

        assert await handle.result() == "a1"
        assert await handle.status() == perdure.Status.COMPLETED
        assert await engine.handle("waits", "k").result() == "a1"
        assert (handle.workflow, handle.key) == ("waits", "k")


async def test_a_failed_result_carries_the_recorded_error(stage: Stage) -> None:
    @perdure.flow
    async def fails(ctx: Context) -> None:
        await ctx.step("s", echo, 1)
        raise ValueError("on purpose")

    async with stage.open(fails) as engine:
        handle = await engine.start(fails)
        for _ in range(2):
            with pytest.raises(perdure.InstanceFailed, match="ValueError: on purpose") as failed:
                await handle.result(60)
        error: Any = failed.value.error
        assert error.type == "ValueError" and "test_handle.py" in error.traceback
        assert await handle.error() == error


async def test_publish_and_read(stage: Stage) -> None:
    async with stage.open(waits) as engine:
        handle = await engine.start(waits)
        assert await handle.read("state") == {"waiting for": "go"}
        assert await handle.read("nothing") is None
        await handle.send("go", [1])
        await handle.result(60)
        assert await handle.read("state") == {"got": [1]}


async def test_history_tells_everything_in_order(stage: Stage) -> None:
    async with stage.open(waits) as engine:
        handle = await engine.start(waits, "a")
        await handle.send("go", 1)
        await handle.result(60)
        lines = await handle.history()

    assert [line.event for line in lines] == ["started", "message", "receipt"]
    assert lines[0].value == {"text": "a"}
    assert lines[2].location == "echo" and lines[2].outcome == "completed"
    assert [line.number for line in lines] == [1, 2, 3]


async def test_same_key_and_input_is_the_same_instance(stage: Stage) -> None:
    async with stage.open(waits) as engine:
        first = await engine.start(waits, "a", key="k")
        again = await engine.start(waits, text="a", key="k")
        with pytest.raises(perdure.KeyInUse):
            await engine.start(waits, "b", key="k")
        await first.send("go", 1)

        assert await again.result(60) == "a1"
        assert len(await engine.instances()) == 1
        with pytest.raises(perdure.KeyInUse):
            await engine.start(waits, "b", key="k")
        with pytest.raises(perdure.KeyInUse):
            await engine.start(waits, "b", key="k", reuse="failed")
        fresh = await engine.start(waits, "b", key="k", reuse="always")
        await fresh.send("go", 2)
        assert await fresh.result(60) == "b2"
        assert await first.result(60) == "a1", "a handle means its own generation"


async def test_instances_are_found_by_their_workflow(stage: Stage) -> None:
    @perdure.flow
    async def other(ctx: Context) -> None:
        pass

    async with stage.open(waits, other) as engine:
        await engine.start(waits, key="k")
        await (await engine.start(other, key="o")).result(60)

        assert [found.key for found in await engine.instances(workflow=waits)] == ["k"]
        assert [found.key for found in await engine.instances(workflow="other")] == ["o"]
        with pytest.raises(perdure.CallerError, match="the name of a workflow"):
            await engine.instances(workflow=7)  # type: ignore[arg-type]
        with pytest.raises(perdure.CallerError, match="did you mean 'waiting'"):
            await engine.instances(status="wating")


async def test_reuse_of_a_failed_key(stage: Stage) -> None:
    broken = True

    @perdure.flow
    async def flow(ctx: Context) -> str:
        if broken:
            raise ValueError
        return "mended"

    async with stage.open(flow, replay=False) as engine:
        with pytest.raises(perdure.InstanceFailed):
            await (await engine.start(flow, key="k")).result(60)
        broken = False
        assert await (await engine.start(flow, key="k", reuse="failed")).result(60) == "mended"


async def test_input_is_taken_from_the_first_start_only(disk: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context, items: list[int], price: Decimal) -> str:
        await ctx.receive("go")
        return f"{items} {price}"

    items = [1, 2]
    async with disk.open(flow) as engine:
        await engine.start(flow, items, Decimal("1.50"), key="k")
        items.append(3)
        disk.crash()
    async with disk.open(flow) as engine:
        await engine.handle(flow, "k").send("go")
        assert await engine.handle(flow, "k").result(60) == "[1, 2] 1.50"


async def test_ten_starts_at_once_start_once(stage: Stage) -> None:
    async with stage.open(waits) as engine:
        handles = await asyncio.gather(*(engine.start(waits, "a", key="k") for _ in range(10)))
        await handles[3].send("go", 1)

        assert [await handle.result(60) for handle in handles] == ["a1"] * 10
        assert len(await engine.instances()) == 1
