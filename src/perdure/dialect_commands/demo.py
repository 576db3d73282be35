"""What `perdure dev` runs without a module: flows, an approval, a playbook and a graph of agents.

Nothing leaves the machine: steps only return values.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Final, Literal

import msgspec

import perdure
from perdure.graphs import Graph, Limits, Node, Permit, tool

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


class Approval(msgspec.Struct):
    """What an approver says."""

    outcome: Literal["approve", "reject"]
    comment: str = ""


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


@perdure.flow
async def order(ctx: perdure.Context, order_id: str, cents: int, items: list[str]) -> dict[str, Any]:
    """Charge, reserve, wait for the word to ship."""
    payment = await ctx.step("charge", charge, order_id, cents)
    held = await ctx.map("reserve", reserve, items)
    ctx.publish("payment", payment)
    await ctx.receive("ship", timeout=timedelta(days=2))
    return {"payment": payment, "held": held}


@perdure.flow
async def parcel(ctx: perdure.Context, order_id: str) -> str:
    """Fails: its box is too small."""
    box: str = await ctx.step("pack", pack, order_id)
    return box


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

STARTS: Final[list[tuple[str, str, Any]]] = [
    ("order", "o-17", {"order_id": "o-17", "cents": 4200, "items": ["lamp", "desk", "chair"]}),
    ("order", "o-18", {"order_id": "o-18", "cents": 120_000, "items": ["piano"]}),
    ("parcel", "p-1", {"order_id": "o-16"}),
    ("expense", "e-1", {"person": "Ada", "cents": 12_900}),
    ("expense", "e-2", {"person": "Grace", "cents": 4_250}),
    ("expense", "e-3", {"person": "Edsger", "cents": 199_000, "hours": 0}),
    ("article", "heat-pumps", {"input": "heat pumps"}),
]
"""What is started, if it is not there: workflow, key, input."""

if find_spec("ruamel") and find_spec("jinja2"):
    restock = perdure.load_playbook(RESTOCK)
    STARTS.append(("restock", "monday", {}))
