"""G4: what a node costs in a graph of 20,000, against one in a graph of 1,000. A cost that grows is a defect.

The cost is processor time: a disk that others use changes the seconds of a chain tenfold, and not what the code does.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import perdure
from bench.engines import engine
from bench.measure import Bar, Figure, Measures, Workload
from perdure.graphs import Graph, Node

from .g1_fan import fan, instant, seconds
from .g2_chain import chain

FEW, MANY = 1_000, 20_000
MESH = 100


def mesh(nodes: int) -> Graph:
    """Rows of 100; each node waits for three of the row before."""
    graph = Graph(f"mesh{nodes}", runner=instant, outputs=["end"])
    for number in range(nodes):
        row, column = divmod(number, MESH)
        before = {(column + step) % MESH for step in (-1, 0, 1)} if row else set()
        graph.node(f"n{number}", after=[f"n{(row - 1) * MESH + each}" for each in sorted(before)])
    graph.reduce("end", "count", after=[f"n{nodes - 1}"])
    return graph


async def submitting(node: Node) -> int:
    if node.name == "plan":
        for number in range(node.input):
            await node.submit([{"name": f"n{number}"}])
    return 1


def submitted(nodes: int) -> Graph:
    graph = Graph(f"submitted{nodes}", runner=submitting)
    graph.node("plan")
    return graph


async def worked(opened: perdure.Engine, graph: Graph, input: int | None, key: str) -> float:
    """Processor seconds of one instance."""
    began = time.process_time()
    await seconds(lambda: opened.start(graph, input, key=key))
    return time.process_time() - began


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    found: Measures = {}
    for name, make in (("fan", fan), ("chain", chain), ("mesh", mesh), ("submitted", submitted)):
        small, large = make(FEW), make(MANY)
        folder = place / name
        folder.mkdir()
        async with engine(folder, [small, large]) as opened:
            input = [FEW, MANY] if name == "submitted" else [None, None]
            few = min([await worked(opened, small, input[0], f"{number}") for number in range(3)]) / FEW
            many = min([await worked(opened, large, input[1], f"{number}") for number in range(2)]) / MANY
        found[name] = many / few
    return found


WORKLOAD = Workload(
    "G4",
    f"processor time of a node in a graph of {MANY:,}, against one of {FEW:,}",
    (
        Figure("side by side", "fan", "x", bar=Bar("<=", 1.2)),
        Figure("in a chain", "chain", "x", bar=Bar("<=", 1.2)),
        Figure(f"in a mesh {MESH} wide", "mesh", "x", bar=Bar("<=", 1.2)),
        Figure("submitted one by one", "submitted", "x", bar=Bar("<=", 1.2)),
    ),
    {"perdure": on_perdure},
    once=True,
    needs_floor=False,
)
