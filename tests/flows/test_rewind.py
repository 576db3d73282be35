"""Rules F37 and F44: a failed flow is retried, an instance goes back, another one goes on from the same past."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import perdure
from perdure.kernel.events import Rewound
from tests.entries import entries_of

from .conftest import Stage, becomes, until


class Calls:
    """Steps that say how often they ran, and fail when they are told to."""

    def __init__(self, **failing: int) -> None:
        self.made: list[str] = []
        self.keys: dict[str, list[str]] = {}
        self.failing = failing

    async def call(self, name: str) -> str:
        self.made.append(name)
        self.keys.setdefault(name, []).append(perdure.step_info().idempotency_key)
        if self.failing.get(name, 0) > 0:
            self.failing[name] -= 1
            raise perdure.Fatal(f"{name} is down")
        return f"{name}{self.made.count(name)}"


async def fails(handle: perdure.Handle[Any]) -> perdure.InstanceFailed:
    with pytest.raises(perdure.InstanceFailed) as failed:
        await handle.result(timeout=60)
    return failed.value


async def waits(handle: perdure.Handle[Any]) -> None:
    """Until it waits for a message."""
    async with asyncio.timeout(60):
        while not [open for open in await handle.waiting() if open.kind == "wait"]:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


# ---- F37: retry of a failed flow -----------------------------------------------------------------------------------


async def test_a_retry_runs_what_failed_and_nothing_that_was_done(stage: Stage) -> None:
    calls = Calls(ship=1)

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[str]:
        return [await ctx.step(name, calls.call, name) for name in ("charge", "ship", "mail")]

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await fails(handle)

        await handle.retry()

        assert await handle.result(timeout=60) == ["charge1", "ship2", "mail1"]
        assert calls.made == ["charge", "ship", "ship", "mail"]
        assert len(set(calls.keys["ship"])) == 1, "it is the same work, tried again"


async def test_a_retry_of_a_failed_branch_leaves_the_other_branches_alone(stage: Stage) -> None:
    calls = Calls(b=1, d=1)

    @perdure.flow
    async def fan(ctx: perdure.Context) -> dict[str, str]:
        async def branch(name: str) -> str:
            first = await ctx.step("first", calls.call, f"{name}-first")
            return first + await ctx.step("then", calls.call, name)

        return await ctx.join("fan", {name: lambda name=name: branch(name) for name in "abcd"})

    async with stage.open(fan) as engine:
        handle = await engine.start(fan)
        assert "2 branches failed" in str(await fails(handle))

        await handle.retry()

        assert await handle.result(timeout=60) == {
            "a": "a-first1a1",
            "b": "b-first1b2",
            "c": "c-first1c1",
            "d": "d-first1d2",
        }
        assert sorted(calls.made) == sorted([*"abcd", *"bd", *(f"{name}-first" for name in "abcd")])


async def test_what_was_undone_is_done_again_by_a_retry_and_is_other_work(stage: Stage) -> None:
    calls = Calls(ship=1)

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[str]:
        charge = await ctx.step.options(undo=lambda value: calls.call("refund"))("charge", calls.call, "charge")
        log = await ctx.step("log", calls.call, "log")
        return [charge, log, await ctx.step("ship", calls.call, "ship")]

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await fails(handle)
        assert calls.made == ["charge", "log", "ship", "refund"]

        await handle.retry()

        assert await handle.result(timeout=60) == ["charge2", "log1", "ship2"]
        assert calls.made == ["charge", "log", "ship", "refund", "charge", "ship"]
        assert len(set(calls.keys["charge"])) == 2, "a provider must not take it for the charge that was refunded"
        assert len(set(calls.keys["ship"])) == 1


async def test_a_flow_can_fail_and_be_retried_again_and_again(stage: Stage) -> None:
    calls = Calls(b=3, c=1)

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[str]:
        undo = ctx.step.options(undo=lambda value: calls.call("undo"))
        return [await undo(name, calls.call, name) for name in ("a", "b", "c")]

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        for _ in range(4):
            await fails(handle)
            await handle.retry()

        assert await handle.result(timeout=60) == ["a5", "b5", "c2"]
        assert len(set(calls.keys["a"])) == 5
        assert len(set(calls.keys["undo"])) == calls.made.count("undo") == 5


async def test_a_failure_that_was_caught_stays_caught_in_a_retry(stage: Stage) -> None:
    calls = Calls(cache=1, load=1)

    @perdure.flow
    async def read(ctx: perdure.Context) -> str:
        try:
            return await ctx.step("cache", calls.call, "cache")
        except perdure.StepFailed:
            return await ctx.step("load", calls.call, "load")

    async with stage.open(read) as engine:
        handle = await engine.start(read)
        await fails(handle)

        await handle.retry()

        assert await handle.result(timeout=60) == "load2"
        assert calls.made == ["cache", "load", "load"]


async def test_messages_and_times_are_kept_by_a_retry(stage: Stage) -> None:
    calls = Calls(use=1)

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[Any]:
        await ctx.receive("start")
        first = (await ctx.receive("go")).body
        seen = ctx.now().isoformat(), ctx.random.random()
        return [first, await ctx.step("use", calls.call, "use"), (await ctx.receive("go")).body, *seen]

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await handle.send("go", 1)
        await handle.send("go", 2)
        await handle.send("start")
        await fails(handle)

        await handle.retry()

        result = await handle.result(timeout=60)
        assert result[:3] == [1, "use2", 2]


async def test_a_step_without_more_attempts_gets_all_of_them_again(stage: Stage) -> None:
    tries = 0

    @perdure.flow
    async def stubborn(ctx: perdure.Context) -> int:
        async def flaky() -> int:
            nonlocal tries
            tries += 1
            if tries < 6:
                raise OSError(f"{tries}")
            return tries

        options = ctx.step.options(retries=2, backoff=perdure.Backoff(base=0.001))
        return await options("flaky", flaky)

    async with stage.open(stubborn) as engine:
        handle = await engine.start(stubborn)
        await fails(handle)
        assert tries == 3

        await handle.retry()

        assert await handle.result(timeout=60) == 6


async def test_a_receive_that_timed_out_waits_anew(stage: Stage) -> None:
    @perdure.flow
    async def patient(ctx: perdure.Context) -> Any:
        return (await ctx.receive("go", timeout=0.01)).body

    @perdure.flow
    async def hurried(ctx: perdure.Context) -> Any:
        async with asyncio.timeout(0.01):
            return (await ctx.receive("go")).body

    async with stage.open(patient, hurried) as engine:
        for flow in (patient, hurried):
            handle = await engine.start(flow)
            await fails(handle)
            waited_until = []
            for _ in range(2):
                await handle.retry()
                due = [open.due for open in await handle.waiting() if open.due is not None]
                waited_until += due
                await fails(handle)
            assert sorted(set(waited_until)) == waited_until

            assert [line.event for line in await handle.history()].count("retry") == 2


async def test_a_child_that_failed_is_started_again(stage: Stage) -> None:
    calls = Calls(work=1)

    @perdure.flow
    async def child(ctx: perdure.Context) -> str:
        return await ctx.step("work", calls.call, "work")

    @perdure.flow
    async def parent(ctx: perdure.Context) -> list[str]:
        return [await ctx.child(child), await ctx.child(child, key="named")]

    async with stage.open(parent, child) as engine:
        handle = await engine.start(parent)
        await fails(handle)

        await handle.retry()

        assert await handle.result(timeout=60) == ["work2", "work3"]


async def test_a_flow_whose_code_was_wrong_is_decided_anew_with_the_code_of_today(stage: Stage) -> None:
    calls = Calls()
    wrong = True

    @perdure.flow
    async def order(ctx: perdure.Context) -> str:
        value = await ctx.step("charge", calls.call, "charge")
        if wrong:
            raise ZeroDivisionError("a bug")
        return value + await ctx.step("ship", calls.call, "ship")

    async with stage.open(order, replay=False) as engine:
        handle = await engine.start(order)
        assert "a bug" in str(await fails(handle))
        await handle.retry()
        assert "a bug" in str(await fails(handle))

        wrong = False
        await handle.retry()

        assert await handle.result(timeout=60) == "charge1ship1"
        assert calls.made == ["charge", "ship"]


async def test_versions_that_were_pinned_stay_pinned_in_a_retry(stage: Stage) -> None:
    calls = Calls(b=1)
    latest = 2

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[Any]:
        async def left() -> int:
            await ctx.step("l", calls.call, "l")
            return ctx.version("change", latest)

        async def right() -> str:
            return await ctx.step("b", calls.call, "b")

        return [await ctx.join("both", {"left": left, "right": right}), ctx.version("later", latest)]

    async with stage.open(order, replay=False) as engine:
        handle = await engine.start(order)
        await fails(handle)
        latest = 3

        await handle.retry()

        assert await handle.result(timeout=60) == [{"left": 2, "right": "b2"}, 3]


async def test_loops_that_were_pruned_go_on_after_a_retry(stage: Stage) -> None:
    calls = Calls(boom50=1, boom120=2)

    @perdure.flow
    async def long(ctx: perdure.Context) -> int:
        async def body(ctx: perdure.Context, total: int) -> Any:
            value = await ctx.step("add", calls.call, "add")
            if total in (50, 120):
                await ctx.step("boom", calls.call, f"boom{total}")
            assert value
            return perdure.Break(total) if total == 200 else perdure.Continue(total + 1)

        return await ctx.loop("loop", body, 0, keep=3, prune_every=3)

    async with stage.open(long) as engine:
        handle = await engine.start(long)
        for _ in range(3):
            await fails(handle)
            await handle.retry()
        assert await handle.result(timeout=60) == 200
        assert calls.made.count("add") == 201


async def test_a_long_loop_has_a_short_past(stage: Stage) -> None:
    calls = Calls(boom=2)

    @perdure.flow
    async def long(ctx: perdure.Context) -> int:
        async def add() -> str:
            calls.made.append("add")
            return "x" * 1000

        async def body(ctx: perdure.Context, number: int) -> Any:
            await ctx.step("add", add)
            if number in (250, 300):
                await ctx.step("boom", calls.call, "boom")
            return perdure.Break(number) if number == 400 else perdure.Continue(number + 1)

        return await ctx.loop("loop", body, 0, keep=3, prune_every=3)

    async with stage.open(long) as engine:
        handle = await engine.start(long)
        await fails(handle)
        await handle.retry()
        await fails(handle)
        await handle.rewind("loop/~250/boom")
        assert await handle.result(timeout=60) == 400
        assert calls.made.count("add") == 401
        rows = await engine.queries.history((await handle.summary()).id)
        pasts = [len(entry.event.past) for entry in entries_of(rows) if isinstance(entry.event, Rewound)]
        assert len(pasts) == 2
        assert pasts[0] < sum(len(row.body) for row in rows) / 4


async def test_only_what_failed_or_is_stuck_can_be_retried(stage: Stage) -> None:
    @perdure.flow
    async def quick(ctx: perdure.Context) -> None: ...

    async with stage.open(quick) as engine:
        handle = await engine.start(quick, key="q")
        await handle.result()
        with pytest.raises(
            perdure.NotStuck, match="is completed, not stuck; a retry is for what is stuck or has failed"
        ):
            await handle.retry()


# ---- F44: rewind ---------------------------------------------------------------------------------------------------


async def test_a_rewind_drops_the_operation_and_what_came_after_and_keeps_earlier_messages(stage: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[Any]:
        await ctx.receive("start")
        said = [(await ctx.receive("say")).body]
        said += [await ctx.step(name, calls.call, name) for name in ("a", "b", "c")]
        said.append((await ctx.receive("say")).body)
        return [*said, (await ctx.receive("end")).body]

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await handle.send("say", "first")
        await handle.send("say", "second", id="2")
        await handle.send("start")
        await until(lambda: calls.made == ["a", "b", "c"])
        await waits(handle)

        await handle.rewind("b")

        await until(lambda: calls.made == ["a", "b", "c", "b", "c"])
        await handle.send("end", "now")
        assert await handle.result(timeout=60) == ["first", "a1", "b2", "c2", "second", "now"]
        assert len(set(calls.keys["b"])) == 2, "it is done anew: a provider must not answer with what was dropped"
        assert len(set(calls.keys["a"])) == 1
        assert "rewound" in [line.event for line in await handle.history()]


async def test_a_rewind_keeps_earlier_sleeps_versions_and_joins(stage: Stage) -> None:
    calls, latest = Calls(), 2

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[Any]:
        await ctx.sleep("nap", 3600)
        pinned = ctx.version("change", latest)
        both = await ctx.join("both", {name: lambda name=name: ctx.step(name, calls.call, name) for name in "ab"})
        last = await ctx.step("c", calls.call, "c")
        await ctx.receive("end")
        return [pinned, both, last, ctx.version("change", latest)]

    async with stage.open(order, replay=False) as engine:
        handle = await engine.start(order)
        await handle.wake()
        await waits(handle)
        latest = 3

        await handle.rewind("c")

        await waits(handle)
        await handle.send("end")
        assert await handle.result(timeout=60) == [2, {"a": "a1", "b": "b1"}, "c2", 3]
        assert calls.made.count("a") == calls.made.count("b") == 1


async def test_a_message_that_was_dropped_does_not_come_back_by_itself(stage: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[Any]:
        first = await ctx.step("a", calls.call, "a")
        body = (await ctx.receive("say")).body
        return [first, body, (await ctx.receive("end")).body]

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await until(lambda: calls.made == ["a"])
        await becomes(handle, "waiting")
        await handle.send("say", "wrong", id="only")

        await handle.rewind("a")
        await until(lambda: calls.made == ["a", "a"])
        await becomes(handle, "waiting")
        await handle.send("say", "wrong", id="only")  # its sender tries once more: it was delivered
        await handle.send("say", "right")
        await handle.send("end")

        assert await handle.result(timeout=60) == ["a2", "right", None]


async def test_a_rewind_is_refused_while_what_it_drops_runs_unless_it_is_forced(stage: Stage) -> None:
    started: list[str] = []
    gate = asyncio.Event()

    @perdure.flow
    async def order(ctx: perdure.Context) -> int:
        async def slow() -> int:
            started.append("slow")
            await gate.wait()
            return len(started)

        await ctx.step("quick", Calls().call, "quick")
        return await ctx.step("slow", slow)

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await until(lambda: started == ["slow"])

        before = await handle.history()
        with pytest.raises(perdure.StillRunning, match=r"slow.*force=True"):
            await handle.rewind("quick")
        assert await handle.history() == before

        await handle.rewind("slow", force=True)
        await until(lambda: started == ["slow", "slow"])
        gate.set()
        assert await handle.result(timeout=60) == 2


async def test_what_ran_before_in_another_branch_goes_on_through_a_rewind(stage: Stage) -> None:
    calls = Calls()
    started: list[str] = []
    gate = asyncio.Event()

    @perdure.flow
    async def both(ctx: perdure.Context) -> dict[str, Any]:
        async def long() -> str:
            started.append("long")
            await gate.wait()
            return "long"

        async def left() -> str:
            return await ctx.step("long", long)

        async def right() -> list[Any]:
            values = [await ctx.step(name, calls.call, name) for name in ("a", "b")]
            return [*values, (await ctx.receive("go")).body]

        return await ctx.join("both", {"left": left, "right": right})

    async with stage.open(both) as engine:
        handle = await engine.start(both)
        await until(lambda: calls.made == ["a", "b"])
        await waits(handle)

        await handle.rewind("both/right/b")
        await until(lambda: calls.made == ["a", "b", "b"])
        await handle.send("go", 1)
        gate.set()

        assert await handle.result(timeout=60) == {"left": "long", "right": ["a1", "b2", 1]}
        assert started == ["long"]


async def test_a_cancelled_or_completed_instance_is_never_rewound(stage: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def order(ctx: perdure.Context, wait: bool) -> None:
        await ctx.step("a", calls.call, "a")
        if wait:
            await ctx.receive("never")

    async with stage.open(order) as engine:
        done = await engine.start(order, False)
        await done.result(timeout=60)
        stopped = await engine.start(order, True)
        await until(lambda: len(calls.made) == 2)
        await stopped.cancel()
        with pytest.raises(perdure.InstanceCancelled):
            await stopped.result(timeout=60)

        for handle, how in ((done, "has completed"), (stopped, "was cancelled")):
            before = await handle.history()
            with pytest.raises(perdure.InstanceEnded, match=f"{how}, and stays so: fork it"):
                await handle.rewind("a")
            assert await handle.history() == before


async def test_a_rewind_to_where_nothing_was_done_is_refused(stage: Stage) -> None:
    @perdure.flow
    async def idle(ctx: perdure.Context) -> None:
        await ctx.receive("go")

    async with stage.open(idle) as engine:
        handle = await engine.start(idle)
        with pytest.raises(perdure.UnknownLocation, match="did nothing at 'gone'; `perdure history` shows"):
            await handle.rewind("gone")
        with pytest.raises(perdure.UnknownLocation, match="did you mean 'receive:go'"):
            await handle.fork("recieve:go")
        await handle.send("go")
        await handle.result(timeout=60)


async def test_a_failed_flow_can_be_rewound_too(stage: Stage) -> None:
    calls = Calls(c=1)

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[str]:
        return [await ctx.step(name, calls.call, name) for name in ("a", "b", "c")]

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await fails(handle)

        await handle.rewind("b")

        assert await handle.result(timeout=60) == ["a1", "b2", "c2"]


async def test_a_rewind_into_a_loop_and_to_an_iteration(stage: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def loops(ctx: perdure.Context) -> list[str]:
        async def body(ctx: perdure.Context, so_far: list[str]) -> Any:
            so_far.append(await ctx.step("add", calls.call, "add"))
            return perdure.Break(so_far) if len(so_far) == 6 else perdure.Continue(so_far)

        values: list[str] = await ctx.loop("loop", body, [], keep=2, prune_every=2)
        await ctx.receive("end")
        return values

    async with stage.open(loops) as engine:
        handle = await engine.start(loops)
        await until(lambda: len(calls.made) == 6)
        await becomes(handle, "waiting")

        await handle.rewind("loop/~2")
        await until(lambda: len(calls.made) == 10)
        await handle.send("end")

        assert await handle.result(timeout=60) == ["add1", "add2", "add7", "add8", "add9", "add10"]


# ---- F44: fork -----------------------------------------------------------------------------------------------------


async def test_a_fork_goes_on_from_the_same_past_with_an_edited_value(stage: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def order(ctx: perdure.Context, amount: int) -> list[Any]:
        dice = ctx.random.random()
        price = await ctx.step("price", calls.call, "price")
        tax = await ctx.step("tax", calls.call, "tax")
        total = await ctx.step("total", calls.call, "total")
        return [amount, price, tax, total, dice, ctx.key]

    async with stage.open(order) as engine:
        handle = await engine.start(order, 7, key="original", tags={"shop": "north"})
        original = await handle.result(timeout=60)

        fork = await handle.fork("total", edit={"price": "cheap"}, key="what-if")

        assert fork.key == "what-if"
        assert await fork.result(timeout=60) == [7, "cheap", "tax1", "total2", original[4], "what-if"]
        assert await handle.result() == original
        assert calls.made == ["price", "tax", "total", "total"]
        assert len(set(calls.keys["total"])) == 2
        assert (await fork.summary()).tags == {"shop": "north"}
        with pytest.raises(perdure.KeyInUse):
            await handle.fork("total", key="what-if")


async def test_a_fork_whose_edit_leads_elsewhere_goes_there(stage: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[str]:
        if await ctx.step("ok", calls.call, "ok") == "no":
            return [await ctx.step("refuse", calls.call, "refuse")]
        return [await ctx.step(name, calls.call, name) for name in ("a", "b")]

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await handle.result(timeout=60)

        fork = await handle.fork("b", edit={"ok": "no"})

        assert await fork.result(timeout=60) == ["refuse1"]
        assert calls.made == ["ok", "a", "b", "refuse"]


async def test_a_fork_of_a_waiting_flow_has_its_own_waits_timers_and_children(stage: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def child(ctx: perdure.Context) -> str:
        return str((await ctx.receive("child")).body)

    @perdure.flow
    async def parent(ctx: perdure.Context) -> dict[str, Any]:
        async def kid() -> str:
            return str(await ctx.child(child))

        async def sleeps() -> str:
            await ctx.sleep("nap", 3600)
            return "slept"

        async def waits() -> Any:
            await ctx.step("a", calls.call, "a")
            return (await ctx.receive("go")).body

        return await ctx.join("all", {"kid": kid, "sleeps": sleeps, "waits": waits})

    async with stage.open(parent, child) as engine:
        handle = await engine.start(parent, key="one")
        await until(lambda: calls.made == ["a"])
        fork = await handle.fork("all/waits/a", key="two")
        await until(lambda: calls.made == ["a", "a"])
        for each, name in ((handle, "one"), (fork, "two")):
            await each.send("go", name)
            await each.wake()
            (kid,) = [open.what.removeprefix("child/") for open in await each.waiting() if open.kind == "child"]
            await engine.handle(child, kid).send("child", name)
            assert await each.result(timeout=60) == {"kid": name, "sleeps": "slept", "waits": name}


async def test_an_edit_where_nothing_was_answered_is_refused(stage: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[str]:
        return [await ctx.step(name, calls.call, name) for name in ("a", "b")]

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await handle.result(timeout=60)
        with pytest.raises(perdure.UnknownLocation, match=r"no answer at 'b' before 'a'; it had: nothing"):
            await handle.fork("a", edit={"b": 1})
        assert len(await engine.instances()) == 1


async def test_an_edit_of_the_very_operation_stands_for_doing_it_again(stage: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[str]:
        return [await ctx.step(name, calls.call, name) for name in ("a", "b", "c")]

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await handle.result(timeout=60)
        fork = await handle.fork("b", edit={"b": "edited"})

        assert await fork.result(timeout=60) == ["a1", "edited", "c2"]
        assert calls.made == ["a", "b", "c", "c"]


async def test_a_fork_can_be_forked_rewound_and_retried(stage: Stage) -> None:
    calls = Calls(d=1)

    @perdure.flow
    async def order(ctx: perdure.Context) -> list[Any]:
        values = [await ctx.step(name, calls.call, name) for name in ("a", "b", "c", "d")]
        return [*values, ctx.random.random() < 2, ctx.uuid().version]

    async with stage.open(order) as engine:
        first = await engine.start(order)
        await fails(first)
        second = await first.fork("c", edit={"a": "A"})
        assert await second.result(timeout=60) == ["A", "b1", "c2", "d2", True, 4]
        third = await second.fork("d", edit={"b": "B"})
        assert await third.result(timeout=60) == ["A", "B", "c2", "d3", True, 4]

        calls.failing["d"] = 1
        fourth = await third.fork("c")
        await fails(fourth)
        await fourth.rewind("c")
        assert await fourth.result(timeout=60) == ["A", "B", "c4", "d5", True, 4]
        await first.retry()
        assert await first.result(timeout=60) == ["a1", "b1", "c1", "d6", True, 4]


# ---- what is kept while an instance is stuck -----------------------------------------------------------------------


async def test_an_event_that_was_kept_is_gone_after_a_rewind(disk: Stage) -> None:
    calls = Calls(refund=1)

    @perdure.flow(name="order")
    async def first(ctx: perdure.Context) -> None:
        await ctx.step("a", calls.call, "a")
        await ctx.receive("go")

    @perdure.flow(name="order")
    async def second(ctx: perdure.Context) -> str:
        await ctx.step("b", calls.call, "b")
        await ctx.receive("go")
        await ctx.step.options(undo=lambda value: calls.call("refund"))("charge", calls.call, "charge")
        return await ctx.step("ship", calls.call, "ship")

    async with disk.open(first) as engine:
        await waits(await engine.start(first, key="k"))
    async with disk.open(second, replay=False) as engine:
        handle = engine.handle(second, "k")
        await handle.send("go")
        await becomes(handle, "stuck")
        await handle.rewind("a")
        await waits(handle)
        calls.failing["ship"] = 1
        await handle.send("go")
        await becomes(handle, "stuck")  # the charge cannot be refunded

        await handle.retry()

        await fails(handle)
    async with disk.open(second, replay=False) as engine:
        handle = engine.handle(second, "k")
        await handle.retry()
        assert await handle.result(timeout=60) == "ship2"


@pytest.mark.parametrize("fork", [False, True])
async def test_a_rewind_or_a_fork_that_diverged_is_retried_with_the_old_code(disk: Stage, fork: bool) -> None:
    calls = Calls()

    @perdure.flow(name="order")
    async def order(ctx: perdure.Context) -> dict[str, str]:
        await ctx.step("a", calls.call, "a")
        await ctx.step("b", calls.call, "b")
        await ctx.receive("go")
        return await ctx.join("both", {name: lambda name=name: ctx.step(name, calls.call, name) for name in "cd"})

    @perdure.flow(name="order")
    async def changed(ctx: perdure.Context) -> dict[str, str]:
        return {"z": await ctx.step("z", calls.call, "z")}

    async with disk.open(order) as engine:
        handle = await engine.start(order, key="k")
        await waits(handle)
        calls.failing["d"] = 1
        await handle.send("go")
        await fails(handle)
    async with disk.open(changed, replay=False) as engine:
        handle = engine.handle(changed, "k")
        if fork:
            handle = await handle.fork("both", key="f")
        else:
            await handle.rewind("both")
        await becomes(handle, "stuck")
    async with disk.open(order) as engine:
        handle = engine.handle(order, "f" if fork else "k")
        await handle.retry()
        assert await handle.result(timeout=60) == {"c": "c2", "d": "d2"}
        assert calls.made.count("b") == 1


async def test_an_answer_that_a_failed_rewind_took_the_place_of_is_asked_for_again(disk: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def part(ctx: perdure.Context) -> str:
        await ctx.receive("go")
        return "part"

    def version(first: str) -> perdure.Flow[[], dict[str, str]]:
        @perdure.flow(name="order")
        async def order(ctx: perdure.Context) -> dict[str, str]:
            await ctx.step(first, calls.call, first)

            async def steps() -> str:
                await ctx.step("b", calls.call, "b")
                return await ctx.step("c", calls.call, "c")

            return await ctx.join("both", {"child": lambda: ctx.child(part, key="p"), "steps": steps})

        return order

    right, wrong = version("a"), version("z")
    async with disk.open(right, part) as engine:
        handle = await engine.start(right, key="k")
        await until(lambda: "c" in calls.made)
        await waits(engine.handle(part, "p"))
    async with disk.open(wrong, part, replay=False) as engine:
        handle = engine.handle(wrong, "k")
        await engine.handle(part, "p").send("go")
        await becomes(handle, "stuck")
        await handle.rewind("both/steps/c")
    async with disk.open(right, part) as engine:
        handle = engine.handle(right, "k")
        await handle.rewind("both/steps/c")
        await waits(engine.handle(part, "p"))
        await engine.handle(part, "p").send("go")
        assert await handle.result(timeout=60) == {"child": "part", "steps": "c2"}


async def test_what_is_older_than_the_snapshot_of_a_retry_can_still_be_gone_back_to(stage: Stage) -> None:
    calls = Calls(last=1)

    async def much(number: int) -> str:
        return f"{number}" * 1500

    @perdure.flow
    async def order(ctx: perdure.Context) -> str:
        async def body(ctx: perdure.Context, number: int) -> perdure.Continue[int] | perdure.Break[int]:
            await ctx.step("x", much, number)
            return perdure.Break(number) if number == 60 else perdure.Continue(number + 1)

        first = await ctx.step("first", calls.call, "first")
        await ctx.loop("loop", body, state=0, keep=3, prune_every=3)
        return first + await ctx.step("last", calls.call, "last")

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await fails(handle)
        await handle.retry()
        assert await handle.result(timeout=60) == "first1last2"

        late, early = await handle.fork("last"), await handle.fork("first")

        assert await late.result(timeout=60) == "first1last3"
        assert (await early.result(timeout=60)).startswith("first2last")


# ---- what a flow says without waiting for an answer ----------------------------------------------------------------


@perdure.flow
async def inbox(ctx: perdure.Context) -> list[Any]:
    got: list[Any] = []
    while not got or got[-1] != "end":
        got.append((await ctx.receive("note")).body)
    return got


async def test_what_mended_code_says_where_it_failed_is_said_by_the_retry(stage: Stage) -> None:
    calls, wrong = Calls(), [True]

    @perdure.flow
    async def order(ctx: perdure.Context) -> str:
        message = await ctx.receive("go", ack=True)
        ctx.send("inbox/i", "note", "before")
        if wrong[0]:
            raise ValueError("a mistake of the author")
        ctx.publish("state", "mended")
        ctx.send("inbox/i", "note", "after")
        message.complete("gone")
        return await ctx.step("a", calls.call, "a")

    async with stage.open(order, inbox, replay=False) as engine:
        notes = await engine.start(inbox, key="i")
        handle = await engine.start(order)
        await handle.send("go", id="g")
        await fails(handle)
        wrong[0] = False

        await handle.retry()

        assert await handle.result(timeout=60) == "a1"
        assert await handle.read("state") == "mended"
        assert await handle.ask("go", id="g", timeout=20) == "gone"
        await notes.send("note", "end")
        assert await notes.result(timeout=60) == ["before", "after", "end"]


async def test_what_was_sent_before_is_not_sent_again_by_a_rewind_or_a_fork(stage: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def order(ctx: perdure.Context) -> str:
        await ctx.step("a", calls.call, "a")
        ctx.send("inbox/i", "note", "a is done")
        await ctx.step("b", calls.call, "b")
        await ctx.receive("go")
        return "done"

    async with stage.open(order, inbox) as engine:
        notes = await engine.start(inbox, key="i")
        handle = await engine.start(order)
        await waits(handle)

        await handle.rewind("b")
        await waits(handle)
        await waits(await handle.fork("b"))
        await waits(await handle.fork("receive:go", edit={"a": "A"}))

        assert calls.made.count("b") == 3
        await notes.send("note", "end")
        assert await notes.result(timeout=60) == ["a is done", "end"]


async def test_a_fork_has_published_what_was_published_before_it(stage: Stage) -> None:
    calls = Calls()

    @perdure.flow
    async def order(ctx: perdure.Context) -> None:
        ctx.publish("state", "begun")
        value = await ctx.step("a", calls.call, "a")
        ctx.publish("value", value)
        await ctx.step("b", calls.call, "b")
        await ctx.receive("go")

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        await waits(handle)
        same, edited = await handle.fork("receive:go"), await handle.fork("receive:go", edit={"a": "A"})
        assert [await same.read("state"), await same.read("value")] == ["begun", "a1"]
        assert [await edited.read("state"), await edited.read("value")] == ["begun", "A"]


async def test_hooks_are_not_told_again_of_what_failed_before_a_fork(stage: Stage) -> None:
    calls, told = Calls(a=1), list[str]()

    @perdure.flow
    async def order(ctx: perdure.Context) -> str:
        with suppress(perdure.StepFailed):
            await ctx.step.options(on_error=lambda problem: told.append(problem.location))("a", calls.call, "a")
        return await ctx.step("b", calls.call, "b")

    async with stage.open(order) as engine:
        handle = await engine.start(order)
        assert await handle.result(timeout=60) == "b1"
        await until(lambda: told == ["a"])
        fork = await handle.fork("b")
        assert await fork.result(timeout=60) == "b2"
    assert told == ["a"]
