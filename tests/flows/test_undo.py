"""Undo: what completed steps did is undone in reverse order, whatever crashes, and never twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import Backoff, Break, Context, Continue, Fatal, InstanceCancelled, InstanceFailed, RollBack
from perdure.kernel.events import CancelAsked, Retried, Settled
from perdure.kernel.receipt import Receipt

from .conftest import Stage, becomes, until
from .rig import Rig, same_in_every_rebuild


class Shop:
    """Does and undoes, and remembers the order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.broken: set[str] = set()
        self.hold: asyncio.Event | None = None

    async def do(self, name: str) -> str:
        self.log.append(f"+{name}")
        return name

    async def undo(self, name: str) -> None:
        if self.hold is not None and name == "b":
            self.log.append(f"?{name}")
            await self.hold.wait()
        if name in self.broken:
            raise Fatal(f"{name} is broken")
        self.log.append(f"-{name}")

    async def fail(self) -> None:
        raise Fatal("no more")

    def step(self, ctx: Context, name: str) -> Any:
        return ctx.step.options(undo=self.undo)(name, self.do, name)


async def test_reverse_order_of_completion(stage: Stage) -> None:
    shop = Shop()

    @perdure.flow
    async def flow(ctx: Context) -> None:
        async def late() -> str:
            await until(lambda: "+after c" in shop.log)
            return await shop.do("b")

        async def c() -> None:
            await shop.step(ctx, "c")
            await ctx.step("after c", shop.do, "after c")
            await ctx.step("fail", shop.fail)

        await shop.step(ctx, "a")
        await ctx.join("both", {"b": lambda: ctx.step.options(undo=shop.undo)("b", late), "c": c})

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        with pytest.raises(InstanceFailed, match="no more"):
            await handle.result(60)

        done = [line.location for line in await handle.history()]
        assert shop.log == ["+a", "+c", "+after c", "+b", "-b", "-c", "-a"], "b began first and was done last"
        assert done[-3:] == ["&undo/both%2Fb%2Fb", "&undo/both%2Fc%2Fc", "&undo/a"]


async def test_a_flow_that_completes_or_catches_undoes_nothing(stage: Stage) -> None:
    shop = Shop()

    @perdure.flow
    async def flow(ctx: Context) -> str:
        await shop.step(ctx, "a")
        await ctx.attempt("fail", shop.fail)
        return "well"

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == "well"
        assert shop.log == ["+a"]


def everywhere() -> perdure.Flow[Any, Any]:
    """Something to undo in every scope; what is done beside another is done in a fixed order."""
    shop = Shop()

    @perdure.flow
    async def flow(ctx: Context) -> None:
        async def body(ctx: Context, n: int) -> Continue[int] | Break[int]:
            await shop.step(ctx, f"loop{n}")
            return Continue(n + 1) if n < 5 else Break(n)

        async def block(ctx: Context) -> None:
            await shop.step(ctx, "tried")
            await ctx.step("fail", shop.fail)

        async def x(ctx: Context) -> None:
            await shop.step(ctx, "x")
            first.set()

        async def y(ctx: Context) -> None:
            await first.wait()
            await shop.step(ctx, "y")

        async def slow(ctx: Context) -> None:
            await shop.step(ctx, "loser")
            second.set()
            await ctx.receive("never")

        async def quick(ctx: Context) -> None:
            await second.wait()
            await shop.step(ctx, "winner")
            await shop.step(ctx, "winner too")

        first, second = asyncio.Event(), asyncio.Event()
        await ctx.loop("loop", body, 0, keep=2, prune_every=2)
        await ctx.join("join", {"x": x, "y": y})
        await ctx.race("race", {"slow": slow, "quick": quick})
        await ctx.attempt("block", block)
        await ctx.step("fail", shop.fail)

    return flow


def undone(locations: list[str]) -> list[str]:
    found = [location.removeprefix("&undo/") for location in locations if "&undo" in location]
    return [location.replace("%2F", "/").replace("%7E", "~") for location in found]


UNDONE_EVERYWHERE = [
    "block/tried",
    "race/quick/winner too",
    "race/quick/winner",
    "race/slow/loser",
    "join/y/y",
    "join/x/x",
    "loop/~5/loop5",
    "loop/~4/loop4",
]
"""Of a loop, what its kept iterations did."""


def test_in_loop_join_race_and_attempt() -> None:
    rig = same_in_every_rebuild(everywhere(), drive=Rig.run)

    assert "no more" in rig.result
    assert undone(rig.calls) == UNDONE_EVERYWHERE


async def test_in_loop_join_race_and_attempt_in_an_engine(stage: Stage) -> None:
    flow = everywhere()
    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        with pytest.raises(InstanceFailed, match="no more"):
            await handle.result(60)
        assert undone([line.location for line in await handle.history()]) == UNDONE_EVERYWHERE


async def test_a_rollback_resumes_after_a_crash(disk: Stage) -> None:
    shop = Shop()
    shop.hold = asyncio.Event()

    @perdure.flow
    async def flow(ctx: Context) -> None:
        for name in "abc":
            await shop.step(ctx, name)
        raise RollBack("enough")

    async with disk.open(flow, replay=False) as engine:
        await engine.start(flow, key="k")
        await until(lambda: "?b" in shop.log)
        disk.crash()
    shop.hold.set()

    async with disk.open(flow) as engine:
        with pytest.raises(InstanceFailed, match="enough"):
            await engine.handle(flow, "k").result(60)
        assert [each for each in shop.log if each.startswith("-")].count("-c") == 1
        assert shop.log[-2:] == ["-b", "-a"]


async def test_a_failing_undo_is_stuck_and_the_rest_is_kept(stage: Stage) -> None:
    shop = Shop()
    shop.broken = {"b"}

    @perdure.flow
    async def flow(ctx: Context) -> None:
        for name in "abc":
            await shop.step(ctx, name)
        raise ValueError("a bug")

    async with stage.open(flow) as engine:
        retried = await engine.start(flow, key="retried")
        await becomes(retried, "stuck")
        assert "could not be undone" in str(await retried.error())
        shop.broken = set()
        await retried.retry()
        with pytest.raises(InstanceFailed, match="a bug"):
            await retried.result(60)
        assert shop.log == ["+a", "+b", "+c", "-c", "-b", "-a"]

        shop.log.clear()
        shop.broken = {"b"}
        settled = await engine.start(flow, key="settled")
        await becomes(settled, "stuck")
        await settled.settle("b")
        with pytest.raises(InstanceFailed, match="a bug"):
            await settled.result(60)
        assert shop.log == ["+a", "+b", "+c", "-c", "-a"]


@pytest.mark.parametrize("answer", [Retried(), Settled("b", Receipt("ok"))], ids=lambda answer: type(answer).__name__)
def test_a_failing_undo_is_the_same_in_every_rebuild(answer: Any) -> None:
    async def do(name: str) -> str:
        return name

    attempts: list[int] = []

    async def undo(name: str) -> None:
        attempts.append(1)
        if name == "b" and len(attempts) in (1, 3, 5):
            raise Fatal("not now")

    @perdure.flow
    async def flow(ctx: Context) -> None:
        for name in "ab":
            await ctx.step.options(undo=undo)(name, do, name)
        raise ValueError("a bug")

    def drive(rig: Rig) -> Any:
        attempts.clear()
        rig.answer("a")
        rig.answer("b")
        stuck = rig.answer("&undo/b").stuck
        assert stuck is not None
        assert stuck.location == "b"
        rig.deliver(answer)
        return rig.run()

    assert "a bug" in same_in_every_rebuild(flow, drive=drive).result


async def test_roll_back_to_a_checkpoint_and_go_on(stage: Stage) -> None:
    shop = Shop()

    @perdure.flow
    async def flow(ctx: Context) -> str:
        await shop.step(ctx, "a")
        for attempt in range(2):
            try:
                async with ctx.checkpoint("order"):
                    await shop.step(ctx, "b")
                    await shop.step(ctx, "c")
                    if attempt == 0:
                        raise RollBack("no stock", to="order")
                    return "done"
            except RollBack as error:
                assert error.to == "order"
                await ctx.step("note", shop.do, "note")
        return "never"

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == "done"
        assert shop.log == ["+a", "+b", "+c", "-c", "-b", "+note", "+b", "+c"]


async def test_a_step_can_ask_for_the_rollback(stage: Stage) -> None:
    shop = Shop()

    async def give_up() -> None:
        raise RollBack("sold out", to="order")

    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            async with ctx.checkpoint("order"):
                await shop.step(ctx, "a")
                await ctx.step("give up", give_up)
        except RollBack as error:
            return f"{error} {error.to}"
        return "never"

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == "sold out order"
        assert shop.log == ["+a", "-a"]


def test_a_checkpoint_leaves_other_branches_alone_and_other_marks_pass_through() -> None:
    def made() -> perdure.Flow[Any, Any]:
        shop = Shop()

        @perdure.flow
        async def flow(ctx: Context) -> list[str]:
            async def left(ctx: Context) -> str:
                try:
                    async with ctx.checkpoint("mine"):
                        await shop.step(ctx, "l")
                        await ctx.sleep("wait", 10)
                        raise RollBack(to="mine")
                except RollBack:
                    return "left"

            async def right(ctx: Context) -> str:
                await shop.step(ctx, "r")
                return "right"

            async with ctx.checkpoint("outer"):
                both = await ctx.join("both", {"left": left, "right": right})
            return [*both.values()]

        return flow

    rig = same_in_every_rebuild(made(), drive=Rig.run)

    assert rig.result == ["left", "right"]
    assert [location for location in rig.calls if "undo" in location] == ["both/left/&undo/both%2Fleft%2Fl"]


async def test_a_cancel_undoes_when_it_is_asked_to(stage: Stage) -> None:
    shop = Shop()

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await shop.step(ctx, "a")
        await shop.step(ctx, "b")
        try:
            await ctx.receive("never")
        finally:
            await ctx.step("clean", shop.do, "clean")

    async with stage.open(flow) as engine:
        for undo, log in ((False, ["+a", "+b", "+clean"]), (True, ["+a", "+b", "+clean", "-b", "-a"])):
            shop.log.clear()
            handle = await engine.start(flow)
            await becomes(handle, "waiting")
            await handle.cancel("enough", undo=undo)
            with pytest.raises(InstanceCancelled, match="enough"):
                await handle.result(60)
            assert shop.log == log


async def test_a_cancel_that_undoes_is_one_for_the_children_that_still_run(stage: Stage) -> None:
    shop = Shop()

    @perdure.flow
    async def room(ctx: Context) -> None:
        await shop.step(ctx, "room")
        await ctx.receive("never")

    @perdure.flow
    async def trip(ctx: Context) -> None:
        await shop.step(ctx, "trip")
        await ctx.child(room, key="room")

    async with stage.open(trip, room) as engine:
        handle = await engine.start(trip, key="t")
        await until(lambda: "+room" in shop.log)
        await becomes(engine.handle(room, "room"), "waiting")

        await handle.cancel("enough", undo=True)

        for instance in (handle, engine.handle(room, "room")):
            with pytest.raises(InstanceCancelled):
                await instance.result(60)
        assert sorted(shop.log) == ["+room", "+trip", "-room", "-trip"]


def test_a_cancel_during_a_rollback_ends_cancelled_after_it() -> None:
    shop = Shop()

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await shop.step(ctx, "a")
        await shop.step(ctx, "b")
        raise ValueError("a bug")

    def drive(rig: Rig) -> Any:
        rig.answer("a")
        rig.answer("b")
        rig.deliver(CancelAsked("stop", undo=True))
        return rig.run()

    assert same_in_every_rebuild(flow, drive=drive).result == "cancelled: Cancelled: stop"


async def test_an_undo_is_retried_like_any_step(stage: Stage) -> None:
    tried: list[int] = []

    @perdure.step(retries=2, backoff=Backoff(base=0))
    async def undo(value: int) -> None:
        tried.append(value)
        if len(tried) < 3:
            raise ConnectionError("again")

    @perdure.step(undo=undo)
    async def do() -> int:
        return 7

    @perdure.flow
    async def flow(ctx: Context) -> None:
        await do()
        raise RollBack("all")

    async with stage.open(flow) as engine:
        with pytest.raises(InstanceFailed):
            await (await engine.start(flow)).result(60)
        assert tried == [7, 7, 7]


@pytest.mark.parametrize("undo", [False, True])
async def test_an_instance_whose_undo_failed_can_be_cancelled(stage: Stage, undo: bool) -> None:
    shop = Shop()
    shop.broken = {"b"}

    @perdure.flow
    async def flow(ctx: Context) -> None:
        for name in "ab":
            await shop.step(ctx, name)
        raise ValueError("a bug")

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        await becomes(handle, "stuck")
        await handle.cancel("enough", undo=undo)
        if undo:
            assert await handle.status() == "stuck", "what is to be undone is not given up"
            await handle.settle("b")
        with pytest.raises(InstanceCancelled, match="enough"):
            await handle.result(60)
        assert shop.log == ["+a", "+b", *(["-a"] if undo else [])]


async def test_a_subclass_of_rollback_is_one_and_a_namesake_is_none(memory: Stage) -> None:
    class SoldOut(RollBack):
        pass

    namesake = type("RollBack", (Exception,), {})

    async def give_up(kind: str) -> None:
        raise SoldOut("none left", to="here") if kind == "ours" else namesake("theirs")

    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        found = []
        for kind in ("ours", "theirs"):
            try:
                await ctx.step.options(retries=0)(kind, give_up, kind)
            except RollBack as error:
                found.append(f"{error} {error.to}")
            except perdure.StepFailed as failed:
                found.append(f"failed: {failed.error}")
        return found

    async with memory.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == [
            "none left here",
            "failed: tests.flows.test_undo.RollBack: theirs",
        ]


@pytest.mark.parametrize("verb", ["join", "race", "map"])
def test_a_branch_that_asks_for_a_rollback_asks_for_all(verb: str) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        async def refuse(*_: Any) -> None:
            raise RollBack("from inside")

        async def wait() -> None:
            await ctx.sleep("wait", 5)

        try:
            if verb == "map":
                await ctx.map("m", refuse, [1])
            else:
                await getattr(ctx, verb)("b", {"refuse": refuse, "wait": wait})
        except RollBack as error:
            return str(error)
        return "never"

    assert (
        same_in_every_rebuild(flow, drive=lambda rig: rig.result if rig.outcome else rig.run()).result == "from inside"
    )


@pytest.mark.parametrize("by", ["step", "flow"])
async def test_a_rollback_to_a_checkpoint_that_is_not_there_undoes_nothing_and_lists_them(
    memory: Stage, by: str
) -> None:
    undone: list[str] = []
    to = "typo"

    async def book() -> str:
        return "booked"

    async def unbook(value: str) -> None:
        undone.append(value)

    async def gives_up() -> None:
        raise RollBack("no room", to=to)

    @perdure.flow
    async def flow(ctx: Context) -> str:
        await ctx.step.options(undo=unbook)("book", book)
        try:
            async with ctx.checkpoint("trip"):
                await ctx.step.options(undo=unbook)("book", book)
                if by == "flow":
                    raise RollBack("no room", to=to)
                await ctx.step("gives up", gives_up)
        except RollBack as error:
            if error.to != "trip":
                raise
        return "home"

    async with memory.open(flow, replay=False) as engine:
        handle = await engine.start(flow)
        with pytest.raises(perdure.InstanceStuck, match=r"RollBack\(to='typo'\).*these checkpoints: 'trip'"):
            await handle.result(60)
        assert not undone
        if by == "flow":  # the code is mended
            to = "trip"
            await handle.retry()
            assert await handle.result(60) == "home"
            assert undone == ["booked"], "what was done before the checkpoint stays done"
