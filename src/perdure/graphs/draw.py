"""A graph as a picture: layers of nodes, and of an instance what became of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Literal

from perdure.drawing import Edge, Graph, Node
from perdure.drawing.model import State

from .model import Model, NodeSpec
from .state import NodeState
from .state import State as GraphState

SHAPES: Final = {"classify": "decision", "tournament": "parallel", "reduce": "join", "child": "subprocess"}
STATES: Final[dict[str, State]] = {
    "completed": "done",
    "partial": "done",
    "failed": "failed",
    "skipped": "dropped",
    "cancelled": "dropped",
}

Format = Literal["svg", "mermaid", "json"]
Direction = Literal["LR", "TB"]


def declared(model: Model) -> Graph:
    """The definition alone."""
    return _graph(model.nodes, {}, {})


def instance(state: GraphState) -> Graph:
    """All nodes of a running graph, those that were added too, with their outcomes and how much each was denied."""
    denied = Counter([each["node"] for each in state.denials])
    return _graph([node.the for node in state.nodes.values()], state.nodes, denied)


def _graph(specs: Iterable[NodeSpec], nodes: Mapping[str, NodeState], denied: Mapping[str, int]) -> Graph:
    by_name = {spec.name: spec for spec in specs}
    shapes: list[Node] = []
    edges: list[Edge] = []
    waited: set[str] = set()
    for spec in by_name.values():
        node = nodes.get(spec.name)
        kind = "agent" if spec.kind in ("node", "loop") else SHAPES.get(spec.kind) or _shape_of_wait(spec)
        badge = f"{count} denied" if (count := denied.get(spec.name)) else ""
        shapes.append(replace(_node(spec, kind, node), badge=badge))
        before = [(name, _label(by_name.get(name), spec, alias), False) for alias, name in spec.after]
        if node is not None and node.controller:
            before = [(node.controller, "", True)]
        elif node is not None and node.submitter and not before:
            before = [(node.submitter, "", True)]
        for name, label, dashed in before:
            went = _went(node) and _went(nodes.get(name))
            optional = spec.needs.get(name) in ("optional", "any_success")
            edges.append(Edge(name, spec.name, label, dashed=dashed or optional, went=went))
        if before:
            waited.add(spec.name)
    entries = tuple([shape.location for shape in shapes if shape.location not in waited])
    return Graph(tuple(shapes), tuple(edges), entries=entries)


def _shape_of_wait(spec: NodeSpec) -> str:
    return "receive" if spec.message else "task" if spec.question else "timer"


def _label(before: NodeSpec | None, spec: NodeSpec, alias: str) -> str:
    """Of an edge: the labels by which a classifier chooses the node, else the alias of the dependency."""
    labels = [] if before is None else [label for label, names in before.branches.items() if spec.name in names]
    return ", ".join(labels) or ("" if before is not None and alias == before.name else alias)


def _went(node: NodeState | None) -> bool:
    return node is not None and node.status in ("open", "ended") and node.outcome != "skipped"


def _node(spec: NodeSpec, kind: str, node: NodeState | None) -> Node:
    subtitle = spec.role if spec.role != "custom" else ""
    if spec.kind == "loop":
        subtitle = f"{subtitle} at most {spec.max_iters} times".strip()
    elif spec.kind == "child":
        subtitle = spec.workflow
    elif spec.kind == "wait":
        subtitle = spec.message or spec.question or f"{spec.seconds:g} s"
    if spec.trust == "quarantined" or (node is not None and not node.trusted):
        word = "quarantined" if spec.trust == "quarantined" else "untrusted"
        subtitle = f"{subtitle}, {word}".removeprefix(", ")
    if node is None:
        return Node(kind, spec.name, spec.name, subtitle)  # type: ignore[arg-type]
    state: State = STATES.get(node.outcome) or ("open" if node.status == "open" else "not reached")
    note = node.reason.replace("_", " ") if node.outcome != "completed" else ""
    if node.outcome == "partial" and node.reason != "partial":
        note = f"partial: {node.reason}"
    if node.the.kind == "loop" and node.attempts:
        note = f"{note} {node.iteration + 1} iterations".strip()
    return Node(kind, spec.name, spec.name, subtitle, state, note)  # type: ignore[arg-type]
