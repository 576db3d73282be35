"""Changed code beside running instances: versions are pinned, and what was removed is passed by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure import BadCall, Break, Context, Continue, Fatal

from .conftest import Stage, becomes
from .rig import Rig, changed, same_in_every_rebuild

Body = Callable[[Context], Coroutine[Any, Any, Any]]


async def note(text: str) -> str:
    return text


@perdure.step(retries=2)
async def flaky(text: str) -> str:
    if perdure.step_info().attempt < 2:
        raise ConnectionError("again")
    return text


# ---- versions ----------------------------------------------------------------------------------------------


async def before(ctx: Context) -> list[str]:
    found = [await ctx.step("first", note, "old first")]
    found.append(await ctx.step("second", note, "old second"))
    return found


async def after(ctx: Context) -> list[str]:
    found = [await ctx.step("first", note, "new first")]
    if ctx.version("notify", 2) >= 2:
        found.append(await ctx.step("notify", note, "notified"))
    found.append(await ctx.step("second", note, "new second"))
    return found


def test_an_instance_that_was_past_the_place_stays_at_version_one() -> None:
    assert changed(before, after, lambda rig: rig.answer("first")) == ["old first", "new second"]


def test_an_instance_that_comes_by_later_gets_the_latest() -> None:
    assert changed(before, after, lambda rig: None) == ["new first", "notified", "new second"]


def test_a_version_stays_what_it_was_when_the_latest_grows() -> None:
    def with_latest(latest: int) -> Body:
        async def body(ctx: Context) -> list[Any]:
            pinned = ctx.version("v", latest)
            await ctx.step("wait", note, "x")
            return [pinned, ctx.version("v", latest)]

        return body

    assert changed(with_latest(2), with_latest(3), lambda rig: None) == [2, 3]


def looping(latest: int) -> Body:
    async def body(ctx: Context) -> Any:
        async def each(ctx: Context, seen: list[int]) -> Continue[list[int]] | Break[list[int]]:
            version = ctx.version("v", latest) if latest > 1 else 1
            await ctx.receive("work")
            seen = [*seen, version]
            return Continue(seen) if len(seen) < 5 else Break(seen)

        return await ctx.loop("loop", each, [], keep=2, prune_every=2)

    return body


PINNED = [1, 1, 1, 2, 2]
"""Two iterations are over and the third is under way when the code changes."""


def test_version_pins_per_iteration() -> None:
    def work(rig: Rig, times: int) -> Any:
        for _ in range(times):
            rig.send("work")
        return rig.outcome and rig.result

    assert changed(looping(1), looping(2), lambda rig: work(rig, 2), lambda rig: work(rig, 3)) == PINNED


async def test_version_pins_per_iteration_in_an_engine(disk: Stage) -> None:
    for code, times in ((looping(1), 2), (looping(2), 2), (looping(3), 1)):
        flow: perdure.Flow[..., Any] = perdure.flow(name="f")(code)
        async with disk.open(flow) as engine:
            handle = await engine.start(flow, key="k")
            for _ in range(times):
                await handle.send("work")
            disk.crash()

    async with disk.open(flow) as engine:
        assert await engine.handle(flow, "k").result(60) == PINNED


def test_a_version_is_the_same_in_every_rebuild() -> None:
    assert same_in_every_rebuild(perdure.flow(name="f")(after), drive=Rig.run).result == [
        "new first",
        "notified",
        "new second",
    ]


@pytest.mark.parametrize("latest", [0, -1, "2", None])
def test_versions_are_numbers_from_one(latest: Any) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        with pytest.raises(BadCall, match="numbers from 1"):
            ctx.version("v", latest)

    assert Rig(flow).result is None


async def test_a_running_engine_is_replaced_by_one_with_newer_code(disk: Stage) -> None:
    async def old(ctx: Context) -> str:
        await ctx.step("a", note, "a")
        await ctx.receive("go")
        return "old"

    async def new(ctx: Context) -> str:
        await ctx.step("a", note, "a")
        if ctx.version("b", 2) == 2:
            await ctx.step("b", note, "b")
        await ctx.receive("go")
        return "new"

    first, second = perdure.flow(name="f")(old), perdure.flow(name="f")(new)
    async with disk.open(first) as engine:
        await becomes(await engine.start(first, key="k"), "waiting")
    async with disk.open(second) as engine:
        await engine.handle(second, "k").send("go")
        later = await engine.start(second, key="later")
        await later.send("go")

        assert await engine.handle(second, "k").result(60) == "new"
        assert await later.result(60) == "new"
        assert "b" in [line.location for line in await later.history()]
        assert "b" not in [line.location for line in await engine.handle(second, "k").history()]


# ---- removed -----------------------------------------------------------------------------------------------


async def a_step(ctx: Context) -> Any:
    return await ctx.step("x", note, "x")


async def a_flaky_step(ctx: Context) -> Any:
    return await ctx.step("x", flaky, "x")


async def a_sleep(ctx: Context) -> Any:
    await ctx.sleep("x", 5)


async def a_past_sleep(ctx: Context) -> Any:
    await ctx.sleep("x", -5)


async def a_receive(ctx: Context) -> Any:
    return await ctx.receive_many("x", limit=1, timeout=5)


async def a_child(ctx: Context) -> Any:
    return await ctx.child("x")


async def a_join(ctx: Context) -> Any:
    return await ctx.join("x", {"a": lambda: ctx.step("s", note, "a"), "b": lambda: ctx.sleep("t", 3)})


async def a_race(ctx: Context) -> Any:
    return await ctx.race("x", {"a": lambda: ctx.step("s", note, "a"), "b": lambda: ctx.sleep("t", 3)})


async def a_map(ctx: Context) -> Any:
    return await ctx.map("x", lambda n: ctx.step("s", note, str(n)), range(3), concurrency=2)


async def a_loop(ctx: Context) -> Any:
    async def body(ctx: Context, n: int) -> Continue[int] | Break[int]:
        await ctx.step("s", note, "x")
        return Continue(n + 1) if n < 3 else Break(n)

    return await ctx.loop("x", body, 0)


async def an_attempt(ctx: Context) -> Any:
    async def block(ctx: Context) -> None:
        await ctx.step("s", note, "x")

    return await ctx.attempt("x", block)


async def a_checkpoint(ctx: Context) -> Any:
    async with ctx.checkpoint("x"):
        pass


async def a_version(ctx: Context) -> Any:
    ctx.version("x", 3)


OPERATIONS = {
    "step": a_step,
    "step, retried": a_flaky_step,
    "sleep": a_sleep,
    "sleep, past": a_past_sleep,
    "receive": a_receive,
    "child": a_child,
    "join": a_join,
    "race": a_race,
    "map": a_map,
    "loop": a_loop,
    "attempt": an_attempt,
    "checkpoint": a_checkpoint,
    "version": a_version,
}


@pytest.mark.parametrize("entries", range(1, 9))
@pytest.mark.parametrize("kind", OPERATIONS)
def test_removed_for_every_kind_at_every_point(kind: str, entries: int) -> None:
    operation = OPERATIONS[kind]

    async def old(ctx: Context) -> list[str]:
        first = await ctx.step("first", note, "first")
        with_errors = await asyncio.gather(operation(ctx), ctx.step("beside", note, "beside"), return_exceptions=True)
        del with_errors
        await operation_again(ctx)
        return [first, await ctx.step("last", note, "last")]

    async def operation_again(ctx: Context) -> None:
        await operation(ctx)

    async def new(ctx: Context) -> list[str]:
        first = await ctx.step("first", note, "first")
        await asyncio.gather(gone(ctx), ctx.step("beside", note, "beside"))
        await ctx.removed("x", kind.partition(",")[0])  # type: ignore[arg-type]
        return [first, await ctx.step("last", note, "last")]

    async def gone(ctx: Context) -> None:
        await ctx.removed("x", kind.partition(",")[0])  # type: ignore[arg-type]

    assert changed(old, new, lambda rig: rig.run_some(entries)) == ["first", "last"]


@perdure.flow(name="x")
async def child_x(ctx: Context) -> None:
    await ctx.receive("done")


async def comes_to_go(engine: perdure.Engine, handle: perdure.Handle[Any]) -> None:
    """Whatever else it waits for comes now."""
    async with asyncio.timeout(60):
        while "receive:go" not in {open.location for open in await handle.waiting()}:
            for open in await handle.waiting():
                with suppress(perdure.UnknownLocation, perdure.InstanceEnded):  # it may have come by itself
                    if open.kind == "timer":
                        await handle.wake(open.location)
                    elif open.kind == "child":
                        await engine.handle(child_x, open.what.removeprefix("x/")).send("done")
                    elif open.kind == "wait":
                        await handle.send("x")
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("kind", OPERATIONS)
async def test_removed_for_every_kind_in_an_engine(disk: Stage, kind: str) -> None:
    """One instance has not come to the operation when its code goes, one has just begun it, one is past it."""

    async def old(ctx: Context) -> str:
        await ctx.receive("begin")
        await OPERATIONS[kind](ctx)
        await ctx.receive("go")
        return await ctx.step("last", note, "last")

    async def new(ctx: Context) -> str:
        await ctx.receive("begin")
        await ctx.removed("x", kind.partition(",")[0])  # type: ignore[arg-type]
        await ctx.receive("go")
        return await ctx.step("last", note, "last")

    first, second = perdure.flow(name="f")(old), perdure.flow(name="f")(new)
    async with disk.open(first, child_x, replay=False) as engine:
        await engine.start(first, key="before")
        past, within = await engine.start(first, key="past"), await engine.start(first, key="within")
        await past.send("begin")
        await comes_to_go(engine, past)
        await within.send("begin")
        disk.crash()
    async with disk.open(second, child_x) as engine:
        before, within, past = (engine.handle(second, key) for key in ("before", "within", "past"))
        await before.send("begin")
        await comes_to_go(engine, within)
        for handle in (before, within, past):
            await handle.send("go")
            assert await handle.result(60) == "last"
        assert not [line for line in await before.history() if line.location.startswith("x")]


@pytest.mark.parametrize("entries", range(1, 9))
@pytest.mark.parametrize("clean_up", [False, True])
def test_what_was_removed_can_lose_a_race_and_be_cancelled(clean_up: bool, entries: int) -> None:
    async def old_block(ctx: Context) -> None:
        try:
            await ctx.join("in", {"sleep": lambda: ctx.sleep("s", 50), "mail": lambda: ctx.receive("never")})
        finally:
            if clean_up:
                await ctx.step("clean", note, "clean")

    def made(old: bool) -> Body:
        async def body(ctx: Context) -> list[Any]:
            async def first(ctx: Context) -> None:
                if old:
                    await ctx.attempt("x", old_block)
                else:
                    await ctx.removed("x", "attempt")

            async def second(ctx: Context) -> str:
                return await ctx.step("quick", note, "quick")

            found = [await ctx.step("begin", note, "begin"), *await ctx.race("race", {"old": first, "quick": second})]
            return [*found, await ctx.step("last", note, "last")]

        return body

    def then(rig: Rig) -> Any:
        return rig.result if rig.outcome else rig.run()

    found = changed(made(True), made(False), lambda rig: rig.run_some(entries), then)

    assert found == ["begin", "quick", "quick", "last"]


def test_a_removed_receive_takes_the_message_that_it_took() -> None:
    async def old(ctx: Context) -> list[Any]:
        await ctx.receive("x")
        return [(await ctx.receive()).body, await ctx.step("last", note, "last")]

    async def new(ctx: Context) -> list[Any]:
        await ctx.removed("x", "message")  # another word for a receive
        return [(await ctx.receive()).body, await ctx.step("last", note, "last")]

    def drive(rig: Rig) -> None:
        rig.send("x", 1)
        rig.send("x", 2)

    def then(rig: Rig) -> Any:
        return rig.run()

    assert changed(old, new, drive, then) == [2, "last"]


def test_what_was_never_begun_is_not_there() -> None:
    async def new(ctx: Context) -> str:
        await ctx.removed("x", "step")
        return await ctx.step("last", note, "last")

    rig = Rig(perdure.flow(name="f")(new))

    assert rig.run() == "last"
    assert rig.calls == ["last"]


def test_an_unknown_kind_is_refused() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        with pytest.raises(BadCall, match="a kind is one of"):
            await ctx.removed("x", "stop")  # type: ignore[arg-type]

    assert Rig(flow).result is None


async def test_a_step_that_is_in_flight_when_its_code_goes_is_answered_and_passed_by(disk: Stage) -> None:
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def old(ctx: Context) -> str:
        await ctx.step("hang", hang)
        raise Fatal("never")

    async def new(ctx: Context) -> str:
        await ctx.removed("hang", "step")
        return await ctx.step("last", note, "last")

    first, second = perdure.flow(name="f")(old), perdure.flow(name="f")(new)
    async with disk.open(first, replay=False) as engine:
        await engine.start(first, key="k")
        await begun.wait()
        disk.crash()
    async with disk.open(second) as engine:
        assert await engine.handle(second, "k").result(60) == "last"


async def test_an_engine_with_older_code_leaves_newer_instances_alone(disk: Stage) -> None:
    """A deploy was rolled back for an hour. Nobody had to help what was started before."""

    async def old(ctx: Context) -> str:
        await ctx.step("old", note, "old")
        return "old"

    async def new(ctx: Context) -> str:
        await ctx.sleep("nap", 0.01)
        await ctx.receive("go")
        return await ctx.step("new", note, "new")

    first, second = (perdure.flow(name="f", version=version)(body) for version, body in (("1", old), ("2", new)))
    async with disk.open(second) as engine:
        await becomes(await engine.start(second, key="k"), "waiting")
    async with perdure.connect(disk.url) as client:
        await client.handle("f", "k").send("go")

    async with disk.open(first, replay=False) as engine:
        assert await (await engine.start(first, key="other")).result(60) == "old"
        with pytest.raises(perdure.UnknownVersion, match="older code is not used"):
            await engine.handle("f", "k").send("more")
        assert await engine.handle("f", "k").status() == "waiting"

    async with disk.open(first, second) as engine:
        assert await engine.handle("f", "k").result(60) == "new"


async def test_what_diverged_goes_on_with_a_version_that_does_not(disk: Stage) -> None:
    async def old(ctx: Context) -> str:
        await ctx.step("a", note, "a")
        await ctx.receive("go")
        return "old"

    async def other(ctx: Context) -> str:
        await ctx.step("b", note, "b")
        return "other"

    async def compatible(ctx: Context) -> str:
        await ctx.step("a", note, "a")
        await ctx.receive("go")
        return "compatible"

    bodies = {"1": old, "2": other, "3": compatible}
    one, two, three = (perdure.flow(name="f", version=version)(body) for version, body in bodies.items())
    async with disk.open(one) as engine:
        await becomes(await engine.start(one, key="k"), "waiting")
    async with disk.open(two, replay=False) as engine:
        await engine.handle(two, "k").send("go")
        await becomes(engine.handle(two, "k"), "stuck")

    async with disk.open(three) as engine:
        assert await engine.handle(three, "k").result(60) == "compatible"
