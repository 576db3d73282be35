"""Events: things that happened to an instance, recorded before they are acted on.

The first group is delivered to the machine. The second is for the kernel alone: a machine never sees it.
"""

import msgspec

from .asked import Asked
from .receipt import Receipt


class Address(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The name of an instance. A key used again after its end gets the next generation; an address means the last."""

    workflow: str
    key: str

    def __str__(self) -> str:
        return f"{self.workflow}/{self.key}"


Ref = Address | int
"""An instance by its name, which means its last generation, or by its id."""


class Parent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Who started an instance. Without an intent it is a note for people: no instance waits for the outcome."""

    instance: int
    intent: bytes
    detached: bool = False
    generation: int = 1  # the highest among its ancestors; a later one may use the keys of children again
    depth: int = 0  # how many instances wait above the child, this one included


class Started(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="s"):
    workflow: str
    key: str
    input: bytes
    seed: bytes  # the entropy from which every moment of this instance is derived
    version: str = ""  # of the definition; empty before it is recorded: the newest
    parent: Parent | None = None
    tags: dict[str, str] = {}
    reuse: str = ""  # "failed" or "always": start a new generation of a terminal key
    generation: int = 1
    due: int = 0  # the work begins then and not before; 0: at once
    forked: "Rewound | None" = None  # it goes on from what another instance has behind it
    first: "Message | None" = None  # it was made by this message, and has it to answer
    root: int = 0  # the first of its family; 0: its parent, or itself where it has none
    asked: Asked | None = None


class ReceiptArrived(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="r"):
    """The receipt of an open intent."""

    intent: bytes
    receipt: Receipt


class Requested(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="q"):
    """A running call asks its instance for something. The answer comes with a decision: `Decision.answers`.

    `id` names the request within the call; `delivery` is that of the call, so one of an earlier delivery is stale.
    """

    intent: bytes
    delivery: int
    id: str
    name: str
    body: bytes


class Streamed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="f"):
    """A frame of an open intent. `number` counts the recorded frames of one delivery from 1."""

    intent: bytes
    number: int
    body: bytes


class Message(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="m"):
    name: str
    body: bytes
    id: str = ""  # a message whose id was seen before is dropped; empty: never dropped
    sender: str = ""
    correlation: str = ""  # what belongs together, as the first sender named it
    asked: Asked | None = None
    intent: bytes = b""  # the open wait that it answers; stale if that is not open; empty: any


class CancelAsked(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="c"):
    """`intent`: asked by a parent that no longer waits; it concerns the child of that intent and no namesake."""

    reason: str = ""
    intent: bytes = b""
    undo: bool = False  # what was done is to be undone
    asked: Asked | None = None


class Woken(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="w"):
    """A caller ends a sleep. `location`: of one sleep; empty: of all."""

    location: str = ""
    asked: Asked | None = None


class Retried(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="t"):
    """A person says: try again. A kept event is delivered again; else the machine is told."""

    asked: Asked | None = None


class Settled(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="k"):
    """A person answers for the effect at which the instance is stuck."""

    location: str
    receipt: Receipt
    asked: Asked | None = None


class Rewound(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="b"):
    """A person says: go on from an earlier place, or do again what failed. From now on `past` is what happened.

    A new machine is made and told its past (see `past.py`); all that it then has open is opened again, except for
    what is open still and named in `open`. Everything else that was open is dropped.
    """

    past: bytes
    to: str = ""  # the location that is gone back to; empty: what failed is done again
    open: tuple[bytes, ...] = ()  # intents of the past without a receipt; chosen by the kernel among these
    after: int = 0  # the entry of the rewind before this one: a past is made from a history that others may change
    force: bool = False  # drop what is running, too
    renew: tuple[str, ...] | None = ()  # locations whose work is another than before, with a new key; None: all
    again: tuple[str, ...] = ()  # locations that failed; their timers start again
    asked: Asked | None = None


class Migrated(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="g"):
    """Go on under another definition. Where the rules say so, that and their hash are filled in when it is taken.

    Else a person names the `version`, and the locations that have another name there. A new machine is made, by the new
    definition, from what the old one held; see `Decision.begin`.
    """

    version: str = ""
    rules: str = ""
    renamed: dict[str, str] = {}  # new locations by the old ones
    asked: Asked | None = None


class Tagged(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="n"):
    """A person changes tags; None removes one. Nothing else changes, not even the status of a stuck instance."""

    tags: dict[str, str | None]
    asked: Asked | None = None


class Redelivered(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="d"):
    """The process died while this intent was being executed: it runs again under the same id.

    `alone`: no other call that may have killed the process runs beside it, so this delivery counts against the
    allowed ones.
    """

    intent: bytes
    alone: bool = True


class Parked(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="p"):
    """The engine stopped in good order and cut this execution: it does not count against the allowed ones."""

    intent: bytes


class Released(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="l"):
    """The gate had held this intent and now lets it go."""

    intent: bytes


Event = (
    Started
    | ReceiptArrived
    | Requested
    | Streamed
    | Message
    | CancelAsked
    | Woken
    | Retried
    | Settled
    | Rewound
    | Migrated
    | Tagged
    | Redelivered
    | Parked
    | Released
)  # one closed union: adding an event means adding a case wherever `match` asks for it

KERNEL_ONLY = frozenset({Tagged, Redelivered, Parked, Released})
OF_AN_INTENT = frozenset({ReceiptArrived, Requested, Streamed, Redelivered, Parked, Released})


def asked_of(event: Event) -> Asked | None:
    """What the caller said beside the event: who asks, and under which condition. Only events from outside have it."""
    return getattr(event, "asked", None)


def id_of(event: Event) -> str:
    """The id by which an event that comes twice is known; empty: it has none."""
    if type(event) is Message and event.id:
        return event.id
    asked = asked_of(event)
    return "" if asked is None else asked.id


def size_of(event: Event) -> int:
    """The bytes that an event brings with it."""
    if type(event) is ReceiptArrived:
        error = event.receipt.error  # of an older executor: newer ones cut its texts
        return len(event.receipt.value or b"") + (0 if error is None else len(error.message) + len(error.traceback))
    if type(event) is Message or type(event) is Streamed or type(event) is Requested:
        return len(event.body)
    if type(event) is Rewound:
        return len(event.past)
    if type(event) is Started:
        return len(event.input) + (0 if event.first is None else len(event.first.body))
    return 0
