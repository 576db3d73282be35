"""What goes into an instance's mailbox, and what its sender hears back."""

from typing import Literal

import msgspec

from .decision import Reply
from .events import Address, Event


class Offer(msgspec.Struct, eq=False):
    """An event on its way to an instance. Not yet recorded: its sender, or an inbox row, still answers for it."""

    to: Address | int  # a name, or the id of an instance that exists
    event: Event
    ticket: object = None  # who waits for the answer, or bytes that an executor's receipt is known by
    inbox: bytes | None = None  # the inbox row that is deleted by the entry that records this event
    caused: bool = False  # by an entry of this shard: it must not be lost with the memory
    new: bool = False  # the name was made up just now: no store needs to be asked whether it exists
    taken: bool = False
    at: int = 0  # when it became durable, by its inbox row; 0: it becomes so by its entry
    number: int = 0  # of its arrival, while its instance is away: names and ids wait in different places


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """Recorded, or recorded before (`fresh` is False) without a second effect."""

    instance: int
    address: Address
    fresh: bool = True
    reply: Reply | None = None


class Refused(msgspec.Struct, frozen=True, gc=False):
    """Not recorded. A refusal is part of normal life; the runtime turns it into a typed error for a caller."""

    code: Literal[
        "unknown-workflow",
        "unknown-version",
        "unknown-instance",
        "key-in-use",
        "ended",
        "not-stuck",
        "running",
        "too-large",
        "version-conflict",
        "refused",
        "no-identity",
        "not-outside",
        "wrong-executor",
        "bad-signature",
    ]
    reason: str


class Stale(msgspec.Struct, frozen=True, gc=False):
    """A receipt for an intent that is not open: acknowledged, counted, without effect."""


Answer = Accepted | Refused | Stale
STALE = Stale()
