"""A graph that has failed runs again what failed, and what that had skipped. All else stays done."""

from __future__ import annotations

from .state import NodeState, State


def reset(state: State) -> list[NodeState]:
    """Make nodes as they were before they failed or were skipped; gives them in the order of the graph."""
    again: list[NodeState] = []
    for node in list(state.nodes.values()):
        if node.name not in state.nodes or not _failed(node):
            continue
        for name in node.children:
            if state.nodes[name].left:  # the judges of a tournament that found no winner
                del state.nodes[name]
        node.children = [name for name in node.children if name in state.nodes]
        again.append(node)
    again = [node for node in again if node.name in state.nodes]
    for node in again:
        _begin(node)
        state.alive += 1
        if node.the.kind == "tournament" and node.children:
            node.status = "open"
    return again


def _failed(node: NodeState) -> bool:
    return node.outcome == "failed" or (node.outcome == "skipped" and node.reason == "upstream")


def _begin(node: NodeState) -> None:
    node.status, node.outcome, node.reason, node.detail = "blocked", "", "", ""
    node.value, node.rounds, node.ended_at = b"", [], 0
    node.run = None
