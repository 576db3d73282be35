"""A world of cells that tests share: an order that is charged, as classes; and `plain_order`, as a plain function."""

from typing import Any, Literal

import perdure


class OrderCreated(perdure.Record, name="com.acme/OrderCreated@1"):
    order_id: str
    cents: perdure.Nat


class OrderCancelled(perdure.Record, name="com.acme/OrderCancelled@1"):
    order_id: str


class OrderPaid(perdure.Record, name="com.acme/OrderPaid@1"):
    order_id: str
    cents: perdure.Nat


class Charge(perdure.Effect, name="payment/charge@1"):
    order_id: str
    cents: perdure.Nat

    class Receipt(perdure.Record):
        auth: str


class Order(perdure.Record, name="com.acme/Order@1"):
    pc: Literal["charging", "paid", "failed"]
    auth: str | None = None


class Total(perdure.Record, name="com.acme/Total@1"):
    cents: perdure.Nat


@perdure.cell("com.acme/order@1", key="order_id", effects=[Charge])
def order(
    state: Order | None, event: OrderCreated | OrderCancelled | perdure.ReceiptOf[Charge], ctx: perdure.CellContext
) -> perdure.Next:
    match event:
        case OrderCreated(cents=13):
            raise ValueError("thirteen brings bad luck")
        case OrderCreated():
            return perdure.Next(Order("charging"), effects=[Charge(event.order_id, event.cents)])
        case OrderCancelled():
            return perdure.Next(None)
        case perdure.ReceiptOf(ok=True):
            paid = OrderPaid(event.params.order_id, event.params.cents)
            return perdure.Next(Order("paid", event.value.auth), events=[paid])
        case _:
            return perdure.Next(Order("failed"))


@perdure.cell("com.acme/total@1", effects=[])
def total(state: Total | None, event: OrderPaid) -> perdure.Next:
    return perdure.Next(Total((state.cents if state else 0) + event.cents))


@perdure.effect_handler(Charge)
async def charge(params: Charge, call: perdure.Call) -> Charge.Receipt:
    if params.cents > 1000:
        raise perdure.Fatal("card declined")
    return Charge.Receipt(f"auth-{params.order_id}")


def plain_order(state: Any, event: Any, ctx: perdure.CellContext) -> perdure.Next:
    """The same with plain data: no classes."""
    match event:
        case perdure.Datum("com.acme/OrderCreated@1", {"order_id": id, "cents": cents}):
            wanted = perdure.Datum("payment/charge@1", {"order_id": id, "cents": cents})
            return perdure.Next({"pc": {"$tag": "charging", "$value": None}, "auth": None}, effects=[wanted])
        case perdure.ReceiptOf(effect="payment/charge@1", ok=True):
            paid = perdure.Datum("com.acme/OrderPaid@1", event.params)
            state = {"pc": {"$tag": "paid", "$value": None}, "auth": event.value["auth"]}
            return perdure.Next(state, events=[paid])
        case _:
            return perdure.Next(None)


def plain_total(state: Any, event: perdure.Datum) -> perdure.Next:
    return perdure.Next({"cents": (state["cents"] if state else 0) + event.value["cents"]})


@perdure.effect_handler("payment/charge@1")
def plain_charge(params: dict[str, Any], call: perdure.Call) -> dict[str, Any]:
    return {"auth": f"auth-{params['order_id']}"}
