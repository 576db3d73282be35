"""The start of a flow: its arguments, its coroutine, and the timer of one that was started for later."""

from __future__ import annotations

from collections.abc import Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, Never

from perdure.codec import decode
from perdure.errors import CallerError
from perdure.kernel.decision import Decision
from perdure.kernel.events import Address, Started
from perdure.kernel.identity import Identity
from perdure.kernel.status import Status

from .context import Context as FlowContext
from .scope import Scope

if TYPE_CHECKING:
    from .machine import FlowMachine

START: Final = "&start"
"""The timer of a flow that was started for later."""


def start(machine: FlowMachine, event: Started, *, new: bool) -> None:
    """Make the coroutine of a flow.

    `new`: arguments that the code does not take are refused. In a replay the code may have taken them then.

    A refusal is recorded with this very delivery, however long the start is delayed: a replay finds it there.
    """
    due = event.due
    machine.key, machine.generation = event.key, event.generation
    machine.started_by = None if event.asked is None or event.asked.by is None else event.asked.by.id
    machine.loop.started_at = machine.moment.at
    machine.loop.salt(event.seed)
    machine.identity = Identity(Address(event.workflow, event.key), event.generation)
    try:
        args, kwargs = machine.flow.signature.call_args(decode(event.input), strict=new)
        body = machine.flow.function(FlowContext(machine), *args, **kwargs)
    except CallerError as error:  # started by name, where the input could not be checked
        body = _raise(error)
        due = 0 if new else due
    if due > machine.moment.at:
        body = _later(machine, due, body)
    machine.main = machine.loop.spawn(body, Scope("", machine.flow.strict_names, machine), Context(), machine.flow.name)


async def _later(machine: FlowMachine, due: int, body: Coroutine[Any, Any, Any]) -> Any:
    """The flow, but not before its time."""
    try:
        await machine.sleep(START, due)
    except BaseException:
        body.close()
        raise
    return await body


async def _raise(error: Exception) -> Never:
    raise error


def failed_at_once(recorded: Decision) -> bool:
    return recorded.outcome is not None and recorded.outcome.status is Status.FAILED
