"""Sync steps in threads: real ones, held and let go by events."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest

from perdure.errors import Fatal
from perdure.executors.info import StepInfo, step_info
from perdure.executors.thread import ThreadExecutor
from tests.executors.desk import IDENTITY, SECONDS_MAX, Desk, blocking, story

URL = "http://example.org"


class Gate:
    """A step that says when it is inside, and stays until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.left = threading.Event()
        self.thread: threading.Thread | None = None
        self.info: StepInfo | None = None

    def __call__(self, value: Any = None) -> Any:
        self.thread = threading.current_thread()
        self.info = step_info()
        self.entered.set()
        assert self.opened.wait(SECONDS_MAX)
        self.left.set()
        return value


def test_a_function_runs_in_another_thread_and_answers_on_the_loop():
    async def tell(desk: Desk) -> None:
        here = threading.get_ident()

        there = await desk.value(desk.work(threading.get_ident))

        assert there != here

    story(ThreadExecutor, tell)


def test_arguments_go_in_and_the_result_comes_out_by_its_annotation():
    def total(a: int, *, b: int) -> set[int]:
        return {b, a}

    async def tell(desk: Desk) -> None:
        assert await desk.value(desk.work(total, 2, b=1, returns=set[int])) == [1, 2]
        assert await desk.value(desk.work(lambda: None)) is None

    story(ThreadExecutor, tell)


def test_a_result_that_cannot_be_recorded_is_an_error_without_a_retry():
    async def tell(desk: Desk) -> None:
        failure = await desk.failure(desk.work(object))

        assert failure.type == "NotPlain" and not failure.retry

    story(ThreadExecutor, tell)


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_whatever_the_function_raises_is_an_error_receipt(kind):
    def fail() -> None:
        raise kind("no")

    async def tell(desk: Desk) -> None:
        failure = await desk.failure(desk.work(fail))

        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        assert (failure.type, failure.message, failure.retry) == (name, "no", True)
        assert "in fail" in failure.traceback
        assert await desk.value(desk.work(lambda: "the pool goes on")) == "the pool goes on"

    story(ThreadExecutor, tell)


def test_fatal_is_not_retried_and_keeps_its_data():
    def fail() -> None:
        raise Fatal("card refused", {"code": 7})

    async def tell(desk: Desk) -> None:
        failure = await desk.failure(desk.work(fail))

        assert not failure.retry and failure.data is not None

    story(ThreadExecutor, tell)


def test_an_exception_without_a_text_of_its_own_still_gives_a_receipt():
    class Broken(Exception):
        @property
        def data(self) -> object:
            raise RuntimeError

        def __str__(self) -> str:
            raise RuntimeError

    def fail(error: Exception) -> None:
        raise error

    async def tell(desk: Desk) -> None:
        assert (await desk.failure(desk.work(fail, Broken()))).type.endswith("Broken")
        assert (await desk.failure(desk.work(fail, OSError("a\udcffb")))).message == "a\\udcffb"

    story(ThreadExecutor, tell)


def test_a_call_without_work_is_answered_with_an_error():
    async def tell(desk: Desk) -> None:
        assert (await desk.failure(desk.params(None))).type == "NoWork"

    story(ThreadExecutor, tell)


def test_a_step_knows_what_it_is():
    async def tell(desk: Desk) -> None:
        def about() -> list[Any]:
            info = step_info()
            return [info.instance, info.name, info.attempt, info.delivery, info.idempotency_key]

        found = await desk.value(desk.work(about))

        assert found == ["order/o-17", "call", 2, 3, IDENTITY.idempotency_key("call#1")]

    story(ThreadExecutor, tell)


def test_an_idle_thread_is_used_again():
    async def tell(desk: Desk) -> None:
        threads = {await desk.value(desk.work(threading.get_ident)) for _ in range(20)}

        assert len(threads) == 1

    story(ThreadExecutor, tell)


def test_a_flood_of_calls_uses_no_more_threads_than_slots():
    async def tell(desk: Desk) -> None:
        all_in = threading.Barrier(8)  # breaks unless eight threads are inside at once

        def meet(number: int) -> list[int]:
            if number < 8:
                all_in.wait(SECONDS_MAX)
            return [number, threading.get_ident()]

        intents = [desk.work(meet, number) for number in range(200)]
        found = [await desk.value(intent) for intent in intents]

        assert [number for number, _ in found] == list(range(200))
        assert len({thread for _, thread in found}) == 8

    story(lambda: ThreadExecutor(8), tell)


def test_calls_that_wait_for_a_slot_begin_in_order():
    async def tell(desk: Desk) -> None:
        gate, order = Gate(), list[int]()
        desk.work(gate)
        intents = [desk.work(order.append, number) for number in range(5)]
        desk.stop(intents[2])
        gate.opened.set()

        await desk.receipt(intents[4])

        assert order == [0, 1, 3, 4]

    story(lambda: ThreadExecutor(1), tell)


def test_a_stopped_call_is_told_so_and_its_late_result_is_dropped():
    async def tell(desk: Desk) -> None:
        gate = Gate()
        intent = desk.work(gate, "late")
        await blocking(gate.entered.wait)
        assert gate.info is not None and gate.thread is not None and not gate.info.cancelled

        desk.stop(intent)
        told = gate.info.cancelled
        gate.opened.set()
        await blocking(gate.thread.join)  # ends when it was idle, so after its late result was heard

        assert told
        assert desk.receipts == []

    story(lambda: ThreadExecutor(idle_seconds=0.01), tell)


def test_an_abandoned_thread_does_not_keep_its_slot():
    async def tell(desk: Desk) -> None:
        gates = [Gate() for _ in range(3)]
        for gate in gates:  # each takes the only slot, and is abandoned in it
            intent = desk.work(gate)
            await blocking(gate.entered.wait)
            desk.stop(intent)

        assert await desk.value(desk.work(lambda: "free")) == "free"
        for gate in gates:
            gate.opened.set()

    story(lambda: ThreadExecutor(1), tell)


def test_a_call_that_was_stopped_before_it_began_never_runs():
    async def tell(desk: Desk) -> None:
        ran: list[str] = []
        gate = Gate()
        desk.work(gate)
        waiting = desk.work(ran.append, "waiting")
        desk.stop(waiting)
        gate.opened.set()
        last = desk.work(ran.append, "last")

        await desk.receipt(last)

        assert ran == ["last"]

    story(lambda: ThreadExecutor(1), tell)


def test_stopping_what_is_unknown_or_answered_does_nothing():
    async def tell(desk: Desk) -> None:
        intent = desk.work(lambda: 1)
        assert await desk.value(intent) == 1

        desk.stop(intent)
        desk.stop(b"nobody")

        assert len(desk.receipts) == 1

    story(ThreadExecutor, tell)


# ---- contexts ----------------------------------------------------------------------------------------------

colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


def test_a_step_sees_the_context_of_whoever_opened_the_engine():
    def make() -> ThreadExecutor:
        colour.set("opener")
        return ThreadExecutor()

    async def tell(desk: Desk) -> None:
        colour.set("caller")

        assert await desk.value(desk.work(colour.get)) == "opener"

    story(make, tell)


def test_what_a_step_sets_in_its_context_is_seen_by_nobody_else():
    def paint() -> str:
        before = colour.get()
        colour.set("painted")
        return before

    async def tell(desk: Desk) -> None:
        assert [await desk.value(desk.work(paint)) for _ in range(3)] == ["none"] * 3
        assert colour.get() == "none"
        with pytest.raises(LookupError):
            step_info()

    story(ThreadExecutor, tell)


# ---- functions that return an awaitable --------------------------------------------------------------------


def test_an_awaitable_is_awaited_on_the_loop():
    async def fetch(url: str) -> list[Any]:
        await asyncio.sleep(0)
        return [threading.get_ident(), step_info().location]

    async def tell(desk: Desk) -> None:
        found = await desk.value(desk.work(lambda: fetch(URL)))

        assert found == [threading.get_ident(), "call#1"]

    story(ThreadExecutor, tell)


def test_an_error_of_the_awaitable_is_an_error_receipt():
    async def fetch(url: str) -> None:
        raise ValueError("gone")

    async def tell(desk: Desk) -> None:
        assert (await desk.failure(desk.work(lambda: fetch(URL)))).message == "gone"

    story(ThreadExecutor, tell)


def test_stop_cancels_the_task_of_the_awaitable():
    async def tell(desk: Desk) -> None:
        begun, cut = asyncio.Event(), asyncio.Event()
        abouts: list[StepInfo] = []

        async def fetch(url: str) -> None:
            abouts.append(step_info())
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cut.set()

        intent = desk.work(lambda: fetch(URL))
        async with asyncio.timeout(SECONDS_MAX):
            await begun.wait()
            desk.stop(intent)
            await cut.wait()

        assert abouts[0].cancelled
        assert desk.receipts == []

    story(ThreadExecutor, tell)


def test_an_awaitable_that_comes_too_late_is_dropped_without_a_warning():
    async def tell(desk: Desk) -> None:
        gate = Gate()

        async def fetch(url: str) -> None: ...

        def late() -> Any:
            gate()
            return fetch(URL)

        intent = desk.work(late)
        await blocking(gate.entered.wait)
        desk.stop(intent)
        gate.opened.set()
        assert gate.thread is not None
        await blocking(gate.thread.join)
        gc.collect()

        assert desk.receipts == []

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        story(lambda: ThreadExecutor(idle_seconds=0.01), tell)


# ---- ends --------------------------------------------------------------------------------------------------


def test_close_ends_idle_threads_and_abandons_the_busy_ones():
    async def run() -> None:
        executor = ThreadExecutor()
        desk, gate, idle = Desk(executor), Gate(), Gate()
        desk.work(gate)
        second = desk.work(idle)
        await blocking(gate.entered.wait)
        idle.opened.set()
        await desk.receipt(second)
        assert gate.thread is not None and idle.thread is not None and gate.info is not None

        await executor.close()

        await blocking(idle.thread.join)
        assert gate.thread.is_alive() and gate.info.cancelled
        gate.opened.set()
        await blocking(gate.thread.join)
        await asyncio.sleep(0)  # what the thread has said is heard before this returns
        assert len(desk.receipts) == 1

    asyncio.run(run())


def test_a_result_after_the_end_of_the_loop_is_dropped_silently(monkeypatch):
    thrown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", thrown.append)
    gate = Gate()

    async def tell(desk: Desk) -> None:
        desk.work(gate)
        await blocking(gate.entered.wait)

    story(ThreadExecutor, tell)
    gate.opened.set()
    assert gate.thread is not None
    gate.thread.join(SECONDS_MAX)

    assert not gate.thread.is_alive() and thrown == []


def test_an_abandoned_thread_does_not_keep_the_process_from_ending():
    program = """
import asyncio, threading
from tests.executors.desk import Desk
from perdure.executors.thread import ThreadExecutor

async def main():
    desk, inside = Desk(ThreadExecutor()), threading.Event()
    desk.work(lambda: (inside.set(), threading.Event().wait()))
    inside.wait()
    await desk.executor.close()

asyncio.run(main())
print("ended")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
