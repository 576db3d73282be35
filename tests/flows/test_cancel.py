"""Cancel: `CancelledError` in the flow, clean-up with a deadline, and never any other end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure import Break, Context, Continue

from .conftest import Stage, until
from .rig import Rig, same_in_every_rebuild


async def echo(value: Any) -> Any:
    return value


async def test_cancel_during_a_step_wins(stage: Stage) -> None:
    begun, events = asyncio.Event(), []

    async def slow() -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            events.append("cut")
        return "done"

    @perdure.flow
    async def flow(ctx: Context) -> str:
        return await ctx.step("slow", slow)

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        await begun.wait()
        await handle.cancel("changed my mind")
        with pytest.raises(perdure.InstanceCancelled, match="changed my mind") as cancelled:
            await handle.result(60)
        assert cancelled.value.reason == "changed my mind"
        await asyncio.sleep(0)
        assert events == ["cut"]
        await handle.cancel("again")
        with pytest.raises(perdure.NotStuck):
            await handle.retry()
        assert await handle.status() == "cancelled"


async def test_finally_runs_a_step(stage: Stage) -> None:
    ran: list[str] = []

    async def note(text: str) -> None:
        ran.append(text)

    @perdure.flow
    async def flow(ctx: Context) -> None:
        try:
            await ctx.receive("never")
        except asyncio.CancelledError:
            await ctx.step("caught", note, "caught")
            await ctx.sleep("breathe", 0.005)
            raise
        finally:
            await ctx.step("clean up", note, "clean up")

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        await handle.cancel()
        with pytest.raises(perdure.InstanceCancelled):
            await handle.result(60)
        assert ran == ["caught", "clean up"]


OPERATIONS: dict[str, Any] = {
    "step": lambda ctx: ctx.step("s", echo, 1),
    "backoff": lambda ctx: ctx.sleep("b", 5),
    "sleep": lambda ctx: ctx.sleep("z", 100),
    "receive": lambda ctx: ctx.receive("never", timeout=50),
    "child": lambda ctx: ctx.child("other"),
    "join": lambda ctx: ctx.join("j", {"a": lambda: ctx.sleep("z", 1), "b": lambda: ctx.step("s", echo, 1)}),
    "race": lambda ctx: ctx.race("r", {"a": lambda: ctx.sleep("z", 1), "b": lambda: ctx.receive("x")}),
    "map": lambda ctx: ctx.map("m", lambda n: ctx.sleep("z", n), [1, 2, 3], concurrency=2),
    "loop": lambda ctx: ctx.loop("l", lambda ctx: ctx.sleep("z", 1)),
    "gather": lambda ctx: asyncio.gather(ctx.sleep("z", 1), ctx.step("s", echo, 1)),
    "wait_for": lambda ctx: asyncio.wait_for(ctx.receive("x"), 60),
    "asyncio sleep": lambda ctx: asyncio.sleep(10),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_cancel_withdraws_whatever_is_open(operation: str) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            await OPERATIONS[operation](ctx)
        finally:
            await ctx.step("clean up", echo, 1)
        return "not cancelled"

    def drive(rig: Rig) -> Any:
        before = set(rig.open)
        decision = rig.cancel("stop")
        assert set(decision.withdraw) == before
        assert rig.locations == ["clean up", "&cleanup"]
        return rig.run()

    assert same_in_every_rebuild(flow, drive=drive).result == "cancelled: Cancelled: stop"


def test_branches_of_a_cancelled_join_clean_up_too() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.join("j", {name: branch(ctx) for name in "ab"})

    def branch(ctx: Context) -> Any:
        async def run() -> None:
            try:
                await ctx.sleep("long", 100)
            finally:
                await ctx.step("clean up", echo, 1)

        return run

    def drive(rig: Rig) -> Any:
        rig.cancel("stop")
        return rig.run()

    rig = same_in_every_rebuild(flow, drive=drive)

    assert rig.result == "cancelled: Cancelled: stop"
    assert rig.calls == ["j/a/clean up", "j/b/clean up"]


def test_cancel_in_a_pruned_loop() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        async def body(ctx: Context, n: int) -> Continue[int] | Break[None]:
            try:
                await ctx.step("s", echo, n)
            finally:
                await ctx.step("always", echo, n)
            return Continue(n + 1)

        await ctx.loop("l", body, 0, keep=1, prune_every=1)

    def drive(rig: Rig) -> Any:
        rig.run_some(80)
        rig.cancel("stop")
        return rig.run()

    rig = same_in_every_rebuild(flow, drive=drive)

    assert rig.result == "cancelled: Cancelled: stop"
    assert rig.calls[-1] == "l/~40/always"


@pytest.mark.parametrize("where", ["main", "branch"])
def test_clean_up_has_a_deadline(where: str) -> None:
    @perdure.flow(cleanup=30)
    async def flow(ctx: Context) -> None:
        if where == "main":
            await stubborn(ctx)
        else:
            await ctx.join("j", {"a": lambda: stubborn(ctx)})

    async def stubborn(ctx: Context) -> None:
        try:
            await ctx.receive("never")
        finally:
            await ctx.sleep("for ever", 10_000)

    def drive(rig: Rig) -> Any:
        rig.cancel("stop")
        rig.pass_time(29)
        assert rig.outcome is None
        rig.pass_time(1)
        return rig.result

    rig = same_in_every_rebuild(flow, drive=drive)

    assert rig.result == "cancelled: Cancelled: stop; its clean-up took too long and was cut"


def test_a_flow_that_swallows_the_cancel_is_cancelled_all_the_same() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        with suppress(asyncio.CancelledError):
            await ctx.receive("never")
        await ctx.step("goes on", echo, 1)
        return "completed"

    def drive(rig: Rig) -> Any:
        rig.cancel("stop")
        return rig.run()

    rig = same_in_every_rebuild(flow, drive=drive)

    assert rig.result == "cancelled: Cancelled: stop"
    assert rig.calls == ["goes on"]


def test_a_flow_that_fails_while_it_is_cancelled_is_cancelled() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.receive("never")
        finally:
            raise ValueError("in clean-up")

    rig = Rig(flow)
    rig.cancel("stop")

    assert rig.result == "cancelled: Cancelled: stop"


async def test_a_cancel_survives_a_crash(disk: Stage) -> None:
    ran: list[int] = []

    async def slow_clean_up() -> None:
        ran.append(perdure.step_info().delivery)
        if len(ran) == 1:
            await asyncio.sleep(60)

    @perdure.flow
    async def flow(ctx: Context) -> None:
        try:
            await ctx.receive("never")
        finally:
            await ctx.step("clean up", slow_clean_up)

    async with disk.open(flow) as engine:
        handle = await engine.start(flow, key="k")
        await handle.cancel("stop")
        await until(lambda: bool(ran))
        disk.crash()
    async with disk.open(flow) as engine:
        with pytest.raises(perdure.InstanceCancelled, match="stop"):
            await engine.handle(flow, "k").result(60)
    assert ran == [1, 2]


# ---- other ends ------------------------------------------------------------------------------------------


class Odd(BaseException):
    pass


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ValueError("x"), "failed: ValueError: x"),
        (lambda: Odd("x"), "failed: tests.flows.test_cancel.Odd: x"),
        (lambda: GeneratorExit("x"), "failed: GeneratorExit: x"),
        (
            asyncio.CancelledError,
            "failed: BadCall: the flow raised CancelledError, but nobody cancelled it",
        ),
        (lambda: ExceptionGroup("g", [ValueError("x")]), "failed: ExceptionGroup: g (1 sub-exception)"),
        (lambda: StopAsyncIteration("x"), "failed: StopAsyncIteration: x"),
    ],
)
def test_whatever_a_flow_raises_is_recorded(make: Callable[[], BaseException], told: str) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step("s", echo, 1)
        raise make()

    assert same_in_every_rebuild(flow, drive=Rig.run).result.startswith(told)


def test_a_branch_that_raises_an_odd_exception_ends_the_flow() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        async def odd() -> None:
            await ctx.step("s", echo, 1)
            raise Odd("branch")

        await ctx.join("j", {"odd": odd})

    assert same_in_every_rebuild(flow, drive=Rig.run).result == "failed: tests.flows.test_cancel.Odd: branch"


async def test_a_flow_cannot_end_the_process(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        raise SystemExit(3)

    @perdure.flow
    async def fine(ctx: Context) -> str:
        return "fine"

    async with stage.open(flow, fine, replay=False) as engine:
        handle = await engine.start(flow)
        assert await handle.status() == "stuck"
        assert "cannot end the process" in str(await handle.error())
        assert await (await engine.start(fine)).result(60) == "fine", "poison does not spread"
        await handle.cancel()
        with pytest.raises(perdure.InstanceCancelled):
            await handle.result(60)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("text", ["lone \ud800 surrogate", "", "x" * 100_000])
async def test_an_error_that_cannot_be_written_down_does_not_spread(memory: Stage, text: str) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step("s", echo, 1)
        raise ValueError(text) if text else Unspeakable

    async with memory.open(flow) as engine:
        with pytest.raises(perdure.InstanceFailed):
            await (await engine.start(flow)).result(60)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(object(), "NotPlain"), ("text", "NotConvertible"), (b"x" * (16 * 2**20 + 1), "TooLarge")],
)
async def test_a_result_that_cannot_be_recorded_fails_the_flow(memory: Stage, value: Any, kind: str) -> None:
    async def returns_any(ctx: Context) -> Any:
        return value

    async def returns_int(ctx: Context) -> int:
        return value  # type: ignore[no-any-return]

    flow = perdure.flow(name="f")(returns_int if kind == "NotConvertible" else returns_any)

    async with memory.open(flow) as engine:
        with pytest.raises(perdure.InstanceFailed, match=kind):
            await (await engine.start(flow)).result(60)
