"""Waits for a time, for a message, for the approval of a person: nodes of the kind `wait`, and the requests `sleep` and
`receive` of runs.

A message goes to the first of those that wait for its name. One whose name is known, because a node or a run waits for
it at some time, is kept until then; any other is refused.
"""

from __future__ import annotations

from typing import Any, Final

from perdure.codec import decode, encode
from perdure.codec.converters.frame import did_you_mean
from perdure.kernel.decision import Reply
from perdure.kernel.effects import Wait
from perdure.kernel.events import Message
from perdure.kernel.location import escape
from perdure.kernel.moment import TIME_MAX
from perdure.kernel.receipt import Receipt

from . import goals, life, opening
from .model import TAKEN_MESSAGES
from .ready import give_place_back
from .state import NodeState, Request, Run
from .turn import SECOND, Turn, manifest

MAIL_MAX: Final = 1000
"""Messages that are kept for what has not begun to wait."""


# ---- nodes -----------------------------------------------------------------------------------------------------------


def open_node(turn: Turn, node: NodeState) -> None:
    """Begin to wait. What it waits for may be there already."""
    spec = node.the
    try:
        question = life.filled(turn, node, spec.question)
    except (goals.NoValue, ValueError) as error:
        life.end(turn, node, "failed", "input", detail=str(error))
        return
    node.status, node.opened_at = "open", turn.now
    node.attempts += 1
    target = ("wait", node.name, "")
    turn.fact("opened", manifest(node, spec, question or spec.goal))
    if spec.message:
        node.intent = _listen(turn, node.name, spec.message, spec.timeout, target)
        if (body := _kept(turn, spec.message)) is not None:
            _node_heard(turn, node, body)
    elif spec.question:
        data = {"node": node.name, "goal": question}
        location = f"{node.name}/ask/wait"
        node.intent = opening.ask(turn, location, question, data, target, node=node, within=spec.timeout)
        turn.fact("asked", {"node": node.name, "location": location, "subject": "wait"})
    else:
        node.intent = turn.timer(node.name, spec.seconds or 0, target)


def node_answered(turn: Turn, node: NodeState, receipt: Receipt) -> None:
    """The time of a node is there, its deadline has passed, or a person has answered."""
    node.intent = b""
    if node.the.seconds is not None:
        life.end(turn, node, "completed")
        return
    if node.the.question:
        verdict, _ = opening.read_answer(receipt)
        said = {"node": node.name, "subject": "wait", "stage": verdict.stage, "outcome": verdict.word}
        turn.fact("answered", said)
        if verdict.word == "allow":
            found = decode(receipt.value or b"")
            reason = (found.get("answer") or {}).get("reason", "")
            life.end(turn, node, "completed", value=encode({"by": found.get("by") or "", "reason": reason}))
            return
        if verdict.stage != "expired":
            turn.deny(node, node.name, verdict.stage, verdict.reason)
            life.end(turn, node, "failed", "denied", detail=f"{verdict.stage}: {verdict.reason}")
            return
    life.end(turn, node, "failed", "timeout", detail="what it waits for did not come in time")


def _node_heard(turn: Turn, node: NodeState, body: bytes) -> None:
    from .outcomes import Misfit, fitting

    try:
        value = fitting(turn, node, decode(body))
    except Misfit as misfit:
        life.end(turn, node, "failed", "output", detail=str(misfit))
        return
    life.end(turn, node, "completed", value=encode(value))


def begin_waiting(turn: Turn, node: NodeState, run: Run) -> None:
    """A request of the run waits for something outside: its place is free, and after a while it rests."""
    run.waiting += 1
    give_place_back(turn.state, node, run)
    rest_after = turn.model.rest_after
    if rest_after is not None and node.the.rest and not run.rest_timer and not run.resting:
        run.timers += 1
        run.rest_timer = turn.timer(f"{run.location}/&rest#{run.timers}", rest_after, ("rest", node.name, ""))


def rest(turn: Turn, node: NodeState) -> None:
    """The time is over after which a waiting run rests. One that has something else in hand does not."""
    run = node.run
    assert run is not None
    run.rest_timer = b""
    if not run.intent or run.queued or not run.waiting:
        return
    if any(request.status in ("called", "backoff", "step") for request in run.requests.values()):
        run.timers += 1
        seconds = turn.model.rest_after or 0
        run.rest_timer = turn.timer(f"{run.location}/&rest#{run.timers}", seconds, ("rest", node.name, ""))
        return
    life.close_call(turn, node, run, withdraw=True)
    run.resting = True
    turn.fact("rested", {"node": node.name, "run": run.location})


# ---- requests --------------------------------------------------------------------------------------------------------


def sleep(turn: Turn, node: NodeState, run: Run, request: Request, seconds: float) -> None:
    request.intent = turn.timer(_location(run, "sleep", ""), seconds, ("slept", node.name, request.id))
    request.status = "waits"
    begin_waiting(turn, node, run)


def slept(turn: Turn, node: NodeState, request: Request) -> None:
    request.intent = b""
    turn.answer(node, request, {"v": None})


def receive(turn: Turn, node: NodeState, run: Run, request: Request, name: str) -> None:
    request.keep = True  # a message comes once: a retry hears it again
    if name not in turn.state.received:
        turn.state.received.append(name)
    if (body := _kept(turn, name)) is not None:
        turn.answer(node, request, {"v": decode(body)})
        return
    location = _location(run, "receive", f"/{escape(name)}")
    request.intent = _listen(turn, location, name, None, ("heard", node.name, request.id))
    request.status = "waits"
    begin_waiting(turn, node, run)


def _location(run: Run, kind: str, rest: str) -> str:
    """No node that a run submits has such a location: its name has no number sign."""
    number = run.uses[f"&{kind}"] = run.uses.get(f"&{kind}", 0) + 1
    return f"{run.location}/{kind}{rest}#{number}"


# ---- messages --------------------------------------------------------------------------------------------------------


def heard(turn: Turn, message: Message) -> None:
    """A message that is no verb of graphs: for the first that waits for its name, or kept."""
    state, name = turn.state, message.name
    waiting = state.listening.get(name, [])
    while waiting:
        intent = waiting.pop(0)
        kind, node_name, request_id = state.intents.get(intent, ("", "", ""))
        if not kind:
            continue  # it was withdrawn
        node = state.nodes[node_name]
        turn.withdraw(intent)
        turn.respond.append((message.id, encode({"node": node.name})))
        if kind == "wait":
            node.intent = b""
            _node_heard(turn, node, message.body)
        elif node.run is not None:
            request = node.run.requests[request_id]
            request.intent = b""
            turn.answer(node, request, {"v": decode(message.body)})
        return
    declared = {node.the.message for node in state.nodes.values() if node.the.message and node.status != "ended"}
    known = sorted({*declared, *state.received})
    if name not in known:
        own = f", and this one: {', '.join(known)}" if known else ""
        hint = did_you_mean(name, (*TAKEN_MESSAGES, *known))
        turn.reply = Reply(refused=f"a graph takes submit, cancel and note{own}; found {name!r:.80}{hint}")
    elif len(state.mail) >= MAIL_MAX:
        turn.reply = Reply(refused=f"{MAIL_MAX:,} messages are kept for nodes that do not wait yet")
    else:
        state.mail.append((name, message.body))
        turn.respond.append((message.id, encode({"node": ""})))


def _listen(turn: Turn, location: str, name: str, timeout: float | None, target: tuple[str, str, str]) -> bytes:
    due = None if timeout is None else min(TIME_MAX, turn.now + round(timeout * SECOND))
    intent = turn.open(Wait(location, (name,), due), target)
    turn.state.listening.setdefault(name, []).append(intent)
    return intent


def _kept(turn: Turn, name: str) -> bytes | None:
    """The oldest message of a name that came before there was a wait for it."""
    mail = turn.state.mail
    found = next((number for number, (kept, _) in enumerate(mail) if kept == name), None)
    return None if found is None else mail.pop(found)[1]


def wrong_message(name: Any) -> str:
    """What is wrong with the name of a message to wait for; empty: nothing."""
    if not isinstance(name, str) or not name or name in TAKEN_MESSAGES:
        return f"a message to wait for has a name, and none of {', '.join(TAKEN_MESSAGES)}; found {name!r:.80}"
    return ""
