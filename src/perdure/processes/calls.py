"""Calls: what is sent, and what becomes of each answer. An attempt is journaled before it is sent.

A pause before the next attempt is a timer, so no worker sleeps. All attempts have one payload and one idempotency key.
The timeout of a call spans attempts and pauses.
"""

from __future__ import annotations

from typing import Any

from perdure.codec import decode, encode
from perdure.errors import NotPlain
from perdure.kernel.effects import Call, Timer
from perdure.kernel.moment import TIME_MAX
from perdure.kernel.receipt import Failure, Receipt

from . import undo
from .branches import Branch, Wait
from .compile import Op, backoff_of
from .life import Life, StepError

EFFECTS = "effects"
"""The executor that performs calls which stay in the engine's process."""

PYTHON, HTTP, SERVICE = "perdure.process/python", "perdure.process/http", "perdure.process/service"
DELIVERIES = 4


def begin(life: Life, branch: Branch, op: Op) -> None:
    payload = life.value(branch, "payload") if "payload" in op.e else None
    wait = Wait("call", b"")
    wait.since = life.slice.at
    try:
        wait.params = encode(_params(life, branch, op, payload))
    except NotPlain as error:
        raise StepError("expression", "value", str(error), field="payload") from None
    if branch.again is not None:  # a person said: try again
        wait.attempt = branch.again.attempt + 1
        wait.number = branch.again.number + 1
        wait.place = branch.again.place
    if "queue" in op.data["address"]:
        suffix = "" if wait.number == 1 else f"#{wait.number}"
        due = min(TIME_MAX, wait.since + _timeout(op))
        wait.deadline = life.open(Timer(f"{wait.place or branch.location}/deadline{suffix}", due))
    _send(life, branch, op, wait)


def _params(life: Life, branch: Branch, op: Op, payload: Any) -> dict[str, Any]:
    """What an executor gets. Secrets stand beside the payload, where no data can be taken for one."""
    match op.data["address"]:
        case {"python": place}:
            return {"effect": PYTHON, "params": {"function": place, "arguments": _arguments(payload)}, "key": ""}
        case {"queue": [_, place]}:
            return {"call": place, "args": [], "kwargs": _arguments(payload)}
        case {"service": [name, command]}:
            return {"effect": SERVICE, "params": {"service": name, "command": command, "payload": payload}, "key": ""}
        case {"http": request}:
            url = _text(life, branch, "url")
            headers: list[Any] = []
            for name, header in request.get("headers", {}).items():
                secret = isinstance(header, dict) and "secret" in header
                headers.append(
                    [name, None if secret else _text(life, branch, f"header.{name}"), header if secret else None]
                )
            asked = {"method": request["method"], "url": url, "headers": headers, "payload": payload}
            return {"effect": HTTP, "params": asked, "key": ""}
        case other:
            raise AssertionError(other)


def _arguments(payload: Any) -> dict[str, Any]:
    if payload is None:
        return {}
    if not isinstance(payload, dict):
        text = f"the payload of a function has its arguments by name, found {payload!r:.80}"
        raise StepError("expression", "value", text, payload, "payload")
    return payload


def _text(life: Life, branch: Branch, field: str) -> str:
    found = life.value(branch, field)
    if not isinstance(found, str):
        raise StepError("expression", "value", f"{field} is a text, found {found!r:.80}", found, field)
    return found


def _timeout(op: Op) -> int:
    found = op.span("timeout")
    assert found is not None
    return found


def _send(life: Life, branch: Branch, op: Op, wait: Wait) -> None:
    """Open the next attempt, within what is left of the time."""
    left = wait.since + _timeout(op) - life.slice.at
    attempt_timeout = op.span("attempt_timeout")
    assert attempt_timeout is not None
    queue = op.data["address"].get("queue")
    effect = Call(
        wait.place or branch.location,
        attempt=wait.attempt,
        executor=queue[0] if queue else EFFECTS,
        timeout=max(1, min(attempt_timeout, left)),
        deliveries_max=1 if op.get("once") else DELIVERIES,
        params=wait.params,
    )
    wait.kind = "call"
    wait.intent = life.open(effect)
    life.wait(branch, wait)


def received(life: Life, branch: Branch, intent: bytes, receipt: Receipt) -> None:
    """A receipt of the call, of the pause before its next attempt, or of its deadline."""
    wait, op = branch.wait, branch.op
    assert wait is not None
    if intent == wait.deadline:
        life.answered(branch, intent)
        branch.remember(wait)
        raise timed_out("the time of the call is over")
    life.waits.pop(intent, None)
    if wait.kind == "pause":
        wait.attempt += 1
        wait.tries += 1
        _send(life, branch, op, wait)
        return
    wait.intent = b""
    match receipt.status:
        case "ok":
            life.answered(branch)
            branch.remember(wait)
            value = None if receipt.value is None else decode(receipt.value)
            done(life, branch, value)
        case "timeout":
            _failed(
                life,
                branch,
                wait,
                timed_out(_message(receipt, "no answer came in time")),
                retry=op.get("retry_on_timeout"),
            )
        case "unknown":
            life.answered(branch)
            branch.remember(wait)
            text = _message(receipt, "the outcome is unknown")
            code = "unknown" if op.get("once") else "exhausted"
            raise StepError("transport", code, text).to("on_unknown" if op.get("once") else "on_failure")
        case _:
            error = receipt.error or Failure("cancelled", "the call was cancelled", retry=False)
            _failed(life, branch, wait, transport_error(error), retry=error.retry)


def _failed(life: Life, branch: Branch, wait: Wait, error: StepError, *, retry: bool) -> None:
    """An attempt failed: the next one follows after a pause, or the call has failed."""
    op, at = branch.op, life.slice.at
    again = retry and wait.tries <= op.get("retries")
    if again and "retry_if" in op.e:
        again = life.condition(branch, "retry_if", {"error": error.error})
    if not again:
        life.answered(branch)
        branch.remember(wait)
        raise error
    dice = int.from_bytes(life.slice.moment.entropy()[:7], "big") / 2**56
    pause = round(backoff_of(op).seconds(wait.tries, lambda: dice) * 1_000_000_000)
    if at + pause >= wait.since + _timeout(op):
        life.answered(branch)
        branch.remember(wait)
        raise timed_out("no time is left for another attempt", error.error)
    wait.kind = "pause"
    location = f"{wait.place or branch.location}/backoff#{wait.attempt}"
    wait.intent = life.open(Timer(location, min(TIME_MAX, at + pause)))
    life.wait(branch, wait)


def done(life: Life, branch: Branch, value: Any) -> None:
    """The call, or a child, was ok."""
    op = branch.op
    value = life.fits(op.data.get("returns"), value, branch.location, "returns")
    if "result" in op.data:
        branch.scope.results[op.data["result"]] = value
    undo.plan(life, branch)


def timed_out(text: str, data: Any = None) -> StepError:
    return StepError("timeout", "timeout", text, data).to("on_timeout", "on_failure")


def transport_error(failure: Failure) -> StepError:
    """An error as expressions see it. A `TransportError` brings its own code."""
    data = failure.data
    if failure.type == "TransportError" and isinstance(data, dict):
        return StepError("transport", str(data.get("code", "exception")), failure.message, data.get("data"))
    return StepError("transport", "exception", f"{failure.type}: {failure.message}".removesuffix(": "), data)


def _message(receipt: Receipt, otherwise: str) -> str:
    return receipt.error.message if receipt.error is not None and receipt.error.message else otherwise
