"""Rows: what an instance and its events look like in tables. Pure, used live and by the rebuild of every index."""

from typing import Final

import msgspec

from perdure.codec import seal, unseal

from .batch import HeadRow, InboxRow, JournalRow, SnapshotRow, WorkRow
from .decision import Outcome
from .effects import Effect, Timer, Wait, due_of
from .events import Address, Event, Migrated, Received, Ref, Rewound, Started
from .instance import Instance, Intent
from .mailbox import Offer
from .outside import KIND, outside_of
from .receipt import DONE, Failure, Receipt
from .status import Status

RESPONSE: Final = "&response/"

NEVER: Final = 2**63 - 1
"""When work without a deadline is due."""

NEW_HEAD: Final = frozenset({Started, Rewound, Migrated})
"""Events after which the head of an instance is written, also where its status is the one that it had."""

_event_decoder = msgspec.msgpack.Decoder(Event)
_outcome_decoder = msgspec.msgpack.Decoder(Outcome)


class Record(msgspec.Struct, frozen=True):
    """What a store knows of an instance: its head, its last snapshot and the rows after that."""

    head: HeadRow
    snapshot: SnapshotRow | None = None
    rows: tuple[JournalRow, ...] = ()

    @property
    def needed(self) -> "Loaded":
        """What an engine needs of it: no more than the snapshot, if that is of the last entry."""
        return self.snapshot if self.snapshot is not None and not self.rows else self


Loaded = Record | SnapshotRow
"""What an engine needs to go on with an instance. A snapshot of its last entry says all that head and rows would say: a
cell that sleeps is one row to read."""


def head_row(instance: Instance, at: int) -> HeadRow:
    return HeadRow(
        instance.id,
        instance.address.workflow,
        instance.address.key,
        instance.generation,
        instance.definition,
        instance.status.value,
        instance.started_at,
        at,
        instance.parent.instance if instance.parent is not None else 0,
        instance.input_hash,
        msgspec.json.encode(instance.tags, order="sorted").decode() if instance.tags else "{}",
        encode_outcome(instance.outcome) if instance.outcome is not None else None,
    )


def encode_outcome(outcome: Outcome) -> bytes:
    return seal(msgspec.msgpack.encode(outcome))


def decode_outcome(body: bytes) -> Outcome:
    return _outcome_decoder.decode(unseal(body))


def receipt_of(outcome: Outcome) -> Receipt:
    """How a child's end answers its parent."""
    match outcome.status:
        case Status.COMPLETED:
            return Receipt("ok", outcome.value)
        case Status.CANCELLED:
            return Receipt("cancelled", error=outcome.error)
        case _:
            return Receipt("error", error=outcome.error)


def work_row(instance: int, intent: Intent) -> WorkRow | None:
    """The row of an intent that is due some time, or that somebody outside must find; most intents have none."""
    effect = intent.effect
    if not has_row(effect):
        return None
    due = due_of(effect)
    outside = outside_of(effect)
    kind = "timer" if type(effect) is Timer else "deadline" if outside is None else KIND + outside.executor
    return WorkRow(intent.id, instance, kind, NEVER if due is None else due)


def has_row(effect: Effect) -> bool:
    return due_of(effect) is not None or (type(effect) is Wait and effect.params is not None)


def response_name(message: str) -> str:
    """The answer to a message stands among the published values, under a name that no workflow can publish."""
    return RESPONSE + message


def inbox_row(id: bytes, to: Ref, event: Event, at: int) -> InboxRow:
    workflow, key, instance = (to.workflow, to.key, 0) if isinstance(to, Address) else ("", "", to)
    return InboxRow(id, workflow, key, instance, at, seal(msgspec.msgpack.encode(event)))


def offer_of(row: InboxRow) -> Offer:
    to: Ref = row.instance if row.instance else Address(row.workflow, row.key)
    return Offer(to, _event_decoder.decode(unseal(row.body)), inbox=row.id, at=row.at)


def fired(row: WorkRow) -> Received:
    """The receipt of a timer or a deadline that is due."""
    if row.kind == "timer":
        return Received(row.intent, DONE)
    return Received(row.intent, Receipt("timeout", error=Failure("Timeout", "the deadline has passed")))
