"""Ephemeral steps: they begin without waiting for a commit, and their results ride on the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Context

from .conftest import Stage, until
from .rig import SECOND, Rig, same_in_every_rebuild


@perdure.step(ephemeral=True)
async def add(a: int, b: int) -> int:
    return a + b


async def echo(value: Any) -> Any:
    return value


PLACES = ["", "first", "add", *(f"add#{n}" for n in range(2, 21)), "last"]


async def test_ephemeral_rides_on_the_next_commit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.runtime.loop.LIGHT_WAIT", 60 * SECOND)

    @perdure.flow
    async def cheap(ctx: Context) -> int:
        total = await ctx.step("first", echo, 0)
        for n in range(20):
            total = await add(total, n)
        return await ctx.step("last", echo, total)

    @perdure.flow
    async def dear(ctx: Context) -> int:
        total = await ctx.step("first", echo, 0)
        for n in range(20):
            total = await ctx.step("add", add.function, total, n)
        return await ctx.step("last", echo, total)

    async with stage.open(cheap, dear) as engine:
        commits = []
        for flow in (cheap, dear):
            before = engine.counts.get("commits", 0)
            handle = await engine.start(flow)
            assert await handle.result(60) == 190
            assert [line.location for line in await handle.history()] == PLACES
            commits.append(engine.counts.get("commits", 0) - before)

        assert commits == [4, 23], "a start, one for each step, and one for all that are ephemeral"


async def test_it_begins_while_nothing_is_durable_yet_and_a_crash_repeats_it(
    disk: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.runtime.loop.LIGHT_WAIT", 60 * SECOND)
    began: list[int] = []
    go = asyncio.Event()

    @perdure.step(ephemeral=True)
    async def look(n: int) -> int:
        began.append(n)
        if n == 2:
            await go.wait()
        return n

    @perdure.flow
    async def flow(ctx: Context) -> list[int]:
        return [await look(1), await look(2), await ctx.step("end", echo, 3)]

    async with disk.open(flow, replay=False) as engine:
        await engine.start(flow, key="k")
        await until(lambda: began == [1, 2])
        disk.crash()
    go.set()

    async with perdure.connect(disk.url) as client:
        assert [line.event for line in await client.handle("flow", "k").history()] == ["started"]
    async with disk.open(flow) as engine:
        assert await engine.handle(flow, "k").result(60) == [1, 2, 3]
        assert began == [1, 2, 1, 2]


async def test_a_long_one_does_not_hold_back_what_was_done_for_ever(disk: Stage) -> None:
    go = asyncio.Event()

    @perdure.step(ephemeral=True)
    async def quick(n: int) -> int:
        return n

    @perdure.step(ephemeral=True)
    async def long() -> int:
        await go.wait()
        return 2

    @perdure.flow
    async def flow(ctx: Context) -> list[int]:
        return [await quick(1), await long()]

    async with disk.open(flow) as engine:
        handle = await engine.start(flow)
        async with asyncio.timeout(5):
            while len(await handle.history()) < 2:  # noqa: ASYNC110  # a timer of the engine's moves it
                await asyncio.sleep(0.01)
        go.set()
        assert await handle.result(60) == [1, 2]


async def test_one_that_loses_a_race_is_cut(stage: Stage) -> None:
    cut: list[str] = []

    @perdure.step(ephemeral=True)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append("slow")
            raise

    @perdure.flow
    async def flow(ctx: Context) -> str:
        winner, _ = await ctx.race("r", {"slow": slow, "quick": lambda: ctx.step("quick", echo, 1)})
        return winner

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        assert await handle.result(60) == "quick"
        await until(lambda: cut == ["slow"])


async def test_an_engine_that_is_closed_records_what_waits(disk: Stage) -> None:
    began = []

    @perdure.step(ephemeral=True)
    async def look(n: int) -> int:
        began.append(n)
        if n == 3:
            await asyncio.Event().wait()
        return n

    @perdure.flow
    async def flow(ctx: Context) -> None:
        for n in range(4):
            await look(n)

    async with disk.open(flow) as engine:
        await engine.start(flow, key="k")
        await until(lambda: 3 in began)
    async with perdure.connect(disk.url) as client:
        assert len(await client.handle("flow", "k").history()) >= 4


def test_it_is_the_same_in_every_rebuild() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        total = 0
        for n in range(5):
            total = await add(total, n)
        return total

    assert same_in_every_rebuild(flow, drive=Rig.run).result == 10
