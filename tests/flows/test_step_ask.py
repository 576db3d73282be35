"""A running step asks its flow for something, and is answered when that is durable (foundations B11)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.testing import World, crash_test

SAID: list[str] = []


async def clerk() -> str:
    """A step that needs two answers of its flow."""
    first = await perdure.step_info().ask("price", {"of": "tea"})
    second = await perdure.step_info().ask("price", {"of": "salt"})
    return f"{first} and {second}"


@perdure.flow
async def shop(ctx: perdure.Context) -> str:
    work = asyncio.create_task(ctx.step("clerk", clerk))
    for cents in (300, 40):
        asked = await ctx.receive("price")
        SAID.append(asked.body["of"])
        asked.complete(cents)
    return await work


def test_a_step_asks_its_flow_and_hears_the_answers():
    with World() as world:
        assert world.start(shop).result() == "300 and 40"


async def test_steps_ask_their_flows_in_a_fleet_too(postgres):
    async with perdure.open(postgres, workflows=[shop]) as engine:
        handles = [await engine.start(shop, key=str(number)) for number in range(8)]
        assert [await handle.result(60) for handle in handles] == ["300 and 40"] * 8


def test_a_step_that_begins_again_hears_the_same_answers():
    crash_test(shop, pairs=40, random=20)
    crash_test(shop, pairs=10, random=10, cache=0)


def test_requests_are_in_the_history():
    with World() as world:
        handle = world.start(shop)
        lines = [line.location for line in handle.history() if line.event == "request"]
        assert lines == ["&1/clerk/price"] * 2


def test_a_step_in_a_thread_cannot_ask():
    def plain() -> str:
        coroutine = perdure.step_info().ask("price")
        with pytest.raises(perdure.NotInRun):
            coroutine.send(None)
        return "no"

    @perdure.flow
    async def other(ctx: perdure.Context) -> str:
        return await ctx.step("plain", plain)

    with World() as world:
        assert world.start(other).result() == "no"


def test_a_step_that_asks_is_cut_with_its_flow():
    cut: list[Any] = []

    async def patient() -> None:
        try:
            await perdure.step_info().ask("nothing")
        except asyncio.CancelledError:
            cut.append("cut")
            raise

    @perdure.flow
    async def silent(ctx: perdure.Context) -> None:
        await ctx.step("patient", patient)

    with World() as world:
        handle = world.start(silent)
        world.advance(1)
        handle.cancel()
        world.run()
        assert cut == ["cut"]
