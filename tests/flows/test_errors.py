"""Errors as they are recorded: their data comes to whoever asks, and their texts are never too long."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Context
from perdure.errors import ChildFailed, Fatal, InstanceFailed, InstanceStuck, LimitExceeded
from perdure.kernel.receipt import MESSAGE_MAX, TRACEBACK_MAX, Failure, causes_of, failure_of
from tests.flows.conftest import Stage

DATA = {"code": 7, "why": ["no", b"x"]}


class OutOfStock(Exception):
    pass


async def refuses() -> None:
    raise Fatal("no", data=DATA)


@perdure.flow
async def child(ctx: Context, where: str) -> None:
    if where == "step":
        await ctx.step("refuses", refuses)
    raise Fatal("no", data=DATA)


@pytest.mark.parametrize("where", ["step", "flow"])
async def test_the_data_of_fatal_comes_to_the_caller_and_to_the_parent(stage: Stage, where: str) -> None:
    @perdure.flow
    async def parent(ctx: Context, where: str, catch: bool) -> Any:
        try:
            await ctx.child(child, where)
        except ChildFailed as failed:
            if not catch:
                raise
            assert isinstance(failed.error, Failure)
            return failed.error.data

    async with stage.open(parent, child) as engine:
        for flow, args in ((child, (where,)), (parent, (where, False))):
            with pytest.raises(InstanceFailed) as failed:
                await (await engine.start(flow, *args)).result(60)
            assert isinstance(failed.value.error, Failure) and failed.value.error.data == DATA
        assert await (await engine.start(parent, where, True)).result(60) == DATA


@pytest.mark.parametrize("where", ["step", "flow"])
@pytest.mark.parametrize(("data", "kind"), [(object(), "NotPlain"), (b"x" * (2 << 20), "TooLarge")])
async def test_data_of_fatal_that_cannot_be_recorded_is_refused_loudly(
    memory: Stage, where: str, data: Any, kind: str
) -> None:
    async def fails() -> None:
        raise Fatal("the reason", data=data)

    @perdure.flow
    async def flow(ctx: Context) -> None:
        if where == "flow":
            await fails()
        await ctx.step("fails", fails)

    async with memory.open(flow) as engine:
        with pytest.raises(InstanceFailed) as failed:
            await (await engine.start(flow)).result(60)
    assert f"{kind}: the data of Fatal('the reason')" in str(failed.value)


def test_data_of_another_exception_that_cannot_be_recorded_is_left_out() -> None:
    error = ValueError("no")
    error.data = object()  # type: ignore[attr-defined]

    assert (failure_of(error).type, failure_of(error).data) == ("ValueError", None)


@pytest.mark.parametrize("where", ["step", "flow"])
async def test_a_text_of_any_length_fails_the_flow_and_says_that_it_was_cut(memory: Stage, where: str) -> None:
    async def talks() -> None:
        raise ValueError("begin " + "x" * 20_000_000 + " end")

    @perdure.flow
    async def flow(ctx: Context) -> None:
        if where == "flow":
            await talks()
        await ctx.step.options(retries=2, backoff=perdure.Backoff(base=0))("talks", talks)

    async with memory.open(flow) as engine:
        with pytest.raises(InstanceFailed) as failed:
            await (await engine.start(flow)).result(60)
    error = failed.value.error
    assert isinstance(error, Failure)
    assert "characters were cut" in error.message and "begin x" in error.message and error.message.endswith("x end")
    assert "characters were cut" in error.traceback
    assert len(error.message) < 2 * MESSAGE_MAX and len(error.traceback) < 2 * TRACEBACK_MAX


async def test_very_many_attempts_do_not_make_an_instance_stuck(memory: Stage) -> None:
    async def fails() -> None:
        raise ValueError("x" * 100_000)

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step.options(retries=600, backoff=perdure.Backoff(base=0))("fails", fails)

    async with memory.open(flow, replay=False) as engine:
        with pytest.raises(InstanceFailed) as failed:
            await (await engine.start(flow)).result(60)
    error = failed.value.error
    assert isinstance(error, Failure)
    assert [str(cause) for cause in error.causes if cause.type == "LeftOut"] == [
        "LeftOut: the failures of 581 more attempts are in the history"
    ]


def test_texts_that_older_versions_recorded_are_cut_when_an_outcome_repeats_them() -> None:
    old = Failure("ValueError", "x" * 10_000_000, "y" * 10_000_000)

    (cause,) = causes_of([old])

    assert len(cause.message) < 2 * MESSAGE_MAX and len(cause.traceback) < 2 * TRACEBACK_MAX


def test_the_type_of_an_error_has_its_module() -> None:
    assert failure_of(OutOfStock()).type == "tests.flows.test_errors.OutOfStock"
    assert failure_of(KeyError()).type == "KeyError"
    assert failure_of(Fatal()).type == "Fatal"


async def test_a_limit_raises_an_error_of_its_own(memory: Stage) -> None:
    async def nothing() -> None: ...

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.map("many", lambda n: ctx.step("s", nothing), range(10_001))

    async with memory.open(flow, replay=False) as engine:
        with pytest.raises(InstanceStuck, match="LimitExceeded: one decision opened 10001 effects"):
            await (await engine.start(flow)).result(60)
    assert issubclass(LimitExceeded, OverflowError), "what older code catches"
