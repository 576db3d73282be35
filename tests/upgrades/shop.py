"""Workflows of the database that an old version made (`README.md`). They never change: old histories replay on them."""

import asyncio
from datetime import timedelta
from typing import Any, Literal

import perdure


async def charge(order_id: str, cents: int) -> str:
    if cents > 9000:
        raise perdure.Fatal("card declined", {"cents": cents})
    return f"payment-{order_id}"


async def give_back(room: str) -> None:
    """What undoes a booking."""


@perdure.step(undo=give_back)
async def book(name: str) -> str:
    return f"room of {name}"


@perdure.step(retries=5, backoff=perdure.Backoff(base=0.01))
async def flaky() -> str:
    info = perdure.step_info()
    if info.attempt == 1:
        raise ConnectionError("not yet")
    return "at last"


async def carry(kilograms: int) -> str:
    if kilograms > 30:
        raise perdure.Fatal("too heavy")
    return "delivered"


@perdure.flow
async def parcel(ctx: perdure.Context, kilograms: int) -> str:
    return await ctx.step("carry", carry, kilograms)


@perdure.flow
async def order(ctx: perdure.Context, order_id: str, cents: int, boxes: list[int]) -> dict[str, Any]:
    """Steps with retries, a timer, a message, children and a branch that fails."""
    payment = await ctx.step("charge", charge, order_id, cents)
    tried = await ctx.step("flaky", flaky)
    await ctx.sleep("cooling-off", 0.01)
    decision = (await ctx.receive("decision", timeout=timedelta(days=36500))).body

    async def send(number: int, kilograms: int) -> str:
        try:
            return str(await ctx.child(parcel, kilograms, key=f"{ctx.key}/box-{number}"))
        except perdure.ChildFailed as failed:
            return f"{failed.status}"

    sent = await asyncio.gather(*(send(number, weight) for number, weight in enumerate(boxes, 1)))
    return {"payment": payment, "tried": tried, "decision": decision, "sent": sent}


@perdure.flow
async def sleeper(ctx: perdure.Context, name: str) -> str:
    """A timer that is due long after every test."""
    await ctx.sleep("winter", timedelta(days=36500))
    return name


@perdure.flow
async def waiting(ctx: perdure.Context) -> str:
    word = (await ctx.receive("word")).body
    return f"heard {word}"


@perdure.flow
async def undone(ctx: perdure.Context) -> str:
    await ctx.step("book", book, "ann")
    return await ctx.step("charge", charge, "o-0", 9900)


@perdure.flow
async def broken(ctx: perdure.Context) -> str:
    return await ctx.step("charge", charge, "o-0", 9900)


class OrderCreated(perdure.Record, name="shop/OrderCreated@1"):
    order_id: str
    cents: perdure.Nat


class Booked(perdure.Record, name="shop/Booked@1"):
    cents: perdure.Nat


class Pay(perdure.Effect, name="shop/pay@1"):
    order_id: str
    cents: perdure.Nat

    class Receipt(perdure.Record):
        auth: str


class Sale(perdure.Record, name="shop/Sale@1"):
    pc: Literal["idle", "paying", "paid", "failed"] = "idle"


class Sum(perdure.Record, name="shop/Sum@1"):
    cents: perdure.Nat


@perdure.cell("shop/sale@1", key="order_id", effects=[Pay])
def sale(
    state: Sale | None, event: OrderCreated | perdure.ReceiptOf[Pay] | perdure.Rejected, ctx: perdure.CellContext
) -> perdure.Next:
    match event:
        case OrderCreated():
            return perdure.Next(Sale("paying"), effects=[Pay(event.order_id, event.cents)])
        case perdure.ReceiptOf(ok=True):
            return perdure.Next(Sale("paid"), events=[Booked(7)])
        case _:
            return perdure.Next(Sale("failed"))


@perdure.cell("shop/books@1", effects=[])
def books(state: Sum | None, event: Booked) -> perdure.Next:
    return perdure.Next(Sum((state.cents if state else 0) + event.cents))


@perdure.effect_handler(Pay)
async def pay(params: Pay, call: perdure.Call) -> Pay.Receipt:
    if params.cents > 1000:
        raise perdure.Fatal("card declined")
    return Pay.Receipt("a-1")


FLOWS: list[Any] = [order, parcel, sleeper, waiting, undone, broken]
CELLS: list[Any] = [sale, books]
