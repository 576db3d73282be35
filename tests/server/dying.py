"""A program that dies while steps run that may run once only: `python -m tests.server.dying URL`."""

import asyncio
import os
import sys

import perdure

begun: list[int] = []


@perdure.step(once=True, retries=0)
async def charge(cents: int) -> str:
    begun.append(cents)
    if len(begun) == 2:
        os._exit(3)
    await asyncio.Event().wait()
    return "never"


@perdure.flow
async def payment(ctx, cents: int):
    async def pay():
        return await ctx.step("charge", charge, cents)

    async def told():
        return (await ctx.receive("shipped")).body

    return await ctx.join("finish", {"pay": pay, "told": told})


async def main():
    async with perdure.open(sys.argv[1], workflows=[payment]) as engine:
        for n in (1, 2):
            await engine.start("payment", key=f"p-{n}", cents=n)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
