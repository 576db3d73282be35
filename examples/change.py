"""Changed code meets an instance that runs: a new step, a removed one, and an order that was begun before both.

Prints:
    first week: charge old
    first week: print the invoice of old
    new code: charge new
    new code: mail the receipt to new
    old: shipped
    new: shipped
"""

import asyncio
import tempfile
from pathlib import Path

import perdure


async def work(what: str) -> None:
    print(what)


@perdure.flow(name="order")
async def first(ctx: perdure.Context) -> str:
    await ctx.step("charge", work, f"first week: charge {ctx.key}")
    await ctx.step("invoice", work, f"first week: print the invoice of {ctx.key}")
    await ctx.receive("packed")
    return "shipped"


@perdure.flow(name="order")
async def second(ctx: perdure.Context) -> str:
    await ctx.step("charge", work, f"new code: charge {ctx.key}")
    await ctx.removed("invoice", "step")  # for orders that printed one; new ones pass by
    if ctx.version("receipt by mail", 2) >= 2:  # 1 for orders that were past this place before it was written
        await ctx.step("receipt", work, f"new code: mail the receipt to {ctx.key}")
    await ctx.receive("packed")
    return "shipped"


async def main(database: Path) -> None:
    async with perdure.open(database, workflows=[first]) as engine:
        await (await engine.start(first, key="old")).until("waiting")

    async with perdure.open(database, workflows=[second]) as engine:
        await (await engine.start(second, key="new")).until("waiting")
        for key in ("old", "new"):
            await engine.handle(second, key).send("packed")
            print(f"{key}:", await engine.handle(second, key).result())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory) / "orders.db"))
