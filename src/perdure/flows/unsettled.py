"""What a person must settle: a step whose outcome is not known, an undo that failed. The flow is stuck until then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.codec import decode, from_plain
from perdure.errors import CallerError, NotConvertible, StepFailed
from perdure.kernel.decision import Stuck
from perdure.kernel.effects import Call, Timer
from perdure.kernel.receipt import Failure, Receipt

from .operation import Operation

if TYPE_CHECKING:
    from .machine import FlowMachine


def stop_at(machine: FlowMachine, operation: Operation, receipt: Receipt) -> str:
    """Whether the step took effect is unknown: a person must say so. Nothing else is delivered before."""
    effect, error = operation.effect, receipt.error or Failure("unknown", "no reason is known")
    assert type(effect) is Call, "nothing else is settled"
    location = effect.location
    machine.report(operation.hooks, operation.kind, location, effect.attempt, error)
    text = f"whether step {location!r} took effect is not known: {error.message}"
    machine.unsettled[location] = operation, Stuck(Failure("OutcomeUnknown", text, retry=False), location)
    return location


async def ask_person(machine: FlowMachine, location: str, error: StepFailed) -> Receipt:
    """What was done at a location cannot be undone by us: a person must help."""
    text = f"what {location!r} did could not be undone: {error}"
    stuck = Stuck(Failure("UndoFailed", text, retry=False), location)
    operation = Operation(b"", Timer(location, 0), machine.loop.create_future())
    machine.unsettled[location] = operation, stuck
    receipt: Receipt = await operation.future  # type: ignore[misc]
    return receipt


def refuse_answer(machine: FlowMachine, location: str, answer: Any) -> None:
    """Raise why an answer is none of the type that the step returns at which the flow is stuck."""
    operation, _ = machine.unsettled.get(location, (None, None))
    if operation is not None and operation.returns is not None:
        try:
            from_plain(answer, operation.returns)
        except NotConvertible as error:
            raise error.of(f"the answer for {location!r}") from None


def settle(machine: FlowMachine, location: str, receipt: Receipt) -> str:
    """A person has answered for a location; empty: for the one at which the flow is stuck."""
    location = location or next(iter(machine.unsettled), "")
    operation, stuck = machine.unsettled.get(location, (None, None))
    if operation is None or stuck is None:
        return ""
    assert operation.future is not None
    try:
        if receipt.status == "ok":
            refuse_answer(machine, location, None if receipt.value is None else decode(receipt.value))
    except CallerError as error:
        text = f"{stuck.error.message}; what was given does not fit: {error}"
        failure = msgspec.structs.replace(stuck.error, message=text)
        del machine.unsettled[location]  # another place comes first now
        machine.unsettled[location] = operation, msgspec.structs.replace(stuck, error=failure)
        return location
    del machine.unsettled[location]
    if not operation.future.done():
        operation.future.set_result(receipt)
    return location
