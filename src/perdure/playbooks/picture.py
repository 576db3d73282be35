"""A playbook as a drawing: its net, and the marking of an instance on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.drawing.model import Edge, Graph, Node, State

from .model import Arc, Playbook, Step

_STATES: dict[str, State] = {"done": "done", "partial": "done", "failed": "failed"}


def graph_of(playbook: Playbook, seen: Mapping[str, Any] | None = None) -> Graph:
    """The net. `seen` is the state of an instance as people see it (`state.state_of`)."""
    tokens: dict[str, list[str]] = {}
    for token in seen["tokens"] if seen is not None else ():
        tokens.setdefault(token["step"], []).append(token["state"])
    ended: Mapping[str, str] = {} if seen is None else seen["steps"]
    nodes = [_node(step, tokens.get(step.name, []), ended.get(step.name), seen is not None) for step in playbook.steps]
    edges = [
        Edge(step.name, arc.step, _label(step, arc), arc.on == "failed", step.name in ended and arc.step in ended)
        for step in playbook.steps
        for arc in (step.next.arcs if step.next is not None else ())
    ]
    final = playbook.settings.final_step
    return Graph(tuple(nodes), tuple(edges), tuple(filter(None, (playbook.entry, final))))


def _node(step: Step, tokens: list[str], ended: str | None, live: bool) -> Node:
    state: State | None = None
    if live:
        state = "running" if "running" in tokens else "open" if tokens else _STATES.get(ended or "", "not reached")
    closed = "closed" if "pending" in tokens or not live else "open"
    kinds = ", ".join(dict.fromkeys(action.kind for action in step.actions))
    loop = "" if step.loop is None else f"{step.loop.mode} loop"
    join = "" if step.join is None else f"join {step.join.of if step.join.mode == 'number' else step.join.mode}"
    return Node(
        "step",
        step.name,
        step.name,
        kinds or "routes",
        state=state,
        badge=join or loop,
        tokens=len(tokens),
        gate=closed if step.admit is not None else "",  # type: ignore[arg-type]
    )


def _label(step: Step, arc: Arc) -> str:
    words: list[str] = [arc.on] if arc.on else []
    if isinstance(arc.when, str):
        words.append(arc.when)
    return ": ".join(words)
