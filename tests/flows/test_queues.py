"""Queues that the engine serves itself: the same steps as anywhere, so many at once, found by their names."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure import Context, OutcomeUnknown, StepFailed, StepTimeout
from perdure.stores.sqlite import SqliteStore

from .conftest import Stage, becomes, until

ran: list[Any] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()
    gates.clear()


@dataclass
class Photo:
    name: str
    width: int


@perdure.step(executor="images")
async def shrink(photo: Photo, by: int = 2) -> Photo:
    ran.append(photo)
    return Photo(photo.name, photo.width // by)


@perdure.step(executor="images")
def in_a_thread(name: str) -> str:
    info = perdure.step_info()
    ran.append((info.name, info.attempt, info.idempotency_key))
    return f"{name} by {threading.current_thread().name}"


@perdure.step(executor="images", retries=0)
async def waits(name: str) -> str:
    gate = gates.setdefault(name, asyncio.Event())
    ran.append(name)
    try:
        await gate.wait()
    except asyncio.CancelledError:
        ran.append(f"{name} was cut")
        raise
    return name


@perdure.step(executor="images", once=True, unknown="raise")
async def only_once() -> None:
    await waits.function("once")


@perdure.flow
async def album(ctx: Context, width: int) -> Photo:
    return await ctx.step("shrink", shrink, Photo("a.png", width), by=4)


@perdure.flow
async def threaded(ctx: Context) -> str:
    return await ctx.step("draw", in_a_thread, "tea")


@perdure.flow
async def waiter(ctx: Context, name: str) -> str:
    return await ctx.step("wait", waits, name)


async def test_arguments_and_results_are_what_the_annotations_say(stage: Stage) -> None:
    async with stage.open(album, queues={"images": 2}) as engine:
        found = await (await engine.start(album, 400)).result(60)

    assert found == Photo("a.png", 100)
    assert ran == [Photo("a.png", 400)]


async def test_a_plain_function_runs_in_a_thread_and_knows_which_step_it_is(stage: Stage) -> None:
    async with stage.open(threaded, queues={"images": 2}) as engine:
        found = await (await engine.start(threaded)).result(60)

    assert found == "tea by perdure-thread"
    [(name, attempt, key)] = ran
    assert (name, attempt) == ("draw", 1) and len(key) == 32


async def test_no_more_run_at_once_than_the_queue_allows(disk: Stage) -> None:
    async with disk.open(waiter, queues={"images": 2}) as engine:
        handles = [await engine.start(waiter, name, key=name) for name in "abc"]
        await until(lambda: len(ran) == 2)
        await becomes(handles[2], "running")  # held: it waits for a place in this engine

        gates["a"].set()

        await until(lambda: len(ran) == 3)
        for gate in gates.values():
            gate.set()
        assert [await handle.result(60) for handle in handles] == ["a", "b", "c"]


async def test_an_instance_whose_step_is_in_a_queue_waits(stage: Stage) -> None:
    async with stage.open(waiter, queues={"images": 1}) as engine:
        handle = await engine.start(waiter, "a")
        await becomes(handle, "waiting")
        await until(lambda: "a" in gates)
        gates["a"].set()

        assert await handle.result(60) == "a"


async def test_a_queue_that_nobody_serves_is_an_error_that_names_what_there_is(disk: Stage) -> None:
    async with disk.open(album) as engine:
        handle = await engine.start(album, 400)

        with pytest.raises(perdure.InstanceFailed, match=r"no executor is named 'images' in this engine; there are: "):
            await handle.result(60)


async def test_after_a_crash_the_step_runs_again(disk: Stage) -> None:
    async with disk.open(waiter, queues={"images": 1}, replay=False) as engine:
        await engine.start(waiter, "a", key="k")
        await until(lambda: ran == ["a"])
        disk.crash()
        gates.clear()
    ran.clear()

    async with disk.open(waiter, queues={"images": 1}) as engine:
        await until(lambda: ran == ["a"])
        gates["a"].set()

        assert await engine.handle(waiter, "k").result(60) == "a"


async def test_a_held_step_is_found_again_after_a_crash(disk: Stage) -> None:
    async with disk.open(waiter, queues={"images": 1}, replay=False) as engine:
        await engine.start(waiter, "a", key="a")
        await until(lambda: ran == ["a"])
        await becomes(await engine.start(waiter, "b", key="b"), "running")
        disk.crash()
        gates.clear()
    ran.clear()

    async with disk.open(waiter, queues={"images": 2}) as engine:
        await until(lambda: sorted(ran) == ["a", "b"])
        for gate in gates.values():
            gate.set()

        assert await engine.handle(waiter, "b").result(60) == "b"
        assert await engine.handle(waiter, "a").result(60) == "a"


async def test_an_engine_without_the_queue_leaves_what_is_open_alone(disk: Stage) -> None:
    async with disk.open(waiter, queues={"images": 1}, replay=False) as engine:
        await engine.start(waiter, "a", key="k")
        await until(lambda: ran == ["a"])
        disk.crash()
        gates.clear()
    ran.clear()

    async with disk.open(waiter) as engine:
        assert await engine.queries.check() == []
        await becomes(engine.handle(waiter, "k"), "waiting")
    assert ran == []

    async with disk.open(waiter, queues={"images": 1}) as engine:
        await until(lambda: ran == ["a"])
        gates["a"].set()
        assert await engine.handle(waiter, "k").result(60) == "a"


async def test_a_step_that_may_run_once_is_unknown_after_a_crash(disk: Stage) -> None:
    async with disk.open(careful, queues={"images": 1}, replay=False) as engine:
        await engine.start(careful, key="k")
        await until(lambda: ran == ["once"])
        disk.crash()
        gates.clear()

    async with disk.open(careful, queues={"images": 1}) as engine:
        assert await engine.handle(careful, "k").result(60) == "unknown"


@perdure.flow
async def careful(ctx: Context) -> str:
    try:
        await ctx.step("pay", only_once)
    except OutcomeUnknown:
        return "unknown"
    return "paid"


async def test_cancelling_cuts_the_step(stage: Stage) -> None:
    async with stage.open(waiter, queues={"images": 1}) as engine:
        handle = await engine.start(waiter, "a")
        await until(lambda: ran == ["a"])

        await handle.cancel()

        await until(lambda: "a was cut" in ran)
        assert await engine.queries.check() == []


async def test_a_timeout_cuts_the_step(stage: Stage) -> None:
    @perdure.flow
    async def impatient(ctx: Context) -> str:
        try:
            return await ctx.step.options(timeout=0.02)("wait", waits, "a")
        except StepTimeout:
            return "too long"

    async with stage.open(impatient, queues={"images": 1}) as engine:
        assert await (await engine.start(impatient)).result(60) == "too long"
    assert ran == ["a", "a was cut"]


async def test_a_function_without_a_name_is_refused(stage: Stage) -> None:
    @perdure.flow
    async def nameless(ctx: Context) -> bool:
        try:
            await ctx.step.options(executor="images")("x", lambda: 1)
        except perdure.BadCall as error:
            return "a function that can be imported" in str(error)
        return False

    async with stage.open(nameless, queues={"images": 1}) as engine:
        assert await (await engine.start(nameless)).result(60)


async def test_a_function_that_is_gone_fails_for_good(disk: Stage) -> None:
    def local() -> None: ...

    local.__qualname__ = "gone"

    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step.options(executor="images")("x", local)
        except StepFailed as error:
            return str(error)
        return ""

    async with disk.open(flow, queues={"images": 1}) as engine:
        assert f"there is no function gone in the module {__name__}" in await (await engine.start(flow)).result(60)


@pytest.mark.parametrize("queues", [{"inline": 2}, {"": 2}, {"images": 0}, {"images": "2"}])
async def test_bad_queues_are_refused(queues: Any) -> None:
    with pytest.raises(perdure.BadCall, match="queue"):
        async with perdure.open(":memory:", queues=queues):
            pass


async def test_jobs_stand_in_the_file_while_they_are_open(disk: Stage) -> None:
    async with disk.open(waiter, queues={"images": 1}) as engine:
        handle = await engine.start(waiter, "a")
        await until(lambda: ran == ["a"])
        assert isinstance(engine.queries, SqliteStore)
        rows = list(engine.queries._connection.execute("SELECT queue, function, delivery FROM jobs"))

        gates["a"].set()
        await handle.result(60)

        assert rows == [("images", f"{__name__}:waits", 1)]
        assert list(engine.queries._connection.execute("SELECT 1 FROM jobs")) == []
