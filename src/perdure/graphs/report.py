"""The report of a graph: a row for each node, and every denial."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any, Final

from perdure.codec import encode
from perdure.kernel.moment import when
from perdure.kernel.receipt import DATA_MAX

from .model import AXES
from .state import NodeState, State

REPORT: Final = "report"
"""The name under which a graph publishes its report when it ends."""

FAILED: Final = "GraphFailed"
"""The error of a graph that has failed. Its data is the report."""


def report_of(state: State) -> dict[str, Any]:
    """All that is known of the nodes by now, as plain data."""
    return {
        "nodes": [_row(node) for node in state.nodes.values()],
        "denials": [{**each, "at": when(each["at"])} for each in state.denials],
        "used": dict(state.used),
    }


async def report(handle: Any) -> dict[str, Any]:
    """A row for each node, of a graph that runs or has ended: `await perdure.graphs.report(handle)`.

    A graph that has ended has published it. That of a running one is rebuilt from its journal, which needs its code.
    """
    found = await _told(handle.state())
    if found is None:
        found = await _told(handle.read(REPORT))
    return {"nodes": [], "denials": [], "used": {}} if found is None else found


async def _told(answer: Any) -> Any:
    """The handle of a test's `World` answers without `await`."""
    return await answer if isawaitable(answer) else answer


def failure_data(state: State) -> dict[str, Any]:
    """The report as an error carries it. A very long one has the nodes that did not complete."""
    whole = report_of(state)
    if len(encode(whole)) <= DATA_MAX:
        return whole
    rows = [row for row in whole["nodes"] if row["outcome"] != "completed"][:1000]
    return {"nodes": rows, "denials": whole["denials"][:1000], "used": whole["used"], "cut": True}


def _row(node: NodeState) -> dict[str, Any]:
    row: dict[str, Any] = {
        "node": node.name,
        "kind": node.the.kind,
        "status": node.status,
        "outcome": node.outcome,
        "reason": node.reason,
        "attempts": node.attempts,
        "usage": dict(node.used),
        "used": dict(node.used),  # its name until 1.0
        "trust": "untrusted" if node.untrusted and node.the.trust == "trusted" else node.the.trust,
        "limits": {axis: limit for axis in AXES if (limit := getattr(node.the.limits, axis)) is not None},
        "opened_at": when(node.opened_at) if node.opened_at else None,
        "ended_at": when(node.ended_at) if node.ended_at else None,
    }
    if node.detail:
        row["detail"] = node.detail
    if node.submitter:
        row["submitter"] = node.submitter
        row["depth"] = node.depth
    if node.the.kind == "loop":
        row["iterations"] = node.iteration + 1
    if node.notes:
        row["notes"] = list(node.notes)
    if node.rounds:
        row["bracket"] = [[[each.left, each.right, each.winner] for each in one.meetings] for one in node.rounds]
    return row
