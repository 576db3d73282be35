"""Find instances again: by tags that they were started with, by status, page by page.

Prints:
    orders of ada: ['o-5', 'o-3', 'o-1']
    waiting, of ada, in Norway: ['o-1']
    all, two at a time: ['o-5', 'o-4'] ['o-3', 'o-2'] ['o-1']
    o-3 is completed, it was started by ada
"""

import asyncio

import perdure


@perdure.flow
async def order(ctx: perdure.Context) -> None:
    await ctx.receive("paid")


async def main() -> None:
    async with perdure.open(":memory:", workflows=[order]) as engine:
        for number in range(1, 6):
            tags = {"customer": "ada" if number % 2 else "ben", "country": "no" if number < 4 else "se"}
            await engine.start(order, key=f"o-{number}", tags=tags)
        paid = engine.handle(order, "o-3")
        await paid.send("paid")
        await paid.result()

        print("orders of ada:", [found.key for found in await engine.instances(tags={"customer": "ada"})])
        wanted = {"customer": "ada", "country": "no"}
        print("waiting, of ada, in Norway:", [o.key for o in await engine.instances(status="waiting", tags=wanted)])
        pages, last = [], 0
        while page := await engine.instances(workflow="order", limit=2, before=last):
            pages.append([found.key for found in page])
            last = page[-1].id
        print("all, two at a time:", *pages)
        summary = await paid.summary()
        print(f"o-3 is {summary.status}, it was started by {summary.tags['customer']}")


if __name__ == "__main__":
    asyncio.run(main())
