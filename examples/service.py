"""A flow as a small service: it keeps a state for years, and answers whoever asks, one after the other.

Prints:
    ann gets 3, ben gets 3
    ann asks again and hears the same: 3
    cat gets 2, the last ones
    sold out after 8
"""

import asyncio
from typing import Any

import perdure


@perdure.flow
async def tickets(ctx: perdure.Context, count: int) -> int:
    async def serve(ctx: perdure.Context, left: int) -> perdure.Continue[int] | perdure.Break[int]:
        message = await ctx.receive("buy", ack=True)  # ours when it is completed, not before
        sold = min(left, message.body)
        message.complete(sold)
        return perdure.Continue(left - sold) if left > sold else perdure.Break(count)

    return await ctx.loop("serve", serve, count)


async def main() -> None:
    async with perdure.open(":memory:", workflows=[tickets]) as engine:
        box_office = await engine.start(tickets, 8, key="concert")

        async def buy(who: str) -> Any:
            return await box_office.ask("buy", 3, timeout=10, id=f"order of {who}")

        ann, ben = await asyncio.gather(buy("ann"), buy("ben"))
        print(f"ann gets {ann}, ben gets {ben}")
        print("ann asks again and hears the same:", await buy("ann"))
        print(f"cat gets {await buy('cat')}, the last ones")
        print("sold out after", await box_office.result())


if __name__ == "__main__":
    asyncio.run(main())
