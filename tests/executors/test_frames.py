"""Frames on their way from a step to the loop: all of them, in order, before the receipt, and none after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

from perdure.executors.inline import InlineExecutor
from perdure.executors.process import ProcessExecutor
from perdure.executors.thread import ThreadExecutor
from perdure.ports.frame import Frame
from tests.executors import steps
from tests.executors.desk import Desk, story

STEPS = "tests.executors.steps"
WORDS = 200


async def say_in_a_thread(words: int) -> int:
    return await asyncio.to_thread(steps.say, words)


def one_process() -> ProcessExecutor:
    return ProcessExecutor(1)


def frame(ordinal: int, *news: Any, location: str = "call#1") -> Frame:
    return Frame("order/o-17", location, 2, ordinal, *news)


def words(count: int, first: int = 1) -> list[Frame]:
    said: list[tuple[Any, ...]] = []
    for n in range(1, count + 1):
        said += [("progress", n, count, f"word {n}"), ("chunk", 0, None, "", {"word": n})]
    return [frame(first + n, *news) for n, news in enumerate(said)]


@pytest.mark.parametrize(
    ("make", "function"),
    [
        (InlineExecutor, steps.say_async),
        (InlineExecutor, say_in_a_thread),
        (ThreadExecutor, steps.say),
        (ThreadExecutor, steps.say_async),
    ],
)
def test_frames_come_in_order_and_before_the_receipt(make: Callable[[], Any], function: Callable[..., Any]):
    async def tell(desk: Desk) -> None:
        intent = desk.work(function, WORDS)

        assert await desk.value(intent) == WORDS
        assert desk.frames == [(intent, each) for each in words(WORDS)]

    story(make, tell)


def test_a_step_that_goes_on_from_a_thread_to_the_loop_is_heard_from_both():
    async def tell(desk: Desk) -> None:
        await desk.value(desk.work(steps.say_half_async, 2))

        assert [each for _, each in desk.frames] == [*words(2), *words(2, first=5)]

    story(ThreadExecutor, tell)


@pytest.mark.parametrize("name", ["say", "say_async"])
def test_frames_of_another_process_come_in_order_and_before_the_receipt(name):
    async def tell(desk: Desk) -> None:
        intent = desk.call(f"{STEPS}:{name}", WORDS)

        assert await desk.value(intent) == WORDS
        assert desk.frames == [(intent, each) for each in words(WORDS)]

    story(one_process, tell)


def test_a_thread_that_a_process_step_left_behind_disturbs_nothing(tmp_path):
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)

    async def tell(desk: Desk) -> None:
        await desk.value(desk.call(f"{STEPS}:leave_a_thread", fifo))
        os.close(os.open(fifo, os.O_WRONLY))  # now it speaks, beside the next step or before it
        intent = desk.call(f"{STEPS}:say", WORDS)

        assert await desk.value(intent) == WORDS
        assert {found for found, _ in desk.frames} == {intent}

    story(one_process, tell)


def test_a_fork_of_a_process_step_is_not_heard_and_writes_nowhere():
    async def tell(desk: Desk) -> None:
        assert await desk.value(desk.call(f"{STEPS}:speak_in_a_fork")) == "said"
        assert [each.chunk for _, each in desk.frames] == ["from the step"]

    story(one_process, tell)
