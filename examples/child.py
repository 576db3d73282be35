"""A flow that starts other flows: they are instances of their own, and one that fails does not stop the rest.

Prints:
    parcel/order-1/box-1: delivered
    parcel/order-1/box-2: failed, StepFailed: step 'carry' was tried once; last error: Fatal: too heavy
    parcel/order-1/box-3: delivered
"""

import asyncio

import perdure


async def carry(kilograms: int) -> str:
    if kilograms > 30:
        raise perdure.Fatal("too heavy")
    return "delivered"


@perdure.flow
async def parcel(ctx: perdure.Context, kilograms: int) -> str:
    return await ctx.step("carry", carry, kilograms)


@perdure.flow
async def order(ctx: perdure.Context, boxes: list[int]) -> list[str]:
    async def send(number: int, kilograms: int) -> str:
        key = f"{ctx.key}/box-{number}"
        try:
            return f"parcel/{key}: {await ctx.child(parcel, kilograms, key=key)}"
        except perdure.ChildFailed as failed:
            return f"parcel/{key}: {failed.status}, {failed.error}"

    return await asyncio.gather(*(send(number, weight) for number, weight in enumerate(boxes, 1)))


if __name__ == "__main__":
    for line in perdure.run(order, [2, 40, 5], key="order-1", workflows=[parcel]):
        print(line)
