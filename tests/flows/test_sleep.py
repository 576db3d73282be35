"""Sleep: the deadline is recorded when it is first met, and holds however often the process dies."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import perdure
from perdure import Break, Context, Continue
from perdure.kernel.effects import Timer
from perdure.kernel.events import Woken
from perdure.testing.simulation import Simulation

from .conftest import Stage, becomes
from .rig import SECOND, START, Rig, same_in_every_rebuild


async def nothing() -> None:
    pass


async def test_past_deadline(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        await ctx.step("first", nothing)
        await ctx.sleep("none", 0)
        await ctx.sleep("negative", -5)
        await ctx.sleep_until("past", datetime(2001, 1, 1, tzinfo=UTC))
        await ctx.sleep_until("now", ctx.now())
        await asyncio.sleep(0)
        await asyncio.sleep(-1)
        await ctx.step("last", nothing)
        return "awake"

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)

        assert await handle.result(60) == "awake"
        assert [line.opened for line in await handle.history()] == [("step first",), ("step last",), ()]


def test_seconds_a_timedelta_and_a_time() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[float]:
        found = []
        for act in (
            lambda: ctx.sleep("seconds", 1.5),
            lambda: ctx.sleep("delta", timedelta(minutes=2)),
            lambda: ctx.sleep_until("time", ctx.now() + timedelta(hours=1)),
            lambda: asyncio.sleep(0.25),
        ):
            before = asyncio.get_running_loop().time()
            await act()
            found.append(round(asyncio.get_running_loop().time() - before, 3))
        return found

    assert same_in_every_rebuild(flow, drive=Rig.run).result == [1.5, 120, 3600, 0.25]


def test_a_sleep_of_centuries_ends_in_the_last_year_that_fits() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        async with asyncio.timeout(1e300):
            await asyncio.gather(
                ctx.sleep("delta", timedelta.max),
                ctx.sleep("infinite", float("inf")),
                ctx.sleep_until("9999", datetime(9999, 12, 31, tzinfo=UTC)),
                asyncio.sleep(1e200),
                ctx.receive("never", timeout=timedelta.max),
            )

    rig = Rig(flow)

    dues = [effect.due for effect in rig.open.values()]  # type: ignore[union-attr]
    assert len(dues) == 6
    assert all(due is not None and 2**62 < due < 2**63 for due in dues)


def test_what_is_no_duration_is_refused() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        refused = 0
        bad: list[Any] = [None, "soon", float("nan")]
        for value in bad:
            try:
                await ctx.sleep("x", value)
            except perdure.BadCall:
                refused += 1
        for when in (datetime(2030, 1, 1), "tomorrow"):
            try:
                await ctx.sleep_until("x", when)  # type: ignore[arg-type]
            except perdure.BadCall:
                refused += 1
        return refused

    assert Rig(flow).result == 5


async def test_survives_restart(disk: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> datetime:
        async def nap() -> datetime:
            await ctx.sleep("nap", 0.1)
            return ctx.now()

        awake, _ = await asyncio.gather(nap(), ctx.sleep("long", timedelta(days=1)))
        return awake

    async with disk.open(flow) as engine:
        handle = await engine.start(flow, key="k")
        nap, long = await handle.waiting()
        disk.crash()
    async with disk.open(flow) as engine:
        handle = engine.handle(flow, "k")
        async with asyncio.timeout(60):
            while len(waiting := await handle.waiting()) > 1:  # noqa: ASYNC110  # a timer of the engine's moves it
                await asyncio.sleep(0.001)
        assert (waiting[0].location, waiting[0].due) == (long.location, long.due), "the deadline of its first encounter"
        await handle.wake()
        awake = await handle.result(60)

    assert nap.due is not None and awake >= nap.due


def test_the_deadline_is_recorded_at_the_first_encounter() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        await ctx.sleep("nap", 10)
        return "awake"

    rig = Rig(flow, rebuild="journal")
    rig.now += 4 * SECOND
    rig.send("noise")

    assert list(rig.open.values()) == [Timer("nap", START + 10 * SECOND)]


@perdure.flow
async def naps(ctx: Context, seconds: float) -> float:
    """How late it woke."""
    due = ctx.now() + timedelta(seconds=seconds)
    await ctx.sleep_until("nap", due)
    return (ctx.now() - due).total_seconds()


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["memory", "sqlite"], indirect=True)
async def test_10_000_sleepers_wake_on_time(stage: Stage) -> None:
    async with stage.open(naps, replay=False) as engine:
        handles = await asyncio.gather(*(engine.start(naps, 0.05) for _ in range(10_000)))
        late = [await handle.result(60) for handle in handles]

    assert len(late) == 10_000
    assert min(late) >= 0


def test_sleepers_wake_at_their_time_and_at_no_other() -> None:
    world = Simulation([naps])
    sleepers = [world.start(naps, n % 60, key=str(n)) for n in range(300)]
    world.run()

    late = [sleeper.result for sleeper in sleepers]
    assert min(late) >= 0
    assert max(late) < 0.1, "virtual seconds: no more than a commit may take in this world"


async def test_woken_early(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> float:
        before = ctx.now()
        await ctx.sleep("long", timedelta(days=1))
        return (ctx.now() - before).total_seconds()

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        await becomes(handle, "waiting")

        await handle.wake()

        assert await handle.result(60) < 60
        assert "woken" in [line.event for line in await handle.history()]


def test_one_of_several_sleeps_is_woken_and_nothing_else() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        order: list[str] = []

        async def sleep(name: str, seconds: float) -> None:
            await ctx.sleep(name, seconds)
            order.append(name)

        async def plain() -> None:
            await asyncio.sleep(5)
            order.append("plain")

        await asyncio.gather(sleep("a", 10), sleep("b", 20), sleep("c", 30), plain())
        return order

    def drive(rig: Rig) -> Any:
        rig.deliver(Woken("&2/b"))
        rig.deliver(Woken("&9/nobody"))
        rig.pass_time(6)
        rig.deliver(Woken())
        rig.deliver(Woken())
        return rig.result

    assert same_in_every_rebuild(flow, drive=drive).result == ["b", "plain", "a", "c"]


async def test_a_delayed_start_exists_at_once_and_begins_later(stage: Stage) -> None:
    began: list[datetime] = []

    @perdure.flow
    async def flow(ctx: Context, n: int) -> int:
        began.append(ctx.now())
        return n

    async with stage.open(flow) as engine:
        soon = await engine.start(flow, 1, delay=0.05)
        late = await engine.start(flow, 2, key="late", at=datetime.now(UTC) + timedelta(days=1))
        past = await engine.start(flow, 3, at=datetime(2001, 1, 1, tzinfo=UTC))

        assert await past.result(60) == 3
        assert await soon.result(60) == 1
        assert await late.status() == "waiting"
        assert (await late.waiting())[0].location == "&start"
        assert await engine.start(flow, 2, key="late") is not None  # the same start
        assert len(began) == 2

        await late.wake()

        assert await late.result(60) == 2


async def test_a_delayed_start_can_be_cancelled(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        raise AssertionError("it never begins")

    async with stage.open(flow) as engine:
        handle = await engine.start(flow, delay=timedelta(hours=1))

        await handle.cancel()

        with pytest.raises(perdure.InstanceCancelled):
            await handle.result(60)


async def test_a_delay_survives_a_restart(disk: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        return "awake"

    async with disk.open(flow) as engine:
        await engine.start(flow, key="k", delay=0.1)
        disk.crash()

    async with disk.open(flow) as engine:
        assert await engine.handle(flow, "k").result(60) == "awake"


async def test_wrong_delays_are_refused_and_nothing_is_recorded(memory: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None: ...

    async with memory.open(flow) as engine:
        for wrong in (
            {"at": datetime(2030, 1, 1)},
            {"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)},
            {"delay": 1e12},
            {"delay": float("nan")},
        ):
            with pytest.raises(perdure.CallerError):
                await engine.start(flow, **wrong)

        assert await engine.instances() == []


async def test_a_parent_is_recorded_and_found_by(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None: ...

    async with stage.open(flow) as engine:
        parent = await engine.start(flow, key="parent")
        child = await engine.start(flow, key="child", parent=parent, tags={"kind": "child"})
        await child.result(60)
        await parent.result(60)

        id = (await parent.summary()).id
        assert [found.key for found in await engine.instances(parent=id)] == ["child"]
        assert [found.key for found in await engine.instances(tags={"kind": "child"})] == ["child"]
        assert engine.counts.get("stale", 0) == 0


def test_a_loop_that_is_woken_again_and_again_is_rebuilt_from_its_last_iterations() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        async def body(ctx: Context, n: int) -> Continue[int] | Break[int]:
            await ctx.sleep("nap", 3600)
            return Continue(n + 1) if n < 60 else Break(n)

        return await ctx.loop("loop", body, 0, keep=2, prune_every=2)

    def drive(rig: Rig) -> Any:
        while rig.outcome is None:
            rig.deliver(Woken())
        return rig.result

    rig = same_in_every_rebuild(flow, drive=drive)

    assert rig.result == 60
    assert rig.replayed_max < 20


async def test_the_same_start_with_and_without_a_parent_is_the_same_start(memory: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None: ...

    async with memory.open(flow) as engine:
        parent = await engine.start(flow, key="parent")
        for first, second in ((None, parent), (parent, None)):
            key = f"child of {first}"
            await engine.start(flow, key=key, parent=first)
            again = await engine.start(flow, key=key, parent=second)
            await again.result(60)
        assert len(await engine.instances()) == 3
