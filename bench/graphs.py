"""Graphs against flows that do the same, and their growth. Ratios within one run; the machine's speed does not count.

    python -m bench.graphs

It prints a line for each measure of the page on graphs that needs no peer: what was measured, and the bar.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import perdure
from perdure.graphs import Graph, Node, Permit, tool

ROUNDS = 9


async def instant(node: Node) -> int:
    return 1


async def one() -> int:
    return 1


@tool
async def nothing() -> int:
    return 1


def fan(width: int) -> Graph:
    graph = Graph(f"fan{width}", runner=instant)
    names = [graph.node(f"n{number}") for number in range(width)]
    graph.node("join", after=names)
    return graph


def chain(length: int) -> Graph:
    graph = Graph(f"chain{length}", runner=instant)
    for number in range(length):
        graph.node(f"n{number}", after=[f"n{number - 1}"] if number else [])
    return graph


@perdure.flow
async def fan_flow(ctx: perdure.Context, width: int) -> int:
    await asyncio.gather(*[ctx.step(f"n{number}", one) for number in range(width)])
    return await ctx.step("join", one)


@perdure.flow
async def chain_flow(ctx: perdure.Context, length: int) -> int:
    for number in range(length):
        await ctx.step(f"n{number}", one)
    return 1


async def asking(node: Node) -> float:
    """The processor time of 20 tool calls."""
    if node.input == "wait":
        await node.use("nothing")  # the permit makes it wait for a person
    began = time.process_time()
    for _ in range(20):
        await node.use("nothing")
    return time.process_time() - began


def requests(name: str, permits: list[Permit]) -> Graph:
    graph = Graph(name, runner=asking, tools=[nothing], permits=permits, rest_after=None)
    graph.node("a")
    return graph


async def seconds(start: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await (await start()).result()
    return time.perf_counter() - began


async def main() -> None:
    wide, long, small, large = fan(300), chain(100), fan(1000), fan(20_000)
    sizes = ((small, 1000), (large, 20_000))
    free = requests("free", [])
    held = requests("held", [Permit("nothing", "ask", roles=("r",))])
    with tempfile.TemporaryDirectory(dir=".") as folder:
        url = Path(folder) / "graphs.db"
        workflows = [wide, long, small, large, free, held, fan_flow, chain_flow]
        async with perdure.open(url, workflows=workflows) as engine:
            for graph, flow, size in ((wide, fan_flow, 300), (long, chain_flow, 100)):
                times: list[tuple[float, float]] = []
                for number in range(ROUNDS):
                    key = str(number)
                    mine = await seconds(partial(engine.start, graph, key=key))
                    other = await seconds(partial(engine.start, flow, size, key=key))
                    times.append((mine, other))
                ratio = median(mine for mine, _ in times) / median(other for _, other in times)
                print(f"{graph.name}: {ratio:.2f} of the time of a flow (bar 1.2)")
            costs = [await seconds(partial(engine.start, graph, key="g")) / size for graph, size in sizes]
            print(f"growth: a node costs {costs[1] / costs[0]:.2f} at 20,000 nodes of what it costs at 1,000 (bar 1.2)")
            alone = median([await (await engine.start(free, key=f"a{n}")).result() for n in range(ROUNDS)])
            for number in range(400):
                await engine.start(held, "wait", key=str(number))
            crowd = median([await (await engine.start(free, key=f"b{n}")).result() for n in range(ROUNDS)])
            print(f"requests: {crowd / alone:.2f} of the processor time while 400 others wait (bar 1.3)")


if __name__ == "__main__":
    asyncio.run(main())
