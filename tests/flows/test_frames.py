"""Frames: live news of running steps. They are seen by whoever looks, and change nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

import perdure
from perdure import Context, Frame
from perdure.runtime.streams import WAITING_MAX, FrameStream
from tests.entries import entries_of

from .conftest import Stage, until


def told(frame: Frame) -> tuple[Any, ...]:
    """What the step said."""
    return (frame.done, frame.total, frame.note) if frame.kind == "progress" else (frame.chunk,)


def open_streams(engine: perdure.Engine) -> int:
    return len(engine._connection.streams)


class Doorbell:
    """Lets a step wait until the test has seen something: on the loop, or in a thread."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    @property
    def rung(self) -> bool:
        return self._rung.is_set()

    def ring(self) -> None:
        self._rung.set()

    def wait(self) -> None:
        assert self._rung.wait(60)

    async def heard(self) -> None:
        await until(lambda: self.rung)


async def everything(frames: AsyncGenerator[Frame]) -> list[Frame]:
    async with asyncio.timeout(60):
        return [frame async for frame in frames]


# ---- seen live ---------------------------------------------------------------------------------------------


async def test_progress_is_visible_while_an_inline_step_runs(stage: Stage) -> None:
    seen, seen_again = Doorbell(), Doorbell()

    async def slow() -> str:
        perdure.progress(1, 3, "reading")
        await seen.heard()
        perdure.progress(2, 3, "writing")
        await seen_again.heard()
        return "done"

    @perdure.flow
    async def flow(ctx: Context) -> str:
        return await ctx.step("slow", slow)

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        frames = handle.stream()
        async with asyncio.timeout(60):
            first = await anext(frames)
            seen.ring()
            frame = await anext(frames)
        progress, waiting = await handle.progress(), await handle.waiting()
        seen_again.ring()

        assert await handle.result(60) == "done"
        assert [told(first), told(frame)] == [(1, 3, "reading"), (2, 3, "writing")]
        assert progress == [frame] and [each.progress for each in waiting] == [frame]
        assert await handle.progress() == []


async def test_progress_is_visible_while_a_thread_step_runs(stage: Stage) -> None:
    seen = Doorbell()

    def slow() -> None:
        perdure.progress(0.5)
        seen.wait()

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step("slow", slow)

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        async with asyncio.timeout(60):
            frame = await anext(handle.stream())
        seen.ring()
        await handle.result(60)

    assert told(frame) == (0.5, None, "")


def hold(path: str) -> None:
    """Runs in another process, until a file is gone."""
    from pathlib import Path

    perdure.progress(1, 2)
    while Path(path).exists():
        threading.Event().wait(0.001)


async def test_progress_is_visible_while_a_process_step_runs(memory: Stage, tmp_path: Any) -> None:
    held = tmp_path / "held"
    held.touch()

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step.options(executor="process")("hold", hold, str(held))

    async with memory.open(flow) as engine:
        handle = await engine.start(flow)
        async with asyncio.timeout(60):
            frame = await anext(handle.stream())
        held.unlink()
        await handle.result(60)

    assert told(frame) == (1, 2, "")


async def test_every_attempt_counts_its_own_frames(stage: Stage) -> None:
    async def flaky() -> None:
        perdure.emit("a")
        perdure.emit("b")
        if perdure.step_info().attempt == 1:
            raise ValueError("not yet")

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.receive("go")
        await ctx.step.options(backoff=perdure.Backoff(base=0))("flaky", flaky)

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        frames = asyncio.create_task(everything(handle.stream()))
        await until(lambda: open_streams(engine) == 1)
        await handle.send("go")

        heard = [(frame.attempt, frame.ordinal, frame.chunk) for frame in await frames]

    assert heard == [(1, 1, "a"), (1, 2, "b"), (2, 1, "a"), (2, 2, "b")]


async def test_a_chunk_is_what_it_was_when_it_was_sent(memory: Stage) -> None:
    async def step() -> None:
        rows = [1]
        perdure.emit(rows)
        rows.append(2)
        perdure.emit(rows)

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.receive("go")
        await ctx.step("step", step)

    async with memory.open(flow) as engine:
        handle = await engine.start(flow)
        frames = asyncio.create_task(everything(handle.stream()))
        await until(lambda: open_streams(engine) == 1)
        await handle.send("go")

        assert [frame.chunk for frame in await frames] == [[1], [1, 2]]


# ---- streams -----------------------------------------------------------------------------------------------


@perdure.flow
async def waits(ctx: Context) -> str:
    got = await ctx.receive("go")
    return await ctx.step("shout", shout, got.body)


async def shout(text: str) -> str:
    perdure.emit(text)
    return text.upper()


async def test_several_streams_hear_the_same_and_others_hear_nothing(stage: Stage) -> None:
    async with stage.open(waits) as engine:
        one, other = await engine.start(waits), await engine.start(waits)
        streams = [one.stream(), one.stream(), other.stream()]
        heard = [asyncio.create_task(everything(stream)) for stream in streams]
        await until(lambda: open_streams(engine) == 3)
        await one.send("go", "a")
        await other.send("go", "b")

        assert [[frame.chunk for frame in await frames] for frames in heard] == [["a"], ["a"], ["b"]]
        assert open_streams(engine) == 0


async def test_the_stream_of_an_instance_that_has_ended_is_empty(stage: Stage) -> None:
    async with stage.open(waits) as engine:
        handle = await engine.start(waits)
        await handle.send("go", "a")
        await handle.result(60)

        assert await everything(handle.stream()) == []
        with pytest.raises(perdure.UnknownInstance):
            await everything(engine.handle(waits, "nobody").stream())


async def test_a_stream_ends_when_the_instance_fails_or_is_cancelled_or_stuck(stage: Stage) -> None:
    @perdure.flow
    async def ends(ctx: Context) -> None:
        how = await ctx.receive("how")
        if how.body == "stuck":
            await asyncio.Event().wait()
        raise ValueError(how.body)

    async with stage.open(ends, replay=False) as engine:
        failed, cancelled, stuck = [await engine.start(ends) for _ in range(3)]
        heard = [asyncio.create_task(everything(handle.stream())) for handle in (failed, cancelled, stuck)]
        await until(lambda: open_streams(engine) == 3)
        await failed.send("how", "failed")
        await cancelled.cancel()
        await stuck.send("how", "stuck")

        assert [await frames for frames in heard] == [[], [], []]


async def test_a_stream_ends_when_the_engine_is_closed(memory: Stage) -> None:
    async with memory.open(waits) as engine:
        handle = await engine.start(waits)
        frames = asyncio.create_task(everything(handle.stream()))
        await until(lambda: open_streams(engine) == 1)

    assert await frames == []


async def test_a_stream_that_is_left_is_forgotten(memory: Stage) -> None:
    again = Doorbell()

    async def talk() -> None:
        perdure.progress(1)
        await again.heard()
        perdure.progress(2)

    @perdure.flow
    async def talks(ctx: Context) -> None:
        await ctx.step("talk", talk)

    async with memory.open(talks) as engine:
        handle = await engine.start(talks)
        closed = handle.stream()
        await anext(closed)
        await closed.aclose()
        assert open_streams(engine) == 0

        async for _ in handle.stream():
            break
        gc.collect()
        await until(lambda: open_streams(engine) == 0)
        again.ring()
        await handle.result(60)


async def test_a_slow_listener_gets_the_newest_progress_and_the_last_thousand_chunks() -> None:
    stream = FrameStream()
    for n in range(1, 2001):
        stream.put(Frame("flow/k", "step", 1, 2 * n - 1, "progress", n, 2000))
        stream.put(Frame("flow/k", "step", 1, 2 * n, "chunk", chunk=n))
    stream.end()

    heard = []
    while (frame := await stream.take()) is not None:
        heard.append(frame)

    assert len(heard) == WAITING_MAX
    assert [told(frame) for frame in heard if frame.kind == "progress"] == [(2000, 2000, "")]
    assert [told(frame) for frame in heard if frame.kind == "chunk"] == [(n,) for n in range(1002, 2001)]
    assert [frame.ordinal for frame in heard] == sorted(frame.ordinal for frame in heard)


async def test_another_process_is_told_where_frames_are_seen(disk: Stage) -> None:
    async with disk.open(waits) as engine:
        await engine.start(waits, key="k")
        async with perdure.connect(disk.url, workflows=[waits]) as client:
            handle = client.handle(waits, "k")
            with pytest.raises(perdure.NotInThisProcess, match=r"ctx\.publish"):
                handle.stream()
            assert await handle.progress() == []
            assert [each.progress for each in await handle.waiting()] == [None]


# ---- no harm -----------------------------------------------------------------------------------------------


async def test_frames_of_a_cancelled_attempt_are_dropped(stage: Stage) -> None:
    begun, cut, over = threading.Semaphore(0), Doorbell(), Doorbell()

    def deaf() -> None:
        begun.release()
        cut.wait()
        perdure.emit("too late")
        perdure.progress(1)
        over.ring()

    async def stubborn() -> None:
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            perdure.emit("too late")

    @perdure.flow
    async def flow(ctx: Context) -> str:
        branches: dict[str, Callable[[], Any]] = {
            "deaf": lambda: ctx.step("deaf", deaf),
            "stubborn": lambda: ctx.step("stubborn", stubborn),
            "go": lambda: ctx.receive("go"),
        }
        winner, _ = await ctx.race("race", branches)
        await ctx.receive("end")
        return winner

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        frames = asyncio.create_task(everything(handle.stream()))
        await until(lambda: open_streams(engine) == 1)
        for _ in ("deaf", "stubborn"):
            await until(lambda: begun.acquire(blocking=False))
        await handle.send("go")
        await until(lambda: not engine._shard.running)
        cut.ring()
        await over.heard()
        assert await handle.progress() == []
        await handle.send("end")

        assert await handle.result(60) == "go"
        assert await frames == []


async def test_frames_of_an_attempt_that_timed_out_are_dropped(memory: Stage) -> None:
    over = Doorbell()

    def slow() -> None:
        while not perdure.step_info().cancelled and not over.rung:
            threading.Event().wait(0.001)
        if perdure.step_info().cancelled:
            perdure.emit("too late")
            over.ring()

    @perdure.flow
    async def flow(ctx: Context) -> None:  # on a busy machine, attempts may be over before they have begun
        await ctx.step.options(timeout=0.01, retry_on_timeout=True, retries=1000)("slow", slow)

    async with memory.open(flow) as engine:
        handle = await engine.start(flow)

        assert await everything(handle.stream()) == []
        assert over.rung


async def test_what_a_step_leaves_behind_is_not_heard_after_its_receipt(memory: Stage) -> None:
    ended, over = Doorbell(), Doorbell()

    async def leave() -> None:
        async def later() -> None:
            await ended.heard()
            perdure.emit("too late")
            over.ring()

        left.append(asyncio.create_task(later()))

    left: list[asyncio.Task[None]] = []

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step("leave", leave)
        await ctx.receive("end")

    async with memory.open(flow) as engine:
        handle = await engine.start(flow)
        frames = asyncio.create_task(everything(handle.stream()))
        await until(lambda: open_streams(engine) == 1 and not engine._shard.running)
        ended.ring()
        await over.heard()
        await handle.send("end")

        assert await frames == []


async def test_an_error_of_a_listener_does_not_harm_the_step(memory: Stage, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FrameStream):
        def put(self, frame: Frame) -> None:
            raise RuntimeError("a broken listener")

    async with memory.open(waits) as engine:
        handle = await engine.start(waits)
        id = (await handle.summary()).id
        engine._connection.streams._streams[id] = [Broken()]
        await handle.send("go", "a")

        assert await handle.result(60) == "A"
    assert "a listener failed at a frame of" in caplog.text


async def test_the_journal_is_the_same_with_and_without_frames(stage: Stage) -> None:
    async def step(chatty: bool) -> int:
        for n in range(100 if chatty else 0):
            perdure.progress(n)
            perdure.emit(n)
        return 7

    def flow_of(chatty: bool) -> Any:
        @perdure.flow(name="flow")
        async def flow(ctx: Context) -> int:
            return await ctx.step("step", step, chatty)

        return flow

    recorded = []
    for chatty in (True, False):
        flow = flow_of(chatty)
        async with stage.open(flow) as engine:
            handle = await engine.start(flow, key=f"{chatty}")
            frames = asyncio.create_task(everything(handle.stream()))
            await handle.result(60)
            await frames
            history = await engine.queries.history((await handle.summary()).id)
            recorded.append([(type(entry.event), entry.decision) for entry in entries_of(history)])

    assert recorded[0] == recorded[1]


# ---- bad calls ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [lambda: perdure.progress(1), lambda: perdure.emit(1), perdure.step_info])
async def test_outside_of_a_step_there_is_nothing_to_speak_of(memory: Stage, function: Callable[[], object]) -> None:
    async def nothing() -> None:
        pass

    @perdure.flow
    async def flow(ctx: Context) -> str:
        await ctx.step("nothing", nothing)
        try:
            function()
        except perdure.NotInStep as error:
            return str(error)
        return "no error"

    with pytest.raises(LookupError):
        function()
    async with memory.open(flow) as engine:
        assert "no step is running here" in await (await engine.start(flow)).result(60)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda: perdure.progress("1"), "BadCall"),  # type: ignore[arg-type]
        (lambda: perdure.progress(1, float("nan")), "BadCall"),
        (lambda: perdure.progress(10**400), "BadCall"),
        (lambda: perdure.progress(1, note="\ud800"), "BadCall"),
        (lambda: perdure.emit(object()), "NotPlain"),
        (lambda: perdure.emit(bytes(1024 * 1024)), "TooLarge"),
    ],
)
async def test_what_no_listener_could_read_is_an_error_of_the_step(
    memory: Stage, function: Callable[[], object], error: str
) -> None:
    async def step() -> None:
        function()

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.step.options(retries=0)("step", step)

    async with memory.open(flow) as engine:
        with pytest.raises(perdure.InstanceFailed, match=error):
            await (await engine.start(flow)).result(60)
