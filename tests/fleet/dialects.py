"""Workflows of every dialect, and an engine process that runs them: `python -m tests.fleet.dialects URL`.

The process and the playbook are not among them: a test puts their definitions into the database.
"""

import asyncio
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager

import perdure
from perdure import Next
from perdure.cells.effects import Alarm, Publish
from perdure.graphs import Graph, Limits, Node, Permit, tool
from perdure.processes import Request, transport

LONG = 100_000
"""Bytes that are more than an entry or a message between processes holds: they are kept by their hash."""

SECRETS = {"word": "canary-of-the-fleet"}


@transport("erp")
async def erp(request: Request) -> str:
    return f"{request.command} done"


@perdure.step
async def stretched(text: str) -> str:
    return text * LONG


# ---- a flow ---------------------------------------------------------------------------------------------------------


@perdure.step(executor="far")
async def far(text: str) -> str:
    return text + text


@perdure.flow
async def child(ctx: perdure.Context, text: str) -> str:
    return await ctx.step("far", far, text)


@perdure.flow
async def parent(ctx: perdure.Context) -> int:
    ctx.publish("ready", True)
    message = await ctx.receive("ask")
    message.complete(f"{message.body}!")
    long = await ctx.step("stretched", stretched, "x")
    children = await asyncio.gather(*(ctx.child(child, long, key=f"{message.body}-{n}") for n in range(3)))
    return sum(map(len, children))


# ---- a graph --------------------------------------------------------------------------------------------------------


@tool(writes=True)
async def publish(text: str) -> str:
    return f"published {text}"


async def runner(node: Node) -> object:
    if node.name == "plan":
        names = await node.submit([{"name": "long"}, {"name": "short", "after": ["long"]}])
        return [len(found.value) for found in (await node.results(names)).values()]
    if node.name == "ship":
        return await node.use("publish", text=str(node.inputs["plan"].value))
    return "x" * (LONG if node.name.endswith("long") else len(node.inputs))


desk = Graph(
    "desk",
    runner=runner,
    tools=[publish],
    limits=Limits(depth=1),
    permits=[Permit("publish", "ask", roles=("editor",))],
    rest_after=0.01,
)
desk.node("plan")
desk.node("ship", after=["plan"])


# ---- an agent that is killed between two tools ----------------------------------------------------------------------


def note(ledger: str, word: str) -> None:
    """One execution: what is done, for which instance, under which key, by which process."""
    about = perdure.step_info()
    with open(ledger, "a") as file:  # one small write at the end of a file is atomic
        file.write(f"{word} {about.instance} {about.idempotency_key} {os.getpid()}\n")


@tool(writes=True)
async def record(ledger: str, text: str) -> str:
    note(ledger, text)
    return text


@tool
async def hold(ledger: str, gate: str) -> None:
    note(ledger, "hold")
    while not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240  # another process makes it
        await asyncio.sleep(0.02)


async def think(ledger: str, turn: int) -> str:
    note(ledger, f"thought-{turn}")
    return f"thought {turn}"


async def talking(node: Node) -> object:
    ledger, gate = node.input
    said = [await node.step("model", think, ledger, 1)]
    await node.use("record", ledger=ledger, text="one")
    said.append(await node.step("model", think, ledger, 2))
    await node.use("hold", ledger=ledger, gate=gate)
    await node.use("record", ledger=ledger, text="two")
    return said


talk = Graph("talk", runner=talking, tools=[record, hold])
talk.node("agent")


# ---- cells ----------------------------------------------------------------------------------------------------------


class Ordered(perdure.Record, name="fleet/Ordered@1"):
    order: str


class Charge(perdure.Effect, name="fleet/charge@1"):
    order: str

    class Receipt(perdure.Record):
        text: str


class Order(perdure.Record, name="fleet/Order@1"):
    order: str
    text: str = ""


@perdure.cell("fleet/order@1", key="order", effects=[Charge, Alarm, Publish])
def order(state: Order | None, event: Ordered | perdure.ReceiptOf[Charge | Alarm]) -> Next:
    if state is None:
        assert isinstance(event, Ordered)
        return Next(Order(event.order), effects=[Charge(event.order)])
    if not state.text:
        assert isinstance(event, perdure.ReceiptOf)
        return Next(Order(state.order, event.value.text), effects=[Alarm(after=1_000_000)])
    return Next(None, effects=[Publish.of("charged", len(state.text))])


@perdure.effect_handler(Charge)
async def charge(params: Charge, call: perdure.Call) -> Charge.Receipt:
    return Charge.Receipt("x" * LONG)


WORKFLOWS = [parent, child, desk, talk, order]


def engine(url: str) -> AbstractAsyncContextManager[perdure.Engine]:
    return perdure.open(url, workflows=WORKFLOWS, handlers=[erp, charge], secrets=SECRETS, queues={"far": 2})


async def main(url: str) -> None:
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    async with engine(url):
        print("ready", flush=True)
        await asked.wait()


if __name__ == "__main__":
    from tests.fleet import dialects  # the names of cells have their module, which is not __main__

    asyncio.run(dialects.main(*sys.argv[1:]))
