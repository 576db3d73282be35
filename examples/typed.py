"""Typed data: what the annotations say is what arrives, after a restart too. What does not fit is refused at once.

Prints:
    Invoice(lines=[Line(item='lamp', price=Decimal('19.90'))], due=datetime.date(2026, 11, 30))
    Paid(amount=Decimal('19.90'), how=<How.CARD: 'card'>)
    refused: pay: $.invoice.lines[0].price: expected Decimal, found str 'a lot'
"""

import asyncio
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum

import msgspec

import perdure


class Line(msgspec.Struct):  # pydantic models, TypedDicts and NamedTuples do as well
    item: str
    price: Decimal


@dataclass
class Invoice:
    lines: list[Line]
    due: date


class How(Enum):
    CARD = "card"
    CASH = "cash"


@dataclass
class Paid:
    amount: Decimal
    how: How


async def charge(invoice: Invoice) -> Paid:
    print(invoice)
    return Paid(sum((line.price for line in invoice.lines), Decimal(0)), How.CARD)


@perdure.flow
async def pay(ctx: perdure.Context, invoice: Invoice) -> Paid:
    return await ctx.step("charge", charge, invoice)


async def main() -> None:
    async with perdure.open(":memory:", workflows=[pay]) as engine:
        for price in ("19.90", "a lot"):  # as it comes from JSON; engine.start(pay, Invoice(...)) from Python
            invoice = {"lines": [{"item": "lamp", "price": price}], "due": "2026-11-30"}
            try:
                handle = await engine.start_plain(pay, {"invoice": invoice})
                print(await handle.result())
            except perdure.NotConvertible as refused:  # nothing was recorded
                print("refused:", refused)


if __name__ == "__main__":
    asyncio.run(main())
