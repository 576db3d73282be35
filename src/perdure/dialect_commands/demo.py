"""What `perdure dev` runs without a module: a shop with flows, a process, a world of cells, a playbook and agents.

Nothing leaves the machine: steps only return values. Some of them fail, so that each page has something to show.
"""

from __future__ import annotations

import asyncio
import os
from datetime import date, timedelta
from importlib.util import find_spec
from typing import Annotated, Any, Final, Literal

import msgspec

import perdure
from perdure.graphs import Graph, Limits, Node, Permit, tool
from perdure.processes import (
    Activate,
    Call,
    Complete,
    Decide,
    Fail,
    Process,
    Receive,
    Request,
    Set,
    Task,
    fn,
    result,
    service,
    start,
    state,
    tasks,
    transport,
)

# ---- flows: an order, a parcel, a refund, stocktaking --------------------------------------------------------------


class CardError(Exception):
    """The payment provider refuses."""


@perdure.step(retries=2, backoff=perdure.Backoff(base=0.2))
async def charge(order_id: str, cents: int) -> str:
    await asyncio.sleep(0.2)
    if cents > 100_000 and perdure.step_info().attempt < 3:
        raise CardError(f"the card for {order_id} is refused: limit exceeded")
    return f"ch-{order_id}"


@perdure.step
async def reserve(item: str) -> str:
    await asyncio.sleep(0.1)
    return f"r-{item}"


@perdure.step(retries=1, backoff=perdure.Backoff(base=0.1))
async def pack(order_id: str) -> str:
    raise RuntimeError(f"no box is large enough for {order_id}")


@perdure.step(retries=2, backoff=perdure.Backoff(base=0.1))
async def count(shelf: int) -> int:
    if shelf == 3 and perdure.step_info().attempt == 1:
        raise ConnectionError("the scanner of shelf 3 does not answer")
    return 40 + shelf


@perdure.step(executor="printer")
async def labels(pieces: int) -> str:
    """Takes an hour, and the queue runs one at a time: the next one waits."""
    await asyncio.sleep(3600)
    return f"{pieces} labels"


@perdure.step(once=True, executor="process")
def pay_back(order_id: str) -> None:
    """Its process dies: did the bank hear of it? A person has to say."""
    os._exit(1)


class Shipping(msgspec.Struct):
    """The word to ship."""

    carrier: Literal["post", "van"] = "post"
    note: str = ""


@perdure.flow
async def order(ctx: perdure.Context, order_id: str, cents: int, items: list[str]) -> dict[str, Any]:
    """Charge, reserve, wait for the word to ship."""
    ctx.tag("cents", cents)
    payment = await ctx.step("charge", charge, order_id, cents)
    held = await ctx.map("reserve", reserve, items)
    ctx.publish("payment", payment)
    shipping = await ctx.receive("ship", type=Shipping, timeout=timedelta(days=2))
    return {"payment": payment, "held": held, "carrier": shipping.body.carrier}


@perdure.flow
async def parcel(ctx: perdure.Context, order_id: str) -> str:
    """Fails: its box is too small."""
    box: str = await ctx.step("pack", pack, order_id)
    return box


@perdure.flow
async def refund(ctx: perdure.Context, order_id: str) -> str:
    """Gets stuck: the outcome of its step is unknown."""
    await ctx.step("pay back", pay_back, order_id)
    return f"{order_id} is paid back"


@perdure.flow
async def stocktaking(ctx: perdure.Context, shelves: int) -> str:
    """A loop, of which one attempt fails, and then two children."""

    async def shelf(ctx: perdure.Context, seen: list[int]) -> perdure.Continue[list[int]] | perdure.Break[int]:
        seen = [*seen, await ctx.step("count", count, len(seen) + 1)]
        return perdure.Break(sum(seen)) if len(seen) == shelves else perdure.Continue(seen)

    pieces: int = await ctx.loop("shelves", shelf, [])
    halves = [ctx.child(printing, pieces // 2, key=f"{ctx.key}/labels-{n}") for n in (1, 2)]
    return ", ".join(await asyncio.gather(*halves))


@perdure.flow
async def printing(ctx: perdure.Context, pieces: int) -> str:
    printed: str = await ctx.step("labels", labels, pieces)
    return printed


# ---- people: an expense, and a process with a deadline -------------------------------------------------------------


class Approval(msgspec.Struct):
    """What an approver says."""

    outcome: Literal["approve", "reject"]
    comment: str = ""


@perdure.flow
async def expense(ctx: perdure.Context, person: str, cents: int, hours: float = 24) -> str:
    """Asks a manager."""
    done = await ctx.task(
        "approve",
        title=f"Approve {cents / 100:.2f} for {person}",
        data={"person": person, "amount": cents / 100},
        roles=["manager"],
        answer=Approval,
        due=timedelta(hours=hours),
    )
    outcome: str = done.answer.outcome
    return outcome


class Purchase(msgspec.Struct):
    supplier: str
    amount: int
    lines: list[dict[str, str | int]]


class ManagerSays(msgspec.Struct):
    outcome: Literal["approve", "reject"]
    cost_centre: Annotated[
        Literal["office", "kitchen", "workshop", "sales", "travel"], perdure.Field(title="Cost centre")
    ]
    deliver: Annotated[date | None, perdure.Field(title="Deliver from")] = None
    comment: Annotated[str, perdure.Field(help="The buyer reads this.", widget="textarea")] = ""


@transport("supplier")
async def supplier(request: Request) -> object:
    return {"number": "B-1"}


approve = Task(
    "approve",
    answer=ManagerSays,
    title=fn.concat("Approve the purchase from ", start.supplier),
    description="A manager decides on 500 and more.",
    data={"supplier": start.supplier, "amount": start.amount, "lines": start.lines},
    roles=["manager"],
    exclude=["bob"],
    due=timedelta(days=2),
    expire=timedelta(days=10),
)

purchase = Process(
    "purchase",
    version="1.0.0",
    input=Purchase,
    tasks=[approve],
    state={"approved": start.amount < 500},
    steps=[
        Decide(
            "ask",
            ~state.approved,
            then=[
                Activate("approve", on_timeout=[Fail("late", "no manager decided")]),
                Set("approved", tasks.approve.outcome == "approve"),
            ],
        ),
        Decide("refused", ~state.approved, then=[Fail("rejected", "a manager refused it")]),
        Call("order", service("supplier", "place-order"), {"supplier": start.supplier}, result="order"),
        Receive("delivery", "delivered", timeout=timedelta(days=30)),
        Complete({"order": result.order.number}),
    ],
)

# ---- a world of cells: shelves, and a buyer for each article -------------------------------------------------------


class Sold(perdure.Record, name="shop/Sold@1"):
    article: str
    pieces: perdure.Nat


class Short(perdure.Record, name="shop/Short@1"):
    article: str
    left: perdure.Nat


class Delivered(perdure.Record, name="shop/Delivered@1"):
    article: str
    pieces: perdure.Nat


class Shelf(perdure.Record, name="shop/Shelf@1"):
    pieces: perdure.Nat


class Buyer(perdure.Record, name="shop/Buyer@1"):
    orders: perdure.Nat
    waits: bool


class Buy(perdure.Effect, name="supplier/buy@1"):
    article: str
    pieces: perdure.Nat

    class Receipt(perdure.Record):
        pieces: perdure.Nat


@perdure.cell("shop/shelf@1", key="article", effects=[])
def shelf(state: Shelf | None, event: Sold | Delivered, ctx: perdure.CellContext) -> perdure.Next:
    before = 10 if state is None else state.pieces
    if isinstance(event, Delivered):
        return perdure.Next(Shelf(before + event.pieces))
    if event.pieces > before:
        raise ValueError(f"{event.pieces} {event.article} were sold, and {before} were on the shelf")
    left = before - event.pieces
    return perdure.Next(Shelf(left), events=[Short(event.article, left)] if left < 5 else [])


@perdure.cell("shop/buyer@1", key="article", effects=[Buy])
def buyer(state: Buyer | None, event: Short | perdure.ReceiptOf[Buy], ctx: perdure.CellContext) -> perdure.Next:
    orders = 0 if state is None else state.orders
    if isinstance(event, Short):
        return perdure.Next(Buyer(orders + 1, True), effects=[Buy(event.article, 20 - event.left)])
    return perdure.Next(Buyer(orders, False), events=[Delivered(event.params.article, event.value.pieces)])


@perdure.effect_handler(Buy)
async def buy(params: Buy, call: perdure.Call) -> Buy.Receipt:
    return Buy.Receipt(params.pieces)


EVENTS: Final = [
    Sold("lamp", 3),
    Sold("desk", 2),
    Sold("lamp", 4),
    Sold("chair", 6),
    Sold("nails", 12),
    Sold("desk", 1),
    Sold("glue", 6),
]
"""What the world hears of, once: the shelf of nails gets stuck; the newest makes the shelf of glue run short."""

# ---- agents, and a playbook ----------------------------------------------------------------------------------------

RESTOCK: Final = """
apiVersion: perdure/v1
kind: Playbook
metadata: {name: restock}
workload: {items: [screws, nails, glue]}
executor: {spec: {ctx: {budget: {init: false}}}}
workflow:
  - step: count
    tool: {kind: noop, result: "{{ workload['items'] | length }}"}
    next: {spec: {mode: inclusive}, arcs: [{step: prices}, {step: stock}]}
  - {step: prices, tool: {kind: noop, result: 42}, next: order}
  - {step: stock, tool: {kind: noop, result: 7}, next: order}
  - step: order
    join: all
    spec: {policy: {admit: {rules: [{when: ctx.budget, then: {allow: true}}, {else: {then: {allow: false}}}]}}}
    tool: {kind: noop, result: "{{ prices + stock }}"}
    next: report
  - {step: report, tool: {kind: noop, result: done}}
"""


@tool(writes=True)
async def publish(text: str) -> str:
    """Put the page online."""
    return f"published {len(text)} characters"


async def runner(node: Node) -> object:
    if node.name == "plan":
        names = await node.submit([{"name": each, "goal": f"{each} on {node.input}"} for each in ("facts", "doubts")])
        return " | ".join([each.value for each in (await node.results(names)).values()])
    if node.name == "ship":
        return await node.use("publish", text=node.inputs["write"].value)
    return f"{node.goal}"


article = Graph(
    "article",
    runner=runner,
    tools=[publish],
    limits=Limits(running=2, nodes=50),
    permits=[Permit("publish", "ask", roles=("manager",))],
)
article.node("plan", role="plan", goal="What is known of ${input}?")
article.node("write", goal="Write the page", after=["plan"])
article.node("check", role="verify", goal="Is every claim supported?", after=["write"])
article.node("ship", goal="Publish it", after=["check", "write"])

LINES: Final = [
    {"what": "desk, oak", "count": 20, "sum": 12_800},
    {"what": "chair", "count": 16, "sum": 4_960},
    {"what": "paper, 500 sheets", "count": 80, "sum": 440},
]

STARTS: Final[list[tuple[str, str, Any]]] = [
    ("order", "o-17", {"order_id": "o-17", "cents": 4200, "items": ["lamp", "desk", "chair"]}),
    ("order", "o-18", {"order_id": "o-18", "cents": 120_000, "items": ["piano"]}),
    ("parcel", "p-1", {"order_id": "o-16"}),
    ("refund", "o-12", {"order_id": "o-12"}),
    ("stocktaking", "2026-11", {"shelves": 12}),
    ("expense", "e-1", {"person": "Ada", "cents": 12_900}),
    ("expense", "e-2", {"person": "Grace", "cents": 4_250}),
    ("expense", "e-3", {"person": "Edsger", "cents": 199_000, "hours": 0}),
    ("purchase", "b-1", {"supplier": "acme", "amount": 18_200, "lines": LINES}),
    ("purchase", "b-2", {"supplier": "Helvetia Paper", "amount": 440, "lines": LINES[2:]}),
    ("article", "heat-pumps", {"input": "heat pumps"}),
]
"""What is started, if it is not there: workflow, key, input."""

QUEUES: Final = {"printer": 1}

PERSON: Final = {"grants": [{"role": "admin", "workflows": ["*"], "values": True}], "roles": ["manager"]}
"""What the person of `perdure dev` may do: its tasks are for managers."""

if find_spec("ruamel") and find_spec("jinja2"):
    restock = perdure.load_playbook(RESTOCK)
    STARTS.append(("restock", "monday", {}))
