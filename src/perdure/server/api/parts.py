"""What instances of some dialects have besides: ctx and tokens of a playbook, the report of a graph."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.errors import CallerError
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.runtime.bulk import handle_of

from ..calling import Calling, id_of
from ..problems import HttpProblem
from ..reading import no_such
from .instances import Id

ANSWER_SECONDS: Final = 9.0
REPORT: Final = "report"


async def _state(calling: Calling, head: HeadRow, field: str) -> dict[str, Any] | None:
    """The state of an instance that has such a field; None: it has ended."""
    newest = await calling.client.queries.head(Address(head.workflow, head.key))
    if newest is None or newest.id != head.id:
        return None
    try:
        found = await calling.client.state(head.workflow, head.key)
    except CallerError as error:
        raise HttpProblem(409, "code-not-here", f"the state of {id_of(head)} is not known here: {error}") from None
    if found is None:
        return None
    if not isinstance(found, dict) or field not in found:
        raise HttpProblem(422, "bad-request", f"{id_of(head)} has no {field}: it is of another dialect")
    return found


class CtxAnswer(msgspec.Struct, frozen=True):
    """`state` is the ctx; null after the end."""

    id: str
    state: Any
    ctx_version: int | None


async def ctx(calling: Calling, given: Id) -> CtxAnswer:
    head = await calling.find(given.id)
    found = await _state(calling, head, "ctx")
    if found is None:
        return CtxAnswer(id_of(head), None, None)
    return CtxAnswer(id_of(head), found["ctx"], found["ctx_version"])


class TokensAnswer(msgspec.Struct, frozen=True):
    """Where the tokens are, and what became of each step."""

    id: str
    tokens: list[dict[str, Any]]
    steps: dict[str, Any]
    counts: dict[str, Any]


async def tokens(calling: Calling, given: Id) -> TokensAnswer:
    head = await calling.find(given.id)
    found = await _state(calling, head, "tokens") or {"tokens": [], "steps": {}, "counts": {}}
    hidden = () if calling.values(head.workflow) else ("args",)
    rows = [{name: value for name, value in each.items() if name not in hidden} for each in found["tokens"]]
    return TokensAnswer(id_of(head), rows, found["steps"], found["counts"])


class PatchParams(msgspec.Struct, frozen=True):
    """Keys of ctx with their values. `if_version`: only if ctx still has this version. `reason` is recorded."""

    id: str
    set: dict[str, Any]
    if_version: int | None = None
    reason: str = ""


class PatchAnswer(msgspec.Struct, frozen=True):
    id: str
    ctx_version: int


async def patch(calling: Calling, given: PatchParams) -> PatchAnswer:
    head = await calling.find(given.id)
    if await _state(calling, head, "ctx") is None:
        raise HttpProblem(409, "instance-ended", f"{id_of(head)} has {head.status} and takes no patch")
    body: dict[str, Any] = {"set": given.set}
    if given.if_version is not None:
        body["if_ctx_version"] = given.if_version
    answer = await _answer(calling, head, "ctx", body, given.reason)
    if "refused" in answer:
        raise HttpProblem(409, "patch-refused", f"{id_of(head)}: {answer['refused']}")
    return PatchAnswer(id_of(head), answer["ctx_version"])


class SubmitParams(msgspec.Struct, frozen=True):
    """Nodes as the file of a graph has them. `limits` and `veto` tighten those of the graph."""

    id: str
    nodes: list[Any]
    limits: dict[str, Any] | None = None
    veto: list[str] = []


class SubmitAnswer(msgspec.Struct, frozen=True):
    """The full names of the nodes that were added."""

    id: str
    names: list[str]


async def submit(calling: Calling, given: SubmitParams) -> SubmitAnswer:
    """All nodes are taken, or none."""
    head, _ = await _nodes(calling, given.id)
    body: Any = {"nodes": given.nodes, "veto": given.veto}
    answer = await _answer(calling, head, "submit", body if given.limits is None else {**body, "limits": given.limits})
    denied = answer.get("denied")
    if denied is not None:
        text = f"{id_of(head)} denied {denied['subject']} at the stage {denied['stage']}: {denied['reason']}"
        raise HttpProblem(409, "denied", text, stage=denied["stage"])
    return SubmitAnswer(id_of(head), answer["names"])


class NodeParams(msgspec.Struct, frozen=True):
    id: str
    node: str


class NodeAnswer(msgspec.Struct, frozen=True):
    id: str
    node: str
    outcome: Any


async def cancel_node(calling: Calling, given: NodeParams) -> NodeAnswer:
    head, names = await _nodes(calling, given.id)
    if given.node not in names:
        raise HttpProblem(404, "unknown-node", no_such("node", given.node, names))
    answer = await _answer(calling, head, "cancel", {"node": given.node})
    return NodeAnswer(id_of(head), answer["node"], answer["outcome"])


async def _nodes(calling: Calling, id: str) -> tuple[HeadRow, list[str]]:
    """An instance that has nodes and is open, and the names of its nodes."""
    head = await calling.find(id)
    found = await _state(calling, head, "nodes")
    if found is None:
        raise HttpProblem(409, "instance-ended", f"{id_of(head)} has {head.status}: its nodes stay as they are")
    return head, [each["node"] for each in found["nodes"]]


async def _answer(calling: Calling, head: HeadRow, name: str, body: Any, reason: str = "") -> Any:
    said: Any = {"id": calling.event} if calling.event else {}
    return await handle_of(calling.client, head).ask(name, body, timeout=ANSWER_SECONDS, **said, **reason_of(reason))


def reason_of(reason: str) -> Any:
    """The reason of a body; without it, the one of the header `X-Reason` is recorded."""
    return {"reason": reason} if reason else {}


class ReportAnswer(msgspec.Struct, frozen=True):
    """A row for each node of a graph, what was denied, and what was used of the budget."""

    id: str
    nodes: list[dict[str, Any]]
    denials: list[dict[str, Any]]
    used: dict[str, Any]


async def report(calling: Calling, given: Id) -> ReportAnswer:
    head = await calling.find(given.id)
    found = await _state(calling, head, "nodes")
    if found is None:  # a graph that has ended has published it
        found = await handle_of(calling.client, head).read(REPORT)
    if not isinstance(found, dict) or "nodes" not in found:
        raise HttpProblem(422, "bad-request", f"{id_of(head)} has no report: it is no graph")
    hidden = () if calling.values(head.workflow) else ("detail", "notes", "bracket")
    nodes = [{name: value for name, value in each.items() if name not in hidden} for each in found["nodes"]]
    return ReportAnswer(id_of(head), nodes, found["denials"], found["used"])
