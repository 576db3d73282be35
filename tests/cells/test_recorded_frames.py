"""Frames of an effect that are events of the cell: checked, in order, once, before the receipt, and not too many."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import FrameOf, Next, ReceiptOf, Rejected
from perdure.cells import load
from perdure.cells.bound_manifest import BoundManifest
from perdure.cells.manifest import read
from perdure.errors import BadDefinition, BadManifest
from perdure.kernel.events import Streamed
from perdure.kernel.limits import FRAMES_MAX
from perdure.ports.frame import Frame
from perdure.testing import World, reduce
from perdure.testing.faults import Faults
from perdure.testing.simulation import quiet_log
from perdure.testing.user_simulation import UserSimulation
from tests.cells.desk import heard, settled


class Asked(perdure.Record, name="talk/Asked@1"):
    id: str
    mode: str = ""


class Text(perdure.Record, name="talk/Text@1"):
    heard: list[str] = []  # noqa: RUF012  # a struct copies it
    end: str = ""


class Write(perdure.Effect, name="talk/write@1"):
    mode: str = ""
    secret: perdure.Secret | None = None

    class Frame(perdure.Record):
        word: str

    class Receipt(perdure.Record):
        words: perdure.Nat


class Bench:
    """Where a handler stands still until the test says go, and whether the code of a reducer is broken."""

    begun: asyncio.Event
    go: asyncio.Event
    broken = False
    mode = ""


@perdure.effect_handler(Write)
async def write(params: Write, call: perdure.Call) -> Write.Receipt:
    match params.mode:
        case "wait":
            perdure.emit(Write.Frame("first"))
            Bench.begun.set()
            await Bench.go.wait()
        case "secret":
            perdure.emit(Write.Frame(f"it is {params.secret}"))
        case "wrong":
            perdure.emit({"word": 7})
        case "many":
            for number in range(FRAMES_MAX + 1):
                perdure.emit(Write.Frame(str(number)))
        case _:
            pass
    for number, word in enumerate(["one", "two"]):
        perdure.progress(number, 2)
        perdure.emit(Write.Frame(word))
    return Write.Receipt(2)


@perdure.effect_handler(Write)
def write_in_a_thread(params: Write, call: perdure.Call) -> Write.Receipt:
    for number in range(50):
        perdure.emit(Write.Frame(str(number)))
    return Write.Receipt(50)


@perdure.cell("talk/poem@1", key="id", effects=[Write])
def poem(state: Text | None, event: Asked | FrameOf[Write] | ReceiptOf[Write] | Rejected) -> Next:
    before = state or Text()
    match event:
        case Asked():
            secret = perdure.Secret("word") if event.mode == "secret" else None
            return Next(before, effects=[Write(event.mode, secret).options(issuer="line 1")])
        case FrameOf(effect=effect, value=frame):
            assert effect is Write
            assert (event.issuer, event.cell, event.key, event.params.mode) == ("line 1", poem.name, "p", Bench.mode)
            if Bench.broken and frame.word == "one":
                raise ZeroDivisionError("the code is broken")
            return Next(Text([*before.heard, f"{event.number} {frame.word}"]))
        case Rejected():
            return Next(Text([*before.heard, event.code]))
        case _:
            return Next(Text(before.heard, "ok" if event.ok else f"{event.status} {event.error}"))


async def asked(engine: perdure.Engine, mode: str = "") -> perdure.Handle[Any]:
    Bench.mode = mode
    Bench.begun, Bench.go = asyncio.Event(), asyncio.Event()
    await engine.send(Asked("p", mode))
    return engine.handle("talk/poem", "p")


async def ended(engine: perdure.Engine) -> Text:
    async with asyncio.timeout(60):
        while not (found := await engine.state(poem, "p")) or not found.end:
            await settled(engine)
            await asyncio.sleep(0)
    assert isinstance(found, Text)
    return found


# ---- what a cell hears -------------------------------------------------------------------------------------------


async def test_each_frame_is_an_event_of_the_cell_in_order_and_before_the_receipt(tmp_path: Path) -> None:
    async with perdure.open(tmp_path / "test.db", workflows=[poem], handlers=[write]) as engine:
        handle = await asked(engine)

        assert await ended(engine) == Text(["1 one", "2 two"], "ok")
        lines = [(line.event, line.location, line.value) for line in await handle.history()][1:]
        place = lines[0][1]
        assert lines == [
            ("frame", place, {"word": "one"}),
            ("frame", place, {"word": "two"}),
            ("receipt", place, {"words": 2}),
        ]
    async with perdure.open(tmp_path / "test.db", workflows=[poem], handlers=[write]) as engine:
        assert await engine.state(poem, "p") == Text(["1 one", "2 two"], "ok")


async def test_frames_from_a_thread_come_in_order_too() -> None:
    async with perdure.open(":memory:", workflows=[poem], handlers=[write_in_a_thread]) as engine:
        await asked(engine)

        assert (await ended(engine)).heard == [f"{number + 1} {number}" for number in range(50)]


@perdure.cell("talk/deaf@1", key="id", effects=[Write])
def deaf(state: Text | None, event: Asked | ReceiptOf[Write]) -> Next:
    return Next(Text(), effects=[Write()]) if isinstance(event, Asked) else Next(Text([], "ok"))


async def test_a_cell_that_does_not_take_frames_has_none_in_its_history() -> None:
    async with perdure.open(":memory:", workflows=[deaf], handlers=[write]) as engine:
        await engine.send(Asked("p"))
        while (await engine.state(deaf, "p")) != Text([], "ok"):
            await settled(engine)

        assert [line.event for line in await engine.handle("talk/deaf", "p").history()] == ["made", "receipt"]
        assert engine.counts["frames_heard"] == 4


async def test_who_looks_sees_recorded_frames_live_as_well() -> None:
    async with perdure.open(":memory:", workflows=[poem], handlers=[write]) as engine:
        await asked(engine, "wait")
        await Bench.begun.wait()
        ((_, running),) = engine._shard.running.items()
        stream = engine._connection.streams.open(running.instance, [])
        Bench.go.set()
        await ended(engine)

        assert [frame.chunk for frame in await heard(stream) if frame.kind == "chunk"] == [
            {"word": "one"},
            {"word": "two"},
        ]


# ---- what is no frame, and what comes too late -------------------------------------------------------------------


async def test_a_handler_that_emits_what_is_no_frame_of_its_effect_hears_it_at_once() -> None:
    async with perdure.open(":memory:", workflows=[poem], handlers=[write]) as engine:
        await asked(engine, "wrong")

        found = await ended(engine)
        assert found.heard == []
        assert "SchemaMismatch" in found.end and "what the handler of talk/write@1 emits" in found.end


async def test_a_call_has_a_limited_number_of_frames() -> None:
    async with perdure.open(":memory:", workflows=[poem], handlers=[write]) as engine:
        await asked(engine, "many")

        found = await ended(engine)
        assert len(found.heard) == FRAMES_MAX and found.heard[-1] == f"{FRAMES_MAX} {FRAMES_MAX - 1}"
        assert "TooManyFrames" in found.end and "has sent 1,000 frames" in found.end


async def test_repeated_foreign_and_late_frames_are_dropped_and_counted() -> None:
    async with perdure.open(":memory:", workflows=[poem], handlers=[write]) as engine:
        await asked(engine, "wait")
        await Bench.begun.wait()
        ((intent, running),) = engine._shard.running.items()
        await settled(engine)
        ordinals = iter(range(2, 20))

        def frame(number: int, word: str, **other: Any) -> None:
            at = running.effect.location
            made = Frame("talk/poem/p", at, 1, next(ordinals), "chunk", chunk={"word": word}, number=number)
            engine._shard._frames.framed(other.pop("intent", intent), msgspec.structs.replace(made, **other))

        frame(1, "recorded already")
        frame(2, "second")
        frame(2, "the same number")
        frame(3, "heard already", ordinal=1)
        frame(3, "of an unknown intent", intent=b"nobody")
        frame(3, "of another cell", instance="talk/poem/other")
        frame(FRAMES_MAX + 1, "beyond the limit")
        engine._shard.offer(running.instance, Streamed(b"nobody", 3, b"\xf6"))
        await settled(engine)
        assert await engine.state(poem, "p") == Text(["1 first", "2 second"])
        Bench.go.set()
        found = await ended(engine)
        frame(9, "after the receipt")
        engine._shard.offer(running.instance, Streamed(intent, 9, b"\xf6"))
        await settled(engine)

        assert await engine.state(poem, "p") == found
        counts = {name: count for name, count in engine.counts.items() if name.startswith("frames")}
        assert counts["frames_stale"] == 5
        own = 4  # of the handler, whose ordinals were used up here
        assert counts["frames_repeated"] == 1 + own
        assert (counts["frames_unknown"], counts["frames_mismatched"]) == (2, 1)


async def test_a_frame_that_cannot_be_read_is_told_like_such_a_receipt() -> None:
    async with perdure.open(":memory:", workflows=[poem], handlers=[write]) as engine:
        await asked(engine, "wait")
        await Bench.begun.wait()
        ((intent, running),) = engine._shard.running.items()
        at = running.effect.location
        engine._shard._frames.framed(intent, Frame("talk/poem/p", at, 1, 2, "chunk", chunk={"word": 7}, number=2))
        Bench.go.set()

        assert (await ended(engine)).heard[:2] == ["1 first", "SchemaMismatch"]


def contents(directory: Path) -> list[bytes]:
    return [file.read_bytes() for file in directory.iterdir()]


async def test_secrets_are_taken_out_of_frames(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    secrets = {"word": "hunter2-hunter2"}
    async with perdure.open(path, workflows=[poem], handlers=[write], secrets=secrets) as engine:
        await asked(engine, "secret")

        assert (await ended(engine)).heard[0].startswith("1 it is ")
    assert not any(b"hunter2" in content for content in contents(tmp_path))


# ---- errors and crashes ------------------------------------------------------------------------------------------


async def test_a_cell_that_is_stuck_at_a_frame_hears_all_of_them_in_order_after_a_retry(tmp_path: Path) -> None:
    Bench.broken = True
    try:
        async with perdure.open(tmp_path / "test.db", workflows=[poem], handlers=[write]) as engine:
            handle = await asked(engine)
            with pytest.raises(perdure.InstanceStuck, match="the code is broken"):
                await handle.result()
            await settled(engine)
        Bench.broken = False
        async with perdure.open(tmp_path / "test.db", workflows=[poem], handlers=[write]) as engine:
            await engine.handle("talk/poem", "p").retry()

            assert await ended(engine) == Text(["1 one", "2 two"], "ok")
    finally:
        Bench.broken = False


class Long(perdure.Effect, name="talk/long@1"):
    class Frame(perdure.Record):
        number: perdure.Nat


@perdure.effect_handler(Long)
async def long(params: Long, call: perdure.Call) -> None:
    for number in range(1, 13):
        perdure.emit(Long.Frame(number))
        if number % 3 == 0:
            await asyncio.sleep(1)


@perdure.cell("talk/counter@1", key="id", effects=[Long])
def counter(state: Text | None, event: Asked | FrameOf[Long] | ReceiptOf[Long]) -> Next:
    """Begins again when the processes died too often."""
    before = state or Text()
    if isinstance(event, FrameOf):
        return Next(Text([*before.heard, f"{event.number} {event.value.number}"]))
    if isinstance(event, ReceiptOf) and event.ok:
        return Next(Text(before.heard, "ok"))
    return Next(Text(), effects=[Long()])


@pytest.mark.parametrize("cache", [4096, 0], ids=["hot", "evicted"])
def test_no_fault_of_the_store_and_no_death_loses_or_doubles_a_frame(cache: int) -> None:
    fates = ("crash_before", "crash_after", "false_error", "true_error", "late_commit", "kill", "zombie", "late_load")
    dropped = 0
    with quiet_log():
        for seed in range(60):
            stage = UserSimulation(counter, seed=seed, faults=Faults(cache=cache, snapshots=True), handlers=[long])
            world = World._on(stage)
            world.send(Asked("c"), id="e")
            for fate in fates:
                setattr(stage.faults, fate, 0.1)
            world.advance(3)
            stage.faults.off()
            world.run()

            assert world.state(counter, "c") == Text([f"{number} {number}" for number in range(1, 13)], "ok"), seed
            owner = stage.owner
            assert owner is not None
            dropped += owner.shard.kernel.counts["frames_stale"]

    assert dropped > 100  # a handler that runs again sends its first frames again


# ---- changes of the definition -----------------------------------------------------------------------------------


@perdure.cell("talk/counter@2", key="id", effects=[Long], migrate=lambda old: old)
def counter_2(state: Text | None, event: Asked | ReceiptOf[Long]) -> Next:
    return Next(state or Text(), effects=[Long()] if isinstance(event, Asked) else [])


def test_a_frame_for_a_definition_that_takes_none_any_more_changes_nothing() -> None:
    first, then = perdure.manifest(counter), perdure.manifest(counter_2)
    first.earlier += then.cells
    world = World(first)
    world.send(Asked("c"))
    world.frame(Long(), Long.Frame(1))
    from tests.cells.test_crash_everywhere import apply

    apply(world, "migrate", "apply", then)
    world.run()
    world.frame(Long(), Long.Frame(2))
    world.receipt(Long(), ok=None)

    assert world.state("talk/counter", "c") == Text(["1 1"])


# ---- definitions -------------------------------------------------------------------------------------------------


class Bare(perdure.Effect, name="talk/bare@1"):
    pass


class Far(perdure.Effect, name="talk/far@1", outside="bank"):
    class Frame(perdure.Record):
        word: str


def test_frames_of_an_effect_that_is_not_declared_or_has_none_are_refused() -> None:
    def undeclared(state: Text | None, event: Asked | FrameOf[Write]) -> Next:
        return Next(Text())

    def without(state: Text | None, event: Asked | FrameOf[Bare] | ReceiptOf[Bare]) -> Next:
        return Next(Text())

    def far(state: Text | None, event: Asked | ReceiptOf[Far]) -> Next:
        return Next(Text())

    with pytest.raises(BadDefinition, match="frames of declared effects only"):
        perdure.cell("talk/bad@1", key="id", effects=[])(undeclared)
    with pytest.raises(BadDefinition, match="a class Frame"):
        perdure.cell("talk/bad@1", key="id", effects=[Bare])(without)
    with pytest.raises(BadDefinition, match="frames of a handler"):
        perdure.manifest(perdure.cell("talk/bad@1", key="id", effects=[Far])(far))


def test_frames_are_in_the_manifest_and_only_where_they_are_declared() -> None:
    manifest = perdure.manifest(poem).manifest
    data = manifest.data()

    assert data["effects"]["talk/write@1"]["frame"] == {"record": {"word": "text"}}
    assert data["cells"]["talk/poem@1"]["frames"] == ["talk/write@1"]
    assert read(data).hash == manifest.hash
    assert load.to_yaml(manifest).count("frame:") == 1
    assert "frames" not in perdure.manifest(counter_2).manifest.data()["cells"]["talk/counter@2"]
    data["effects"]["talk/write@1"].pop("frame")
    with pytest.raises(BadManifest, match="no-frames"):
        BoundManifest(read(data))


def by_name(state: Any, event: Any) -> Next:
    """A reducer without Python types."""
    heard = (state or {"heard": []})["heard"]
    if isinstance(event, FrameOf):
        return Next({"heard": [*heard, f"{event.effect} {event.value['word']}"], "end": ""})
    if isinstance(event, ReceiptOf):
        return Next({"heard": heard, "end": "ok"})
    params = {"mode": "", "secret": None}
    return Next({"heard": heard, "end": ""}, effects=[perdure.Datum("talk/write@1", params)])


@perdure.effect_handler("talk/write@1")
async def write_by_name(params: Any, call: perdure.Call) -> dict[str, Any]:
    perdure.emit({"word": "plain"})
    return {"words": 1}


async def test_a_manifest_file_may_have_frames_without_classes() -> None:
    data = perdure.manifest(poem).manifest.data()
    data["cells"]["talk/poem@1"] |= {"impl": f"{__name__}:by_name", "context": False}
    world = BoundManifest(read(data))
    async with perdure.open(":memory:", workflows=[world], handlers=[write_by_name]) as engine:
        await engine.send(Asked("p"))
        while (await engine.state("talk/poem", "p"))["end"] != "ok":
            await settled(engine)

        assert (await engine.state("talk/poem", "p"))["heard"] == ["talk/write@1 plain"]


# ---- in tests of users -------------------------------------------------------------------------------------------


def test_a_reducer_gets_a_frame_by_itself() -> None:
    frame: FrameOf[Long] = FrameOf(effect=Long, value=Long.Frame(3), number=3)

    assert reduce(counter, Text(), frame).state == Text(["3 3"])


def test_a_world_sends_the_frames_of_an_open_effect() -> None:
    world = World(counter)
    world.send(Asked("c"))

    world.frame(Long(), Long.Frame(1))
    world.frame(Long(), Long.Frame(2))
    world.receipt(Long(), ok=None)

    assert world.state(counter, "c") == Text(["1 1", "2 2"], "ok")
