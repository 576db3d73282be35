"""Frames are numbered from 1: gaps are counted, and what does not belong is dropped, with a counted reason."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

import perdure
from perdure.cells.effects import Publish
from perdure.ports.frame import Frame
from tests.cells.desk import Done, Go, answer, heard, say


class Work(perdure.Effect, name="test/work@1"):
    pass


class Bench:
    """Where the handler of a test stands still until the test says go."""

    begun: asyncio.Event
    go: asyncio.Event


@perdure.effect_handler(Work)
async def work(params: Work, call: perdure.Call) -> None:
    Bench.begun.set()
    await Bench.go.wait()


@perdure.cell("test/worker@1", key="key", effects=[Work, Publish])
def worker(state: Done | None, event: Go | perdure.ReceiptOf[Work]) -> perdure.Next:
    return perdure.Next(Done(1), effects=[Work()]) if isinstance(event, Go) else say(event)


async def test_frames_with_gap_duplicate_unknown_intent_and_another_identity():
    Bench.begun, Bench.go = asyncio.Event(), asyncio.Event()
    async with perdure.open(":memory:", workflows=[worker], handlers=[work]) as engine:
        await engine.send(Go("k"))
        await Bench.begun.wait()
        ((intent, running),) = engine._shard.running.items()
        stream = engine._connection.streams.open(running.instance, [])

        def frame(ordinal: int, chunk: str, **other: Any) -> None:
            made = Frame("test/worker/k", running.effect.location, 1, ordinal, "chunk", chunk=chunk)
            engine._shard._frames.framed(other.pop("intent", intent), msgspec.structs.replace(made, **other))

        frame(1, "first")
        frame(1, "the same again")
        frame(4, "after a gap of two")
        frame(3, "older than the last")
        frame(0, "numbers begin with 1")
        frame(5, "of an unknown intent", intent=b"nobody")
        frame(5, "of another instance", instance="test/worker/other")
        frame(5, "of another call", location="work/~9#1")
        frame(5, "of another attempt", attempt=2)
        frame(5, "last")
        Bench.go.set()
        await answer(engine, "test/worker")
        frame(6, "after its receipt")

        assert [frame.chunk for frame in await heard(stream)] == ["first", "after a gap of two", "last"]
        assert {name: count for name, count in engine.counts.items() if name.startswith("frames")} == {
            "frames_heard": 3,
            "frames_repeated": 3,
            "frames_missing": 2,
            "frames_unknown": 2,
            "frames_mismatched": 3,
        }


async def test_the_frames_of_a_real_step_have_no_gap():
    async with perdure.open(":memory:", workflows=[worker], handlers=[talk]) as engine:
        await engine.send(Go("k"))
        await answer(engine, "test/worker")

        assert engine.counts["frames_heard"] == 20
        assert not any(engine.counts.get(f"frames_{what}") for what in ("missing", "repeated", "mismatched"))


@perdure.effect_handler(Work)
def talk(params: Work, call: perdure.Call) -> None:
    for number in range(10):
        perdure.progress(number, 10)
        perdure.emit(number)
