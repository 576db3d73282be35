"""The inline executor: steps that never wait share a task; one that waits has its own, and holds up nobody."""

import asyncio
import signal
from contextvars import ContextVar

import pytest

from perdure.executors.inline import InlineExecutor
from perdure.ports.executor import CUT
from tests.executors.desk import Desk, story

mark: ContextVar[str] = ContextVar("mark", default="unset")


def test_a_batch_of_steps_that_never_wait_shares_a_task():
    async def who() -> int:
        return id(asyncio.current_task())

    async def tell(desk: Desk) -> None:
        intents = [desk.work(who) for _ in range(10)]
        assert len({await desk.value(intent) for intent in intents}) == 1

    story(InlineExecutor, tell)


def test_a_step_that_waits_holds_up_nobody_and_keeps_its_task_for_itself():
    async def tell(desk: Desk) -> None:
        gate = asyncio.Event()
        seen: dict[str, object] = {}

        async def waits() -> str:
            seen["before"] = asyncio.current_task()
            await gate.wait()
            seen["after"] = asyncio.current_task()
            return "waited"

        async def quick() -> str:
            seen["quick"] = asyncio.current_task()
            return "quick"

        slow, fast = desk.work(waits), desk.work(quick)
        assert await desk.value(fast) == "quick"
        later = desk.work(quick)
        assert await desk.value(later) == "quick"
        gate.set()
        assert await desk.value(slow) == "waited"
        assert seen["before"] is seen["after"] is not seen["quick"]

    story(InlineExecutor, tell)


def test_steps_of_one_task_do_not_see_each_others_context():
    async def sets(value: str) -> str:
        before = mark.get()
        mark.set(value)
        return before

    async def tell(desk: Desk) -> None:
        intents = [desk.work(sets, "a"), desk.work(sets, "b")]
        assert [await desk.value(intent) for intent in intents] == ["unset", "unset"]

    story(InlineExecutor, tell)


def test_timeouts_and_task_groups_work_in_a_step():
    async def step() -> str:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(0, "grouped"))
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return task.result() + ", timed out"
        return "not reached"

    async def tell(desk: Desk) -> None:
        intents = [desk.work(step) for _ in range(3)]
        assert [await desk.value(intent) for intent in intents] == ["grouped, timed out"] * 3

    story(InlineExecutor, tell)


def test_a_stopped_step_is_cancelled_and_a_step_stopped_before_it_began_never_runs():
    async def tell(desk: Desk) -> None:
        begun, cancelled, runs = asyncio.Event(), asyncio.Event(), []

        async def waits() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async def never() -> None:
            runs.append(1)

        running = desk.work(waits)
        await begun.wait()
        desk.stop(desk.work(never))
        desk.stop(running)
        await cancelled.wait()
        assert await desk.value(desk.work(asyncio.sleep, 0, 7)) == 7
        assert not runs and len(desk.receipts) == 1

    story(InlineExecutor, tell)


def test_close_waits_for_a_stopped_step_that_cleans_up():
    async def tell(desk: Desk) -> None:
        begun, cleaned = asyncio.Event(), []

        async def waits() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(10):
                    await asyncio.sleep(0)
                cleaned.append(1)

        running = desk.work(waits)
        await begun.wait()
        desk.stop(running)
        await desk.executor.close()
        assert cleaned

    story(InlineExecutor, tell)


def test_a_step_that_fails_does_not_stop_the_rest_of_its_batch():
    async def fails() -> None:
        raise ValueError("no")

    async def fine() -> int:
        return 1

    async def tell(desk: Desk) -> None:
        first, second = desk.work(fails), desk.work(fine)
        assert (await desk.failure(first)).message == "no"
        assert await desk.value(second) == 1

    story(InlineExecutor, tell)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("waits", [False, True])
def test_a_step_that_wants_to_end_the_process_has_failed(kind, waits):
    async def fail() -> None:
        if waits:
            await asyncio.sleep(0)
        raise kind("no")

    async def tell(desk: Desk) -> None:
        failure = await desk.failure(desk.work(fail))

        assert (failure.type, failure.message, failure.retry) == (kind.__name__, "no", True)

    story(InlineExecutor, tell)


def test_ctrl_c_that_hits_a_step_ends_the_loop_and_the_step_is_cut():
    async def unlucky() -> None:
        signal.raise_signal(signal.SIGINT)

    heard = []

    async def tell() -> None:
        desk = Desk(InlineExecutor())
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as where a program runs a loop without asyncio.run
        desk.work(unlucky)
        try:
            await asyncio.sleep(3600)
        finally:
            heard.extend(desk.receipts)

    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(tell())
    finally:
        signal.signal(signal.SIGINT, before)

    assert [receipt for _, receipt in heard] == [CUT]
