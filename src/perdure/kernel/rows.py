"""Rows: what an instance and its events look like in tables. Pure, used live and by the rebuild of every index."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from perdure.codec import seal, unseal

from .batch import Batch, HeadRow, InboxRow, JournalRow, SnapshotRow, Standing, TagRow, WorkRow
from .decision import Outcome
from .effects import PAUSED_AT, Call, Child, Effect, Timer, Wait, due_of
from .entry import Entry
from .events import Address, Event, Migrated, ReceiptArrived, Ref, Rewound, Started, Tagged
from .instance import Instance, Intent
from .location import unnumbered
from .mailbox import Offer
from .outside import KIND, outside_of
from .receipt import DONE, Failure, Receipt
from .status import Status
from .tags import indexed, told

RESPONSE: Final = "&response/"

NEVER: Final = 2**63 - 1
"""When work without a deadline is due."""

NEW_HEAD: Final = frozenset({Started, Rewound, Migrated, Tagged})
"""Events after which the head of an instance is written, also where its status is the one that it had."""

REASONLESS: Final = frozenset({Status.RUNNING, Status.COMPLETED})
"""Most heads are written with one of these."""

REASONS_MAX: Final = 3
"""How many of the things that an instance waits for stand in its head."""

REASON_MAX: Final = 200
"""Characters of each."""

_event_decoder = msgspec.msgpack.Decoder(Event)
_outcome_decoder = msgspec.msgpack.Decoder(Outcome)
_tags_decoder = msgspec.json.Decoder(dict[str, str])


class StoredInstance(msgspec.Struct, frozen=True):
    """What a store knows of an instance: its head, its last snapshot and the rows after that."""

    head: HeadRow
    snapshot: SnapshotRow | None = None
    rows: tuple[JournalRow, ...] = ()

    @property
    def needed(self) -> "Loaded":
        """What an engine needs of it: no more than the snapshot, if that is of the last entry."""
        return self.snapshot if self.snapshot is not None and not self.rows else self


Loaded = StoredInstance | SnapshotRow
"""What an engine needs to go on with an instance. A snapshot of its last entry says all that head and rows say."""


Before = tuple[Status, str, Mapping[str, str], str]
"""Status, version, tags and reason of an instance before an entry is applied: what the entry may change in its rows."""


def before(instance: Instance, entry: Entry) -> Before:
    """Where the entry ends the instance, the reason is left out: nothing compares it."""
    status = instance.status
    awaited = reason(instance) if status is Status.WAITING and entry.decision.outcome is None else ""
    return status, instance.definition, instance.tags, awaited


def has_new_head(instance: Instance, entry: Entry, before: Before) -> bool:
    """Whether an entry that was applied changes the head: another status, tags, or something else to wait for."""
    if instance.status is not before[0] or type(entry.event) in NEW_HEAD or entry.decision.tags:
        return True
    return before[0] is Status.WAITING and reason(instance) != before[3]


def write_head(batch: Batch, instance: Instance, entry: Entry, before: Before) -> None:
    """The head of an instance that an entry has changed, with the counts and the tags."""
    status, version, tags, _ = before
    if status is Status.FAILED:
        batch.revived.append(instance.id)
    head = batch.heads[instance.id] = head_row(instance, entry.at)
    if entry.seq == entry.instance:  # an id is the seq of the first entry
        _count(batch, (head.workflow, head.version, head.status), 1)
    elif instance.status is not status or head.version != version:
        _count(batch, (head.workflow, head.version, head.status), 1)
        _count(batch, (head.workflow, version, status.value), -1)
    if instance.tags is not tags and (tags or instance.tags):
        batch.tags.update(dict.fromkeys(_tag_rows(head, tags), False))
        batch.tags.update(dict.fromkeys(_tag_rows(head, instance.tags), True))


def _count(batch: Batch, standing: Standing, by: int) -> None:
    batch.counts[standing] = batch.counts.get(standing, 0) + by


def add_heads(batch: Batch, heads: Iterable[HeadRow]) -> None:
    """Heads that are not in the store yet, of instances that began elsewhere."""
    for head in heads:
        batch.heads[head.id] = head
        _count(batch, (head.workflow, head.version, head.status), 1)
        batch.tags.update(dict.fromkeys(tag_rows(head), True))


def tags_of(head: HeadRow) -> dict[str, str]:
    return _tags_decoder.decode(head.tags) if head.tags not in ("", "{}") else {}


def told_tags(head: HeadRow) -> dict[str, Any]:
    """The same as users gave them: texts, numbers, bools and times."""
    return {name: told(text) for name, text in tags_of(head).items()}


def tag_rows(head: HeadRow) -> Iterator[TagRow]:
    """The rows of the tags that a head has."""
    return _tag_rows(head, tags_of(head))


def _tag_rows(head: HeadRow, tags: Mapping[str, str]) -> Iterator[TagRow]:
    for name, value in tags.items():
        yield TagRow(*indexed(name, value), head.started_at, head.id)


def reason(instance: Instance) -> str:
    """What an instance waits for, the last first, or its error and where that was; empty for any other.

    What a message made waits for messages all its life: its head does not say for which. A NUL, which no text of
    PostgreSQL takes, is replaced.
    """
    return _reason(instance).replace("\x00", "\ufffd")


def _reason(instance: Instance) -> str:
    if instance.stuck is not None:
        where = f" at {instance.stuck.location}" if instance.stuck.location else ""
        return f"{instance.stuck.error.type[:REASON_MAX]}{where[:REASON_MAX]}"
    if instance.status is Status.FAILED and instance.outcome is not None and instance.outcome.error is not None:
        where = f" at {instance.outcome.again[0]}" if instance.outcome.again else ""
        return f"{instance.outcome.error.type[:REASON_MAX]}{where[:REASON_MAX]}"
    if instance.status is not Status.WAITING or instance.made:
        return ""
    if len(instance.open) == 1:
        (only,) = instance.open.values()
        return _awaited(only.effect)
    last = islice(reversed(instance.open.values()), 4 * REASONS_MAX)  # the first of a dict are slow to find
    return ", ".join(list(dict.fromkeys(_awaited(intent.effect) for intent in last))[:REASONS_MAX])


def _awaited(effect: Effect) -> str:
    match effect:
        case Wait(location=location) if location.startswith(PAUSED_AT):
            return "paused"
        case Wait(location=location, names=names):
            outside = outside_of(effect)
            text = (
                f"message {' or '.join(names) or unnumbered(location)}"
                if outside is None
                else f"effect {outside.effect}"
            )
        case Timer(location=location):
            text = f"timer {unnumbered(location)}"
        case Call(executor=executor):
            text = f"queue {executor}"
        case Child(workflow=workflow):
            text = f"child {workflow}"
    return text[:REASON_MAX]


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
        instance.root,
        at if instance.ended else 0,
        "" if instance.status in REASONLESS else reason(instance),
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
    """The row of an intent that is due some time, or that an executor outside must find; most intents have none."""
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


def fired(row: WorkRow) -> ReceiptArrived:
    """The receipt of a timer or a deadline that is due."""
    if row.kind == "timer":
        return ReceiptArrived(row.intent, DONE)
    return ReceiptArrived(row.intent, Receipt("timeout", error=Failure("Timeout", "the deadline has passed")))
