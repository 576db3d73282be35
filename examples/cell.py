"""The smallest world of cells: an order that is charged. A cell is a reducer; what it asks for, a handler performs.

Prints:
    charging 4200 cents for o-17
    Order(pc='failed') Fatal: card declined
    o-18 is gone: True
"""

import asyncio
from typing import Literal

import perdure


class OrderCreated(perdure.Record, name="com.acme/OrderCreated@1"):
    order_id: str
    cents: perdure.Nat


class Charge(perdure.Effect, name="payment/charge@1"):  # params
    order_id: str
    cents: perdure.Nat

    class Receipt(perdure.Record):
        auth: str


class Order(perdure.Record, name="com.acme/Order@1"):
    pc: Literal["idle", "charging", "done", "failed"] = "idle"


@perdure.cell("com.acme/order@1", key="order_id", effects=[Charge])
def order(
    state: Order | None, event: OrderCreated | perdure.ReceiptOf[Charge] | perdure.Rejected, ctx: perdure.CellContext
) -> perdure.Next:
    match event:
        case OrderCreated():
            return perdure.Next(Order("charging"), effects=[Charge(event.order_id, event.cents)])
        case perdure.ReceiptOf(ok=True):
            return perdure.Next(None)  # None deletes the cell
        case _:
            return perdure.Next(Order("failed"))


@perdure.effect_handler(Charge)
async def charge(params: Charge, call: perdure.Call) -> Charge.Receipt:
    if params.cents > 1000:
        print(f"charging {params.cents} cents for {params.order_id}")
        raise perdure.Fatal("card declined")
    return Charge.Receipt("a-1")


async def main() -> None:
    async with perdure.open(":memory:", workflows=[order], handlers=[charge]) as engine:
        await engine.send(OrderCreated("o-17", 4200))
        failed = await engine.state(order, "o-17", at_least=4)  # 1 the manifest, 2 the event, 3 the cell, 4 the receipt
        print(failed, (await engine.handle(order, "o-17").history())[-1].error)
        await engine.send(OrderCreated("o-18", 42), id="request-1")
        await engine.send(OrderCreated("o-18", 42), id="request-1")  # the same id: taken once
        print("o-18 is gone:", await engine.state(order, "o-18", at_least=7) is None)


if __name__ == "__main__":
    asyncio.run(main())
