"""Does the model of `bench/model.py` tell the throughput? Flows of 10 steps, more and more of them at once.

The costs are taken from the two ends, one flow alone and 1,024 at once, and from the floor; what lies between is
predicted, and measured. All take turns, several rounds, so that each meets the same machine.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import perdure
from bench import server
from bench.engines import number
from bench.floor import BODY
from bench.floor_postgres import INSERT_MANY, TABLE, Between
from bench.measure import Curve, Figure, Measures, Workload, verify
from bench.model import Costs, entries_per_second, per_entry_and_commit

SECONDS = 0.8
STEPS = 10
ROUNDS = 5
POINTS: Final = (1, 4, 16, 64, 256, 1024)


@perdure.flow
async def ten(ctx: perdure.Context) -> int:
    return sum([await ctx.step("add", number, n) for n in range(STEPS)])


def on_perdure(place: Path) -> Measures:
    with server.schema() as url:
        return asyncio.run(_on_perdure(url))


async def _on_perdure(url: str) -> Measures:
    sums: dict[int, Measures] = {flows: {} for flows in POINTS}
    async with server.connection() as beside, perdure.open(url, workflows=[ten]) as opened:
        await beside.execute(TABLE)
        await _keep_going(opened, 64, 1.0)
        for _ in range(ROUNDS):
            for flows in POINTS:
                for name, value in (await _point(opened, beside, flows)).items():
                    sums[flows][name] = sums[flows].get(name, 0.0) + value
        row = await _row(beside)
    commit = sum(each["floor"] for each in sums.values()) / sum(each["floor_commits"] for each in sums.values())
    found = {flows: _rates(each) for flows, each in sums.items()}
    one, many = found[POINTS[0]], found[POINTS[-1]]
    engine = per_entry_and_commit(one["engine"], many["engine"], many["batch"])
    measures: Measures = {
        "commit": commit,
        "row": row,
        "engine_entry": engine[0],
        "engine_commit": engine[1],
        "share": many["share"],
    }
    for flows, point in found.items():
        costs = Costs(commit, row, *engine, share=many["share"])
        predicted = entries_per_second(costs, flows, server.SHARDS)
        shown = {**point, "predicted": predicted, "ratio": predicted / point["entries"]}
        measures |= {f"{name}@{flows}": value for name, value in shown.items()}
    errors = sorted(abs(measures[f"ratio@{flows}"] - 1) for flows in POINTS[:-1])  # the last one gave the share
    return {**measures, "error": errors[len(errors) // 2], "worst": errors[-1]}


async def _point(opened: perdure.Engine, beside: Any, flows: int) -> Measures:
    """What was done and used, in sums."""
    floor = Between(beside)
    await floor.commit(50)
    before = opened.counts
    began, worked, served = time.perf_counter(), time.process_time(), await server.processor_time(beside)
    await _keep_going(opened, flows, SECONDS)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    served = await server.processor_time(beside) - served
    return {
        "entries": opened.counts["entries"] - before["entries"],
        "commits": opened.counts["commits"] - before["commits"],
        "seconds": seconds,
        "worked": worked,
        "served": served,
        "floor": floor.seconds,
        "floor_commits": len(floor.times),
    }


def _rates(sums: Measures) -> Measures:
    return {
        "entries": sums["entries"] / sums["seconds"],
        "batch": sums["entries"] / sums["commits"],
        "engine": sums["worked"] / sums["entries"],
        "server": sums["served"] / sums["entries"],
        "share": min(1.0, sums["worked"] / sums["seconds"]),
    }


async def _keep_going(opened: perdure.Engine, flows: int, seconds: float) -> None:
    until = time.monotonic() + seconds

    async def one() -> None:
        while time.monotonic() < until:
            handle = await opened.start(ten)
            verify(await handle.result() == sum(range(STEPS)), "a flow gave another result than it should")

    await asyncio.gather(*(one() for _ in range(flows)))


async def _row(beside: Any) -> float:
    """What each further row of a commit takes."""
    rows, times = 500, 20
    floor = Between(beside)
    began = time.perf_counter()
    for _ in range(times):
        await beside.execute(INSERT_MANY, [BODY] * rows)
    many = (time.perf_counter() - began) / times
    await floor.commit(100)
    return max(0.0, (many - floor.mean) / rows)


WORKLOAD = Workload(
    "postgres-model",
    "flows of 10 steps, more and more at once, measured and predicted",
    (
        Figure("how far off the model is, in the middle", "error", "%"),
        Figure("how far off it is at most", "worst", "%"),
        Figure("a commit of one row by itself", "commit", "ms"),
        Figure("each further row of a commit", "row", "µs"),
        Figure("processor time of the engine per entry", "engine_entry", "µs"),
        Figure("processor time of the engine per commit", "engine_commit", "µs"),
        Figure("how much of a core the engine got when it was busy", "share", "%"),
    ),
    {"perdure": on_perdure},
    store="postgres",
    once=True,
    needs_floor=False,
    curve=Curve(
        "flows at once",
        {flows: f"{flows:,}" for flows in POINTS},
        (
            Figure("entries", "entries", "/s"),
            Figure("predicted", "predicted", "/s"),
            Figure("entries per commit", "batch"),
            Figure("processor time per entry, engine", "engine", "µs"),
            Figure("processor time per entry, server", "server", "µs"),
        ),
    ),
)
