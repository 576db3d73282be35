"""What the receipt of a run means: the output is checked, then the node ends, is repaired, retried, or goes on."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from perdure.codec import decode, encode, from_plain, to_plain
from perdure.errors import PerdureError
from perdure.kernel.receipt import Failure, Receipt

from . import life
from .opening import again
from .ready import give_place_back
from .requests import _dice
from .state import NodeState, Run, usage_problem
from .turn import Turn

FENCE: Final = re.compile(r"```[a-zA-Z]*[ \t]*\r?\n(.*?)\n[ \t]*```", re.DOTALL)
DETAIL_MAX: Final = 2000


class Misfit(Exception):
    """An output is not what the node promises."""


def run_answered(turn: Turn, node: NodeState, receipt: Receipt) -> None:
    """The call of a run has ended by itself."""
    run = node.run
    assert run is not None
    life.close_call(turn, node, run, withdraw=False)
    if receipt.status == "ok":
        _returned(turn, node, run, decode(receipt.value) if receipt.value else ["value", None])
    elif receipt.status == "timeout":
        _fail(turn, node, "timeout", receipt.error)
    elif receipt.status == "unknown":
        _fail(turn, node, "unknown", receipt.error)
    else:
        _raised(turn, node, run, receipt.error)


def cut(turn: Turn, node: NodeState, reason: str, detail: str) -> None:
    life.end(turn, node, "failed", reason, detail=detail)


def _fail(turn: Turn, node: NodeState, reason: str, error: Failure | None) -> None:
    life.end(turn, node, "failed", reason, detail=str(error or reason)[:DETAIL_MAX])


def _raised(turn: Turn, node: NodeState, run: Run, error: Failure | None) -> None:
    if error is not None and error.retry and error.type != "Denied" and run.failures < node.the.retries:
        run.failures += 1
        _begin_again(turn, node, run)
        seconds = node.the.backoff.seconds(run.failures, lambda: _dice(turn))
        node.status = "ready"
        location = f"{run.location}/backoff#{run.failures}"
        node.intent = turn.timer(location, seconds, ("backoff", node.name, ""))
        return
    _fail(turn, node, "denied" if error is not None and error.type == "Denied" else "error", error)


def _begin_again(turn: Turn, node: NodeState, run: Run) -> None:
    """Forget what the run has asked, but for the answers of tools that write and for what it submitted."""
    for request in run.requests.values():
        if request.status != "answered":
            if request.intent:
                turn.withdraw(request.intent)
            if request.reserve:
                turn.release(node, request)
                turn.spend(node, {"calls": 1})
    run.requests = {id: each for id, each in run.requests.items() if each.status == "answered" and each.keep}
    run.waiting = 0
    run.queued = run.resting = run.over_budget = False
    give_place_back(turn.state, node, run)


def _returned(turn: Turn, node: NodeState, run: Run, packed: list[Any]) -> None:
    """`packed`: a word, the value, and perhaps usage and reason (see `runs.packed`)."""
    word, value, *rest = packed
    usage = rest[0] if rest else None
    if usage:
        if problem := usage_problem(usage):
            turn.deny(node, node.name, "usage", problem)
        else:
            turn.spend(node, usage)
    if word == "output":
        life.end(turn, node, "failed", "output", detail=str(value)[:DETAIL_MAX])
        return
    try:
        value = fitting(turn, node, value)
    except Misfit as misfit:
        _misfit(turn, node, run, str(misfit))
        return
    data = encode(value)
    if word == "partial":
        life.end(turn, node, "partial", rest[1] if len(rest) > 1 else "partial", data)
    elif run.over_budget:
        life.end(turn, node, "partial", "budget", data)
    elif node.the.kind == "loop" and word != "break" and node.iteration + 1 < node.the.max_iters:
        life.close_run(turn, node)
        node.previous = data
        node.iteration += 1
        again(turn, node)
    else:
        _completed(turn, node, value, data)


def _completed(turn: Turn, node: NodeState, value: Any, data: bytes) -> None:
    if node.the.kind == "classify":
        choose(turn, node, value)
    life.end(turn, node, "completed", value=data)


def choose(turn: Turn, node: NodeState, label: str) -> None:
    """Nodes of the other branches are left out, before anybody hears that the classifier has ended."""
    branches = node.the.branches
    chosen = set(branches[label])
    out = dict.fromkeys(name for other, names in branches.items() if other != label for name in names)
    turn.fact("chosen", {"node": node.name, "label": label})
    for name in out:
        other = turn.state.nodes.get(name)
        if name not in chosen and other is not None and other.status == "blocked":
            life.end(turn, other, "skipped", "not_chosen")


def fitting(turn: Turn, node: NodeState, value: Any) -> Any:
    """The output as plain data of its type; `Misfit` with what is wrong."""
    spec = node.the
    if node.left:
        if value not in ("left", "right"):
            raise Misfit(f'a judge returns "left" or "right", found {value!r:.80}')
        return value
    if spec.kind == "classify":
        label = value.strip() if isinstance(value, str) else value
        if not isinstance(label, str) or label not in spec.branches:
            raise Misfit(f"a label is one of {', '.join(spec.branches)}, found {value!r:.80}")
        return label
    kind = turn.graph.type_of(spec)
    if kind is None:
        return value
    try:
        return to_plain(from_plain(value, kind), kind)
    except PerdureError as error:
        if isinstance(value, str) and kind is not str:
            return _parsed(value, kind)
        raise Misfit(str(error)) from None


def unfenced(text: str) -> str:
    """The text inside of the first Markdown fence, or the text itself."""
    fenced = FENCE.search(text)
    return fenced[1] if fenced else text


def _parsed(text: str, kind: Any) -> Any:
    """Text of a model that should be data: JSON, perhaps in a fence."""
    try:
        found = json.loads(unfenced(text), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Misfit(f"expected JSON, found {text!r:.80}: {error}") from None
    from perdure.codec import from_json

    try:
        return to_plain(from_json(found, kind), kind)
    except PerdureError as error:
        raise Misfit(str(error)) from None


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _misfit(turn: Turn, node: NodeState, run: Run, text: str) -> None:
    """The run is asked again, with what was wrong in its notes; after the allowed repairs the node fails."""
    spec = node.the
    if run.repaired < spec.repairs:
        run.repaired += 1
        _begin_again(turn, node, run)
        turn.tell(node, f"the output does not fit: {text}")
        again(turn, node)
    elif spec.kind == "classify" and spec.default:
        _completed(turn, node, spec.default, encode(spec.default))
    else:
        life.end(turn, node, "failed", "no_verdict" if node.left else "output", detail=text[:DETAIL_MAX])


def child_answered(turn: Turn, node: NodeState, receipt: Receipt) -> None:
    """The child of a node has ended, or has started if it is detached."""
    node.intent = b""
    if receipt.status == "ok":
        try:
            value = fitting(turn, node, decode(receipt.value) if receipt.value else None)
        except Misfit as misfit:
            life.end(turn, node, "failed", "output", detail=str(misfit))
            return
        life.end(turn, node, "completed", value=encode(value))
    elif receipt.status == "cancelled":
        life.end(turn, node, "cancelled", "child", detail=str(receipt.error or ""))
    else:
        _fail(turn, node, "child", receipt.error)
