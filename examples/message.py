"""A flow that waits for two people, with a deadline. A message that is sent twice counts once.

Prints:
    o-17 approved by ada and grace
    o-18 was not decided in time
"""

import asyncio

import perdure


@perdure.flow
async def approval(ctx: perdure.Context, order_id: str, timeout_seconds: float) -> str:
    try:
        first = await ctx.receive("approve", timeout=timeout_seconds)
        second = await ctx.receive("approve", timeout=timeout_seconds)
    except perdure.ReceiveTimeout:
        return f"{order_id} was not decided in time"
    return f"{order_id} approved by {first.body['by']} and {second.body['by']}"


async def main() -> None:
    async with perdure.open(":memory:", workflows=[approval]) as engine:
        o17 = await engine.start(approval, "o-17", 60, key="o-17")
        o18 = await engine.start(approval, "o-18", 0.1, key="o-18")
        await o17.send("approve", {"by": "ada"}, id="mail-1")
        await o17.send("approve", {"by": "ada"}, id="mail-1")  # the same id: delivered once
        await o17.send("approve", {"by": "grace"}, id="mail-2")
        print(await o17.result())
        print(await o18.result())


if __name__ == "__main__":
    asyncio.run(main())
