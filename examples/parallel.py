"""Things at the same time: ordinary asyncio, and join, race and map with names that people can read.

Prints:
    gather: [1, 2]
    join: {'stock': 7, 'price': 42}
    race: fast won with 0.05
    map: [1, 4, 9, 16]
"""

import asyncio
from typing import Any

import perdure


async def echo(value: Any) -> Any:
    return value


async def slow(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


async def square(number: int) -> int:
    return number * number


@perdure.flow
async def parallel(ctx: perdure.Context) -> None:
    print("gather:", await asyncio.gather(ctx.step("one", echo, 1), ctx.step("two", echo, 2)))

    both = {"stock": lambda: ctx.step("look", echo, 7), "price": lambda: ctx.step("ask", echo, 42)}
    print("join:", await ctx.join("offer", both))

    rivals = {"fast": lambda: ctx.step("call", slow, 0.05), "slow": lambda: ctx.step("call", slow, 60)}
    winner, value = await ctx.race("carriers", rivals)  # the slow step is cancelled at once
    print(f"race: {winner} won with {value}")

    print("map:", await ctx.map("squares", lambda n: ctx.step("square", square, n), [1, 2, 3, 4], concurrency=2))


if __name__ == "__main__":
    perdure.run(parallel)
