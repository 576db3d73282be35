"""Attempts: failures as data. What was caught stays caught, whatever crashes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import BadCall, Context, Failed, Fatal, Ok, RollBack

from .conftest import Stage
from .rig import Rig, same_in_every_rebuild


async def double(n: int) -> int:
    return 2 * n


async def refuse() -> None:
    raise Fatal("no")


@perdure.step(retries=1, backoff=perdure.Backoff(base=0))
async def break_down() -> None:
    raise ValueError("again")


async def give_up() -> None:
    raise RollBack("enough")


@perdure.step(timeout=0.01)
async def dawdle() -> None:
    await asyncio.Event().wait()


async def test_a_step_is_ok_or_failed_with_its_kind(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        found: list[str] = []
        for name, function, *args in (
            ("double", double, 4),
            ("refuse", refuse),
            ("break", break_down),
            ("dawdle", dawdle),
        ):
            answer = await ctx.attempt(name, function, *args)
            match answer:
                case Ok(value):
                    found.append(f"ok {value}")
                case Failed(kind, error):
                    found.append(f"{kind}: {type(error).__name__}")
        return found

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)

        assert await handle.result(60) == ["ok 8", "fatal: StepFailed", "exhausted: StepFailed", "timeout: StepTimeout"]


def test_a_block_has_operations_of_its_own_and_fails_as_one() -> None:
    async def block(ctx: Context) -> int:
        first = await ctx.step("double", double, 1)
        await ctx.step("double", double, first)
        await ctx.step("refuse", refuse)
        return 0

    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        answers = [await ctx.attempt("order", block), await ctx.attempt("order", block)]
        await ctx.step("after", double, 1)
        return [answer.kind for answer in answers if isinstance(answer, Failed)]

    rig = same_in_every_rebuild(flow, drive=Rig.run)

    assert rig.result == ["fatal", "fatal"]
    assert rig.calls == [
        "order/double",
        "order/double#2",
        "order/refuse",
        "order#2/double",
        "order#2/double#2",
        "order#2/refuse",
        "after",
    ]


def test_joins_races_and_children_are_kinds_of_their_own() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        async def join(ctx: Context) -> Any:
            return await ctx.join("all", {"a": lambda: ctx.step("refuse", refuse)})

        async def race(ctx: Context) -> Any:
            return await ctx.race("any", {"a": lambda: ctx.step("refuse", refuse)})

        async def wait(ctx: Context) -> Any:
            return await ctx.receive("never", timeout=1)

        answers = [await ctx.attempt(block.__name__, block) for block in (join, race, wait)]
        return [answer.kind for answer in answers if isinstance(answer, Failed)]

    assert same_in_every_rebuild(flow, drive=Rig.run).result == ["join", "race", "timeout"]


@pytest.mark.parametrize(
    ("catch", "result"), [((), "raised"), (("exhausted",), "raised"), (("fatal",), "fatal"), ("fatal", "fatal")]
)
def test_only_what_catch_names_is_caught(catch: Any, result: str) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        try:
            answer = await ctx.attempt("refuse", refuse, catch=catch)
        except perdure.StepFailed:
            return "raised"
        return answer.kind if isinstance(answer, Failed) else "ok"

    assert same_in_every_rebuild(flow, drive=Rig.run).result == result


async def test_a_rollback_passes_through_unless_it_is_asked_for(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        found = []
        try:
            await ctx.attempt("first", give_up)
        except RollBack as error:
            found.append(f"raised {error}")
        answer = await ctx.attempt("second", give_up, catch=("rollback",))
        assert isinstance(answer, Failed)
        return [*found, f"{answer.kind} {answer.error}"]

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)

        assert await handle.result(60) == ["raised enough", "rollback enough"]


def test_an_error_of_the_flow_itself_is_not_caught() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> Any:
        async def block(ctx: Context) -> None:
            raise ValueError("a bug")

        return await ctx.attempt("block", block)

    assert "a bug" in Rig(flow).result


def test_an_unknown_kind_is_refused() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> Any:
        with pytest.raises(BadCall, match="must be among"):
            await ctx.attempt("refuse", refuse, catch=("fatale",))

    assert Rig(flow).result is None


def test_an_attempt_that_became_a_plain_call_is_a_divergence() -> None:
    blocks = [True]

    @perdure.flow
    async def flow(ctx: Context) -> Any:
        async def block(ctx: Context) -> Any:
            return await ctx.step("s", double, 1)

        return await (ctx.attempt("s", block) if blocks[0] else block(ctx))

    rig = Rig(flow)
    blocks[0] = False

    with pytest.raises(AssertionError):
        rig.rebuild = "journal"
        rig._rebuild()
