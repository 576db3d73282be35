"""Any program: whatever is nested in whatever, in whichever order answers come, a rebuild is the same."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

import perdure
from perdure import Break, Context, Continue
from perdure.flows.machine import FlowMachine
from perdure.kernel.difference import Difference
from perdure.kernel.events import Started
from tests.stages import LONG

from .rig import REBUILDS, Rig

Program = list[Any]

leaves = st.one_of(
    st.just(["step"]),
    st.tuples(st.just("steps"), st.integers(2, 6)).map(list),
    st.just(["fail"]),
    st.just(["random"]),
    st.tuples(st.just("sleep"), st.integers(0, 5)).map(list),
    st.tuples(st.just("receive"), st.sampled_from(["a", "b", ""]), st.integers(1, 9)).map(list),
    st.tuples(st.just("publish"), st.integers(0, 3)).map(list),
)


def inner(programs: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
    bodies = st.lists(programs, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("sequence"), bodies).map(list),
        st.tuples(st.just("join"), bodies).map(list),
        st.tuples(st.just("race"), bodies).map(list),
        st.tuples(st.just("gather"), bodies).map(list),
        st.tuples(st.just("group"), bodies).map(list),
        st.tuples(st.just("map"), bodies, st.integers(1, 3)).map(list),
        st.tuples(st.just("timeout"), bodies, st.integers(1, 4)).map(list),
        st.tuples(st.just("finally"), bodies, programs).map(list),
        st.tuples(st.just("loop"), bodies, st.integers(1, 7), st.integers(1, 3), st.integers(1, 3)).map(list),
    )


programs = st.recursive(leaves, inner, max_leaves=12)


async def echo(value: Any) -> Any:
    return value


async def fail() -> None:
    raise perdure.Fatal("on purpose")


@perdure.flow
async def interpreter(ctx: Context, program: Any) -> Any:
    return await run(ctx, program)


async def run(ctx: Context, program: Program) -> Any:  # one case for each kind
    match program:
        case ["step"]:
            return await ctx.step("s", echo, 1)
        case ["boom"]:
            return await ctx.step("boom", echo, 3)
        case ["done"]:
            return await ctx.step.options(undo=echo)("d", echo, 4)
        case ["steps", count]:
            return [(await ctx.step("s", echo, n), str(ctx.now())) for n in range(count)]
        case ["fail"]:
            try:
                await ctx.step("f", fail)
            except perdure.StepFailed as failed:
                return str(failed)
        case ["random"]:
            return [ctx.random.randrange(1000), await ctx.step(f"r{ctx.random.randrange(9)}", echo, 2)]
        case ["sleep", seconds]:
            await ctx.sleep("z", seconds)
            return str(ctx.now())
        case ["receive", name, timeout]:
            try:
                return (await ctx.receive(*[name][: len(name)], timeout=timeout)).body
            except perdure.ReceiveTimeout:
                return "late"
        case ["publish", value]:
            ctx.publish("p", value)
            ctx.send("other/k", "m", value)
        case ["sequence", bodies]:
            return [await run(ctx, body) for body in bodies]
        case ["join", bodies]:
            return await ctx.join("j", {str(n): branch(ctx, body) for n, body in enumerate(bodies)})
        case ["race", bodies]:
            return list(await ctx.race("c", {str(n): branch(ctx, body) for n, body in enumerate(bodies)}))
        case ["gather", bodies]:
            return list(await asyncio.gather(*(run(ctx, body) for body in bodies)))
        case ["group", bodies]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(run(ctx, body)) for body in bodies]
            done, _ = await asyncio.wait(tasks)
            return [task.result() for task in done]
        case ["map", bodies, concurrency]:
            return await ctx.map("m", lambda body: run(ctx, body), bodies, concurrency=concurrency)
        case ["timeout", bodies, seconds]:
            try:
                async with asyncio.timeout(seconds):
                    return [await run(ctx, body) for body in bodies]
            except TimeoutError:
                return "timeout"
        case ["finally", bodies, last]:
            try:
                return [await run(ctx, body) for body in bodies]
            finally:
                await run(ctx, last)
        case ["loop", bodies, times, keep, prune_every]:

            async def body(ctx: Context, state: Any) -> Continue[Any] | Break[Any]:
                found = [await run(ctx, one) for one in bodies]
                number = state[0] + 1
                return Break(found) if number == times else Continue([number, found])

            return await ctx.loop("l", body, [0, None], keep=keep, prune_every=prune_every)
        case _:
            raise AssertionError(program)
    return None


def branch(ctx: Context, body: Program) -> Any:
    return lambda: run(ctx, body)


def drive(rig: Rig, program: Program, mail: list[str], cancel_at: int) -> Any:
    """Messages and a cancel come between the answers."""
    for n in range(400):
        if rig.outcome is not None:
            return rig.result
        if n == cancel_at:
            rig.cancel("stop")
        elif n < 3 * len(mail) and n % 3 == 2:
            rig.send(mail[n // 3], n)
        else:
            rig.run_some(1)
    return None


@settings(max_examples=150 if LONG else 75, deadline=None)
@given(
    programs,
    st.lists(st.sampled_from("abc"), max_size=6),
    st.integers(0, 2**32),
    st.integers(-1, 25),
)
def test_any_program_decides_the_same_however_often_it_is_rebuilt(
    program: Program, mail: list[str], seed: int, cancel_at: int
) -> None:
    rigs = [Rig(interpreter, program, rebuild=rebuild, seed=seed) for rebuild in REBUILDS]

    results = [drive(rig, program, mail, cancel_at) for rig in rigs]

    assert results[1] == results[2] == results[3] == results[0]
    assert rigs[1].entries == rigs[2].entries == rigs[3].entries == rigs[0].entries


@settings(max_examples=150 if LONG else 75, deadline=None)
@given(programs, programs, st.lists(st.sampled_from("abc"), max_size=6), st.integers(0, 2**32), st.integers(-1, 25))
def test_any_change_of_any_program_is_explained(
    old: Program, new: Program, mail: list[str], seed: int, cancel_at: int
) -> None:
    rig = Rig(interpreter, old, seed=seed)
    drive(rig, old, mail, cancel_at)
    rig.machine.dispose()
    start, *others = [event for event, _, _ in rig.entries]
    assert isinstance(start, Started)
    events = [msgspec.structs.replace(start, input=interpreter.encode_input((new,), {})), *others]

    machine = FlowMachine(interpreter, "interpreter/k", None)
    for event, (_, moment, recorded) in zip(events, rig.entries, strict=True):
        current = machine.deliver(event, msgspec.structs.replace(moment, recorded=recorded))
        if interpreter.differs(recorded, current):
            later = tuple([decision for _, other, decision in rig.entries if other.number > moment.number])
            found = interpreter.explain(machine, Difference(recorded, current, later))
            assert found.advice and found.source
            assert not found.recorded or found.recorded != found.current, found
            break
    machine.dispose()


# ---- another past ----------------------------------------------------------------------------------------------------

FORGOTTEN_WHILE_UNDONE: Any = [
    "gather",
    [["sequence", [["boom"]]], ["sequence", [["step"], ["step"]]], ["loop", [["done"]], 2, 1, 1]],
]

failing = st.recursive(st.one_of(leaves, st.just(["boom"]), st.just(["done"])), inner, max_leaves=12)


@settings(max_examples=150 if LONG else 75, deadline=None)
@given(
    failing,
    st.lists(st.sampled_from("abc"), max_size=6),
    st.integers(0, 2**32),
    st.lists(st.integers(0, 25), max_size=3),
    st.integers(0, 4),
)
@example(FORGOTTEN_WHILE_UNDONE, [], 0, [], 1)
def test_any_program_that_is_rewound_and_retried_decides_the_same_however_often_it_is_rebuilt(
    program: Program, mail: list[str], seed: int, rewinds: list[int], booms: int
) -> None:
    rigs = [Rig(interpreter, program, rebuild=r, seed=seed, booms=booms) for r in REBUILDS]

    for rig in rigs:
        wander(rig, mail, rewinds, seed)

    assert rigs[1].entries == rigs[2].entries == rigs[3].entries == rigs[0].entries


def wander(rig: Rig, mail: list[str], rewinds: list[int], seed: int) -> None:
    """Messages come between the answers; a person goes back to anything that was ever opened, and retries failures."""
    dice = random.Random(seed)
    for n in range(400):
        if rig.outcome is not None:
            if rig.outcome.status != "failed" or n > 300:
                return
            rig.retry()
        elif n in rewinds:
            opened = {effect.location for _, _, decision in rig.entries for effect in decision.open}
            known = sorted(location for location in opened if rig.behind.point_of(location) is not None)
            if known:
                rig.rewind(dice.choice(known))
        elif n < 3 * len(mail) and n % 3 == 2:
            rig.send(mail[n // 3], n)
        else:
            rig.run_some(1)


plain = st.recursive(
    st.one_of(st.just(["step"]), st.just(["boom"]), st.just(["fail"])),
    lambda programs: st.one_of(
        st.tuples(st.just("sequence"), st.lists(programs, min_size=1, max_size=3)).map(list),
        st.tuples(st.just("join"), st.lists(programs, min_size=1, max_size=3)).map(list),
        st.tuples(st.just("map"), st.lists(programs, min_size=1, max_size=3), st.integers(1, 3)).map(list),
    ),
    max_leaves=12,
)


@settings(max_examples=150 if LONG else 75, deadline=None)
@given(plain, st.integers(0, 2**32), st.integers(0, 6))
def test_a_retry_does_what_failed_again_and_nothing_else(program: Program, seed: int, booms: int) -> None:
    calm = Rig(interpreter, program, seed=seed)
    calm.run()
    rig = Rig(interpreter, program, rebuild="journal", seed=seed, booms=booms)

    for _ in range(booms + 1):
        rig.run_some(1000)
        if rig.outcome is not None and rig.outcome.status == "failed":
            rig.retry()

    assert rig.result == calm.result
    kept = Counter(location for location in rig.calls if not location.rpartition("/")[2].startswith("boom"))
    assert kept == Counter(location for location in calm.calls if not location.rpartition("/")[2].startswith("boom"))
