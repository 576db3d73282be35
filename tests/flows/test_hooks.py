"""Hooks hear of failures: of steps, undos and flows, once each, when it is durable. What a hook does harms nobody."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import perdure
from perdure import Backoff, BadCall, Context, InstanceFailed, InstanceStuck, Problem, RollBack
from perdure.kernel.events import Settled
from perdure.kernel.receipt import Failure, Receipt

from .conftest import Stage, becomes, until
from .rig import START, Rig, same_in_every_rebuild

AT_ONCE = Backoff(base=0)
UNKNOWN = Receipt("unknown", error=Failure("ProcessDied", "the process died", retry=False))


class Heard(list[Problem]):
    """What a hook has heard. It is itself a hook, which runs in a thread; `hear` is another, which runs on the loop."""

    def __call__(self, problem: Problem) -> None:
        self.append(problem)

    async def hear(self, problem: Problem) -> None:
        self.append(problem)

    @property
    def texts(self) -> list[str]:
        """In the order of attempts: two threads may be heard in any order."""
        return [f"{p.kind} {p.location} {p.attempt} {p.error.type}" for p in sorted(self, key=lambda p: p.attempt)]


async def broken(times: int = 99) -> str:
    if perdure.step_info().attempt <= times:
        raise ConnectionError("the carrier is down")
    return "parcel"


# ---- what is told ------------------------------------------------------------------------------------------


def told(rig: Rig) -> list[tuple[Any, ...]]:
    problems = [report.problem for report in rig.reports]
    assert all(problem.instance == "flow/k" for problem in problems)
    return [(p.kind, p.location, p.attempt, p.remaining, p.will_retry, p.when, p.error.type) for p in problems]


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START / 1e9, UTC) + timedelta(seconds=seconds)


def test_each_attempt_of_a_step_tells_how_many_remain_and_when_the_next_one_comes() -> None:
    def made() -> perdure.Flow[..., Any]:
        @perdure.flow(on_error=Heard())
        async def flow(ctx: Context) -> None:
            await ctx.step.options(retries=2, backoff=Backoff(base=1, factor=2))("ship", fails)

        return flow

    rig = same_in_every_rebuild(made(), drive=Rig.run)

    assert told(rig) == [
        ("step", "ship", 1, 2, True, at(1), "ConnectionError"),
        ("step", "ship", 2, 1, True, at(3), "ConnectionError"),
        ("step", "ship", 3, 0, False, None, "ConnectionError"),
        ("flow", "", 1, 0, False, None, "StepFailed"),
    ]
    assert str(rig.reports[0].problem) == (
        "step 'ship' of flow/k failed; attempt 2 comes at 22:13:21: ConnectionError: the carrier is down"
    )
    assert str(rig.reports[3].problem).startswith("flow/k failed: StepFailed: step 'ship' was tried 3 times")


async def fails() -> None:
    raise ConnectionError("the carrier is down")


async def hopeless() -> None:
    raise perdure.Fatal("no such address", data={"code": 7})


@pytest.mark.parametrize(
    ("options", "receipt", "error"),
    [
        ({}, Receipt("error", error=Failure("Fatal", "no", retry=False)), "Fatal"),
        ({}, Receipt("error", error=Failure("RollBack", "no", retry=False)), "RollBack"),
        ({}, Receipt("timeout", error=Failure("Timeout", "late")), "Timeout"),
        ({}, UNKNOWN, "ProcessDied"),
        ({"once": True, "unknown": "raise"}, UNKNOWN, "ProcessDied"),
        ({"retry_if": lambda failure: False}, Receipt("error", error=Failure("KeyError", "x")), "KeyError"),
    ],
    ids=["fatal", "rollback", "timeout", "crashed too often", "once", "refused by retry_if"],
)
def test_what_is_not_tried_again_has_no_attempts_left(options: Any, receipt: Receipt, error: str) -> None:
    @perdure.flow(on_error=Heard())
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step.options(retries=5, **options)("ship", fails)
        except (perdure.StepFailed, RollBack):
            return "caught"
        return "well"

    rig = Rig(flow)
    rig.answer("ship", receipt)

    assert rig.result == "caught"
    assert told(rig) == [("step", "ship", 1, 0, False, None, error)]


def test_a_timeout_that_is_retried_says_so() -> None:
    @perdure.flow(on_error=Heard())
    async def flow(ctx: Context) -> None:
        await ctx.step.options(retry_on_timeout=True, backoff=AT_ONCE)("ship", fails)

    rig = Rig(flow)
    rig.answer("ship", Receipt("timeout", error=Failure("Timeout", "late")))

    assert told(rig) == [("step", "ship", 1, 3, True, at(0), "Timeout")]


def test_an_unknown_outcome_is_told_when_the_instance_stops_and_an_answer_of_error_is_a_failure_of_its_own() -> None:
    @perdure.flow(on_error=Heard())
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step.options(once=True)("pay", fails)
        except perdure.StepFailed as failed:
            return str(failed.error)
        return "well"

    rig = Rig(flow)
    assert rig.answer("pay", UNKNOWN).stuck is not None
    rig.deliver(Settled("pay", Receipt("error", error=Failure("Settled", "the bank says no", retry=False))))

    assert rig.result == "Settled: the bank says no"
    assert told(rig) == [
        ("step", "pay", 1, 0, False, None, "ProcessDied"),
        ("step", "pay", 1, 0, False, None, "Settled"),
    ]


def test_a_cancelled_flow_has_not_failed() -> None:
    @perdure.flow(on_error=Heard())
    async def flow(ctx: Context) -> None:
        await ctx.step("ship", fails)

    rig = Rig(flow)
    rig.cancel("enough")

    assert rig.result == "cancelled: Cancelled: enough"
    assert told(rig) == []


def test_in_a_loop_that_is_pruned_and_rebuilt_each_failure_is_told_once() -> None:
    def made() -> perdure.Flow[..., Any]:
        @perdure.flow(on_error=Heard())
        async def flow(ctx: Context) -> int:
            async def body(ctx: Context, n: int) -> perdure.Continue[int] | perdure.Break[int]:
                await ctx.attempt("ship", hopeless)
                return perdure.Continue(n + 1) if n < 20 else perdure.Break(n)

            return await ctx.loop("days", body, 0, keep=2, prune_every=2)

        return flow

    rig = same_in_every_rebuild(made(), drive=Rig.run)

    assert rig.snapshots > 3
    assert [where for _, where, *_ in told(rig)] == [f"days/~{n}/ship" for n in range(21)]


def test_a_delay_beyond_the_end_of_time_ends_there() -> None:
    @perdure.flow(on_error=Heard())
    async def flow(ctx: Context) -> None:
        await ctx.step.options(backoff=Backoff(base=1e12, max=1e12))("ship", fails)

    rig = Rig(flow)
    rig.answer("ship")

    assert next(iter(rig.open.values())).due == 2**63 - 1  # type: ignore[union-attr]
    assert [p[5].year for p in told(rig)] == [2262]


# ---- who is told -------------------------------------------------------------------------------------------


async def test_a_flows_hook_hears_of_steps_and_of_the_flow_and_a_steps_hook_of_its_own(stage: Stage) -> None:
    of_flow, of_step, of_call = Heard(), Heard(), Heard()

    @perdure.step(retries=1, backoff=AT_ONCE, on_error=of_step)
    async def ship() -> None:
        raise ConnectionError("the carrier is down")

    @perdure.flow(on_error=of_flow)
    async def flow(ctx: Context) -> None:
        await ctx.attempt("other", hopeless)
        await ctx.attempt("caught", ship)
        await ctx.step.options(on_error=of_call, retries=0)("ship", ship)

    async with stage.open(flow, drain=5) as engine:
        handle = await engine.start(flow, key="k")
        with pytest.raises(InstanceFailed):
            await handle.result(60)

    assert of_step.texts == ["step caught 1 ConnectionError", "step caught 2 ConnectionError"]
    assert of_call.texts == ["step ship 1 ConnectionError"]
    assert sorted(of_flow.texts) == [
        "flow  1 StepFailed",
        "step caught 1 ConnectionError",
        "step caught 2 ConnectionError",
        "step other 1 Fatal",
        "step ship 1 ConnectionError",
    ]
    assert {problem.instance for problem in of_flow} == {"flow/k"}
    fatal = next(problem for problem in of_flow if problem.error.type == "Fatal")
    assert fatal.error.data == {"code": 7}
    assert "no such address" in fatal.error.traceback


async def test_a_hook_of_flow_and_step_hears_of_a_failure_once(stage: Stage) -> None:
    heard = Heard()

    @perdure.flow(on_error=heard)
    async def flow(ctx: Context) -> str:
        return await ctx.step.options(on_error=heard, backoff=AT_ONCE)("ship", broken, 1)

    async with stage.open(flow, drain=5) as engine:
        assert await (await engine.start(flow)).result(60) == "parcel"

    assert heard.texts == ["step ship 1 ConnectionError"]


async def test_an_undo_that_fails_is_told_to_the_hooks_of_the_step_of_the_undo_and_of_the_flow(stage: Stage) -> None:
    of_flow, of_step, of_undo = Heard(), Heard(), Heard()

    @perdure.step(retries=1, backoff=AT_ONCE, on_error=of_undo)
    async def refund(charge: str) -> None:
        raise ConnectionError("the bank is closed")

    @perdure.step(undo=refund, on_error=of_step)
    async def charge() -> str:
        return "charge"

    @perdure.flow(on_error=of_flow)
    async def flow(ctx: Context) -> None:
        await charge()
        raise KeyError("nobody wants it")

    async with stage.open(flow, drain=5) as engine:
        handle = await engine.start(flow)
        with pytest.raises(InstanceStuck):
            await handle.result(60)
        await until(lambda: len(of_step) == len(of_flow) == 2)
        assert [(p.remaining, p.will_retry) for p in sorted(of_step, key=lambda p: p.attempt)] == [
            (1, True),
            (0, False),
        ]
        assert {problem.kind for problem in of_flow} == {"undo"}, "the flow has not failed yet"

        await handle.settle("charge")
        with pytest.raises(InstanceFailed):
            await handle.result(60)

    undo = ["undo &undo/charge 1 ConnectionError", "undo &undo/charge 2 ConnectionError"]
    assert of_step.texts == of_undo.texts == undo
    assert sorted(of_flow.texts) == ["flow  1 KeyError", *undo]


@pytest.mark.parametrize("kind", ["async function", "bound method", "partial", "function that gives a coroutine"])
async def test_a_hook_is_any_function(memory: Stage, kind: str) -> None:
    heard = Heard()

    async def hears(problem: Problem) -> None:
        await asyncio.sleep(0)
        heard.append(problem)

    def gives(problem: Problem) -> object:
        return hears(problem)

    hook: Any = {
        "async function": hears,
        "bound method": heard.append,
        "partial": functools.partial(hears),
        "function that gives a coroutine": gives,
    }[kind]

    @perdure.flow(on_error=hook)
    async def flow(ctx: Context) -> None:
        await ctx.step.options(retries=0)("ship", broken)

    async with memory.open(flow, drain=5) as engine:
        with pytest.raises(InstanceFailed):
            await (await engine.start(flow)).result(60)

    assert sorted(heard.texts) == ["flow  1 StepFailed", "step ship 1 ConnectionError"]


def test_what_is_no_function_is_no_hook() -> None:
    hook: Any = "tell me"
    with pytest.raises(BadCall, match="on_error='tell me' must be a function"):
        perdure.step(on_error=hook)
    with pytest.raises(BadCall, match="on_error='tell me' must be a function"):
        perdure.flow(on_error=hook)


# ---- when it is told ---------------------------------------------------------------------------------------


async def test_a_hook_hears_of_a_failure_when_it_is_durable(stage: Stage) -> None:
    seen: list[tuple[str, bool]] = []
    ready = asyncio.Event()

    async def look(problem: Problem) -> None:
        await ready.wait()
        history = await engine.handle(flow, "k").history()
        errors = [line.error for line in history if line.location == problem.location]
        found = problem.error in errors if problem.kind == "step" else history[-1].outcome == "failed"
        seen.append((problem.kind, found))

    @perdure.flow(on_error=look)
    async def flow(ctx: Context) -> None:
        await ctx.step.options(retries=1, backoff=AT_ONCE)("ship", broken)

    async with stage.open(flow) as engine:
        ready.set()
        await engine.start(flow, key="k")
        await until(lambda: len(seen) == 3)

    assert sorted(seen) == [("flow", True), ("step", True), ("step", True)]


async def test_an_ephemeral_step_tells_with_the_commit_that_its_failure_is_in(stage: Stage) -> None:
    seen: list[list[str]] = []

    async def look(problem: Problem) -> None:
        history = await engine.handle(flow, "k").history()
        seen.append([str(line.error) for line in history if line.location == "clock"])

    @perdure.flow(on_error=look)
    async def flow(ctx: Context) -> str:
        return await ctx.step.options(ephemeral=True, backoff=AT_ONCE)("clock", broken, 1)

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow, key="k")).result(60) == "parcel"
        await until(lambda: bool(seen))

    assert seen[0][0] == "ConnectionError: the carrier is down"
    assert len(seen) == 1


async def test_after_a_restart_nothing_is_told_again(disk: Stage) -> None:
    heard = Heard()

    @perdure.flow(on_error=heard)
    async def flow(ctx: Context) -> None:
        await ctx.attempt("ship", hopeless)
        await ctx.receive("go")
        await ctx.attempt("again", hopeless)

    async with disk.open(flow, drain=5) as engine:
        handle = await engine.start(flow, key="k")
        await becomes(handle, "waiting")
    assert heard.texts == ["step ship 1 Fatal"]

    async with disk.open(flow, drain=5) as engine:
        handle = engine.handle(flow, "k")
        await handle.send("go")
        await handle.result(60)
    assert sorted(heard.texts) == ["step again 1 Fatal", "step ship 1 Fatal"]


async def test_a_crash_in_a_once_step_is_told_by_the_next_engine(disk: Stage) -> None:
    heard = Heard()
    begun = asyncio.Event()

    async def pay() -> None:
        begun.set()
        await asyncio.Event().wait()

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step.options(once=True, on_error=heard.hear)("pay", pay)

    async with disk.open(flow, replay=False) as engine:
        await engine.start(flow, key="k")
        await begun.wait()
        disk.crash()
    heard.clear()  # the first engine was closed and cut the step; on the disk of the second it died

    async with disk.open(flow, drain=5) as engine:
        await becomes(engine.handle(flow, "k"), "stuck")
    assert heard.texts == ["step pay 1 ProcessDied"]


# ---- what a hook does harms nobody -------------------------------------------------------------------------


class Quit(SystemExit):
    """A hook that wants to end the process."""


@pytest.mark.parametrize("colour", ["plain", "async"])
@pytest.mark.parametrize("error", [KeyError("oops"), Quit("oops"), asyncio.CancelledError("oops")], ids=repr)
async def test_an_error_in_a_hook_is_logged_and_has_no_effect(
    stage: Stage, caplog: pytest.LogCaptureFixture, colour: str, error: BaseException
) -> None:
    heard = Heard()

    def plain(problem: Problem) -> None:
        heard.append(problem)
        raise error

    async def coloured(problem: Problem) -> None:
        plain(problem)

    @perdure.flow(on_error=plain if colour == "plain" else coloured)
    async def flow(ctx: Context) -> str:
        return await ctx.step.options(backoff=AT_ONCE)("ship", broken, 2)

    async with stage.open(flow, drain=5) as engine:
        assert await (await engine.start(flow)).result(60) == "parcel"

    assert heard.texts == ["step ship 1 ConnectionError", "step ship 2 ConnectionError"]
    records = [record for record in caplog.records if "raised, which has no effect" in record.message]
    assert [(record.name, record.levelno) for record in records] == [("perdure", logging.ERROR)] * 2
    assert all("step 'ship' of flow/" in record.message for record in records)
    assert caplog.text.count("Traceback") == 2
    assert "in plain" in caplog.text


async def test_a_plain_hook_that_blocks_holds_up_nobody(stage: Stage) -> None:
    blocked, go = threading.Event(), threading.Event()

    def hook(problem: Problem) -> None:
        blocked.set()
        go.wait(60)

    @perdure.flow(on_error=hook)
    async def flow(ctx: Context) -> str:
        return await ctx.step.options(backoff=AT_ONCE)("ship", broken, 1)

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == "parcel"
        await until(blocked.is_set)
        assert not go.is_set()
        go.set()


async def test_a_hook_may_use_the_engine(stage: Stage) -> None:
    async def give_up(problem: Problem) -> None:
        await engine.handle("flow", problem.instance.partition("/")[2]).cancel("a hook gave up")

    @perdure.flow(on_error=give_up)
    async def flow(ctx: Context) -> None:
        await ctx.step.options(backoff=Backoff(base=1000, max=1000))("ship", broken)

    async with stage.open(flow) as engine:
        with pytest.raises(perdure.InstanceCancelled, match="a hook gave up"):
            await (await engine.start(flow)).result(60)


async def test_a_step_called_in_a_hook_is_the_plain_function(memory: Stage) -> None:
    answers: list[object] = []

    @perdure.step
    def twice(n: int) -> int:
        return 2 * n

    async def hook(problem: Problem) -> None:
        answers.append(twice(4))

    @perdure.flow(on_error=hook)
    async def flow(ctx: Context) -> None:
        raise KeyError("x")

    async with memory.open(flow) as engine:
        await engine.start(flow)
        await until(lambda: answers == [8])


# ---- when the engine closes --------------------------------------------------------------------------------


async def test_hooks_get_the_time_of_the_drain_when_the_engine_closes(stage: Stage) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hook(problem: Problem) -> None:
        begun.set()
        for _ in range(20):
            await asyncio.sleep(0)
        ended.set()

    @perdure.flow(on_error=hook)
    async def flow(ctx: Context) -> None:
        raise KeyError("x")

    async with stage.open(flow, drain=5) as engine:
        await engine.start(flow)
        await begun.wait()
        assert not ended.is_set()
    assert ended.is_set()


async def test_a_hook_that_has_not_ended_then_is_cut_and_that_is_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    begun, cut = asyncio.Event(), asyncio.Event()

    async def endless(problem: Problem) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cut.set()

    @perdure.flow(on_error=endless)
    async def flow(ctx: Context) -> None:
        raise KeyError("x")

    async with stage.open(flow, drain=0) as engine:
        await engine.start(flow, key="k")
        await begun.wait()
    assert cut.is_set()
    assert "endless ran; it heard that flow/k failed: KeyError: 'x'" in caplog.text


async def test_a_close_in_a_hurry_does_not_wait_for_hooks(memory: Stage) -> None:
    begun = asyncio.Event()

    async def endless(problem: Problem) -> None:
        begun.set()
        await asyncio.Event().wait()

    @perdure.flow(on_error=endless)
    async def flow(ctx: Context) -> None:
        raise KeyError("x")

    async with asyncio.timeout(60), memory.open(flow, drain=10_000) as engine:
        await engine.start(flow)
        await begun.wait()
        engine.hurry.set()


async def test_a_plain_hook_that_never_returns_does_not_keep_the_engine_open(
    memory: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go = threading.Event(), threading.Event()

    def stubborn(problem: Problem) -> None:
        begun.set()
        go.wait(60)

    @perdure.flow(on_error=stubborn)
    async def flow(ctx: Context) -> None:
        raise KeyError("x")

    async with memory.open(flow, drain=0) as engine:
        await engine.start(flow)
        await until(begun.is_set)
    assert "stubborn ran" in caplog.text
    go.set()


async def test_a_step_that_the_close_cuts_is_told_if_it_may_run_once_only(disk: Stage) -> None:
    heard = Heard()
    begun = asyncio.Event()

    async def pay() -> None:
        begun.set()
        await asyncio.Event().wait()

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step.options(once=True, on_error=heard.hear)("pay", pay)

    async with disk.open(flow, replay=False, drain=0.01) as engine:
        await engine.start(flow, key="k")
        await begun.wait()

    assert heard.texts == ["step pay 1 Cut"]
    async with disk.open(flow, drain=5) as engine:
        assert await engine.handle(flow, "k").status() == "stuck"
    assert len(heard) == 1
