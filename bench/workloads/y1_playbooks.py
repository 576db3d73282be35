"""Y1, playbooks: how much slower is a net in YAML than a flow with the same steps, and does it stay as fast?

Every figure is a ratio in one run. The tool does nothing and is a plug-in, made for this run. What grows is measured on
the machine alone: there an action costs the same, whatever store is below it.
"""

from __future__ import annotations

import asyncio
import io
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import perdure
from bench.engines import engine, number
from bench.measure import Bar, Figure, Measures, Workload, verify
from perdure.codec import encode
from perdure.kernel.effects import Call
from perdure.kernel.events import Message, ReceiptArrived, Started
from perdure.kernel.moment import Moment
from perdure.kernel.receipt import Receipt
from perdure.tools import Told, Tool, ToolCall

IN_A_ROW = 1_000
AT_ONCE, ACTIONS = 1_000, 5
ITEMS, IN_FLIGHT = 10_000, 64
FEW, MANY = 1_000, 100_000
ROUNDS = 3
HEAD = "apiVersion: perdure/v1\nkind: Playbook\nmetadata: {name: %s}\n"
ADD = "{name: a%s, kind: bench, n: '{{ %s }}'}"


class NumberParams(msgspec.Struct):
    """Give a number back."""

    n: int


async def _run(params: NumberParams, call: ToolCall) -> Told:
    return Told(params.n)


NUMBER = Tool("bench", NumberParams, _run)


def _installed(place: Path) -> None:
    """The tool as a package of its own would bring it."""
    info = place / "bench_tool-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-tool\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[perdure.tools]\nbench = bench.workloads.y1_playbooks:NUMBER\n")
    sys.path.insert(0, str(place))


@perdure.flow
async def flow_row(ctx: perdure.Context, count: int) -> int:
    for each in range(count):
        await ctx.step("add", number, each)
    return count


async def _three(ctx: perdure.Context, item: int) -> int:
    for each in range(3):
        await ctx.step(f"a{each}", number, item)
    return item


@perdure.flow
async def flow_map(ctx: perdure.Context, count: int) -> int:
    async def work(item: int) -> int:
        return await _three(ctx, item)

    return len(await ctx.map("items", work, range(count), concurrency=IN_FLIGHT))


def _book(name: str, body: str) -> Any:
    return perdure.load_playbook(HEAD % name + body)


def _looped(name: str, actions: int, spec: str) -> Any:
    tool = ", ".join(ADD % (each, "iter.item") for each in range(actions))
    step = f"{{step: s, loop: {{in: '{{{{ workload.count }}}}', spec: {{{spec}, collect: none}}}}, tool: [{tool}]}}"
    return _book(
        name,
        f"executor: {{spec: {{result: '{{{{ workload.count }}}}'}}}}\nworkload: {{count: 1}}\nworkflow: [{step}]\n",
    )


def on_perdure(place: Path) -> Measures:
    _installed(place)
    asked = "import perdure, sys; print(len([m for m in sys.modules if m.startswith('perdure.playbooks')]))"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=True)
    figures = asyncio.run(_on_perdure(place))
    return figures | _guards() | _growth() | _loading() | {"import": float(loaded.stdout)}


async def _on_perdure(place: Path) -> Measures:
    row, wide = _looped("row", 1, "mode: sequential"), _looped("wide", 3, f"mode: parallel, max_in_flight: {IN_FLIGHT}")
    tool = ", ".join(ADD % (each, each) for each in range(ACTIONS))
    result = "executor: {spec: {result: '{{ workload.count }}'}}\nworkload: {count: 1}\n"
    five = _book("five", f"{result}workflow: [{{step: s, tool: [{tool}]}}]\n")
    figures: Measures = {}
    async with engine(place, [flow_row, flow_map, row, wide, five]) as opened:
        figures["row"], figures["actions"] = await _against(opened, row, flow_row, IN_A_ROW, 1)
        figures["once"], _ = await _against(opened, five, flow_row, ACTIONS, AT_ONCE)
        figures["map"], _ = await _against(opened, wide, flow_map, ITEMS, 1, rounds=1)
        figures["rows"] = await _rows_of_a_gate(opened)
    return figures


async def _against(  # noqa: PLR0917
    opened: perdure.Engine, playbook: Any, flow: Any, count: int, instances: int, rounds: int = ROUNDS
) -> tuple[float, float]:
    """The time of a playbook over that of a flow, turn by turn; and actions a second."""
    best: dict[str, float] = {}
    for turn in range(rounds + 1 if rounds > 1 else 1):
        for name, workflow in (("flow", flow), ("playbook", playbook)):
            taken = await _timed(lambda w=workflow, t=turn: _all(opened, w, f"{count}.{t}", count, instances))  # type: ignore[misc]
            if turn or rounds == 1:
                best[name] = min(best.get(name, taken), taken)
    return best["playbook"] / best["flow"], count * instances / best["playbook"]


async def _all(opened: perdure.Engine, workflow: Any, prefix: str, count: int, instances: int) -> None:
    async def one(number: int) -> None:
        handle = await opened.start(workflow, count=count, key=f"{prefix}.{number}")
        verify(await handle.result() == count, f"{handle.key} lost an action")

    await asyncio.gather(*(one(number) for number in range(instances)))


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


GATE = "spec: {policy: {admit: {rules: [{when: ctx.%s, then: {allow: true}}, {else: {then: {allow: false}}}]}}}"


async def _rows_of_a_gate(opened: perdure.Engine) -> float:
    """Rows of open work of an instance that waits at a gate."""
    held = _book(
        "held",
        "executor: {spec: {ctx: {go: {init: false}}}}\n"
        f"workflow: [{{step: s, {GATE % 'go'}, tool: {{kind: noop}}}}]\n",
    )
    await opened.playbooks.put(held)
    handle = await opened.start("held", key="k")
    verify(await handle.status() == "waiting", "it waits at its gate")
    return float(len([each for each in await handle.waiting() if each.due is not None]))


# ---- the machine alone ----------------------------------------------------------------------------------------------


class _Machine:
    """An instance without an engine: each call is answered at once."""

    def __init__(self, playbook: Any, **input: Any) -> None:
        self.machine = playbook.machine(f"{playbook.name}/k", None)
        self.open: dict[bytes, Any] = {}
        self.number = 0
        self.deliver(Started(playbook.name, "k", encode(input), bytes(32)))

    def deliver(self, event: Any) -> float:
        self.number += 1
        moment = Moment(1_700_000_000_000_000_000 + self.number, bytes(32), self.number, seq=7)
        began = time.perf_counter()
        decision = self.machine.deliver(event, moment)
        taken = time.perf_counter() - began
        for id in decision.withdraw:
            del self.open[id]
        self.open |= dict(zip(decision.intents, decision.open, strict=True))
        return taken

    def answers(self) -> Iterator[float]:
        while calls := [id for id, effect in self.open.items() if type(effect) is Call]:
            del self.open[calls[0]]
            yield self.deliver(ReceiptArrived(calls[0], Receipt("ok", encode({"result": 1}))))


def _growth() -> Measures:
    taken = list(_Machine(_looped("long", 1, "mode: sequential"), count=MANY).answers())
    late, early = statistics.median(taken[-FEW:]), statistics.median(taken[100 : FEW + 100])
    few, many = _chain(20), _chain(200)
    return {"late": late / early, "steps200": many / few, "gates": _freed(1_000) / _freed(10)}


def _chain(length: int) -> float:
    """An action of a playbook with so many steps that goes round."""
    steps = [f"{{step: s{n}, tool: {ADD % (n, n)}, next: s{(n + 1) % length}}}" for n in range(length)]
    machine = _Machine(
        _book("chain", f"executor: {{spec: {{limits: {{max_firings: 3000}}}}}}\nworkflow: [{', '.join(steps)}]\n")
    )
    return statistics.median(list(machine.answers())[500:2900])


def _freed(count: int) -> float:
    """A patch that opens one of so many gates."""
    keys = ", ".join(f"k{n}: {{init: false}}" for n in range(count))
    steps = ", ".join(f"{{step: g{n}, {GATE % f'k{n}'}, tool: {{kind: noop}}}}" for n in range(count))
    arcs = ", ".join(f"{{step: g{n}}}" for n in range(count))
    split = f"{{step: s, next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}}}"
    text = f"executor: {{spec: {{ctx: {{{keys}}}}}}}\nworkflow: [{split}, {steps}]\n"
    book = _many("gates", text) if count > 10 else _book("gates", text)
    machine = _Machine(book)
    patches = [Message("ctx", encode({"set": {f"k{n}": True}}), f"m{n}") for n in range(9)]
    return statistics.median([machine.deliver(each) for each in patches][1:])


def _many(name: str, text: str) -> Any:
    """A document with more nodes than a file may have: its bound is not what is measured."""
    from perdure.playbooks import load

    before = load.NODES_MAX
    load.NODES_MAX = 10 * before  # type: ignore[misc]
    try:
        return _book(name, text)
    finally:
        load.NODES_MAX = before  # type: ignore[misc]


GUARDS = [
    "outcome.status == 'error' and outcome.error.retryable",
    "ctx.n < 10 and ctx.name in ['a', 'b']",
    "event.name == 'step.done' and (ctx.rows | length) > 2",
    "not ctx.done or ctx.n % 3 == 0",
]


def _guards() -> Measures:
    from jinja2 import Environment

    from perdure.expressions.jinja import Scope, compile_guard

    roots = {
        "outcome": {"status": "error", "error": {"retryable": True}},
        "ctx": {"n": 3, "name": "b", "rows": [1, 2, 3], "done": False},
        "event": {"name": "step.done"},
    }
    now, scope = __import__("datetime").datetime.now(__import__("datetime").UTC), Scope(bind=lambda name: (name,))
    ours, theirs = [], []
    for text in GUARDS:
        guard, other = compile_guard(text, scope), Environment(autoescape=False).compile_expression(text)
        verify(bool(guard.evaluate(roots, now=now, entropy=bytes(64))) == bool(other(**roots)), f"{text} differs")
        ours.append(_best(lambda g=guard: g.evaluate(roots, now=now, entropy=bytes(64))))  # type: ignore[misc]
        theirs.append(_best(lambda o=other: o(**roots)))  # type: ignore[misc]
    return {"guard": max(a / b for a, b in zip(ours, theirs, strict=True)), "slowest_guard": max(ours) * 1e6}


def _best(work: Callable[[], object], times: int = 2_000) -> float:
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(times):
            work()
        taken.append((time.perf_counter() - began) / times)
    return min(taken)


def _loading() -> Measures:
    from ruamel.yaml import YAML

    from perdure.playbooks.model import from_bytes, to_bytes

    steps = "".join(
        f"  - step: s{n}\n    desc: step {n}\n    tool:\n      name: a\n      kind: http\n"
        "      url: 'https://x.example/{{ workload.n }}'\n"
        f"    next:\n      - {{step: s{n + 1}, when: ctx.n < {n}}}\n"
        if n < 199
        else f"  - step: s{n}\n    tool: {{kind: noop}}\n"
        for n in range(200)
    )
    text = HEAD % "large" + "executor: {spec: {ctx: {n: {init: 0}}}}\nworkload: {n: 1}\nworkflow:\n" + steps
    composed = _best(lambda: YAML(typ="safe", pure=True).compose(io.StringIO(text)), 1)
    stored = to_bytes(perdure.load_playbook(text).definition.playbook)
    return {
        "load": _best(lambda: perdure.load_playbook(text), 1) / composed,
        "open": _best(lambda: from_bytes(stored, "1"), 3) / composed,
    }


WORKLOAD = Workload(
    "Y1",
    "playbooks against flows with the same steps",
    (
        Figure("actions of one playbook in a row", "actions", "/s"),
        Figure(f"{IN_A_ROW:,} actions in a row, against a flow", "row", "x", bar=Bar("<=", 1.8)),
        Figure(f"{AT_ONCE:,} with {ACTIONS} actions at once, against flows", "once", "x", bar=Bar("<=", 2)),
        Figure(f"a parallel loop of {ITEMS:,} items with 3 actions, against `ctx.map`", "map", "x", bar=Bar("<=", 2)),
        Figure("a guard, against jinja2's `compile_expression`", "guard", "x", bar=Bar("<=", 0.5)),
        Figure("the slowest guard", "slowest_guard", "µs", bar=Bar("<=", 20)),
        Figure(f"action {MANY:,}, against action {FEW:,}", "late", "x", bar=Bar("<=", 1.2)),
        Figure("an action among 200 steps, against 20", "steps200", "x", bar=Bar("<=", 1.2)),
        Figure("one of 1,000 gates opens, against one of 10", "gates", "x", bar=Bar("<=", 1.2)),
        Figure("load and check 200 steps, against `compose`", "load", "x", bar=Bar("<=", 1.5)),
        Figure("open the stored model, against `compose`", "open", "x", bar=Bar("<=", 0.05)),
        Figure("rows of a gate that waits, beyond journal and head", "rows", "", bar=Bar("<=", 0)),
        Figure("modules of playbooks after `import perdure`", "import", "", bar=Bar("<=", 0)),
    ),
    {"perdure": on_perdure},
)
