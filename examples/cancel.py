"""Cancel: the running step is cut, `finally` may still run steps, and `undo=True` takes back what was done.

Prints:
    data is bought
    a machine is rented
    training begins
    the machine is given back
    the data is returned
    training/t-1 was cancelled: too expensive
"""

import asyncio

import perdure

training_begun = asyncio.Event()


async def tell(what: str) -> None:
    print(what)


@perdure.step(undo=lambda _: print("the data is returned"))
async def buy_data() -> None:
    print("data is bought")


async def train() -> None:
    print("training begins")
    training_begun.set()
    await asyncio.sleep(3600)


@perdure.flow
async def training(ctx: perdure.Context) -> None:
    await buy_data()
    await ctx.step("rent", tell, "a machine is rented")
    try:
        await ctx.step("train", train)
    finally:  # has 60 seconds, or what @perdure.flow(cleanup=...) says
        await ctx.step("give back", tell, "the machine is given back")


async def main() -> None:
    async with perdure.open(":memory:", workflows=[training]) as engine:
        handle = await engine.start(training, key="t-1")
        await training_begun.wait()
        await handle.cancel("too expensive", undo=True)  # from here on it can only end as cancelled
        try:
            await handle.result()
        except perdure.InstanceCancelled as cancelled:
            print(cancelled)


if __name__ == "__main__":
    asyncio.run(main())
