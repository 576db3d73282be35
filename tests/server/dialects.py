"""Workflows of several dialects, for the pages that draw them."""

import asyncio
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated, Literal

import perdure
from perdure.dialect_commands.demo import STARTS as ALL_STARTS
from perdure.dialect_commands.demo import article, restock
from perdure.graphs import Graph, Limits, Node, Permit, tool
from tests.server import site


async def one(n: int) -> int:
    return n


@perdure.flow
async def counting(ctx, n: int = 0):
    for each in range(n):
        await ctx.step("count", one, each)


@perdure.flow
async def four_eyes(ctx, asker: str = "ann"):
    await ctx.task("check", title="Check what ann did", roles=["manager"], exclude=[asker], answer=site.Decision)


@perdure.flow
async def deciding(ctx):
    decision = await ctx.receive("decision", type=site.Decision)
    return decision.body.outcome


heard = asyncio.Event()


async def say() -> int:
    perdure.emit("half of ")
    perdure.emit("the answer")
    perdure.progress(1, 4, "looking")
    await heard.wait()
    return 4


@perdure.flow
async def saying(ctx):
    return await ctx.step("say", say)


@tool(writes=True)
async def publish(text: str) -> str:
    return text


thought = asyncio.Event()  # of its own: an event belongs to the loop of the stage that waits for it


async def bounded(node: Node) -> object:
    if node.name == "try":
        return await node.use("publish", text="at once")
    perdure.progress(1, 2, "a thought")
    await thought.wait()
    return 1


careful = Graph("careful", runner=bounded, tools=[publish], permits=[Permit("publish", "deny")])
careful.node("try", goal="Publish", limits=Limits(calls=5))
careful.node("talk", goal="Think", trust="quarantined", role="explore")


class Counted(perdure.Record, name="com.acme/Counted@1"):
    shelf: str
    pieces: perdure.Nat


class Shelf(perdure.Record, name="com.acme/Shelf@1"):
    pieces: perdure.Nat


@perdure.cell("com.acme/shelf@1", key="shelf", effects=[])
def shelf(state: Shelf | None, event: Counted, ctx: perdure.CellContext) -> perdure.Next:
    return perdure.Next(Shelf((0 if state is None else state.pieces) + event.pieces))


ALL = [*site.ALL, site.family, article, restock, counting, four_eyes, deciding, saying, careful, shelf]
STARTS = [each for each in ALL_STARTS if each[0] in ("article", "restock")]

RESTOCK_TWO = """
apiVersion: perdure/v1
kind: Playbook
metadata: {name: restock-two}
workflow:
  - {step: count, tool: {kind: noop, result: 1}, next: end}
  - {step: end, tool: {kind: noop, result: 2}}
"""


@dataclass
class Home:
    street: str
    floor: int = 0


@dataclass
class ByBank:
    kind: Literal["bank"]
    iban: str


@dataclass
class ByCard:
    kind: Literal["card"]
    number: str


@dataclass
class AllKinds:
    """One field of each kind that a form has."""

    name: Annotated[str, perdure.Field(help="As it stands in the passport")]
    story: Annotated[str, perdure.Field(widget="textarea")]
    age: int
    price: Decimal
    ways: set[Literal["by post", "by mail"]]
    places: list[str]
    home: Home
    payment: ByCard | ByBank
    proof: bytes
    extra: dict[str, int]
    day: date | None = None
    pause: timedelta | None = None
    colour: Literal["red", "blue", "green"] | None = None
    again: bool = False
    second_home: Home | None = None


@perdure.flow
async def survey(ctx):
    done = (await ctx.task("ask", title="Answer all", roles=["manager"], answer=AllKinds)).answer
    return {
        **{name: getattr(done, name) for name in ("name", "story", "age", "colour", "places", "extra", "again")},
        "price": str(done.price),
        "day": str(done.day),
        "pause": done.pause.total_seconds(),
        "ways": sorted(done.ways),
        "home": {"street": done.home.street, "floor": done.home.floor},
        "payment": {"kind": done.payment.kind, "iban": done.payment.iban},
        "proof": done.proof.decode(),
        "second home": done.second_home is not None,
    }


ALL.append(survey)
