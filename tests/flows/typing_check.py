"""Types, checked by mypy and never run: a step keeps the type of its function, a handle that of its flow."""

from __future__ import annotations

import functools
from typing import Any, assert_type

import perdure
from perdure import Break, Context, Continue


async def number(text: str) -> int:
    return int(text)


def in_thread(text: str, *, base: int = 10) -> int:
    return int(text, base)


@perdure.step
async def decorated(text: str) -> int:
    return int(text)


@perdure.step(retries=5, timeout=3)
async def with_options(text: str) -> int:
    return int(text)


class Shop:
    async def price(self, article: str) -> float:
        return 1.5

    @perdure.step(retries=0)
    async def charge(self, cents: int) -> str:
        return "charged"


@perdure.flow
async def order(ctx: Context, name: str, cents: int = 1) -> list[int]:
    return []


@perdure.flow(name="other", version="2")
async def other(ctx: Context) -> dict[str, int]:
    return {}


async def steps(ctx: Context, shop: Shop) -> None:
    assert_type(await ctx.step("a", number, "1"), int)
    assert_type(await ctx.step("a", in_thread, "1", base=16), int)
    assert_type(await ctx.step("a", decorated, "1"), int)
    assert_type(await ctx.step("a", shop.price, "1"), float)
    assert_type(await ctx.step("a", shop.charge, 1), str)
    assert_type(await ctx.step("a", functools.partial(number, "1")), int)
    assert_type(await ctx.step("a", lambda: number("1")), int)
    assert_type(await ctx.step.options(retries=1, timeout=2)("a", number, "1"), int)
    assert_type(await decorated("1"), int)
    assert_type(await with_options("1"), int)
    assert_type(await shop.charge(1), str)

    await ctx.step("a", number, 1)  # type: ignore[call-overload]
    await ctx.step("a", number)  # type: ignore[call-overload]
    await decorated(1)  # type: ignore[arg-type]
    ctx.step.options(retry=1)  # type: ignore[call-arg]


async def parallel(ctx: Context) -> None:
    assert_type(await ctx.map("m", number, ["1"]), list[int])
    assert_type(await ctx.race("r", {"a": lambda: number("1")}), tuple[str, Any])

    async def body(ctx: Context, n: int) -> Continue[int] | Break[str]:
        return Continue(n + 1) if n < 3 else Break("end")

    assert_type(await ctx.loop("l", body, 0), str)


async def handles(engine: perdure.Engine) -> None:
    handle = await engine.start(order, "k", cents=3, key="k")
    assert_type(await handle.result(), list[int])
    assert_type(await engine.handle(other, "k").result(), dict[str, int])
    assert_type(await (await engine.start("order")).result(), Any)
