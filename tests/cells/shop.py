"""The world that most tests of cells run: orders that are paid by somebody outside, and a book of what was paid."""

import perdure
from perdure import Next, ReceiptOf, Rejected


class Placed(perdure.Record, name="com.acme/Placed@1"):
    order: str
    cents: perdure.Nat = 1


class Dropped(perdure.Record, name="com.acme/Dropped@1"):
    order: str


class Paid(perdure.Record, name="com.acme/Paid@1"):
    order: str
    auth: str


class Charge(perdure.Effect, name="payment/charge@1", outside="bank"):
    order: str
    cents: perdure.Nat

    class Receipt(perdure.Record):
        auth: str


class Order(perdure.Record, name="com.acme/Order@1"):
    status: str = "charging"
    auths: list[str] = []  # noqa: RUF012  # a struct copies it


@perdure.cell("com.acme/order@1", key="order", effects=[Charge])
def order(
    state: Order | None, event: Placed | Dropped | ReceiptOf[Charge] | Rejected, ctx: perdure.CellContext
) -> Next:
    before = state or Order()
    match event:
        case Placed():
            return Next(Order("charging", before.auths), effects=[Charge(event.order, event.cents)])
        case Dropped():
            return Next(None)
        case ReceiptOf(ok=True):
            return Next(Order("paid", [*before.auths, event.value.auth]), events=[Paid(ctx.key, event.value.auth)])
        case ReceiptOf():
            return Next(Order(event.status, before.auths))
        case Rejected():
            return Next(Order(f"rejected {event.code} {event.payload_size}", before.auths))


class Book(perdure.Record, name="com.acme/Book@1"):
    paid: list[str] = []  # noqa: RUF012  # a struct copies it


@perdure.cell("com.acme/book@1", effects=[])
def book(state: Book | None, event: Paid) -> Next:
    return Next(Book([*(state.paid if state else []), event.order]))
