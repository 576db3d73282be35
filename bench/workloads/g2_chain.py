"""G2: 100 instant nodes of a graph in a chain. What does a node cost when nothing can be shared?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import perdure
from bench.engines import engine
from bench.measure import Bar, Figure, Measures, Versus, Workload
from bench.peers.environments import peers
from bench.sizes import G2_LONG
from perdure.graphs import Graph

from .g1_fan import against, instant, one


def chain(length: int) -> Graph:
    graph = Graph(f"chain{length}", runner=instant)
    for number in range(length):
        graph.node(f"n{number}", after=[f"n{number - 1}"] if number else [])
    return graph


@perdure.flow
async def chain_flow(ctx: perdure.Context, length: int) -> int:
    for number in range(length):
        await ctx.step(f"n{number}", one)
    return 1


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    long = chain(G2_LONG)
    async with engine(place, [long, chain_flow]) as opened:
        return await against(opened, long, chain_flow, G2_LONG)


WORKLOAD = Workload(
    "G2",
    f"a graph of {G2_LONG} instant nodes in a chain",
    (
        Figure("nodes", "nodes", "/s"),
        Figure("of the time of a flow that does the same", "flow", "x", bar=Bar("<=", 1.2)),
    ),
    {"perdure": on_perdure},
    peers=peers("G2", "sqlite", of=("langgraph",)),
    versus=Versus("nodes", "nodes", "rate", {"langgraph": Bar(">=", 2)}),
    remarks={"dbos": "it has no graphs"},
)
