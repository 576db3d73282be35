"""The machine of one process: an event comes in, the interpreter runs to the next waits, one decision goes out.

Its state is a value (`Life`), so an instance may be evicted after any entry. Nothing here reads a clock, rolls dice or
does I/O: time and dice come with the moment, and expressions read recorded values only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.codec import decode
from perdure.codec.jsonschema import read as read_by
from perdure.errors import Misfit
from perdure.expressions.problem import meant
from perdure.kernel.decision import Decision, Outcome, Reply
from perdure.kernel.events import Address, CancelAsked, Event, Message, ReceiptArrived, Retried, Settled, Started, Woken
from perdure.kernel.moment import Moment
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.status import Status

from . import calls, flow, snapshot, steps, undo
from .branches import Branch, Frame
from .compile import Program
from .life import MESSAGES_MAX, Life, StepError, failure_of_error


class ProcessMachine:
    def __init__(self, program: Program, address: str, kept: bytes | None) -> None:
        workflow, _, key = address.partition("/")
        place = Address(workflow, key)
        self.life = Life(program, place) if kept is None else snapshot.read(program, place, kept)

    def deliver(self, event: Event, moment: Moment) -> Decision:
        life = self.life
        life.begin_slice(moment)
        match event:
            case Started():
                begin(life, event)
            case ReceiptArrived(intent=intent, receipt=receipt):
                _received(life, intent, receipt)
            case Message():
                _hear(life, event)
            case CancelAsked():
                _cancel(life, event)
            case Retried():
                for branch in _stopped(life):
                    _again(life, branch)
            case Settled(location=location, receipt=receipt):
                _settle(life, location, receipt)
            case Woken(location=location):
                _wake(life, location)
            case _:
                pass
        flow.run(life)
        return life.decision()

    def work(self, intent: bytes) -> object:
        return None  # a call carries its parameters with it

    def snapshot(self) -> bytes | None:
        return snapshot.write(self.life)

    def dispose(self) -> None:
        pass


def begin(life: Life, event: Started) -> None:
    life.generation = event.generation
    life.depth = 0 if event.parent is None else event.parent.depth
    life.started_by = None if event.asked is None or event.asked.by is None else event.asked.by.id
    life.slice.meta["started_by"] = life.started_by
    data = life.program.data
    try:
        life.start = life.fits(data.get("input"), decode(event.input), "start", "input")
        for name in life.program.state:
            life.begin(name)
        if life.program.reference:
            roots = life.roots(None)
            found = {
                part or "key": life.evaluate(each, roots, "reference", part)
                for part, each in life.program.reference.items()
            }
            life.refer(found)
    except StepError as error:
        life.slice.outcome = Outcome(Status.FAILED, error=failure_of_error(error.error))
        return
    frame = Frame(life.program.main, "", "main")
    frame.scope = life.scope
    life.root = Branch([frame])
    life.slice.ready.append(life.root)


def _received(life: Life, intent: bytes, receipt: Receipt) -> None:
    branch = life.waits.get(intent)
    if branch is None:
        return
    try:
        steps.received(life, branch, intent, receipt)
    except StepError as error:
        flow.fail(life, branch, error)
    life.slice.ready.append(branch)


# ---- messages ------------------------------------------------------------------------------------------------------


def unknown_message(program: Program, name: str) -> str:
    """What is said of a message that no receive takes, after its name: what was perhaps meant, or what there is."""
    hint = meant(name, program.messages)
    return f": {hint}" if hint else f"; it receives: {', '.join(sorted(program.messages)) or 'none'}"


def refusal(program: Program, name: str, body: Any) -> tuple[str, Any]:
    """Why a message is refused, empty if it is not; and its body as the schema of a receive means it."""
    schemas = program.messages.get(name)
    if schemas is None:
        return f"{program.name} receives no message {name!r:.80}{unknown_message(program, name)}", body
    problems = ""
    for schema in schemas:
        try:
            return "", read_by(schema, body) if schema else body
        except Misfit as misfit:
            problems = problems or str(misfit)
    return f"the body of {name} does not fit: {problems}", body


def _hear(life: Life, event: Message) -> None:
    recorded = life.slice.moment.recorded
    body = decode(event.body)
    if recorded is not None and recorded.reply is not None and recorded.reply.refused:
        life.slice.reply = recorded.reply  # the verdict of then counts, whatever a newer validator says
        return
    against, body = refusal(life.program, event.name, body)
    if against and recorded is None:
        life.slice.reply = Reply(against)
        return
    message = {"id": event.id, "name": event.name, "body": body}
    for branch in _receiving(life, event.intent):
        try:
            if not steps.accepts(life, branch, branch.op, message):
                continue
        except StepError as error:
            life.answered(branch)
            flow.fail(life, branch, error)
            continue
        life.answered(branch)
        steps.heard(branch, branch.op, message)
        life.slice.ready.append(branch)
        return
    if len(life.mailbox) >= MESSAGES_MAX:
        life.slice.reply = Reply(f"{life.address} keeps {MESSAGES_MAX:,} messages that nothing has received yet")
        return
    life.mailbox.append(message)


def _receiving(life: Life, intent: bytes) -> Iterator[Branch]:
    """The branches that wait for a message, the oldest first; or the one of an intent."""
    found = {
        id: branch for id, branch in life.waits.items() if branch.wait is not None and branch.wait.kind == "receive"
    }
    if intent:
        yield from [found[intent]] if intent in found else []
    else:
        yield from sorted(found.values(), key=lambda branch: branch.wait.age if branch.wait is not None else 0)


# ---- what people do ------------------------------------------------------------------------------------------------


def _cancel(life: Life, event: CancelAsked) -> None:
    outcome = Outcome(Status.CANCELLED, error=Failure("Cancelled", event.reason))
    if event.undo and life.ending is None:
        undo.begin(life, outcome)
    elif event.undo:
        life.ending = outcome
    else:
        life.slice.outcome = outcome


def _stopped(life: Life) -> list[Branch]:
    """The branches that have stopped, the oldest first."""
    found = [] if life.root is None else [each for each in life.root.all() if each.stop is not None]
    return sorted(found, key=lambda branch: branch.stop.age if branch.stop is not None else 0)


def _again(life: Life, branch: Branch) -> None:
    branch.again, branch.stop = branch.stop, None
    life.slice.ready.append(branch)


def _settle(life: Life, location: str, receipt: Receipt) -> None:
    """A person answers for a step: with the value of the expression that failed, or of what the step asked for."""
    branch = next((each for each in _stopped(life) if each.location == location), None)
    if branch is None:
        return
    stop = branch.stop
    assert stop is not None
    if receipt.status != "ok":
        branch.again, branch.stop = stop, None
        flow.fail(life, branch, calls.transport_error(receipt.error or Failure("Settled", "")))
        return
    value = None if receipt.value is None else decode(receipt.value)
    _again(life, branch)
    if stop.field:
        branch.settled = {stop.field: value}
        return
    try:
        steps.settled(life, branch, value)
    except StepError as error:
        flow.fail(life, branch, error)


def _wake(life: Life, location: str) -> None:
    """Timers end now: the one at a location, or all of them. Pauses of calls are timers too."""
    for id, branch in list(life.waits.items()):
        wait = branch.wait
        if (
            wait is None
            or wait.kind not in ("timer", "pause")
            or id != wait.intent
            or location not in ("", wait.place or branch.location)
        ):
            continue
        life.withdraw(id)
        if wait.kind == "timer":
            branch.wait = None
            flow.go_on(branch)
        else:
            calls.received(life, branch, id, Receipt("ok"))
        life.slice.ready.append(branch)
