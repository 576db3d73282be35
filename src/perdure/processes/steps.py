"""What each kind of step does when it begins, and what its answer means. Loops, branches and joins are in `flow.py`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from perdure.codec import decode, encode
from perdure.errors import BadCall, NotPlain
from perdure.kernel.effects import Child, Timer
from perdure.kernel.effects import Wait as WaitEffect
from perdure.kernel.moment import TIME_MAX, at_of
from perdure.kernel.receipt import Receipt
from perdure.tasks.machine import EXPIRED
from perdure.tasks.model import WORKFLOW, key_of, question

from . import calls, flow
from .branches import Branch, Wait
from .compile import Op, TaskPlan, nanoseconds
from .life import Life, StepError

KEY_MAX = 512


def begin(life: Life, branch: Branch, op: Op) -> None:
    match op.kind:
        case "set":
            value = life.value(branch, "value")
            if value is not None or not op.get("if_value"):
                life.write(op.data["key"], value, branch.location)
            flow.go_on(branch)
        case "set_reference":
            parts = {part: life.value(branch, f"parts.{part}") for part in op.get("parts")}
            life.refer({**parts, "key": life.value(branch, "key")})
            flow.go_on(branch)
        case "decide":
            taken = "then" if life.condition(branch, "condition") else "otherwise"
            choose(life, branch, op, taken)
        case "choose":
            cases = enumerate(op.data["cases"])
            found = (case["label"] for number, case in cases if life.condition(branch, f"case.{number}"))
            choose(life, branch, op, next(found, "otherwise"))
        case "call":
            calls.begin(life, branch, op)
        case "activate":
            activate(life, branch, op)
        case "timer":
            timer(life, branch, op)
        case "receive":
            receive(life, branch, op)
        case "subprocess" | "continue_with":
            child(life, branch, op)
        case _:
            raise AssertionError(op.kind)


def choose(life: Life, branch: Branch, op: Op, taken: str) -> None:
    life.slice.noted.append(f"branch {branch.location}/{taken}")
    if taken in op.s:
        flow.enter(branch, taken)
    else:
        flow.go_on(branch)


def _numbered(branch: Branch, wait: Wait) -> str:
    """The location of a wait that may be opened again by a person: a wait has no attempt in its intent."""
    if branch.again is not None:
        wait.number = branch.again.number + 1
    return branch.location if wait.number == 1 else f"{branch.location}#{wait.number}"


# ---- tasks ---------------------------------------------------------------------------------------------------------


def activate(life: Life, branch: Branch, op: Op) -> None:
    name: str = op.data["task"]
    wait = Wait("task", b"")
    location = _numbered(branch, wait)
    plan = life.program.tasks[name]
    roots = life.roots(branch)
    given = {field: life.evaluate(each, roots, branch.location, field) for field, each in plan.e.items()}
    try:
        asked = _question(life, name, plan, location, given)
        key = key_of(life.address.key, life.generation, life.address.workflow, location)
        wait.intent = life.open(Child(location, WORKFLOW, key, asked))
    except (BadCall, NotPlain, TypeError) as error:
        raise StepError("expression", "task", str(error)) from None
    life.wait(branch, wait)


def _question(life: Life, name: str, plan: TaskPlan, location: str, given: dict[str, Any]) -> bytes:
    """All roles of the process may work on its tasks."""
    given = {field: value for field, value in given.items() if value is not None}
    given["roles"] = [*given.get("roles", ()), *plan.roles]
    given["managers"] = [*given.get("managers", ()), *plan.managers]
    asked = question(
        name,
        workflow=life.address.workflow,
        key=life.address.key,
        location=location,
        now=life.slice.now,
        answer=plan.answer,
        outcome=plan.outcome,
        escalate=plan.escalate,
        quorum=plan.quorum,
        reference=life.reference.get("key", ""),
        **given,
    )
    return asked.encode()


# ---- time and messages ---------------------------------------------------------------------------------------------


def timer(life: Life, branch: Branch, op: Op) -> None:
    if "after" in op.e:
        span = life.value(branch, "after")
        if not isinstance(span, timedelta) or span < timedelta(0):
            text = f"a timer waits for a duration that is not negative, found {span!r:.80}"
            raise StepError("expression", "value", text, _plain(span), "after")
        due = life.slice.at + nanoseconds(span)
    else:
        at = life.value(branch, "at")
        if not isinstance(at, datetime) or at.utcoffset() is None:
            text = f"a timer waits until a time with a zone, found {at!r:.80}"
            raise StepError("expression", "value", text, _plain(at), "at")
        due = at_of(at)
    if due <= life.slice.at:
        life.slice.noted.append(f"timer {branch.location}")
        flow.go_on(branch)
        return
    wait = Wait("timer", b"")
    wait.intent = life.open(Timer(_numbered(branch, wait), min(due, TIME_MAX)))
    life.wait(branch, wait)


def receive(life: Life, branch: Branch, op: Op) -> None:
    for place, message in enumerate(life.mailbox):
        if accepts(life, branch, op, message):
            del life.mailbox[place]
            heard(branch, op, message)
            return
    wait = Wait("receive", b"")
    span = op.span("timeout")
    due = None if span is None else min(TIME_MAX, life.slice.at + span)
    wait.intent = life.open(WaitEffect(_numbered(branch, wait), (op.data["message"],), due))
    life.wait(branch, wait)


def accepts(life: Life, branch: Branch, op: Op, message: dict[str, Any]) -> bool:
    """Whether a receive takes a message."""
    if message["name"] != op.data["message"]:
        return False
    return "match" not in op.e or life.condition(branch, "match", {"message": message, "payload": message["body"]})


def heard(branch: Branch, op: Op, message: dict[str, Any]) -> None:
    branch.waited = {**branch.waited, "message": message, "payload": message["body"]}
    if "result" in op.data:
        branch.scope.results[op.data["result"]] = message["body"]
    flow.go_on(branch)


# ---- other instances -----------------------------------------------------------------------------------------------


def child(life: Life, branch: Branch, op: Op) -> None:
    given = life.value(branch, "input") if "input" in op.e else None
    wait = Wait("child", b"")
    location = _numbered(branch, wait)
    detached = op.kind == "continue_with"
    if life.depth + 1 > life.program.limits["depth"]:
        limit = life.program.limits["depth"]
        raise StepError("expression", "depth-limit", f"processes are nested deeper than {limit}")
    own = life.address.key if life.generation == 1 else f"{life.address.key}~{life.generation}"
    key = life.value(branch, "key") if "key" in op.e else f"{own}/{location}"
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_MAX:
        text = f"the key of an instance is a text of 1 to {KEY_MAX} characters, found {key!r:.80}"
        raise StepError("expression", "value", text, _plain(key), "key")
    try:
        value = encode({} if given is None else given)
    except NotPlain as error:
        raise StepError("expression", "value", str(error), field="input") from None
    wait.intent = life.open(Child(location, op.data["workflow"], key, value, detached, op.data.get("version") or ""))
    span = op.span("timeout") if not detached else None
    if span is not None:
        suffix = location.removeprefix(branch.location)
        wait.deadline = life.open(Timer(f"{branch.location}/deadline{suffix}", min(TIME_MAX, life.slice.at + span)))
    life.wait(branch, wait)


# ---- answers -------------------------------------------------------------------------------------------------------


def received(life: Life, branch: Branch, intent: bytes, receipt: Receipt) -> None:
    """The receipt of what a branch waits for."""
    wait, op = branch.wait, branch.op
    assert wait is not None
    if op.kind == "call":
        calls.received(life, branch, intent, receipt)
        if branch.wait is None:
            flow.go_on(branch)
        return
    life.answered(branch, intent)
    branch.remember(wait)
    if intent == wait.deadline:
        raise calls.timed_out("the child did not end in time")
    match op.kind, receipt.status:
        case "timer", _:
            flow.go_on(branch)
        case "receive", _:
            _no_message(branch, op)
        case "activate", "ok":
            completed(branch, op, decode(receipt.value or b""))
        case "activate", status:
            raise _no_answer(op.data["task"], status, receipt)
        case _, "ok":
            value = None if receipt.value is None else decode(receipt.value)
            calls.done(life, branch, value if op.kind == "subprocess" else None)
            flow.go_on(branch)
        case _:
            raise _child_failed(receipt)


def completed(branch: Branch, op: Op, value: Any) -> None:
    """A task was completed."""
    name = op.data["task"]
    if not isinstance(value, dict) or "outcome" not in value:
        value = {"outcome": "done", "answer": value, "by": None, "at": None}
    branch.scope.tasks[name] = value
    told = {"name": name, **{field: value.get(field) for field in ("outcome", "by", "at")}}
    branch.waited = {**branch.waited, "payload": value.get("answer"), "task": told}
    flow.go_on(branch)


def _no_message(branch: Branch, op: Op) -> None:
    """A receive ended without a message: its result is null."""
    if "result" in op.data:
        branch.scope.results[op.data["result"]] = None
    if "on_timeout" in op.s:
        flow.enter(
            branch, "on_timeout", {"class": "timeout", "code": "timeout", "message": "no message came", "data": None}
        )
    else:
        flow.go_on(branch)


def _no_answer(task: str, status: str, receipt: Receipt) -> StepError:
    error = receipt.error
    text = f"the task {task}: " + (error.message if error is not None and error.message else status)
    if error is not None and error.type == EXPIRED:
        return StepError("timeout", "expired", text).to("on_timeout")
    if status == "cancelled":
        return StepError("transport", "cancelled", text, error.data if error is not None else None).to("on_cancel")
    return StepError("transport", "task", text)


def _child_failed(receipt: Receipt) -> StepError:
    error = receipt.error
    if receipt.status == "cancelled" or error is None:
        return StepError("transport", "cancelled", error.message if error is not None else "the child was cancelled")
    return StepError("transport", error.type, error.message, error.data)


def settled(life: Life, branch: Branch, value: Any) -> None:
    """A person answers for what a step asked for."""
    op = branch.op
    match op.kind:
        case "call" | "subprocess":
            calls.done(life, branch, value)
            flow.go_on(branch)
        case "activate":
            completed(branch, op, value)
        case "receive":
            heard(branch, op, {"id": "", "name": op.data["message"], "body": value})
        case _:
            flow.go_on(branch)


def _plain(value: Any) -> Any:
    """What an error may carry: not a time without a zone."""
    try:
        encode(value)
    except NotPlain:
        return repr(value)
    return value
