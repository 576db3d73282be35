"""Decisions: what a machine answers to one event."""

from typing import Any

import msgspec

from perdure.codec import decode

from .effects import Effect
from .events import Address
from .problem import Report
from .receipt import Failure
from .status import Status


class Outcome(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How an instance ended. `status` is terminal; `value` is canonical bytes."""

    status: Status
    value: bytes | None = None
    error: Failure | None = None
    again: tuple[str, ...] = ()  # of a failure: the locations that a retry does again
    renew: tuple[str, ...] = ()  # those of them that were undone: what is done there then is other work


class Stuck(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The instance needs a person. `kept`: the machine raised; its event is delivered again by a retry."""

    error: Failure
    location: str = ""
    kept: bool = False
    version: str = ""  # of a divergence: which version of the workflow decided otherwise
    open: bool = False  # only this location stopped: events are delivered; each decision repeats it until it goes on


class Send(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A message to another instance, delivered in the same transaction or through an inbox row written in it."""

    to: Address
    name: str
    body: bytes
    id: str


class Fact(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A domain event: announced to its subscribers, in the order of the subscriptions."""

    name: str
    body: bytes
    id: str = ""  # a subscriber that has heard it does not hear it again
    correlation: str = ""

    @property
    def value(self) -> Any:
        """The body as plain data: what readers of a history want."""
        return decode(self.body)


class Reply(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The machine's answer to the sender of the event; `refused` is the reason when it did not accept."""

    refused: str = ""
    value: bytes | None = None


class Decision(msgspec.Struct, frozen=True, gc=False):
    """All fields are optional; an empty decision is "noted, nothing to do"."""

    open: tuple[Effect, ...] = ()
    withdraw: tuple[bytes, ...] = ()
    send: tuple[Send, ...] = ()
    announce: tuple[Fact, ...] = ()
    publish: tuple[tuple[str, bytes], ...] = ()
    reply: Reply | None = None
    stuck: Stuck | None = None
    outcome: Outcome | None = None
    noted: tuple[str, ...] = ()
    """Operations that needed no effect, as kind and location (`join fan-out`): replay compares them too."""
    intents: tuple[bytes, ...] = ()
    """The ids of what `open` asks for, from a machine that knows them; else the kernel derives them. Not recorded."""
    respond: tuple[tuple[str, bytes], ...] = ()
    """Answers to messages that came at any time before, by the message's id. Callers may read them for ever."""
    reports: tuple[Report, ...] = ()
    """Which hooks hear of which problems once this is durable. Not recorded, and empty in a replay."""
    ids: tuple[bytes, ...] = ()
    """The ids of what `open` asks for, from a dialect that derives them by a rule of its own. Recorded."""
    state: bytes = b""
    """The digest of what the machine's state is now, from a dialect whose state is a value: replay compares it."""
    answers: tuple[tuple[bytes, str, bytes], ...] = ()
    """Answers to requests of running calls, as intent, request and value. Not recorded: a rebuilt machine has them."""
    begin: bytes = b""
    """Of an instance that goes on under another definition: the snapshot that its machine begins with there."""
    tags: tuple[tuple[str, str | None], ...] = ()
    """Tags that the instance gives itself; None removes one."""
    undo: bool = False
    """Children that this decision cancels undo what they did."""


NOTHING = Decision()
