"""A flow shows where it is: published values are recorded, and can be read, or watched, from any process.

Prints:
    the kitchen sees: {'dish': 'soup', 'state': 'ordered'}
    the kitchen sees: {'dish': 'soup', 'state': 'cooking'}
    the kitchen sees: {'dish': 'soup', 'state': 'served'}
    read after the end: served
"""

import asyncio

import perdure


@perdure.flow
async def dish(ctx: perdure.Context, name: str) -> None:
    for state in ("ordered", "cooking"):
        ctx.publish("plate", {"dish": name, "state": state})
        await ctx.receive("next")
    ctx.publish("plate", {"dish": name, "state": "served"})


async def main() -> None:
    async with perdure.open(":memory:", workflows=[dish]) as engine:
        handle = await engine.start(dish, "soup", key="table-4")
        async for plate in handle.watch("plate"):  # the value that there is, and each new one, until the end
            print("the kitchen sees:", plate)
            if plate["state"] != "served":
                await handle.send("next")
        print("read after the end:", (await handle.read("plate"))["state"])


if __name__ == "__main__":
    asyncio.run(main())
