"""Hooks run beside the engine: so many at once, in order, and what is too much is dropped, not kept."""

import asyncio
from contextlib import suppress

import pytest

from perdure.executors.hooks import AT_ONCE, WAITING_MAX, Hooks
from perdure.kernel.problem import Problem, Report
from perdure.kernel.receipt import Failure


def problem(attempt: int) -> Problem:
    return Problem("step", "flow/k", "ship", attempt, 0, False, None, Failure("KeyError", "x"))


async def test_so_many_run_at_once_and_the_others_follow_in_order() -> None:
    calls, go = Hooks(), asyncio.Event()
    begun: list[int] = []

    async def hook(problem: Problem) -> None:
        begun.append(problem.attempt)
        await go.wait()

    for attempt in range(3 * AT_ONCE):
        calls.tell(Report(hook, problem(attempt)))
    await asyncio.sleep(0)
    assert begun == list(range(AT_ONCE))

    go.set()
    await calls.ended()
    assert begun == list(range(3 * AT_ONCE))
    await calls.close()


async def test_of_more_than_may_wait_the_newest_are_dropped_and_that_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls, go = Hooks(), asyncio.Event()
    heard: list[int] = []

    async def hook(problem: Problem) -> None:
        await go.wait()
        heard.append(problem.attempt)

    for attempt in range(AT_ONCE + WAITING_MAX + 1):
        calls.tell(Report(hook, problem(attempt)))
    assert "too many hooks wait" in caplog.text

    go.set()
    await calls.ended()
    assert heard == list(range(AT_ONCE + WAITING_MAX))
    await calls.close()


async def test_what_never_began_is_logged_when_the_engine_closes(caplog: pytest.LogCaptureFixture) -> None:
    calls = Hooks()

    async def hook(problem: Problem) -> None:
        await asyncio.Event().wait()

    for attempt in range(AT_ONCE + 7):
        calls.tell(Report(hook, problem(attempt)))
    await calls.close()

    assert "hooks were to hear of 7 more problems" in caplog.text
    assert caplog.text.count("hook ran; it heard that step 'ship' of flow/k failed: KeyError: x") == AT_ONCE


async def test_a_hook_that_will_not_be_cut_does_not_keep_the_engine_open() -> None:
    calls, go = Hooks(cut_seconds=0.01), asyncio.Event()

    async def stubborn(problem: Problem) -> None:
        while not go.is_set():
            with suppress(asyncio.CancelledError):
                await go.wait()

    calls.tell(Report(stubborn, problem(1)))
    await asyncio.sleep(0)
    await calls.close()
    go.set()
    await calls.ended()
