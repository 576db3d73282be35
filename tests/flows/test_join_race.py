"""Joins, races and maps: all branches settle, the first to complete wins, and losers are cut at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure import Backoff, Context, JoinFailed, RaceFailed

from .conftest import Stage, until
from .cost import calls
from .rig import Rig, same_in_every_rebuild


async def echo(value: Any) -> Any:
    return value


async def fail(text: str) -> None:
    raise perdure.Fatal(text)


async def reaches(handle: perdure.Handle[Any], *locations: str) -> None:
    """Until an instance waits at these locations and at no others."""
    async with asyncio.timeout(60):
        while {open.location for open in await handle.waiting()} != set(locations):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@perdure.flow
async def settling(ctx: Context) -> dict[str, Any]:
    async def with_context(ctx: Context) -> Any:
        return await ctx.step("s", echo, 2)

    return await ctx.join(
        "all",
        {
            "step": lambda: ctx.step("s", echo, 1),
            "sleep": lambda: ctx.sleep("z", 5),
            "context": with_context,
            "default": lambda n=3: ctx.step("s", echo, n),
        },
    )


SETTLED = {"step": 1, "sleep": None, "context": 2, "default": 3}


def test_all_settle() -> None:
    rig = same_in_every_rebuild(settling, drive=Rig.run)

    assert rig.result == SETTLED
    assert rig.calls == ["all/step/s", "all/context/s", "all/default/s"]


async def test_all_settle_in_an_engine(stage: Stage) -> None:
    async with stage.open(settling) as engine:
        handle = await engine.start(settling)
        assert len((await handle.history())[0].opened) == 4, "all branches start in one entry"
        await reaches(handle, "all/sleep/z")
        await handle.wake("all/sleep/z")

        assert await handle.result(60) == SETTLED


@perdure.flow
async def two_bad_branches(ctx: Context) -> list[Any]:
    settled: list[str] = []

    async def good() -> None:
        await ctx.sleep("z", 5)
        settled.append("good")

    branches = {"bad": failing(ctx, "first"), "good": good, "worse": failing(ctx, "second")}
    try:
        await ctx.join("all", branches)
    except JoinFailed as failed:
        errors = {name: f"{type(error).__name__} {error.error}" for name, error in failed.errors.items()}  # type: ignore[attr-defined]
        return [settled, errors, str(failed)]
    return []


def failing(ctx: Context, text: str) -> Any:
    return lambda: ctx.step("s", fail, text)


def has_errors_by_branch(result: list[Any]) -> None:
    settled, errors, text = result
    assert settled == ["good"], "the others settle before the join fails"
    assert errors == {"bad": "StepFailed Fatal: first", "worse": "StepFailed Fatal: second"}
    assert "2 branches failed" in text and "Fatal: second" in text


def test_errors_by_branch() -> None:
    has_errors_by_branch(same_in_every_rebuild(two_bad_branches, drive=Rig.run).result)


async def test_errors_by_branch_in_an_engine(stage: Stage) -> None:
    async with stage.open(two_bad_branches) as engine:
        handle = await engine.start(two_bad_branches)
        await reaches(handle, "all/good/z")
        await handle.wake()

        has_errors_by_branch(await handle.result(60))


async def test_branch_retry_does_not_fail_the_join(stage: Stage) -> None:
    tries: list[int] = []

    @perdure.step(backoff=Backoff(base=0))
    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError
        return "at last"

    @perdure.flow
    async def flow(ctx: Context) -> dict[str, Any]:
        return await ctx.join("all", {"flaky": flaky, "other": lambda: ctx.step("s", echo, 1)})

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == {"flaky": "at last", "other": 1}


async def test_race_timeout_cuts_a_step(stage: Stage) -> None:
    events: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            events.append("cut")

    @perdure.flow
    async def flow(ctx: Context) -> str:
        winner, _ = await ctx.race(
            "race", {"work": lambda: ctx.step("slow", slow), "timeout": lambda: ctx.sleep("limit", 0.03)}
        )
        return winner

    async with stage.open(flow) as engine:
        assert await (await engine.start(flow)).result(60) == "timeout"
        await asyncio.sleep(0)
        assert events == ["cut"]


def test_loser_cancelled() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> Any:
        async def loser() -> None:
            try:
                await asyncio.gather(ctx.receive("never"), ctx.sleep("long", 100), ctx.step("slow", echo, 1))
            finally:
                await ctx.step("clean up", echo, 2)
                await ctx.sleep("rest", 1)

        winner = await ctx.race("race", {"loser": loser, "winner": lambda: ctx.step("quick", echo, 7)})
        after = await ctx.step("after", echo, 8)
        return [*winner, after]

    def drive(rig: Rig) -> Any:
        rig.answer("race/winner/quick")
        assert sorted(rig.locations) == ["after", "race/loser/clean up"], "the race does not wait for the loser"
        rig.answer("after")
        assert rig.locations == ["race/loser/clean up", "&cleanup"], "the flow ends after its clean-up"
        return rig.run()

    assert same_in_every_rebuild(flow, drive=drive).result == ["winner", 7, 8]


async def test_loser_cancelled_in_an_engine(stage: Stage) -> None:
    events: list[str] = []

    async def slow() -> None:
        events.append("begun")
        try:
            await asyncio.sleep(60)
        finally:
            events.append("cut")

    async def quick() -> int:
        await until(lambda: events == ["begun"])
        return 7

    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        async def loser() -> None:
            await asyncio.gather(ctx.receive("never"), ctx.sleep("long", 100), ctx.step("slow", slow))

        winner = await ctx.race("race", {"loser": loser, "winner": lambda: ctx.step("quick", quick)})
        return [*winner, (await ctx.receive("go")).body]

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        await until(lambda: events == ["begun", "cut"])
        await reaches(handle, "receive:go")
        with pytest.raises(perdure.UnknownLocation, match="there is nothing to wake"):
            await handle.wake()
        await handle.send("go", 8)

        assert await handle.result(60) == ["winner", 7, 8]


def test_a_loser_that_does_not_let_go_is_cut_in_the_end() -> None:
    @perdure.flow(cleanup=10)
    async def flow(ctx: Context) -> str:
        async def stubborn() -> None:
            while True:
                with suppress(asyncio.CancelledError):
                    await ctx.receive("never")

        await ctx.race("race", {"stubborn": stubborn, "quick": lambda: ctx.step("q", echo, 1)})
        return "done"

    def drive(rig: Rig) -> Any:
        rig.answer("race/quick/q")
        rig.pass_time(9)
        assert rig.outcome is None
        rig.pass_time(1)
        return rig.result

    assert same_in_every_rebuild(flow, drive=drive).result == "done"


def test_races_leave_no_losers_in_memory() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        for _ in range(300):
            await ctx.race("r", {"a": lambda: ctx.sleep("a", 1), "b": lambda: ctx.sleep("b", 2)})

    rig = Rig(flow)
    rig.run_some(299)

    assert len(rig.machine.losers) == 0
    assert len(rig.machine.loop._tasks) <= 130
    assert len(rig.machine.operations) == 2


@perdure.flow
async def lost_races(ctx: Context) -> list[dict[str, str]]:
    found = []
    for branches in ({"a": "x", "b": "y"}, {}):
        try:
            await ctx.race("r", {name: failing(ctx, text) for name, text in branches.items()})
        except RaceFailed as failed:
            found.append({name: str(error.error) for name, error in failed.errors.items()})  # type: ignore[attr-defined]
    return found


ALL_FAILED = [{"a": "Fatal: x", "b": "Fatal: y"}, {}]


def test_all_fail() -> None:
    assert same_in_every_rebuild(lost_races, drive=Rig.run).result == ALL_FAILED


async def test_all_fail_in_an_engine(stage: Stage) -> None:
    async with stage.open(lost_races) as engine:
        assert await (await engine.start(lost_races)).result(60) == ALL_FAILED


def test_a_branch_that_fails_does_not_end_the_race() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        return list(await ctx.race("r", {"bad": lambda: ctx.step("s", fail, "no"), "good": lambda: ctx.sleep("z", 9)}))

    assert same_in_every_rebuild(flow, drive=Rig.run).result == ["good", None]


async def test_winner_stable_on_replay(disk: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        winner = await ctx.race("r", {"mail": lambda: ctx.receive("late"), "limit": lambda: ctx.sleep("limit", 0.001)})
        await ctx.receive("go")
        return [*winner, (await ctx.receive("late")).body]

    async with disk.open(flow) as engine:
        handle = await engine.start(flow, key="k")
        await reaches(handle, "receive:go")
        await handle.send("late", "what the loser waited for")
        disk.crash()
    async with disk.open(flow) as engine:
        await engine.handle(flow, "k").send("go")
        assert await engine.handle(flow, "k").result(60) == ["limit", None, "what the loser waited for"]


def test_map_keeps_the_order_and_the_cap() -> None:
    running = most = 0

    @perdure.flow
    async def flow(ctx: Context) -> list[int]:
        async def work(n: int) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await ctx.sleep("z", 10 - n)
            running -= 1
            return n

        return await ctx.map("m", work, range(8), concurrency=3)

    rig = Rig(flow)

    assert rig.run() == list(range(8))
    assert most == 3
    running = 0
    assert same_in_every_rebuild(flow, drive=Rig.run).result == list(range(8))


def test_a_block_is_mapped_with_the_context() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[int]:
        async def block(ctx: Context, n: int) -> Any:
            return await ctx.step("s", echo, n)

        return await ctx.map("m", block, [1, 2])

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert (rig.result, rig.calls) == ([1, 2], ["m/&0/s", "m/&1/s"])


def test_a_plain_function_is_no_branch_and_no_body() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        refused = 0
        act: Any
        for act in (lambda: ctx.map("m", abs, [1]), lambda: ctx.loop("l", lambda ctx: perdure.Break(1))):  # type: ignore[arg-type, return-value]
            try:
                await act()
            except (perdure.BadCall, JoinFailed) as error:
                refused += "must be async" in str(error)
        return refused

    assert Rig(flow).result == 2


def test_map_collects_errors_and_refuses_no_slots() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        found = []
        try:
            await ctx.map("m", lambda n: ctx.step("s", fail if n == 1 else echo, "x"), range(3))
        except JoinFailed as failed:
            found += list(failed.errors)
        try:
            await ctx.map("m", echo, [1], concurrency=0)
        except perdure.BadCall:
            found.append("refused")
        assert await ctx.map("empty", echo, []) == []
        return found

    assert same_in_every_rebuild(flow, drive=Rig.run).result == ["1", "refused"]


def test_branches_must_be_functions() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        refused = 0
        for branches in ([lambda: 1], {"a": 1}):
            try:
                await ctx.join("j", branches)  # type: ignore[arg-type]
            except perdure.BadCall as error:
                assert "a call becomes a function with lambda: before it" in str(error)
                refused += 1
        try:
            await ctx.join("j", {"a": lambda: 1})  # type: ignore[dict-item, return-value]
        except JoinFailed as failed:
            assert "a branch must be async" in str(failed)
            refused += 1
        return refused

    assert Rig(flow).result == 3


def test_a_branch_of_10_000_costs_what_one_of_1_000_costs() -> None:
    @perdure.flow
    async def flow(ctx: Context, branches: int) -> int:
        results = await ctx.join("j", {f"branch {n}": one(ctx, n) for n in range(branches)})
        return sum(results.values())

    def one(ctx: Context, n: int) -> Any:
        return lambda: ctx.step("s", echo, n)

    def join(branches: int) -> None:
        rig = Rig(flow, branches)
        for location in list(rig.locations):
            rig.deliver_to(location)
        assert rig.result == sum(range(branches))

    assert calls(lambda: join(10_000)) <= 10 * calls(lambda: join(1_000)) * 1.1


@pytest.mark.slow
async def test_a_join_of_10_000_branches_in_an_engine(memory: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        return sum(await ctx.map("m", lambda n: ctx.step("s", echo, n), range(10_000)))

    async with memory.open(flow) as engine:
        assert await (await engine.start(flow)).result(120) == sum(range(10_000))
