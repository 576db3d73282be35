"""P1, processes: how much slower is a definition that is interpreted than a flow with the same steps?

Every figure is a ratio in one run, against a bare flow with the same `async def` steps. The bars are in the spec of
processes: at least 0.6 of the flow's steps a second in a row, 0.5 with 1,000 at once; a slice of 20 pure steps and a
call takes at most twice the processor time of one call; start to result and message to next step take at most 1.5
times the flow's; a rebuild behind 1,000 calls takes at most twice the flow's; one of many by reference costs at most
1.5 times one of few; compiling 50 steps and drawing 100 nodes each take at most the time of 30 entries.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import perdure
from bench.engines import engine
from bench.measure import Figure, Measures, Workload, verify
from perdure.processes import (
    Call,
    Complete,
    Decide,
    Process,
    Receive,
    Reference,
    Repeat,
    Set,
    python,
    result,
    start,
    state,
)

IN_A_ROW = 200
AT_ONCE, CALLS = 1_000, 5
ROUNDS = 3
LATENCIES = 200
LONG = 1_000
FEW, MANY = 1_000, 20_000


@perdure.step
async def add(n: int) -> int:
    return n + 1


@perdure.flow
async def flow_row(ctx: perdure.Context, count: int) -> int:
    value = 0
    for _ in range(count):
        value = await ctx.step("add", add, value)
    return value


@perdure.flow
async def flow_hears(ctx: perdure.Context) -> int:
    await ctx.receive("go")
    return await ctx.step("add", add, 0)


ADD = python("bench.workloads.p1_processes:add")


def _call(name: str) -> Call:
    return Call(name, ADD, {"n": state.value}, result="value")


row = Process(
    "row",
    version="1.0.0",
    state={"value": 0},
    steps=[
        Repeat("calls", [_call("add"), Set("value", result.value)], times=start.count, limit=10_000),
        Complete(state.value),
    ],
)
hears = Process(
    "hears", version="1.0.0", state={"value": 0}, steps=[Receive("m", "go"), _call("add"), Complete(result.value)]
)
found = Process("found", version="1.0.0", reference=Reference(start.order), steps=[Receive("m", "go")])


def _pure(count: int) -> Process:
    """Calls with so many pure steps before each."""
    pure = [
        Set(f"x{n}", state.value + n) if n % 2 else Decide(f"d{n}", state.value >= 0, then=[Set(f"y{n}", n)])
        for n in range(count)
    ]
    body: list[Any] = [*pure, _call("add"), Set("value", result.value)]
    steps = [Repeat("calls", body, times=start.count, limit=10_000), Complete(state.value)]
    return Process(f"pure-{count}", version="1.0.0", state={"value": 0}, steps=steps)


PURE = {count: _pure(count) for count in (0, 20)}
WORKFLOWS = [flow_row, flow_hears, row, hears, found, *PURE.values()]


def on_perdure(place: Path) -> Measures:
    return asyncio.run(_on_perdure(place))


async def _on_perdure(place: Path) -> Measures:
    figures: Measures = {}
    async with engine(place, WORKFLOWS) as opened:
        rates = await _rates(opened)
        figures["row"] = rates["row"]["process"] / rates["row"]["flow"]
        figures["once"] = rates["once"]["process"] / rates["once"]["flow"]
        figures["steps"] = rates["once"]["process"]
        figures["entries"] = await _entries(opened)
        figures["pure"] = await _pure_ratio(opened)
        figures["latency"] = await _latency(opened, row, flow_row)
        figures["message"] = await _message(opened)
        entry = IN_A_ROW / rates["row"]["flow"] / IN_A_ROW
        figures["compile"] = _best(_compiled) / entry
        figures["draw"] = _best(_drawn) / entry
    figures["rebuild"] = await _rebuild(place)
    figures["reference"] = await _reference(place)
    return figures


async def _rates(opened: perdure.Engine) -> dict[str, dict[str, float]]:
    """Steps a second of both, turn by turn; the first round gets warm."""
    best: dict[str, dict[str, float]] = {"row": {}, "once": {}}
    for number in range(ROUNDS + 1):
        for name, workflow in (("flow", flow_row), ("process", row)):
            taken = await _timed(lambda w=workflow, n=number: _run(opened, w, f"r{n}", IN_A_ROW, 1))  # type: ignore[misc]
            once = await _timed(lambda w=workflow, n=number: _run(opened, w, f"o{n}", CALLS, AT_ONCE))  # type: ignore[misc]
            if number:
                best["row"][name] = max(best["row"].get(name, 0), IN_A_ROW / taken)
                best["once"][name] = max(best["once"].get(name, 0), AT_ONCE * CALLS / once)
    return best


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def _run(opened: perdure.Engine, workflow: Any, prefix: str, count: int, instances: int) -> None:
    async def one(number: int) -> None:
        handle = await opened.start(workflow, count=count, key=f"{prefix}.{number}")
        verify(await handle.result() == count, f"{handle.key} lost a step")

    await asyncio.gather(*(one(number) for number in range(instances)))


async def _entries(opened: perdure.Engine) -> float:
    """Entries beyond one for each call and one for the start."""
    history = await opened.handle(row, "r1.0").history()
    return len(history) - IN_A_ROW - 1


async def _pure_ratio(opened: perdure.Engine) -> float:
    times: dict[int, list[float]] = {0: [], 20: []}
    for number in range(ROUNDS + 1):
        for count, process in PURE.items():
            began = time.process_time()
            await _run(opened, process, f"p{number}", 100, 1)
            times[count].append(time.process_time() - began)
    return min(times[20][1:]) / min(times[0][1:])


async def _latency(opened: perdure.Engine, process: Process, flow: Any) -> float:
    taken: dict[str, list[float]] = {"process": [], "flow": []}
    for number in range(LATENCIES):
        for name, workflow in (("process", process), ("flow", flow)):
            began = time.perf_counter()
            await (await opened.start(workflow, count=1, key=f"l{number}")).result()
            taken[name].append(time.perf_counter() - began)
    return statistics.median(taken["process"]) / statistics.median(taken["flow"])


async def _message(opened: perdure.Engine) -> float:
    taken: dict[str, list[float]] = {"process": [], "flow": []}
    for number in range(LATENCIES):
        for name, workflow in (("process", hears), ("flow", flow_hears)):
            handle = await opened.start(workflow, key=f"h{number}")
            began = time.perf_counter()
            await handle.send("go")
            verify(await handle.result() == 1, f"{handle.key} ended with something else")
            taken[name].append(time.perf_counter() - began)
    return statistics.median(taken["process"]) / statistics.median(taken["flow"])


def _best(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


def _fifty() -> list[Any]:
    return [Call(f"c{n}", ADD, {"n": state.value}) if n % 2 else Set(f"x{n}", state.value + n) for n in range(50)]


def _compiled() -> None:
    process = Process("fifty", version="1.0.0", steps=_fifty())
    verify(not [each for each in process.problems if each.severity == "error"], "fifty steps have problems")
    verify(process.program is not None, "it was not compiled")


def _drawn() -> None:
    _HUNDRED.draw("svg")


_HUNDRED = Process(
    "hundred",
    version="1.0.0",
    steps=[Decide(f"d{n}", state.x > n, then=[_call("a"), _call("b")], otherwise=[Set("x", n)]) for n in range(25)],
)


async def _rebuild(place: Path) -> float:
    """How long an engine takes to go on with an instance that has 1,000 calls behind it, against a flow."""
    taken = {}
    for name, workflow in (("flow", long_flow), ("process", long_process)):
        directory = place / name
        directory.mkdir()
        async with engine(directory, [workflow]) as opened:
            handle = await opened.start(workflow, key="a")
            while not [each for each in await handle.waiting() if each.kind == "wait"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        best = []
        async with engine(directory, [workflow]) as opened:
            began = time.perf_counter()
            handle = opened.handle(workflow, "a")
            await handle.send("go")
            await handle.result()
            best.append(time.perf_counter() - began)
        taken[name] = min(best)
    return taken["process"] / taken["flow"]


@perdure.flow
async def long_flow(ctx: perdure.Context) -> int:
    value = 0
    for _ in range(LONG):
        value = await ctx.step("add", add, value)
    await ctx.receive("go")
    return value


long_process = Process(
    "long",
    version="1.0.0",
    state={"value": 0},
    steps=[
        Repeat("calls", [_call("add"), Set("value", result.value)], times=LONG, limit=LONG),
        Receive("m", "go"),
        Complete(state.value),
    ],
)


async def _reference(place: Path) -> float:
    """How much longer one of many takes to find than one of few."""
    times = []
    directory = place / "reference"
    directory.mkdir()
    async with engine(directory, [found]) as opened:
        for begin, end in ((0, FEW), (FEW, MANY)):
            for first in range(begin, end, 1000):
                keys = range(first, min(first + 1000, end))
                await asyncio.gather(*(opened.start(found, order=f"o-{n}", key=str(n)) for n in keys))
            taken = []
            for number in range(0, FEW, 5):
                began = time.perf_counter()
                heads = await opened.instances(reference=f"o-{number}")
                taken.append(time.perf_counter() - began)
                verify(len(heads) == 1, f"{len(heads)} instances have the reference o-{number}")
            times.append(statistics.median(taken))
    return times[1] / times[0]


WORKLOAD = Workload(
    "P1",
    "processes against flows with the same steps",
    (
        Figure("steps of processes", "steps", "/s"),
        Figure(f"steps of one with {IN_A_ROW} calls, against a flow", "row", "x"),
        Figure(f"steps of {AT_ONCE:,} with {CALLS} calls, against flows", "once", "x"),
        Figure("entries beyond calls and start", "entries", ""),
        Figure("processor time of 20 pure steps and a call, against a call", "pure", "x"),
        Figure("start to result, against a flow", "latency", "x"),
        Figure("message to result, against a flow", "message", "x"),
        Figure(f"going on with {LONG:,} calls behind it, against a flow", "rebuild", "x"),
        Figure(f"one of {MANY:,} by reference, against one of {FEW:,}", "reference", "x"),
        Figure("compiling 50 steps, in entries", "compile", ""),
        Figure("drawing 100 nodes, in entries", "draw", ""),
    ),
    {"perdure": on_perdure},
)
