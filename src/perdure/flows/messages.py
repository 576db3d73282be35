"""Messages of a flow: which receive takes one, and when it is the flow's own (`ack=True`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.codec import decode, encode
from perdure.errors import BadCall
from perdure.kernel.decision import Send
from perdure.kernel.events import Address, Message, Requested

from .mailbox import Mail
from .said import Said

if TYPE_CHECKING:
    from .machine import FlowMachine


REQUEST: Final = "&request "
"""What the ids of messages begin with that are requests of running steps."""


RETURNS_MAX: Final = 1_000
"""How often a task may receive a message again in one delivery. More is a loop that forgot to complete it."""


class Held(msgspec.Struct, eq=False):
    """A message that was received by a task, and is to be completed."""

    mail: Mail
    location: str
    by: asyncio.Task[Any]
    entry: int  # in which it was received


def hand_over(machine: FlowMachine, mail: Mail) -> None:
    """The oldest receive that waits for the message takes it; else it stays in the mailbox."""
    while (operation := machine.mailbox.waiting_for(mail.message)) is not None:
        assert operation.future is not None
        machine.withdraw(operation)
        if not operation.future.done():  # else it is being cancelled in this very delivery
            operation.future.set_result(mail)
            return
    machine.mailbox.put(mail)


def take(machine: FlowMachine, names: tuple[str, ...], limit: int) -> list[Mail]:
    """The oldest messages of these names. What this task took before and did not complete is among them."""
    task = asyncio.current_task(machine.loop)
    own = [held for held in machine.held.values() if held.by is task and held.mail.message.name in names]
    for held in own if names else [held for held in machine.held.values() if held.by is task]:
        held.mail.returns = held.mail.returns + 1 if held.entry == machine.moment.number else 0
        if held.mail.returns > RETURNS_MAX:
            raise BadCall(
                f"message {held.mail.message.name!r} was received with ack=True {RETURNS_MAX:,} times and not "
                "completed, and nothing happened since: call message.complete() before the next receive"
            )
        machine.mailbox.put(machine.held.pop(held.mail.entry).mail)
    mails: list[Mail] = []
    while len(mails) < limit and (mail := machine.mailbox.take(names)) is not None:
        mails.append(mail)
    return mails


def took(machine: FlowMachine, mail: Mail, location: str, ack: bool) -> None:
    """A receive has a message. One that must be completed comes again if its task ends without doing so."""
    if not ack:
        _consumed(machine, mail, location)
        return
    task = asyncio.current_task(machine.loop)
    assert task is not None
    if all(held.by is not task for held in machine.held.values()):
        task.remove_done_callback(machine.give_back)
        task.add_done_callback(machine.give_back)
    machine.held[mail.entry] = Held(mail, location, task, machine.moment.number)


def give_back(machine: FlowMachine, task: asyncio.Task[Any]) -> None:
    """A task has ended: others get what it did not complete."""
    for held in [held for held in machine.held.values() if held.by is task]:
        del machine.held[held.mail.entry]
        hand_over(machine, held.mail)


def put_back(machine: FlowMachine, mails: list[Mail]) -> None:
    """They were taken, and could not be given to anybody."""
    for mail in mails:
        hand_over(machine, mail)


def complete(machine: FlowMachine, mail: Mail, location: str, response: bytes | None) -> None:
    """The flow has dealt with a message."""
    machine.saying()
    if mail.completed:
        raise BadCall(f"message {mail.message.name!r} was completed before")
    mail.completed = True
    if machine.held.pop(mail.entry, None) is not None or machine.mailbox.remove(mail):
        _consumed(machine, mail, location)
    if mail.message.id.startswith(REQUEST):
        _answer_request(machine, mail.message, response)
    elif response is not None and mail.message.id:
        machine.saying().responded.append((mail.message.id, response))


def requested(machine: FlowMachine, event: Requested) -> None:
    """A running step asks. The request is a message; one that comes again hears the answer of the first."""
    id = f"{REQUEST}{event.intent.hex()} {event.id}"
    if machine.requests is None:
        machine.requests = {}
    if id not in machine.requests:
        machine.requests[id] = None
        hand_over(machine, Mail(machine.moment.number, Message(event.name, event.body, id)))
    elif (known := machine.requests[id]) is not None:
        machine.said = machine.said or Said()
        machine.said.answers.append((event.intent, event.id, known))


def _answer_request(machine: FlowMachine, message: Message, response: bytes | None) -> None:
    assert machine.requests is not None, "a request was asked"
    asker, _, id = message.id.removeprefix(REQUEST).partition(" ")
    answer = encode({"v": None if response is None else decode(response)})
    machine.requests[message.id] = answer
    machine.saying().answers.append((bytes.fromhex(asker), id, answer))


def _consumed(machine: FlowMachine, mail: Mail, location: str) -> None:
    if machine.log is None:
        return
    if mail.entry == machine.moment.number:
        machine.log.taken[mail.entry] = location
    else:
        machine.log.consumed(mail.entry, location)


def send(machine: FlowMachine, to: Address, name: str, body: bytes) -> None:
    sent = machine.saying().sent
    id = f"{machine.address}~{machine.generation}:{machine.moment.number}:{len(sent)}"
    sent.append(Send(to, name, body, id))
