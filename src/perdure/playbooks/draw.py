"""A playbook as a picture: its steps and arcs, and of an instance its marking."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from perdure.drawing import Edge, Graph, Node
from perdure.drawing.model import State as Mark

from .model import Playbook, Step
from .state import State

Format = Literal["svg", "mermaid", "json"]
Direction = Literal["LR", "TB"]


def picture(playbook: Playbook, state: State | None = None) -> Graph:
    """The net; with a state: tokens at their steps, what was run, and gates that are closed."""
    entry = playbook.settings.entry_step or playbook.steps[0].name
    nodes = tuple([_node(step, state) for step in playbook.steps])
    edges = tuple([edge for step in playbook.steps for edge in _edges(step, state)])
    return Graph(nodes, edges, entries=(entry,))


def _node(step: Step, state: State | None) -> Node:
    kinds = ", ".join(dict.fromkeys([action.kind for action in step.actions]))
    badge = f"join {step.join.mode}" if step.join is not None else ""
    subtitle = f"{kinds}, loop" if step.loop is not None else kinds
    if state is None:
        return Node("step", step.name, step.name, subtitle, badge=badge, gate="closed" if step.admit else "")
    tokens = [token for token in state.marking.tokens.values() if token.step == step.name]
    states: Counter[str] = Counter([token.state for token in tokens])
    note = ", ".join([f"{count} {name}" for name, count in states.items()])
    fired = state.fired.get(step.name, 0)
    if fired > 1:
        note = f"{note}, {fired} runs" if note else f"{fired} runs"
    gate: Literal["", "open", "closed"] = "" if step.admit is None else "closed" if states["pending"] else "open"
    mark = _mark(step.name, state, states, fired)
    return Node("step", step.name, step.name, subtitle, mark, note, badge, len(tokens), gate)


def _mark(name: str, state: State, states: Counter[str], fired: int) -> Mark:
    if states["running"]:
        return "running"
    if states:
        return "open"
    if any(failed.location.partition("/")[0] == name and not failed.handled for failed in state.failures):
        return "failed"
    return "done" if fired else "not reached"


def _edges(step: Step, state: State | None) -> list[Edge]:
    arcs = step.next.arcs if step.next is not None else ()
    went = state is not None and state.fired.get(step.name, 0) > 0
    found = []
    for arc in arcs:
        reached = (
            went
            and state is not None
            and (
                state.fired.get(arc.step, 0) > 0 or any(each.step == arc.step for each in state.marking.tokens.values())
            )
        )
        label = arc.when if isinstance(arc.when, str) else arc.on
        found.append(Edge(step.name, arc.step, str(label), dashed=arc.on == "failed", went=reached))
    return found
