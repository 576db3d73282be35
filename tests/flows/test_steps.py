"""Steps: run once, counted before they run, retried by policy, never asked again for an answer once given."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure import Backoff, Context, Fatal, StepFailed, StepTimeout
from perdure.kernel.effects import Call, Timer
from perdure.kernel.receipt import Failure

from .conftest import Stage, becomes, until
from .rig import START, Rig, same_in_every_rebuild

AT_ONCE = Backoff(base=0)
NOW = {"backoff": AT_ONCE}


async def test_runs_in_order(stage: Stage) -> None:
    ran: list[str] = []

    async def note(name: str) -> str:
        ran.append(name)
        return name.upper()

    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        return [await ctx.step(name, note, name) for name in ("a", "b", "c")]

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)

        assert await handle.result(60) == ["A", "B", "C"]
        assert ran == ["a", "b", "c"]


async def test_replays_without_running(disk: Stage) -> None:
    ran: list[str] = []

    async def note(name: str) -> str:
        ran.append(name)
        return name

    @perdure.flow
    async def flow(ctx: Context) -> str:
        first = await ctx.step("first", note, "first")
        told = await ctx.receive("go")
        return first + await ctx.step("second", note, told.body)

    async with disk.open(flow) as engine:
        handle = await engine.start(flow, key="k")
        await becomes(handle, "waiting")
    async with disk.open(flow) as engine:
        handle = engine.handle(flow, "k")
        await handle.send("go", "second")

        assert await handle.result(60) == "firstsecond"
        assert ran == ["first", "second"]


def voids(nothing: Callable[[], Coroutine[Any, Any, None]]) -> perdure.Flow[[], str]:
    """A step that returns nothing, in every scope that there is."""

    @perdure.flow(name="voids")
    async def flow(ctx: Context) -> str:
        async def body(ctx: Context, n: int) -> perdure.Continue[int] | perdure.Break[None]:
            await ctx.step("void", nothing)
            return perdure.Continue(n + 1) if n < 2 else perdure.Break(None)

        async def block(ctx: Context) -> None:
            await ctx.step("void", nothing)

        await ctx.step("void", nothing)
        await ctx.loop("loop", body, 0)
        await ctx.join("join", {"a": lambda: ctx.step("void", nothing)})
        await ctx.race("race", {"a": lambda: ctx.step("void", nothing)})
        await ctx.map("map", lambda _: ctx.step("void", nothing), [1, 2])
        await ctx.attempt("block", block)
        async with ctx.checkpoint("mark"):
            await ctx.step("void", nothing)
        await asyncio.gather(ctx.step("void", nothing), ctx.step("void", nothing))
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("void", nothing))
        return "end"

    return flow


VOIDS = [
    "void",
    *[f"loop/~{n}/void" for n in range(3)],
    "join/a/void",
    "race/a/void",
    "map/&0/void",
    "map/&1/void",
    "block/void",
    "void#2",
    *[f"&{n}/void" for n in (1, 2, 3)],
]


def test_void_replay_in_every_scope() -> None:
    async def nothing() -> None:
        pass

    rig = same_in_every_rebuild(voids(nothing), drive=Rig.run)

    assert rig.result == "end"
    assert rig.calls == VOIDS


async def test_a_void_step_runs_once_in_every_scope_in_an_engine(stage: Stage) -> None:
    ran: list[str] = []

    async def nothing() -> None:
        ran.append(perdure.step_info().location)

    assert await stage.result_of(voids(nothing)) == "end"
    assert ran == VOIDS


async def test_retries_then_succeeds(stage: Stage) -> None:
    attempts: list[int] = []
    keys: set[str] = set()

    @perdure.step(retries=3, backoff=AT_ONCE)
    async def flaky() -> str:
        attempts.append(perdure.step_info().attempt)
        keys.add(perdure.step_info().idempotency_key)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "done"

    @perdure.flow
    async def flow(ctx: Context) -> str:
        return await flaky()

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == "done"
        assert attempts == [1, 2, 3]
        assert len(keys) == 1


async def test_exhausts_and_reports_all_attempts(stage: Stage) -> None:
    seen: list[StepFailed] = []

    async def bad() -> None:
        number = perdure.step_info().attempt
        error = ValueError(f"number {number}")
        error.data = {"n": number}  # type: ignore[attr-defined]
        raise error

    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step.options(retries=2, backoff=AT_ONCE)("bad", bad)
        except StepFailed as failed:
            seen.append(failed)
            return str(failed)
        return "no error"

    async with stage.open(flow) as engine:
        text = await (await engine.start(flow)).result(60)

    failed = seen[0]
    assert text == "step 'bad' was tried 3 times; last error: ValueError: number 3"
    assert (failed.name, failed.attempts) == ("bad", 3)
    errors = [error for error in failed.errors if isinstance(error, Failure)]
    assert [(e.type, e.message) for e in errors] == [("ValueError", f"number {n}") for n in (1, 2, 3)]
    assert [e.data for e in errors] == [{"n": n} for n in (1, 2, 3)]
    assert all("test_steps.py" in e.traceback for e in errors)
    assert failed.error == errors[-1]
    assert len(seen) > 1, "the close of the stage has replayed it"
    assert {(type(other), other.name, other.attempts, other.errors, str(other)) for other in seen} == {
        (StepFailed, "bad", 3, tuple(errors), text)
    }, "live and replayed errors are equal"


async def test_fatal_does_not_retry(stage: Stage) -> None:
    ran: list[int] = []

    async def hopeless() -> None:
        ran.append(1)
        raise Fatal("give up", data={"code": 7})

    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        try:
            await ctx.step("hopeless", hopeless)
        except StepFailed as failed:
            error = failed.error
            assert isinstance(error, Failure)
            return [failed.attempts, error.type, error.message, error.data]
        return []

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == [1, "Fatal", "give up", {"code": 7}]
        assert ran == [1]


async def test_a_call_that_does_not_fit_its_function_is_not_retried_and_a_type_error_inside_is(stage: Stage) -> None:
    ran: list[str] = []

    async def takes_one(cents: int) -> None:
        ran.append("one")

    def takes_one_in_a_thread(cents: int) -> None:
        ran.append("thread")

    async def wrong_inside() -> None:
        ran.append("inside")
        takes_one_in_a_thread()  # type: ignore[call-arg]

    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        found = []
        for function, args in ((takes_one, (1, 2)), (takes_one_in_a_thread, ()), (wrong_inside, ())):
            try:
                await ctx.step.options(retries=1, backoff=AT_ONCE)("s", function, *args)
            except StepFailed as failed:
                assert isinstance(failed.error, Failure)
                found.append([failed.attempts, failed.error.type])
        return found

    async with stage.open(flow) as engine:
        found = await (await engine.start(flow)).result(60)

    assert found == [[1, "TypeError"], [1, "TypeError"], [2, "TypeError"]]
    assert ran == ["inside", "inside"]


async def test_timeout_cancels_and_does_not_retry(stage: Stage) -> None:
    events: list[str] = []

    async def slow() -> None:
        events.append("begin")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            events.append("cancelled" if perdure.step_info().cancelled else "not told")
            raise

    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step.options(timeout=0.01)("slow", slow)
        except StepTimeout as timeout:
            assert isinstance(timeout, StepFailed)
            return f"{timeout.attempts} attempt"
        return "no timeout"

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == "1 attempt"
        await asyncio.sleep(0)
        assert events == ["begin", "cancelled"]


async def test_retries_on_timeout_when_asked(stage: Stage) -> None:
    attempts: list[int] = []

    @perdure.step(timeout=0.1, retry_on_timeout=True, backoff=AT_ONCE)
    async def slow_at_first() -> str:
        attempts.append(perdure.step_info().attempt)
        if len(attempts) == 1:
            await asyncio.sleep(60)
        return "done"

    @perdure.flow
    async def flow(ctx: Context) -> str:
        return await slow_at_first()

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == "done"
        assert attempts == [1, 2]


async def test_a_thread_that_is_timed_out_is_told_and_its_late_result_is_stale(stage: Stage) -> None:
    began, told = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        info = perdure.step_info()
        while not info.cancelled:
            pass
        told.set()
        return "late"

    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            return await ctx.step.options(timeout=0.02)("slow", slow)
        except StepTimeout:
            await ctx.receive("end")
            return "timed out"

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        await becomes(handle, "waiting")
        await until(lambda: told.is_set() or not began.is_set())  # on a busy machine it may be cut before it begins
        await handle.send("end")

        assert await handle.result(60) == "timed out"
        assert [line.status for line in await handle.history() if line.location == "slow"] == ["timeout"]


async def test_caught_failure_stays_caught_after_restart(disk: Stage) -> None:
    ran: list[str] = []
    broken = True

    async def charge() -> str:
        ran.append("charge")
        if broken:
            raise Fatal("no money")
        return "charged"

    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            answer = await ctx.step("charge", charge)
        except StepFailed as failed:
            answer = str(failed.error)
        await ctx.receive("go")
        return answer

    async with disk.open(flow) as engine:
        handle = await engine.start(flow, key="k")
        await becomes(handle, "waiting")
        disk.crash()
    broken = False
    async with disk.open(flow) as engine:
        handle = engine.handle(flow, "k")
        await handle.send("go")

        assert await handle.result(60) == "Fatal: no money"
        assert ran == ["charge"]


async def test_a_step_in_flight_runs_again_with_the_same_key_and_the_next_delivery(disk: Stage) -> None:
    ran: list[tuple[str, int, int, str]] = []
    begun = asyncio.Event()

    async def charge(hang: bool) -> str:
        info = perdure.step_info()
        ran.append((info.name, info.attempt, info.delivery, info.idempotency_key))
        begun.set()
        if hang and info.delivery == 1:
            await asyncio.sleep(60)
        return "charged"

    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        return [await ctx.step("before", charge, False), await ctx.step("charge", charge, True)]

    async with disk.open(flow) as engine:
        await engine.start(flow, key="k")
        await until(lambda: len(ran) >= 2)
        disk.crash()
    async with disk.open(flow) as engine:
        assert await engine.handle(flow, "k").result(60) == ["charged", "charged"]

    before, first, second = ran
    assert before[0] == "before"
    assert first == ("charge", 1, 1, first[3])
    assert second == ("charge", 1, 2, first[3])
    assert before[3] != first[3]


async def test_crash_looping_step_exhausts(disk: Stage) -> None:
    deliveries: list[int] = []

    async def killer() -> None:
        deliveries.append(perdure.step_info().delivery)
        await asyncio.sleep(60)

    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step.options(retries=2)("killer", killer)
        except perdure.OutcomeUnknown as unknown:
            return f"gave up: {unknown.error}"
        return "survived"

    for life in range(1, 4):
        async with disk.open(flow) as engine:
            if life == 1:
                await engine.start(flow, key="k")
            await until(lambda life=life: len(deliveries) >= life)  # type: ignore[misc]
            disk.crash()
    async with disk.open(flow) as engine:
        result = await engine.handle(flow, "k").result(60)

    assert result == "gave up: ProcessDied: the process died while it executed this, each of 3 times"
    assert deliveries == [1, 2, 3]


async def test_an_engine_that_stops_in_good_order_uses_up_no_attempt(disk: Stage) -> None:
    begun = 0
    release = False

    async def patient() -> str:
        nonlocal begun
        begun += 1
        if not release:
            await asyncio.sleep(60)
        return "done"

    @perdure.flow
    async def flow(ctx: Context) -> str:
        return await ctx.step.options(retries=0)("patient", patient)

    for life in range(1, 6):
        async with disk.open(flow) as engine:
            if life == 1:
                await engine.start(flow, key="k")
            await until(lambda life=life: begun >= life)  # type: ignore[misc]
    release = True
    async with disk.open(flow) as engine:
        assert await engine.handle(flow, "k").result(60) == "done"


def repeats(charge: Callable[[], Coroutine[Any, Any, Any]]) -> perdure.Flow[[], list[Any]]:
    @perdure.flow(name="repeats")
    async def flow(ctx: Context) -> list[Any]:
        found = [await ctx.step("charge", charge), await ctx.step("charge", charge)]
        await ctx.sleep("charge", 0.01)
        found.append(await ctx.step("charge", charge))
        return [*found, *(await ctx.join("both", {"a": lambda: ctx.step("charge", charge)})).values()]

    return flow


CHARGES = ["charge", "charge#2", "charge#4", "both/a/charge"]


def test_duplicate_names_get_ordinals() -> None:
    async def charge() -> None:
        pass

    assert same_in_every_rebuild(repeats(charge), drive=Rig.run).calls == CHARGES


async def test_duplicate_names_get_ordinals_in_an_engine(stage: Stage) -> None:
    ran: list[str] = []

    async def charge() -> str:
        ran.append(perdure.step_info().location)
        return ran[-1]

    assert await stage.result_of(repeats(charge)) == CHARGES
    assert ran == CHARGES


async def test_strict_names_refuse(stage: Stage) -> None:
    ran: list[str] = []

    async def charge() -> None:
        ran.append(perdure.step_info().location)

    @perdure.flow(strict_names=True)
    async def flow(ctx: Context) -> list[str]:
        await ctx.step("charge", charge)
        await ctx.join("both", {"a": lambda: ctx.step("charge", charge)})
        await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        refused: list[str] = []
        for repeat in (
            lambda: ctx.step("charge", charge),
            lambda: ctx.sleep("charge", 1),
            lambda: ctx.join("both", {}),
        ):
            try:
                await repeat()
            except perdure.RepeatedName as error:
                refused.append(error.location)
        await ctx.step("after", charge)
        return refused

    assert await stage.result_of(flow) == ["charge", "charge", "both"]
    assert ran == ["charge", "both/a/charge", "after"]


async def test_sync_step_does_not_block_the_loop(stage: Stage) -> None:
    entered, leave = threading.Event(), threading.Event()

    def blocking() -> str:
        entered.set()
        assert leave.wait(5), "the loop was blocked: nobody could let go"
        return threading.current_thread().name

    async def other() -> None:
        await until(entered.is_set)
        leave.set()

    @perdure.flow
    async def flow(ctx: Context) -> str:
        results = await ctx.join(
            "both", {"sync": lambda: ctx.step("s", blocking), "async": lambda: ctx.step("a", other)}
        )
        return str(results["sync"])

    async with stage.open(flow) as engine:
        name = await (await engine.start(flow)).result(60)
        assert name != threading.current_thread().name


async def test_a_step_info_tells_who_and_where(stage: Stage) -> None:
    async def look() -> list[Any]:
        info = perdure.step_info()
        return [info.instance, info.name, info.attempt, info.idempotency_key, info.cancelled]

    @perdure.flow
    async def flow(ctx: Context) -> list[list[Any]]:
        return [await ctx.step("a/b #1", look), await ctx.step("a/b #1", look)]

    async with stage.open(flow) as engine:
        one, two = await (await engine.start(flow, key="k")).result(60)
        again, _ = await (await engine.start(flow, key="k", reuse="always")).result(60)

    assert one[:3] == ["flow/k", "a/b #1", 1] and one[4] is False
    assert one[3] != two[3], "another step has another idempotency key"
    assert one[3] != again[3], "another generation has another idempotency key"
    with pytest.raises(LookupError):
        perdure.step_info()


# ---- what a step may be ----------------------------------------------------------------------------------


@dataclass
class Money:
    cents: int


class Till:
    def __init__(self, start: int) -> None:
        self.start = start

    async def add(self, cents: int) -> Money:
        return Money(self.start + cents)

    def add_in_thread(self, cents: int) -> Money:
        return Money(self.start + cents)

    @perdure.step(retries=0)
    async def decorated(self, cents: int) -> Money:
        return Money(self.start + cents)

    async def __call__(self, cents: int) -> Money:
        return Money(self.start - cents)


def plain_that_gives_a_coroutine(till: Till) -> Any:
    return till.add(5)


@perdure.step
async def direct(cents: int, *, factor: int = 1) -> Money:
    return Money(cents * factor)


@perdure.step
def direct_in_thread(cents: int) -> Money:
    return Money(cents)


async def test_a_step_may_be_anything_that_can_be_called(stage: Stage) -> None:
    till = Till(100)

    @perdure.flow
    async def flow(ctx: Context) -> list[Money]:
        return [
            await ctx.step("bound", till.add, 1),
            await ctx.step("bound sync", till.add_in_thread, 2),
            await ctx.step("partial", functools.partial(till.add, 3)),
            await ctx.step("object", till, 4),
            Money(**(await ctx.step("lambda", lambda: till.add(5)))),  # type: ignore[arg-type]
            Money(**(await ctx.step("plain", plain_that_gives_a_coroutine, till))),
            await ctx.step("sync partial", functools.partial(till.add_in_thread, cents=6)),
            await till.decorated(7),
            await ctx.step("a decorated method", till.decorated, 8),
            await direct(3, factor=3),
            await ctx.step("a decorated function", direct, 10),
            await direct_in_thread(11),  # type: ignore[misc]
        ]

    async with stage.open(flow) as engine:
        found = await (await engine.start(flow)).result(60)

    expected = [101, 102, 103, 96, 105, 105, 106, 107, 108, 9, 10, 11]
    assert found == [Money(cents) for cents in expected]


async def test_a_decorated_step_is_the_plain_function_outside_of_flows() -> None:
    assert await direct(2, factor=4) == Money(8)
    assert direct_in_thread(3) == Money(3)
    assert await Till(1).decorated(1) == Money(2)
    assert direct.__name__ == "direct"


async def test_a_decorated_step_called_inside_a_step_is_the_plain_function(memory: Stage) -> None:
    async def outer() -> int:
        return (await direct(5)).cents

    @perdure.flow
    async def flow(ctx: Context) -> int:
        return await ctx.step("outer", outer)

    async with memory.open(flow) as engine:
        handle = await engine.start(flow)
        assert await handle.result(60) == 5
        assert [line.opened for line in await handle.history()] == [("step outer",), ()]


def test_options_at_the_call_change_only_what_they_name() -> None:
    @perdure.step(retries=7, timeout=9)
    async def work() -> None:
        pass

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step.options(timeout=3).options(executor="inline")("work", work)

    rig = Rig(flow)

    call = rig.entries[0][2].open[0]
    assert isinstance(call, Call)
    assert (call.deliveries_max, call.timeout) == (8, 3_000_000_000)


async def test_a_plain_function_runs_on_the_loop_where_its_author_says_so(stage: Stage) -> None:
    @perdure.step(executor="inline")
    def here() -> bool:
        return threading.current_thread() is threading.main_thread()

    @perdure.flow
    async def flow(ctx: Context) -> bool:
        return await ctx.step("here", here)

    assert await stage.result_of(flow) is True


@pytest.mark.parametrize("name", ["retries", "retry_on_timeout", "once", "ephemeral"])
def test_what_is_no_number_or_no_bool_is_refused(name: str) -> None:
    wrong: Any = True if name == "retries" else "no"

    with pytest.raises(perdure.BadCall, match=f"{name}={wrong!r}"):
        perdure.step(**{name: wrong})
    with pytest.raises(perdure.BadCall, match="an executor must be a text"):
        perdure.step(executor="")
    with pytest.raises(perdure.BadCall, match="numbers"):
        Backoff(base=float("nan"))


def test_a_wrong_option_is_refused_where_it_is_written() -> None:
    with pytest.raises(perdure.BadCall, match="no option retry; there are: retries"):
        perdure.step(retry=3)  # type: ignore[call-overload]
    with pytest.raises(perdure.BadCall, match="retries=-1"):
        perdure.step(retries=-1)
    with pytest.raises(perdure.BadCall, match="more than no time"):
        perdure.step(timeout=0)
    with pytest.raises(perdure.BadCall, match="jitter"):
        Backoff(jitter=2)


# ---- backoff ---------------------------------------------------------------------------------------------


def backoffs(backoff: Backoff, retries: int) -> list[float]:
    async def bad() -> None:
        raise ValueError

    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step.options(retries=retries, backoff=backoff)("bad", bad)
        except StepFailed:
            return "failed"
        return ""

    rig = same_in_every_rebuild(flow, drive=Rig.run)
    timers = [(m.at, e) for _, m, d in rig.entries for e in d.open if isinstance(e, Timer)]
    assert [timer.location for _, timer in timers] == [f"bad/backoff#{n + 1}" for n in range(retries)]
    assert len(rig.calls) == retries + 1
    return [(timer.due - at) / 1e9 for at, timer in timers]


def test_the_delay_before_the_next_attempt_grows_with_the_number_of_the_failed_one() -> None:
    assert backoffs(Backoff(base=0.1, factor=2, max=30), 4) == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert backoffs(Backoff(base=1, factor=3, max=5), 3) == pytest.approx([1, 3, 5])
    assert Backoff(base=0.1, factor=10, max=30).seconds(100_000, lambda: 0.5) == 30


def test_jitter_shortens_a_delay_and_comes_from_recorded_dice() -> None:
    delays = backoffs(Backoff(base=1, factor=1, max=1, jitter=0.5), 5)

    assert all(0.5 <= delay <= 1 for delay in delays)
    assert len(set(delays)) == 5


def test_retry_if_is_asked_with_the_recorded_failure() -> None:
    async def bad() -> None:
        raise KeyError("x")

    def only_values(failure: Failure) -> bool:
        return failure.type == "ValueError"

    @perdure.flow
    async def flow(ctx: Context) -> int:
        try:
            await ctx.step.options(retry_if=only_values)("bad", bad)
        except StepFailed as failed:
            return failed.attempts
        return 0

    assert same_in_every_rebuild(flow, drive=Rig.run).result == 1


async def test_a_backoff_survives_a_crash(disk: Stage) -> None:
    attempts: list[int] = []

    async def flaky() -> str:
        attempts.append(perdure.step_info().attempt)
        if len(attempts) == 1:
            raise ValueError
        return "done"

    @perdure.flow
    async def flow(ctx: Context) -> str:
        return await ctx.step.options(backoff=Backoff(base=0.3, factor=2))("flaky", flaky)

    async with disk.open(flow) as engine:
        handle = await engine.start(flow, key="k")
        await until(lambda: bool(attempts))
        await becomes(handle, "waiting")
        disk.crash()
    async with disk.open(flow) as engine:
        assert await engine.handle(flow, "k").result(60) == "done"
        assert attempts == [1, 2]


# ---- results ---------------------------------------------------------------------------------------------


async def test_a_result_that_cannot_be_recorded_fails_the_step_without_a_retry(stage: Stage) -> None:
    ran: list[str] = []

    async def socket() -> object:
        ran.append("socket")
        return object()

    async def huge() -> bytes:
        ran.append("huge")
        return bytes(16 * 1024 * 1024 + 1)

    async def wrong() -> int:
        ran.append("wrong")
        return "no number"  # type: ignore[return-value]

    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        found = []
        for function in (socket, huge, wrong):
            try:
                await ctx.step(function.__name__, function)
            except StepFailed as failed:
                assert isinstance(failed.error, Failure)
                found.append(failed.error.type)
        return found

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == ["NotPlain", "TooLarge", "NotConvertible"]
        assert ran == ["socket", "huge", "wrong"]


def test_a_step_that_is_no_function_is_refused() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step("x", "not a function")  # type: ignore[call-overload]
        except perdure.BadCall as error:
            return str(error)
        return ""

    @perdure.flow
    async def called(ctx: Context) -> None:
        coroutine = echo()
        with closing(coroutine):
            await ctx.step("x", coroutine)  # type: ignore[call-overload]

    async def echo() -> None:
        pass

    assert Rig(flow).result == "ctx.step(name, function, *arguments): found ctx.step('x', 'not a function')"
    assert "write the function and its arguments apart, without a call" in Rig(called).result
    assert Rig(flow).now == START
