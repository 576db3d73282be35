"""Loops: state and iteration are durable, and what is replayed stays short however long they run."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure import Break, Context, Continue
from perdure.kernel.events import Address

from .conftest import Stage, becomes, until
from .rig import Rig, same_in_every_rebuild


async def echo(value: Any) -> Any:
    return value


@dataclass
class Tally:
    number: int
    total: int


@perdure.flow
async def sums(ctx: Context, until: int, keep: int = 20, prune_every: int = 20) -> int:
    async def body(ctx: Context, tally: Tally) -> Continue[Tally] | Break[int]:
        if tally.number == until:
            return Break(tally.total)
        value = await ctx.step("add", echo, tally.number)
        return Continue(Tally(tally.number + 1, tally.total + value))

    return await ctx.loop("loop", body, Tally(0, 0), keep=keep, prune_every=prune_every)


def test_state_survives_crash_in_any_iteration() -> None:
    rig = same_in_every_rebuild(sums, 130, drive=Rig.run)

    assert rig.result == sum(range(130))
    assert rig.calls == [f"loop/~{n}/add" for n in range(130)]


@pytest.mark.parametrize("keep", [1, 3])
def test_interval_of_one(keep: int) -> None:
    rig = same_in_every_rebuild(sums, 60, keep, 1, drive=Rig.run)

    assert rig.result == sum(range(60))
    assert rig.snapshots >= 55
    assert rig.replayed_max <= 64 + 2 * (keep + 3)


async def test_a_crash_in_any_iteration_re_enters_it(disk: Stage) -> None:
    ran: list[str] = []

    async def note(text: str) -> str:
        ran.append(text)
        if text.endswith("b") and ran.count(text) == 1:
            await asyncio.sleep(60)
        return text

    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        async def body(ctx: Context, found: list[str]) -> Continue[list[str]] | Break[list[str]]:
            n = len(found)
            a = await ctx.step("a", note, f"{n} a")
            b = await ctx.step("b", note, f"{n} b")
            return Continue([*found, a + b]) if n < 7 else Break(found)

        return await ctx.loop("loop", body, [], keep=1, prune_every=2)

    for n in range(8):
        async with disk.open(flow, replay=False) as engine:
            await engine.start(flow, key="k")
            await until(lambda n=n: f"{n} b" in ran)  # type: ignore[misc]
            disk.crash()
    async with disk.open(flow) as engine:
        assert await engine.handle(flow, "k").result(60) == [f"{n} a{n} b" for n in range(7)]

    assert ran == [f"{n} {step}" for n in range(8) for step in "abb"], "only what was in flight runs again"


@perdure.flow
async def gives_nothing(ctx: Context) -> list[Any]:
    count = 0

    async def stateless(ctx: Context) -> Break[None] | None:
        nonlocal count
        count += 1
        await ctx.step("s", echo, None)
        return Break() if count == 3 else None

    first: Any = await ctx.loop("stateless", stateless)

    async def no_state(ctx: Context, n: Any) -> Any:
        await ctx.step("s", echo, n)
        return Continue(1) if n is None else Break("end")

    return [first, count, await ctx.loop("none", no_state)]


def test_void_output() -> None:
    assert same_in_every_rebuild(gives_nothing, drive=Rig.run).result == [None, 3, "end"]


async def test_void_output_in_an_engine(stage: Stage) -> None:
    assert await stage.result_of(gives_nothing) == [None, 3, "end"]


async def test_a_body_with_a_state_that_returns_nothing_is_told_once(memory: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        rounds = 0

        async def body(ctx: Context, n: int) -> Any:
            nonlocal rounds
            rounds += 1
            return Break() if rounds == 5 else None

        await ctx.loop("forgetful", body, 0)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        await memory.result_of(flow)

    (warning,) = told
    assert warning.category is perdure.FlowWarning and warning.filename == __file__
    assert "the body of loop 'forgetful' returned nothing: the next iteration has the same state" in str(
        warning.message
    )


def test_an_answer_that_is_none_is_refused() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        async def body(ctx: Context, n: int) -> Any:
            return n + 1

        await ctx.loop("loop", body, 0)

    assert "returned 1; return Continue, Break or nothing" in Rig(flow).result


@perdure.flow
async def everything(ctx: Context, rounds: int, unit: float = 1.0) -> list[Any]:
    """Loops, joins, races, timers, messages, tasks and dice in each iteration, and a branch beside it."""

    async def inner(ctx: Context, state: list[int]) -> Continue[list[int]] | Break[int]:
        step, total = state
        total += await ctx.step("inner", echo, step)
        await asyncio.sleep(unit / 2)
        return Continue([step + 1, total]) if step < 6 else Break(total)

    async def body(ctx: Context, state: list[Any]) -> Continue[list[Any]] | Break[list[Any]]:
        number, found = state
        dice = [ctx.random.randrange(1000), str(ctx.uuid()), ctx.now().isoformat()]
        await ctx.step("dice", echo, dice)
        joined = await ctx.join(
            "join",
            {
                "loop": lambda: ctx.loop("inner", inner, [0, 0], keep=2, prune_every=2),
                "step": lambda: ctx.step("s", echo, number),
                "mail": lambda: mail(ctx),
            },
        )
        winner, _ = await ctx.race(
            "race", {"slow": lambda: ctx.sleep("slow", 9 * unit), "fast": lambda: ctx.sleep("fast", unit)}
        )
        try:
            async with asyncio.timeout(unit):
                await ctx.receive("never")
        except TimeoutError:
            pass
        mapped = await ctx.map("map", lambda n: ctx.step("m", echo, n), range(3), concurrency=2)
        gathered = await asyncio.gather(ctx.step("g", echo, 1), ctx.step("g", echo, 2))
        child = await ctx.child(everything, 0, key=f"child {number}", detach=True)
        row = [number, joined["loop"], joined["step"], joined["mail"], winner, mapped, gathered, dice, child]
        if number + 1 == rounds:
            return Break([*found, row])
        return Continue([number + 1, [*found, row][-2:]])

    async def mail(ctx: Context) -> Any:
        return (await ctx.receive("early", "late")).body

    async def beside() -> list[Any]:
        return [await ctx.step(f"beside {n}", echo, ctx.random.random()) for n in range(5)] + [
            await ctx.step("beside", echo, None)
        ]

    if rounds == 0:
        return []
    results = await ctx.join(
        "all",
        {"loop": lambda: ctx.loop("outer", body, [0, []], keep=2, prune_every=3), "beside": beside},
    )
    return [results["loop"], results["beside"], ctx.random.random(), str(ctx.now())]


def mail_of(rounds: int) -> list[tuple[str, Any]]:
    return [*(("early" if n % 2 else "late", n) for n in range(rounds)), ("unwanted", "stays")]


def drive_everything(rounds: int) -> Any:
    def drive(rig: Rig) -> Any:
        for name, body in mail_of(rounds):
            rig.send(name, body)
        return rig.run()

    return drive


def rows_of(*numbers: int) -> list[list[Any]]:
    return [[n, 21, n, n, "fast", [0, 1, 2], [1, 2]] for n in numbers]


def test_nested_loops_joins_races_across_iterations() -> None:
    rig = same_in_every_rebuild(everything, 12, drive=drive_everything(12))

    rows, beside, _, _ = rig.result
    assert [row[:7] for row in rows] == rows_of(9, 10, 11)
    assert len(beside) == 6
    assert rig.snapshots > 50
    assert rig.replayed_max < len(rig.entries) / 2


async def test_nested_loops_joins_races_across_iterations_in_an_engine(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.kernel.snapshot.SIZE_MIN", 2000)

    rows, beside, _, _ = await stage.result_of(everything, 6, 0.002, sent=mail_of(6))

    assert [row[:7] for row in rows] == rows_of(3, 4, 5)
    assert len(beside) == 6


@pytest.mark.parametrize("seed", range(6))
def test_an_order_of_answers_does_not_matter_to_a_rebuild(seed: int) -> None:
    rigs = [Rig(everything, 7, rebuild=rebuild, seed=seed) for rebuild in ("never", "snapshot")]

    results = [drive_everything(7)(rig) for rig in rigs]

    assert results[0] == results[1]
    assert rigs[0].entries == rigs[1].entries


def test_messages_received_in_pruned_iterations_are_not_received_again() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        async def body(ctx: Context, state: list[Any]) -> Continue[list[Any]] | Break[list[Any]]:
            message = await ctx.receive("n")
            if message.body == 49:
                return Break([*state, 49])
            return Continue([*state, message.body])

        return await ctx.loop("loop", body, [], keep=1, prune_every=1)

    def drive(rig: Rig) -> Any:
        for n in range(50):
            rig.send("n", n)
            if n % 7 == 1:
                rig.send("other", n)
        return rig.result

    rig = same_in_every_rebuild(flow, drive=drive)

    assert rig.result == list(range(50))
    assert rig.replayed_max <= 80


def test_a_task_that_an_iteration_leaves_behind_keeps_it_from_being_forgotten() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        queue: asyncio.Queue[int] = asyncio.Queue()
        tasks: list[asyncio.Task[Any]] = []

        async def worker() -> int:
            return await queue.get()

        async def body(ctx: Context, n: int) -> Continue[int] | Break[None]:
            if n == 0:
                tasks.append(asyncio.create_task(worker()))
            await ctx.step("s", echo, n)
            return Continue(n + 1) if n < 40 else Break(None)

        await ctx.loop("loop", body, 0, keep=1, prune_every=1)
        queue.put_nowait(7)
        return [await task for task in tasks]

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result == [7]
    assert rig.snapshots == 0


def test_a_loop_that_talks_to_the_outside_is_rebuilt_from_the_whole_journal() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        queue: asyncio.Queue[int] = asyncio.Queue()
        found: list[Any] = []

        async def consume() -> None:
            while len(found) < 30:
                found.append(await ctx.step("use", echo, await queue.get()))

        async def body(ctx: Context, n: int) -> Continue[int] | Break[None]:
            queue.put_nowait(await ctx.step("make", echo, n))
            return Continue(n + 1) if n < 29 else Break(None)

        await ctx.join("both", {"loop": lambda: ctx.loop("loop", body, 0, keep=1, prune_every=1), "use": consume})
        return found

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result == list(range(30))


async def count_up(ctx: Context, to: int = 400, keep: int = 2, prune_every: int = 2) -> int:
    """It waits in its last iteration."""

    async def body(ctx: Context, n: int) -> Continue[int] | Break[int]:
        if n == to:
            await ctx.receive("go")
            return Break(n)
        return Continue(n + await ctx.step("one", echo, 1))

    return await ctx.loop("loop", body, 0, keep=keep, prune_every=prune_every)


async def through_a_helper(ctx: Context) -> int:
    """Nothing in this code tells that there is a loop: that is found out when it begins."""
    return await count_up(ctx)


counts = perdure.flow(name="flow")(count_up)


async def loaded(engine: perdure.Engine) -> tuple[bytes | None, int]:
    """What the instance flow/k would be rebuilt from: its snapshot, and how many rows after it."""
    record = await engine.queries.record(Address("flow", "k"))
    assert record is not None
    return record.snapshot and record.snapshot.body, len(record.rows)


@pytest.mark.parametrize("body", [count_up, through_a_helper])
async def test_prune_bounds_rows(disk: Stage, body: Callable[[Context], Coroutine[Any, Any, int]]) -> None:
    flow = perdure.flow(name="flow")(body)

    async with disk.open(flow) as engine:
        handle = await engine.start(flow, key="k")
        await becomes(handle, "waiting")
        snapshot, rows = await loaded(engine)
        assert snapshot is not None
        assert rows <= 20, "of 401: a snapshot at each prune"
        assert len(await handle.history()) == 401
        disk.crash()
    async with disk.open(flow) as engine:
        handle = engine.handle(flow, "k")
        await handle.send("go")
        assert await handle.result(60) == 400


@pytest.mark.parametrize("keep", [1, 3])
async def test_interval_of_one_in_an_engine(stage: Stage, keep: int) -> None:
    async with stage.open(counts) as engine:
        handle = await engine.start(counts, 60, keep, 1, key="k")
        await becomes(handle, "waiting")
        snapshot, rows = await loaded(engine)
        assert snapshot is not None
        assert rows <= keep, "of 61"
        await handle.send("go")
        assert await handle.result(60) == 60


async def test_snapshots_are_used_by_an_engine_that_forgets_everything(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.kernel.snapshot.SIZE_MIN", 500)

    async with stage.open(sums) as engine:
        handles = [await engine.start(sums, 90, 2, 2) for _ in range(3)]

        assert [await handle.result(60) for handle in handles] == [sum(range(90))] * 3


def test_a_flow_without_loops_keeps_no_log() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        for n in range(10):
            await ctx.step("one", echo, n)

    rig = Rig(flow)
    rig.run_some(5)

    assert rig.machine.log is None


def held(machine: Any) -> int:
    """How many things a machine remembers of what was."""
    return len(machine.log.items) + sum(map(len, machine.log.marks.values())) + len(machine.log._messages)


@pytest.mark.slow
def test_100_000_iterations_in_bounded_memory() -> None:
    rig = Rig(sums, 100_000)
    sizes: list[int] = []

    while rig.outcome is None:
        rig.run_some(1000)
        sizes.append(held(rig.machine))
        sizes.append(len(rig.machine.snapshot() or b"") // 100)

    assert rig.result == sum(range(100_000))
    assert max(sizes) < 300
    assert len(rig.machine.loop._tasks) < 100


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["memory", "sqlite"], indirect=True)
async def test_thousands_of_iterations_in_bounded_memory_in_an_engine(stage: Stage) -> None:
    async with stage.open(counts) as engine:
        handle = await engine.start(counts, 2500, 20, 20, key="k")
        await becomes(handle, "waiting")

        [instance] = engine._shard.kernel.instances().values()
        machine: Any = instance.machine
        assert held(machine) < 300
        assert len(machine.loop._tasks) < 100
        assert (await loaded(engine))[1] < 1000, "rows, of 2501"
        await handle.send("go")
        assert await handle.result(60) == 2500


def test_dice_are_equal_after_a_restore_and_differ_between_scopes() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        async def body(ctx: Context, n: int) -> Continue[int] | Break[list[Any]]:
            both = await asyncio.gather(*(roll(ctx) for _ in range(2)))
            await ctx.step(f"roll {ctx.uuid()}", echo, n)
            ctx.random.random()  # rolled in the entry in which the next iteration begins
            return Continue(n + 1) if n < 30 else Break(list(both))

        async def roll(ctx: Context) -> str:
            return str(ctx.uuid())

        return await ctx.loop("loop", body, 0, keep=1, prune_every=1)

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.snapshots > 20
    assert rig.result[0] != rig.result[1]
    assert len({call.rpartition("roll ")[2] for call in rig.calls}) == 31
