"""How a flow receives messages: what its body gets, and how it waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.codec import decode, encode, from_plain, to_plain
from perdure.errors import BadCall
from perdure.kernel.effects import Wait
from perdure.kernel.moment import TIME_MAX
from perdure.kernel.receipt import Receipt

from . import messages
from .author import Duration, limited, nanoseconds
from .said import AWAITED, Awaited
from .scope import text

if TYPE_CHECKING:
    from .machine import FlowMachine
    from .mailbox import Mail

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Message(Generic[T]):
    """A message as a flow receives it."""

    name: str
    body: T
    id: str = ""
    sender: str = ""
    _complete: Callable[[bytes | None], None] | None = field(default=None, compare=False, repr=False)

    def complete(self, response: object = None) -> Awaited:
        """Say that the message is dealt with, once. `response` goes to the caller of `handle.ask`.

        Recorded with what the flow does next. A message that was received with `ack=True` comes again without this.
        """
        value = limited(encode(to_plain(response)), f"the response to {self.name!r}")
        if self._complete is None:
            raise BadCall(f"message {self.name!r} was not received by a flow: nobody can complete it")
        self._complete(value)
        return AWAITED


Received = Message
"""The name that `Message` had. The next version has it no longer."""


async def receive(  # noqa: PLR0917  # what a receive says
    machine: FlowMachine, names: tuple[str, ...], limit: int, timeout: Duration | None, kind: Any, ack: bool
) -> tuple[str, list[Message[Any]]]:
    for name in names:
        text(name, "the name of a message")
    location = machine.claim("receive:" + "+".join(names) if names else "receive")
    mails = messages.take(machine, names, limit)
    if mails:
        machine.note("receive", location)
    else:
        due = None if timeout is None else min(TIME_MAX, machine.moment.at + nanoseconds(timeout))
        mail = await _next_mail(machine, Wait(location, names, due))
        mails = [] if mail is None else [mail]
    try:
        received = [_received(machine, mail, location, kind) for mail in mails]
    except BaseException:
        messages.put_back(machine, mails)  # it is no message of this type: another receive may take it
        raise
    for mail in mails:
        messages.took(machine, mail, location, ack)
    return location, received


async def _next_mail(machine: FlowMachine, wait: Wait) -> Mail | None:
    """The next message that comes; None when its time is over."""
    operation = machine.open(wait)
    assert operation.future is not None
    try:
        answer = await operation.future
    except asyncio.CancelledError:
        machine.withdraw(operation)
        if operation.future.done() and not operation.future.cancelled():
            answer = operation.future.result()
            if not isinstance(answer, Receipt):
                messages.hand_over(machine, answer)  # its message came in this very moment: it must not be lost
        raise
    return None if isinstance(answer, Receipt) else answer


def _received(machine: FlowMachine, mail: Mail, location: str, kind: Any) -> Message[Any]:
    message = mail.message
    body = from_plain(decode(message.body), kind)
    return Message(
        message.name, body, message.id, message.sender, lambda value: messages.complete(machine, mail, location, value)
    )
