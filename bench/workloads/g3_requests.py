"""G3: what waits in a graph. How soon does a dependent begin, a tool call answer, and what do 400 who wait cost others?

The dependent of an instant node begins while the node's sibling still works: LangGraph, which goes in layers, begins it
after the sibling. The bars are in commits of the floor, and one in processor time against the same without waiters.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from bench.engines import engine
from bench.measure import Bar, Figure, Measures, Workload, verify
from perdure.graphs import Graph, Node, Permit, tool

ROUNDS = 9
USES = 50
WAITERS = 400


@tool
async def nothing() -> int:
    return 1


async def asking(node: Node) -> list[float]:
    """The seconds and the processor seconds of one tool call, on average."""
    if node.input == "wait":
        await node.use("nothing")  # the permit makes it wait for a person
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(USES):
        await node.use("nothing")
    return [(time.perf_counter() - began) / USES, (time.process_time() - worked) / USES]


def asks(name: str, permits: list[Permit]) -> Graph:
    graph = Graph(name, runner=asking, tools=[nothing], permits=permits, rest_after=None)
    graph.node("a")
    return graph


async def timed(node: Node) -> float:
    if node.name == "slow":
        await asyncio.sleep(0.2)
    return time.perf_counter()


def skewed() -> Graph:
    graph = Graph("skewed", runner=timed)
    graph.node("fast")
    graph.node("slow")
    graph.node("dependent", after=["fast"])
    graph.reduce("all", "collect", after=["fast", "slow", "dependent"])
    return graph


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    free, held, both = asks("free", []), asks("held", [Permit("nothing", "ask", roles=("r",))]), skewed()
    async with engine(place, [free, held, both]) as opened:
        waits = []
        for number in range(ROUNDS):
            found = await (await opened.start(both, key=f"{number}")).result()
            verify(found["dependent"] < found["slow"], "the dependent waited for the sibling of its dependency")
            waits.append(found["dependent"] - found["fast"])
        alone = [await (await opened.start(free, key=f"a{number}")).result() for number in range(ROUNDS)]
        for number in range(WAITERS):
            await opened.start(held, "wait", key=f"{number}")
        crowd = [await (await opened.start(free, key=f"b{number}")).result() for number in range(ROUNDS)]
    return {
        "dependent": median(waits),
        "use": median(wall for wall, _ in alone),
        "crowd": median(cpu for _, cpu in crowd) / median(cpu for _, cpu in alone),
    }


WORKLOAD = Workload(
    "G3",
    "what waits in a graph",
    (
        Figure("a dependent begins after", "dependent", "ms"),
        Figure("the same in commits", "dependent", "commits", of="commits", bar=Bar("<=", 4)),
        Figure("a tool call", "use", "ms"),
        Figure("the same in commits", "use", "commits", of="commits", bar=Bar("<=", 2.5)),
        Figure(f"processor time of one while {WAITERS} wait", "crowd", "x", bar=Bar("<=", 1.3)),
    ),
    {"perdure": on_perdure},
)
