"""Any program: whatever is nested in whatever, in whichever order answers come, a rebuild is the same."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure import Break, Context, Continue

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


@settings(max_examples=150, deadline=None)
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
