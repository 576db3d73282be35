"""G1: 300 instant nodes of a graph side by side, then one that joins them. What does a node cost when all is shared?

Peers run the same graph with a checkpoint after each step. Two more ratios of one run: against a flow that does the
same with steps, and 3,000 nodes against a topological execution in memory, with asyncio and without any store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import perdure
from bench.engines import engine
from bench.measure import Bar, Figure, Measures, Versus, Workload, verify
from bench.peers.environments import peers
from bench.sizes import G1_WIDE, GRAPH_ROUNDS
from perdure.graphs import Graph, Node

MANY = 3_000


async def instant(node: Node) -> int:
    return 1


async def one() -> int:
    return 1


def fan(width: int) -> Graph:
    graph = Graph(f"fan{width}", runner=instant)
    names = [graph.node(f"n{number}") for number in range(width)]
    graph.node("join", after=names)
    return graph


@perdure.flow
async def fan_flow(ctx: perdure.Context, width: int) -> int:
    await asyncio.gather(*[ctx.step(f"n{number}", one) for number in range(width)])
    return await ctx.step("join", one)


async def in_memory(graph: Graph) -> int:
    """The nodes of a graph in topological order, each a task that begins when its dependencies have ended."""
    done: dict[str, asyncio.Task[int]] = {}

    async def run(after: list[str]) -> int:
        for each in after:
            await done[each]
        return await one()

    async with asyncio.TaskGroup() as group:
        for spec in graph.model.nodes:
            done[spec.name] = group.create_task(run([name for _, name in spec.after]))
    return sum(each.result() for each in done.values())


async def seconds(start: Callable[[], Awaitable[Any]], expected: object = 1) -> float:
    began = time.perf_counter()
    result = await (await start()).result()
    taken = time.perf_counter() - began
    verify(result == expected, f"the result is {result!r:.80}")
    return taken


async def against(opened: perdure.Engine, graph: Graph, flow: Any, size: int) -> Measures:
    """The graph and the flow that does the same, in turns."""
    mine, other = [], []
    for number in range(GRAPH_ROUNDS + 1):
        before = opened.counts
        mine.append(await seconds(lambda: opened.start(graph, key=f"{number}")))  # noqa: B023
        verify_commits(graph, *[opened.counts[each] - before.get(each, 0) for each in ("entries", "commits")])
        other.append(await seconds(lambda: opened.start(flow, size, key=f"{number}")))  # noqa: B023
    return {"nodes": size / median(mine[1:]), "flow": median(mine[1:]) / median(other[1:])}


def verify_commits(graph: Graph, entries: int, commits: int) -> None:
    """Each node is an entry, and in a chain it is durable before the next one begins: else its time does not count."""
    nodes = graph.model.nodes
    verify(entries == len(nodes) + 1, f"{len(nodes)} nodes made {entries} entries")
    chained = all(spec.after == ((before.name, before.name),) for before, spec in pairwise(nodes))
    verify(not chained or commits == len(nodes) + 1, f"{len(nodes)} nodes in a chain made {commits} commits")


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    wide, many = fan(G1_WIDE), fan(MANY)
    async with engine(place, [wide, many, fan_flow]) as opened:
        found = await against(opened, wide, fan_flow, G1_WIDE)
        ratios = []
        for number in range(3):
            began = time.perf_counter()
            await in_memory(many)
            alone = time.perf_counter() - began
            ratios.append(await seconds(lambda: opened.start(many, key=f"{number}")) / alone)  # noqa: B023
    return {**found, "memory": median(ratios)}


WORKLOAD = Workload(
    "G1",
    f"a graph of {G1_WIDE} instant nodes side by side, and a join",
    (
        Figure("nodes", "nodes", "/s"),
        Figure("of the time of a flow that does the same", "flow", "x", bar=Bar("<=", 1.2)),
        Figure(f"of the time of {MANY:,} nodes in memory", "memory", "x", bar=Bar("<=", 8)),
    ),
    {"perdure": on_perdure},
    peers=peers("G1", "sqlite", of=("langgraph",)),
    versus=Versus("nodes", "nodes", "rate", {"langgraph": Bar(">=", 12)}),
    remarks={"dbos": "it has no graphs"},
)
