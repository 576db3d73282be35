"""Bad input: one typed error with what, where and what to do. Nothing is recorded, nothing hangs."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure import BadCall, Context

from .conftest import Stage
from .rig import Rig

HUGE = b"x" * (16 * 1024 * 1024 + 1)


@dataclass
class Line:
    article: str
    count: int


@perdure.flow
async def order(ctx: Context, lines: list[Line]) -> int:
    await ctx.receive("go")
    return sum(line.count for line in lines)


@perdure.flow
async def loose(ctx: Context, value: Any) -> Any:
    return value


async def nothing_recorded(engine: perdure.Engine) -> None:
    assert await engine.instances() == []


async def test_unknown_workflow(stage: Stage) -> None:
    async with stage.open(order) as engine:
        with pytest.raises(perdure.UnknownWorkflow, match="did you mean 'order'"):
            await engine.start("ordr", lines=[])
        with pytest.raises(perdure.UnknownWorkflow, match="register it"):
            await engine.start(loose, 1)
        await nothing_recorded(engine)


EVERYTHING: dict[str, Callable[[perdure.Handle[Any]], Awaitable[Any]]] = {
    "ask": lambda handle: handle.ask("go"),
    "ask again": lambda handle: handle.ask("go", id="m-1"),
    "cancel": lambda handle: handle.cancel(),
    "draw": lambda handle: handle.draw(),
    "error": lambda handle: handle.error(),
    "fork": lambda handle: handle.fork("here"),
    "history": lambda handle: handle.history(),
    "progress": lambda handle: handle.progress(),
    "read": lambda handle: handle.read("x"),
    "result": lambda handle: handle.result(),
    "retry": lambda handle: handle.retry(),
    "rewind": lambda handle: handle.rewind("here"),
    "send": lambda handle: handle.send("go"),
    "settle": lambda handle: handle.settle("here"),
    "state": lambda handle: handle.state(),
    "status": lambda handle: handle.status(),
    "stream": lambda handle: anext(handle.stream()),
    "summary": lambda handle: handle.summary(),
    "tag": lambda handle: handle.tag("team", "red"),
    "tags": lambda handle: handle.tags({"team": "red"}),
    "until": lambda handle: handle.until("waiting"),
    "waiting": lambda handle: handle.waiting(),
    "wake": lambda handle: handle.wake(),
    "watch": lambda handle: anext(handle.watch("x")),
}


def test_everything_that_a_handle_can_do_is_asked_of_a_wrong_key() -> None:
    methods = {name for name, _ in inspect.getmembers(perdure.Handle, callable) if not name.startswith("_")}

    assert methods == set(EVERYTHING) - {"ask again"}


async def test_unknown_key(stage: Stage) -> None:
    async with stage.open(order) as engine:
        handle = engine.handle(order, "nobody")
        for ask in EVERYTHING.values():
            with pytest.raises(perdure.UnknownInstance, match="there is no instance order/nobody; `perdure ls` lists"):
                await ask(handle)
        await nothing_recorded(engine)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([{"article": "a", "count": "many"}], "$.lines[0].count"),
        ([{"article": "a", "count": 1, "colour": "red"}], "$.lines[0]"),
        ([Line("a", "many")], "$.lines[0].count"),  # type: ignore[arg-type]
        ("no list", "$.lines"),
        (None, "$.lines"),
    ],
)
async def test_a_value_of_another_type_is_refused_with_its_path(memory: Stage, value: Any, path: str) -> None:
    async with memory.open(order) as engine:
        with pytest.raises(perdure.NotConvertible) as refused:
            await engine.start(order, value)
        assert refused.value.path == path
        assert "order" in str(refused.value)
        await nothing_recorded(engine)


async def test_an_argument_in_its_plain_form_is_the_same_argument(memory: Stage) -> None:
    async with memory.open(order) as engine:
        first = await engine.start(order, [Line("a", 1)], key="k")
        again = await engine.start(order, [{"article": "a", "count": 1}], key="k")

        assert first.id == again.id
        assert len(await engine.instances()) == 1


async def test_a_wrong_call_is_refused(memory: Stage) -> None:
    async with memory.open(order) as engine:
        with pytest.raises(perdure.CallerError):
            await engine.start(order)
        with pytest.raises(perdure.CallerError):
            await engine.start(order, [], [])
        with pytest.raises(perdure.CallerError):
            await engine.start(order, [], extra=1)
        await nothing_recorded(engine)


@pytest.mark.parametrize("value", [object(), [{"deep": {1, object()}}], "\ud800"])
async def test_a_value_without_a_recorded_form_is_refused(stage: Stage, value: Any) -> None:
    async with stage.open(loose, order) as engine:
        with pytest.raises(perdure.CallerError):
            await engine.start(loose, value)
        await nothing_recorded(engine)
        handle = await engine.start(order, [])
        with pytest.raises(perdure.CallerError):
            await handle.send("go", value)
        assert len(await handle.history()) == 1


async def test_a_value_over_the_size_limit(stage: Stage) -> None:
    async with stage.open(loose, order) as engine:
        with pytest.raises(perdure.TooLarge, match="16,777,216"):
            await engine.start(loose, HUGE)
        await nothing_recorded(engine)
        handle = await engine.start(order, [])
        with pytest.raises(perdure.TooLarge, match="message 'go'"):
            await handle.send("go", HUGE)
        assert len(await handle.history()) == 1
        largest = await engine.start(loose, HUGE[:-100])
        assert len(await largest.result(60)) == len(HUGE) - 100


async def test_values_over_the_size_limit_inside_of_a_flow(memory: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        refused = 0
        for act in (
            lambda: ctx.publish("x", HUGE),
            lambda: ctx.send("order/k", "x", HUGE),
        ):
            try:
                act()
            except perdure.TooLarge:
                refused += 1
        for call in (lambda: ctx.child(loose, HUGE), lambda: ctx.loop("l", loose.function, HUGE)):
            try:
                await call()
            except perdure.TooLarge:
                refused += 1
        return refused

    async with memory.open(flow, loose) as engine:
        assert await (await engine.start(flow)).result(60) == 4


async def test_a_message_to_a_terminal_instance(stage: Stage) -> None:
    async with stage.open(loose) as engine:
        handle = await engine.start(loose, 1)
        await handle.result(60)
        for act in (handle.send("go"), handle.wake(), handle.ask("go")):
            with pytest.raises(perdure.InstanceEnded, match=r"has completed and takes no .*; start another instance"):
                await act
        with pytest.raises(perdure.NotStuck):
            await handle.retry()
        assert len(await handle.history()) == 1


@pytest.mark.parametrize("key", ["", "x" * 513, "a\x00b", 7, "\ud800"])
async def test_a_bad_key(memory: Stage, key: Any) -> None:
    async with memory.open(loose) as engine:
        with pytest.raises(perdure.CallerError, match="key"):
            await engine.start(loose, 1, key=key)
        await nothing_recorded(engine)
        assert await (await engine.start(loose, 2)).result(60) == 2


async def test_texts_that_cannot_be_recorded(memory: Stage) -> None:
    async with memory.open(order) as engine:
        handle = await engine.start(order, [])
        for act in (
            lambda: handle.send("\ud800"),
            lambda: handle.send(""),
            lambda: handle.send("go", id="\ud800"),
            lambda: handle.cancel("\ud800"),
            lambda: engine.start(order, [], tags={"\ud800": "x"}),
        ):
            with pytest.raises(perdure.CallerError):
                await act()
        assert len(await handle.history()) == 1
        await handle.send("go")
        assert await handle.result(60) == 0


async def test_a_second_engine_on_a_leased_file(disk: Stage) -> None:
    async with disk.open(loose) as engine:
        with pytest.raises(perdure.EngineRunning, match=rf"pid {os.getpid()}.*talk to it with perdure\.connect"):
            async with perdure.open(disk.url, workflows=[loose]):
                pass
        assert await (await engine.start(loose, 1)).result(60) == 1


async def test_a_location_that_does_not_exist(stage: Stage) -> None:
    @perdure.step(retries=0)
    async def refund(charge: str) -> None:
        raise ConnectionError("the bank is closed")

    @perdure.step(undo=refund)
    async def charge() -> str:
        return "charge"

    @perdure.flow
    async def refunding(ctx: Context) -> None:
        await charge()
        raise KeyError("nobody wants it")

    @perdure.flow
    async def waits_for_nothing(ctx: Context) -> None:
        await asyncio.Event().wait()

    async with stage.open(refunding, waits_for_nothing, sleeping) as engine:
        asleep = await engine.start(sleeping)
        stuck, stopped = await engine.start(refunding), await engine.start(waits_for_nothing)
        for handle in (stuck, stopped):
            with pytest.raises(perdure.InstanceStuck):
                await handle.result(60)
        before = [len(await handle.history()) for handle in (asleep, stuck, stopped)]

        with pytest.raises(perdure.UnknownLocation, match="does not sleep at 'there', but at nap; name one, or none"):
            await asleep.wake("there")
        with pytest.raises(perdure.UnknownLocation, match="is not stuck at 'there' but at 'charge'; settle that"):
            await stuck.settle("there")
        with pytest.raises(perdure.UnknownLocation, match="not stuck at 'there': its code stopped; retry or cancel"):
            await stopped.settle("there")
        with pytest.raises(perdure.TooLarge, match="the value for 'charge'"):
            await stuck.settle("charge", HUGE)

        assert [len(await handle.history()) for handle in (asleep, stuck, stopped)] == before


@pytest.mark.parametrize("served", [True, False], ids=["by an engine", "by nobody"])
async def test_a_caller_in_another_process_hears_the_same(disk: Stage, served: bool) -> None:
    """What cannot be delivered is not even posted: it would wait for ever."""
    async with disk.open(order, loose, sleeping) as engine:
        done = await engine.start(loose, 1, key="done")
        await done.result(60)
        await engine.start(sleeping, key="asleep")
    async with AsyncExitStack() as engines:
        if served:
            await engines.enter_async_context(disk.open(order, loose, sleeping))
        before = rows(disk)
        async with perdure.connect(disk.url) as client:
            with pytest.raises(perdure.UnknownWorkflow, match="did you mean 'order'"):
                await client.start("ordr", lines=[])
            nobody = client.handle("order", "nobody")
            for name, ask in EVERYTHING.items():
                error = perdure.NotInThisProcess if name == "stream" else perdure.UnknownInstance
                with pytest.raises(error):
                    await ask(nobody)
            with pytest.raises(perdure.TooLarge, match="the input of loose"):
                await client.start("loose", value=HUGE)
            with pytest.raises(perdure.TooLarge, match="message 'go'"):
                await client.handle("sleeping", "asleep").send("go", HUGE)
            with pytest.raises(perdure.CallerError):
                await client.start("loose", value=object())
            with pytest.raises(perdure.CallerError):
                await client.instances(workflow="\ud800")
            with pytest.raises(perdure.UnknownLocation, match="but at nap"):
                await client.handle("sleeping", "asleep").wake("there")
            for act in (client.handle("loose", "done").send("go"), client.handle("loose", "done").wake()):
                with pytest.raises(
                    perdure.InstanceEnded, match=r"takes no more .*; start another instance, with a new key"
                ):
                    await act
        assert rows(disk) == before


def rows(disk: Stage) -> dict[str, int]:
    """How many there are of what a caller could have caused."""
    connection = sqlite3.connect(disk.url)
    try:
        tables = ("journal", "inbox", "instances", "large_bodies")
        return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
    finally:
        connection.close()


def test_decorating_anything_else_is_an_error_at_once_with_its_line() -> None:
    def plain(ctx: Context) -> None: ...

    async def generator(ctx: Context) -> Any:
        yield 1

    async def no_context() -> None: ...

    @perdure.step
    async def step() -> None: ...

    others: list[Any] = [plain, generator, no_context, step, 7, print, perdure.Backoff]
    for wrong in others:
        with pytest.raises(perdure.NotAFlow) as refused:
            perdure.flow(wrong)
        if wrong in others[:3]:
            assert f"test_bad_input.py:{wrong.__code__.co_firstlineno}" in str(refused.value)


async def test_what_is_no_workflow_cannot_be_opened() -> None:
    with pytest.raises(perdure.CallerError, match=r"did you forget @perdure\.flow"):
        async with perdure.open(":memory:", workflows=[test_unknown_key]):
            pass
    with pytest.raises(perdure.CallerError, match="two workflows are named"):
        async with perdure.open(":memory:", workflows=[loose, perdure.flow(name="loose")(order.function)]):
            pass


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"threads": 0}, "threads=0: expected a whole number, 1 or more"),
        ({"inline": 0}, "inline=0: expected a whole number, 1 or more"),
        ({"processes": -1}, "processes=-1: expected a whole number, 1 or more"),
        ({"cache": 1.5}, "cache=1.5: expected a whole number, 0 or more"),
        ({"memory": True}, "memory=True: expected a whole number, 0 or more"),
        ({"drain": "5"}, "drain='5': expected a number, 0 or more"),
        ({"queues": ["images"]}, "queues=['images']: queues are numbers of calls at once by name"),
    ],
)
async def test_a_number_with_which_no_engine_could_work_is_refused(options: dict[str, Any], told: str) -> None:
    """With `threads=0` steps in threads waited for ever; a wrong `drain` was an error of the close."""
    with pytest.raises(perdure.PerdureError, match=re.escape(told)):
        async with perdure.open(":memory:", workflows=[loose], **options):
            pass


def test_a_flow_that_is_called_without_its_context_says_how_it_is_started() -> None:
    with pytest.raises(TypeError, match=r"missing 1 .*; an instance is started with engine.start\(order, ...\)"):
        order([])  # type: ignore[unused-coroutine]


def test_a_partial_is_no_flow() -> None:
    async def body(ctx: perdure.Context, n: int) -> int:
        return n

    with pytest.raises(perdure.NotAFlow, match="async def"):
        perdure.flow(functools.partial(body, n=1))


# ---- what callers give -------------------------------------------------------------------------------------


@perdure.flow
async def sleeping(ctx: Context) -> None:
    await ctx.sleep("nap", 3600)


BAD_CALLS: dict[str, Callable[[perdure.Engine, perdure.Handle[Any]], Awaitable[Any]]] = {
    "wake nowhere": lambda engine, handle: handle.wake("elsewhere"),
    "wake a surrogate": lambda engine, handle: handle.wake("\ud800"),
    "wake None": lambda engine, handle: handle.wake(5),  # type: ignore[arg-type]
    "settle what is not stuck": lambda engine, handle: handle.settle("nap"),
    "settle twice over": lambda engine, handle: handle.settle("nap", 1, error="x"),
    "ask with a wrong timeout": lambda engine, handle: handle.ask("q", timeout="soon"),  # type: ignore[arg-type]
    "ask with a wrong id": lambda engine, handle: handle.ask("q", id=5),  # type: ignore[arg-type]
    "a result in a wrong time": lambda engine, handle: handle.result("1"),  # type: ignore[arg-type]
    "a name that is too long": lambda engine, handle: handle.send("x" * 5000),
    "a reason that is too long": lambda engine, handle: handle.cancel("x" * 5000),
    "reuse of nothing": lambda engine, handle: engine.start(sleeping, reuse="yes"),  # type: ignore[call-overload]
    "no workflow": lambda engine, handle: engine.start(None),  # type: ignore[call-overload]
    "a function": lambda engine, handle: engine.start(print),  # type: ignore[call-overload]
    "a parent by name": lambda engine, handle: engine.start(sleeping, parent="x"),
    "a delay in words": lambda engine, handle: engine.start(sleeping, delay="5m"),  # type: ignore[call-overload]
    "a negative delay": lambda engine, handle: engine.start(sleeping, delay=-1),
    "a time in words": lambda engine, handle: engine.start(sleeping, at="tomorrow"),  # type: ignore[call-overload]
    "a list of tags": lambda engine, handle: engine.start(sleeping, tags=["red"]),  # type: ignore[call-overload]
    "a text for tags": lambda engine, handle: engine.instances(tags="red"),  # type: ignore[arg-type]
    "a flow that was called": lambda engine, handle: engine.start(sleeping(None)),  # type: ignore[call-overload]
    "no such status": lambda engine, handle: engine.instances(status="asleep"),
}


@pytest.mark.parametrize("call", BAD_CALLS)
async def test_a_wrong_call_is_one_typed_error_and_nothing_is_recorded(stage: Stage, call: str) -> None:
    async with stage.open(sleeping) as engine:
        handle = await engine.start(sleeping, key="k")

        with pytest.raises(perdure.CallerError):
            await BAD_CALLS[call](engine, handle)

        assert len(await handle.history()) == 1
        assert len(await engine.instances()) == 1
        with pytest.raises(perdure.CallerError):
            engine.handle(sleeping, "\ud800")
        await handle.wake()
        await handle.result(60)


@pytest.mark.parametrize(
    "options",
    [{"backoff": None}, {"retry_if": 5}, {"undo": "x"}, {"retries": 10**30}, {"unknown": "ignore"}, {"retries": -1}],
    ids=str,
)
def test_wrong_options_of_a_step_are_told_where_they_stand(options: Any) -> None:
    with pytest.raises(BadCall):
        perdure.step(**options)


def test_what_is_no_function_is_no_step() -> None:
    with pytest.raises(BadCall, match="stands before a function, or takes options by name; found 3"):
        perdure.step(3)  # type: ignore[call-overload]
    with pytest.raises(BadCall, match="all of a backoff are numbers"):
        perdure.Backoff(base="soon")  # type: ignore[arg-type]


BAD_OPERATIONS: dict[str, Callable[[Context], Awaitable[Any]]] = {
    "receive 5": lambda ctx: ctx.receive(5),  # type: ignore[arg-type]
    "receive an empty name": lambda ctx: ctx.receive(""),
    "receive many of x": lambda ctx: ctx.receive_many("m", limit="x"),  # type: ignore[arg-type]
    "attempt catching None": lambda ctx: ctx.attempt("a", sleeping, catch=None),  # type: ignore[call-overload]
    "map of nothing": lambda ctx: ctx.map("m", None, [1]),  # type: ignore[arg-type]
    "map with x at once": lambda ctx: ctx.map("m", sleeping, [1], concurrency="x"),  # type: ignore[arg-type]
    "loop without a body": lambda ctx: ctx.loop("l", None),  # type: ignore[arg-type]
    "loop keeping x": lambda ctx: ctx.loop("l", sleeping, keep="x"),  # type: ignore[arg-type]
    "child None": lambda ctx: ctx.child(None),
    "send to no instance": lambda ctx: _now(ctx.send, "order", "name"),
    "send to None": lambda ctx: _now(ctx.send, None, "name"),
}


async def _now(act: Callable[..., Any], *args: Any) -> Any:
    return act(*args)


@pytest.mark.parametrize("operation", BAD_OPERATIONS)
def test_a_wrong_operation_is_a_bad_call(operation: str) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        with pytest.raises(BadCall):
            await BAD_OPERATIONS[operation](ctx)

    assert Rig(flow).result is None
