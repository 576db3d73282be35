"""Growth: the nodes of a start, and batches that runs or people submit. A batch is taken whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.codec.converters.frame import did_you_mean
from perdure.errors import BadGraph, GraphProblem

from . import gate, life
from .check import Reading
from .fields import COUNTED, texts
from .fields import limits as read_limits
from .model import Limits, NodeSpec, fits_any, lower
from .state import Group, NodeState, Run
from .turn import Turn

if TYPE_CHECKING:
    from .author import Graph

NO_LIMITS: Final = Limits()


class Begun(msgspec.Struct):
    """The nodes that a start has beside the declared ones: spec, depth and submitter of each."""

    nodes: list[tuple[NodeSpec, int, str]] = []
    problems: list[GraphProblem] = []


def begin(graph: Graph, plain: Mapping[str, Any]) -> Begun:
    """What a start adds to the declared nodes, or everything that is wrong with it."""
    begun = Begun(problems=list(graph.problems))
    given, done = plain.get("nodes") or [], plain.get("done") or {}
    if begun.problems or not (given or done):
        return begun
    model = graph.model
    known = {spec.name: (spec, 0) for spec in model.nodes}
    left_out: set[str] = set()
    for submitter, raw in _by_submitter(given).items():
        base = _node_of(submitter)
        if submitter and base not in done:
            left_out |= {f"{submitter}/{each.get('name')}" for each in raw}
            continue  # it runs again, and submits them again
        if submitter and base not in known:
            begun.problems.append(GraphProblem(submitter, "it is named as a submitter, and there is no such node"))
            continue
        parent, depth = known[base] if submitter else (None, -1)
        tainted = parent is not None and parent.trust == "quarantined"
        batch = [{**each, "trust": "quarantined"} for each in raw] if tainted else raw
        reading = Reading(graph.book, f"{submitter}/" if submitter else "", known.keys(), tainted=tainted)
        found = reading.read(batch)
        begun.problems += reading.problems
        for each in found:
            spec = narrowed(graph, each, parent)
            known[spec.name] = (spec, depth + 1)
            begun.nodes.append((spec, depth + 1, base if submitter else ""))
    for name, value in done.items():
        branches = known[name][0].branches if name in known else {}
        if branches and (not isinstance(value, str) or value not in branches):
            text = f"{name} chose a label, one of {', '.join(branches)}; found {value!r:.80}"
            begun.problems.append(GraphProblem("done", text))
        if name not in known and name not in left_out:
            begun.problems.append(
                GraphProblem(
                    "done",
                    f"{name!r:.80} is no node{did_you_mean(name, known)}; there are: {', '.join(list(known)[:20])}",
                )
            )
    limit = model.limits.nodes
    weight = sum(spec.weight for spec, _ in known.values())
    if limit is not None and weight > limit:
        begun.problems.append(GraphProblem("limits", f"nodes={limit}, and the start has {weight}"))
    return begun


def authored(name: str, batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The nodes of an authored graph for a start: its vetoes and its limits tighten each of them."""
    try:
        _, limits, veto = _batch(batch)
    except ValueError as error:
        raise BadGraph(name, (GraphProblem("graph", f"expected {error}"),)) from None
    if wrong := [axis for axis in COUNTED if getattr(limits, axis) is not None]:
        text = f"{', '.join(wrong)} is a limit of the graph that is started: give it there"
        raise BadGraph(name, (GraphProblem("limits", text),))
    return [_tightened(each, limits, veto) for each in batch["nodes"]]


def _tightened(node: Any, limits: Limits, veto: tuple[str, ...]) -> Any:
    """What is wrong with a node is told when it is read."""
    try:
        tight = read_limits(node.get("limits")).tightened(limits)
        vetoes = (*texts(node.get("veto", ())), *veto)
    except (AttributeError, ValueError):
        return node
    axes = {axis: most for axis, most in msgspec.structs.asdict(tight).items() if most is not None}
    return {**node, "limits": axes, "veto": list(vetoes)}


def _by_submitter(given: list[Any]) -> dict[str, list[Any]]:
    batches: dict[str, list[Any]] = {}
    for each in given:
        if isinstance(each, Mapping) and isinstance(each.get("submitter"), str):
            rest = {field: value for field, value in each.items() if field != "submitter"}
            batches.setdefault(each["submitter"], []).append(rest)
        else:
            batches.setdefault("", []).append(each)
    return batches


def _node_of(submitter: str) -> str:
    """The node of a run: its location without the iteration."""
    node, slash, last = submitter.rpartition("/")
    return node if slash and last.startswith("~") else submitter


def submit(turn: Turn, node: NodeState | None, run: Run | None, asked: Any) -> dict[str, Any]:
    """Add a batch under a run, or at the top. Gives the answer: full names, or the denial."""
    state, limits = turn.state, turn.model.limits
    try:
        batch, extra, veto = _batch(asked)
    except ValueError as error:
        return turn.deny(node, "submit", "shape", f"expected {error}, found {asked!r:.80}")
    if not batch:
        return {"v": []}
    depth = node.depth + 1 if node is not None else 0
    if node is not None:
        limits = msgspec.structs.replace(limits, depth=lower(limits.depth, node.the.limits.depth))
    quarantined = node is not None and node.the.trust == "quarantined"
    if quarantined:
        batch = [{**each, "trust": "quarantined"} if isinstance(each, Mapping) else each for each in batch]
    prefix = f"{run.location}/" if run is not None else ""
    reading = Reading(turn.graph.book, prefix, state.nodes.keys(), tainted=quarantined)
    specs = reading.read(batch)
    added = sum(spec.weight for spec in specs)
    added = max(added, len(batch))
    verdict = gate.growth(limits, closed=state.cancelled, depth=depth, weight=state.weight, added=added)
    if verdict.word != "deny" and extra.nodes is not None and added > extra.nodes:
        verdict = gate.deny("nodes", f"the submitted graph allows itself {extra.nodes} nodes, and has {added}")
    subject = "submit"
    if verdict.word != "deny" and reading.problems:
        first = reading.problems[0]
        rest = len(reading.problems) - 1
        verdict = gate.deny("shape", f"{first.text}{f' (and {rest} more problems)' if rest else ''}")
        subject = first.where
    if verdict.word == "deny":
        return turn.deny(node, subject, verdict.stage, verdict.reason)
    if quarantined:
        turn.fact("tainted", {"submitter": node.name if node else "", "nodes": [spec.name for spec in specs]})
    if extra.depth is not None:
        extra = msgspec.structs.replace(extra, depth=depth + extra.depth)  # from here on: generations of the host
    parent = None if node is None else node.the
    group = -1 if node is None else node.group
    if extra.running is not None:
        state.groups.append(Group(extra.running, group))
        group = len(state.groups) - 1
    _take(turn, node, [narrowed(turn.graph, spec, parent, extra, veto) for spec in specs], depth, group)
    return {"v": [spec.name for spec in specs]}


def _batch(asked: Any) -> tuple[list[Any], Limits, tuple[str, ...]]:
    """The nodes of a batch; of an authored graph its limits and vetoes too."""
    if not isinstance(asked, Mapping):
        return list(asked) if isinstance(asked, list | tuple) else [asked], Limits(), ()
    nodes = asked.get("nodes", ())
    if not set(asked) <= {"nodes", "limits", "veto"} or not isinstance(nodes, list | tuple):
        raise ValueError("a list of nodes, or a mapping with nodes, limits and veto")
    return list(nodes), read_limits(asked.get("limits")), texts(asked.get("veto", ()))


def narrowed(
    graph: Graph, spec: NodeSpec, parent: NodeSpec | None, limits: Limits = NO_LIMITS, veto: tuple[str, ...] = ()
) -> NodeSpec:
    """Nothing that is submitted may do more than its submitter, the parent."""
    tools = spec.tools
    if parent is not None and parent.tools is not None:
        both = [name for name in graph.tools if fits_any(parent.tools, name)]
        tools = tuple([name for name in both if spec.tools is None or fits_any(spec.tools, name)])
    tight = spec.limits.tightened(msgspec.structs.replace(limits, running=None, nodes=None))
    if parent is not None:
        tight = tight.tightened(parent.limits)
    all_veto = tuple(dict.fromkeys((*(parent.veto if parent is not None else ()), *veto, *spec.veto)))
    return msgspec.structs.replace(spec, tools=tools, limits=tight, veto=all_veto)


def _take(turn: Turn, submitter: NodeState | None, specs: list[NodeSpec], depth: int, group: int) -> None:
    name = "" if submitter is None else submitter.name
    nodes = []
    for spec in specs:
        turn.state.weight += spec.weight
        nodes.append(life.add_node(turn, spec, depth=depth, submitter=name))
        nodes[-1].group = group
        if submitter is not None:
            submitter.children.append(spec.name)
            nodes[-1].untrusted = submitter.untrusted
        turn.fact("added", {"node": spec.name, "submitter": name, "depth": depth, "kind": spec.kind})
    life.link(turn, nodes)
