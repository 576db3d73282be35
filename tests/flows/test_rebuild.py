"""Rebuilding: a hot flow never is; one that is comes back quickly, and exactly as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure import Break, Context, Continue, Divergence
from perdure.kernel.events import Address
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.replay import fold, rebuild

from .conftest import Stage, becomes
from .cost import calls
from .rig import Rig, same_in_every_rebuild


async def echo(value: Any) -> Any:
    return value


@perdure.flow
async def steps(ctx: Context, count: int) -> int:
    total = 0
    for n in range(count):
        total += await ctx.step("add", echo, n)
    await ctx.receive("end")
    return total


@perdure.flow
async def busy(ctx: Context) -> list[Any]:
    async def body(ctx: Context, n: int) -> Continue[int] | Break[int]:
        await ctx.step("turn", echo, n)
        return Continue(n + 1) if n < 700 else Break(n)

    async def branch() -> Any:
        await ctx.sleep("nap", 0.001)
        return await ctx.step("woken", echo, 1)

    found = [await ctx.loop("loop", body, 0, keep=5, prune_every=5)]
    found += (await ctx.join("both", {"one": branch, "two": branch})).values()
    found.append((await ctx.receive("go")).body)
    found.append(await ctx.child(small, 3))
    return found


@perdure.flow
async def small(ctx: Context, n: int) -> int:
    return await ctx.step("one", echo, n)


# ---- hot flows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["memory", "sqlite"])
async def test_a_hot_flow_is_never_rebuilt(url: str, tmp_path: Any) -> None:
    stage = Stage(":memory:" if url == "memory" else tmp_path / "flows.db", 4096)

    async with stage.open(busy, small, steps, replay=False) as engine:
        handles = [await engine.start(busy, key=str(n)) for n in range(3)]
        for n, handle in enumerate(handles):
            await handle.send("go", n)
        results = [await handle.result() for handle in handles]
        counts = engine.counts

    assert results == [[700, 1, 1, n, 3] for n in range(3)]
    assert counts["entries"] > 3 * 700
    assert "rebuilt" not in counts


async def test_an_evicted_flow_is_rebuilt_once_for_each_time_that_it_is_needed(tmp_path: Any) -> None:
    stage = Stage(tmp_path / "flows.db", 0)

    async with stage.open(steps, small) as engine:
        handle = await engine.start(steps, 5, key="k")
        await becomes(handle, "waiting")
        await (await engine.start(small, 0)).result()  # a later commit: the flow is evicted by now
        before = engine.counts.get("rebuilt", 0)
        await handle.send("end")
        assert await handle.result() == 10
        assert engine.counts["rebuilt"] == before + 1


# ---- quickly -----------------------------------------------------------------------------------------------


def rows_of(flow: perdure.Flow[..., Any], *args: Any, answers: int) -> list[Any]:
    """The rows of a flow after so many answers."""
    rig = Rig(flow, *args, rebuild="write")
    rig.run_some(answers)
    return rig.rows


def test_a_rebuilt_step_costs_few_calls_however_many_there_are() -> None:
    few, many = (rows_of(steps, 3_000, answers=count) for count in (500, 2_500))

    def again(rows: list[Any]) -> None:
        rebuild(fold(Address("steps", "k"), None, rows), steps).dispose()

    again(few)
    per_step = (calls(lambda: again(many)) - calls(lambda: again(few))) / 2_000

    assert per_step < 60, "delivered one by one, it would be 90"


# ---- exactly as it was -------------------------------------------------------------------------------------


def test_what_is_recorded_of_a_moment_is_the_same_when_a_replay_goes_ahead() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        found: list[Any] = []
        for n in range(8):
            found += [await ctx.step("s", echo, n), str(ctx.now()), ctx.random.random(), str(ctx.uuid())]
            if n == 5:
                ctx.publish("five", n)
                ctx.send("other/k", "hello", n)
        return found

    def drive(rig: Rig) -> Any:
        while rig.outcome is None:
            rig.now += 1_000_000
            rig.run_some(1)
        return rig.result

    found = same_in_every_rebuild(flow, drive=drive).result

    assert found[::4] == list(range(8)) and len(set(found[1::4])) == len(set(found[2::4])) == 8


def failing_sometimes() -> perdure.Flow[[], list[Any]]:
    tries: list[int] = []

    async def sometimes(n: int) -> int:
        tries.append(n)
        if n % 3 == 0 and tries.count(n) < 3:
            raise ValueError("not yet")
        return n

    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        async def beside() -> list[Any]:
            return [await ctx.step("b", echo, n) for n in range(4)]

        found: list[Any] = [await ctx.step("a", sometimes, n) for n in range(5)]
        task = asyncio.create_task(beside())
        for n in range(6):
            found.append(await ctx.step("a", echo, n))
            await asyncio.sleep(0)
        found += await task
        async with asyncio.timeout(100):
            found += [await ctx.step("a", echo, n) for n in range(4)]
        return found

    return flow


@pytest.mark.parametrize("seed", range(5))
def test_retries_and_other_tasks_between_the_steps_are_the_same(seed: int) -> None:
    hot, rebuilt = (Rig(failing_sometimes(), rebuild=rebuild, seed=seed) for rebuild in ("never", "rows"))

    assert hot.run() == rebuilt.run() == [0, 1, 2, 3, 4, *range(6), *range(4), *range(4)]
    assert hot.entries == rebuilt.entries


def test_a_loop_with_a_log_remembers_the_same() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        async def body(ctx: Context, n: int) -> Continue[int] | Break[int]:
            for _ in range(4):
                n += await ctx.step("add", echo, 1)
            return Continue(n) if n < 60 else Break(n)

        before: int = (await ctx.receive("go")).body
        for _ in range(4):
            before += await ctx.step("before", echo, 1)
        return before + await ctx.loop("loop", body, 0, keep=2, prune_every=3)

    def drive(rig: Rig) -> Any:
        rig.send("go", 5)
        return rig.run()

    assert same_in_every_rebuild(flow, drive=drive).result == 69


class Driven:
    """Awaits something by hand, and sees whether it stops."""

    def __init__(self, inner: Any, stops: list[str]) -> None:
        self.inner, self.stops = inner, stops

    def __await__(self) -> Generator[Any, Any, Any]:
        iterator = self.inner.__await__()
        try:
            while True:
                future = iterator.send(None)
                future.add_done_callback(lambda _: self.stops.append("answered"))
                self.stops.append("stops")
                yield future
                self.stops.append("goes on")
        except StopIteration as end:
            return end.value


def test_code_that_drives_its_own_coroutines_sees_the_same() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        stops: list[str] = []
        for n in range(10):
            step = ctx.step("s", echo, n)
            await (Driven(step, stops) if n % 2 else step)
        return stops

    assert same_in_every_rebuild(flow, drive=Rig.run).result == ["stops", "answered", "goes on"] * 5


def test_steps_that_are_begun_by_hand_and_left_or_cut_are_the_same() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        begun = []
        for n in range(8):
            begun.append(ctx.step("begun", echo, n))
            begun[-1].send(None)
            if n % 4 == 3:
                with suppress(asyncio.CancelledError):
                    begun.pop().throw(asyncio.CancelledError())
            await (ctx.step("s", echo, n) if n % 3 else ctx.sleep("s", 1))
        return len([step.close() for step in begun])

    assert same_in_every_rebuild(flow, drive=Rig.run).result == 6


# ---- changed code --------------------------------------------------------------------------------------------


async def renamed(ctx: Context, n: int) -> None:
    await ctx.step("add" if n != 6 else "sum", echo, n)


async def slept(ctx: Context, n: int) -> None:
    await (ctx.step("add", echo, n) if n != 6 else ctx.sleep("add#7", 5))


async def noted(ctx: Context, n: int) -> None:
    if n == 6:
        await ctx.sleep("already", 0)
    await ctx.step("add", echo, n)


async def sent(ctx: Context, n: int) -> None:
    if n == 6:
        ctx.send("other/k", "hello")
    await ctx.step("add", echo, n)


async def another_beside(ctx: Context, n: int) -> None:
    if n == 6:
        beside.append(asyncio.create_task(ctx.sleep("nap", 5)))
    await ctx.step("add", echo, n)


async def timed(ctx: Context, n: int) -> None:
    async with asyncio.timeout(5 if n == 6 else None):
        await ctx.step("add", echo, n)


async def cancelled(ctx: Context, n: int) -> None:
    if n == 6:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
    await ctx.step("add", echo, n)


async def ended(ctx: Context, n: int) -> None:
    if n == 6:
        raise KeyError("the new code has a bug")
    await ctx.step("add", echo, n)


beside: list[Any] = []


@pytest.mark.parametrize("changed", [renamed, slept, noted, sent, another_beside, timed, cancelled, ended])
def test_a_change_far_into_a_run_of_steps_is_found_where_it_is(changed: Any) -> None:
    @perdure.flow(name="steps")
    async def flow(ctx: Context, count: int) -> None:
        for n in range(count):
            await changed(ctx, n)

    rows = rows_of(steps, 12, answers=10)

    with pytest.raises(Divergence) as caught:
        rebuild(fold(Address("steps", "k"), None, rows), flow)

    beside.clear()
    assert caught.value.entry == 7


def test_a_timer_that_the_new_code_gives_up_earlier_is_found_where_it_is() -> None:
    def made(last: int) -> perdure.Flow[..., Any]:
        @perdure.flow(name="timed")
        async def flow(ctx: Context) -> None:
            async with asyncio.timeout(1_000) as limit:
                for n in range(12):
                    if n == last:
                        limit.reschedule(None)
                    await ctx.step("add", echo, n)

        return flow

    rows = rows_of(made(11), answers=9)

    with pytest.raises(Divergence) as caught:
        rebuild(fold(Address("timed", "k"), None, rows), made(6))

    assert caught.value.entry == 7


def test_a_step_that_may_now_run_once_only_is_not_answered_with_an_unknown_outcome() -> None:
    def made(once: bool) -> perdure.Flow[..., Any]:
        @perdure.flow(name="careless")
        async def flow(ctx: Context) -> None:
            for n in range(12):
                with suppress(perdure.OutcomeUnknown):
                    await ctx.step.options(once=once and n == 5)("add", echo, n)

        return flow

    rig = Rig(made(once=False), rebuild="write")
    rig.run_some(5)
    rig.answer("add#6", Receipt("unknown", error=Failure("ProcessDied", "it died", retry=False)))
    rig.run_some(2)

    with pytest.raises(Divergence) as caught:
        rebuild(fold(Address("careless", "k"), None, rig.rows), made(once=True))

    assert caught.value.entry == 7
