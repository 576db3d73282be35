"""The only place where an instance changes state.

`apply` folds one journal entry into an instance. Live delivery and recovery call this same function, so a rebuilt
instance cannot differ from a live one. For one kind of entry recovery has a shorter way, `apply_run`; that both end in
the same state is tested after every entry of every simulated world. Nothing here decides anything: see `kernel.py`.
"""

from collections.abc import Iterable
from hashlib import blake2b
from itertools import islice
from typing import Final

import msgspec

from .decision import Decision
from .effects import Call, Effect
from .entry import Entry
from .events import (
    KERNEL_ONLY,
    CancelAsked,
    Event,
    Message,
    Migrated,
    Parked,
    ReceiptArrived,
    Redelivered,
    Released,
    Retried,
    Rewound,
    Started,
    Streamed,
    Tagged,
    id_of,
)
from .instance import Instance, Intent
from .status import Status, change

SEEN_MIN: Final = 4096
SEEN_MAX: Final = 4608
"""How many message ids an instance remembers: never fewer than the last so many. Above the maximum the oldest are
forgotten together, because to find the oldest of a dict costs as much as were deleted before it."""

SEEN_MIN_MADE: Final = 256
SEEN_MAX_MADE: Final = 320
"""The same for an instance that was made by a message: there are many of those, and each has messages of its own."""


class Changed(msgspec.Struct, eq=False, gc=False):
    """Which intents an entry opened and closed: what the index rows and the executors need to know."""

    opened: list[Intent] = []
    closed: list[Intent] = []
    resumed: Intent | None = None  # handed to an executor again, or for the first time after being held


def apply(instance: Instance, entry: Entry) -> Changed:
    if entry.number != instance.version + 1 and not _is_fork(instance, entry):
        raise ValueError(f"{instance.address}: entry {entry.number} cannot follow entry {instance.version}")
    changed = Changed()
    event, decision = entry.event, entry.decision
    instance.version = entry.number
    instance.seq = entry.seq
    if entry.patterns:
        instance.patterns.learn(entry.patterns)
    if type(event) is ReceiptArrived and decision.stuck is None:  # most entries are receipts
        changed.closed.append(instance.drop(event.intent))
    elif type(event) is Tagged:
        _tag(instance, event.tags.items())
        _seen(instance, event)
        return changed
    else:
        _happened(instance, entry, changed)
    if decision.stuck is None or not decision.stuck.kept:
        _decided(instance, entry, changed)
    if instance.stuck is None or not instance.stuck.open or type(event) not in KERNEL_ONLY:  # no machine was asked
        _settle_status(instance, decision, changed)
    return changed


def apply_run(instance: Instance, entries: Iterable[Entry]) -> None:
    """What `apply` does, for plain entries that follow each other: most of a long history.

    A call that the very next entry answers leaves no trace. So its id is not even derived: a receipt that is of none of
    the open intents is of that call.
    """
    last: Entry | None = None  # its call is not among the open intents yet
    number = instance.version
    for entry in entries:
        number += 1
        if entry.number != number:
            raise ValueError(f"{instance.address}: entry {entry.number} cannot follow entry {number - 1}")
        id = entry.event.intent  # type: ignore[union-attr]
        if last is None or id in instance.open:
            if last is not None:
                _open(instance, last.decision.open[0])
            _close(instance, id, Changed())
        last = entry
    if last is not None:
        _open(instance, last.decision.open[0])
        instance.version, instance.seq = last.number, last.seq
        _settle_status(instance, last.decision, Changed())


def _open(instance: Instance, call: Effect) -> None:
    id = instance.intent_id(call)
    instance.put(Intent(id, call))


def _happened(instance: Instance, entry: Entry, changed: Changed) -> None:
    """What the event itself changes, whatever was decided."""
    if entry.decision.stuck is not None and entry.decision.stuck.kept:
        # The machine raised: the event counts as not yet delivered. A retry that raised again keeps the first one.
        if type(entry.event) is not Retried:
            if (
                type(instance.kept) is ReceiptArrived
            ):  # a rewind takes its place: the answer is gone, so it is asked again
                _close(instance, instance.kept.intent, changed)
            instance.kept = entry.event
            instance.outcome = None
        else:
            _seen(instance, entry.event)
        if type(entry.event) is Started:
            _started(instance, entry, entry.event)
        return
    event = entry.event
    if type(event) is Retried and instance.kept is not None:
        _seen(instance, event)
        event, instance.kept = instance.kept, None
    _seen(instance, event)
    match event:
        case ReceiptArrived(intent=id):
            _close(instance, id, changed)
        case Started():
            _started(instance, entry, event)
        case Streamed(intent=id, number=number):
            instance.open[id].frames = number
        case CancelAsked():
            instance.cancelled = True
        case Rewound(open=kept):
            for id in [id for id in instance.open if id not in kept]:
                _close(instance, id, changed)
            instance.rewound = entry.number
            instance._identity = instance.kept = instance.outcome = None
        case Migrated(version=version):
            instance.definition = version
            instance.kept = None  # an earlier migration that failed, if any
        case Redelivered(intent=id, alone=alone):
            intent = instance.open[id]
            intent.delivery += 1
            counts = alone or (type(intent.effect) is Call and intent.effect.deliveries_max == 1)
            intent.strikes += counts
            intent.counted = counts
            changed.resumed = intent
        case Parked(intent=id):
            intent = instance.open[id]
            intent.strikes -= intent.counted
            intent.counted = False
        case Released(intent=id):
            intent = instance.open[id]
            intent.held = False
            instance.calls += intent.here - 1
            changed.resumed = intent
        case _:
            pass


def _seen(instance: Instance, event: Event) -> None:
    if id := id_of(event):
        instance.seen[id] = content(event)
        if len(instance.seen) > SEEN_MAX_MADE:
            least, most = (SEEN_MIN_MADE, SEEN_MAX_MADE) if instance.made else (SEEN_MIN, SEEN_MAX)
            if len(instance.seen) > most:
                for old in list(islice(instance.seen, len(instance.seen) - least)):
                    del instance.seen[old]


def content(event: Event) -> int:
    """What tells events apart that have one id. For memory alone: it is another number in each process."""
    if type(event) is Message:
        return hash((event.name, event.body))
    return hash(type(event).__name__)


def _is_fork(instance: Instance, entry: Entry) -> bool:
    """A fork goes on counting where the past that it was given ends."""
    event = entry.event
    return instance.version == 0 and type(event) is Started and event.forked is not None


def _started(instance: Instance, entry: Entry, event: Started) -> None:
    if event.forked is not None:
        instance.rewound = entry.number
        instance._identity = None
    if instance.generation:  # a kept start that is delivered again: the instance began when it came first
        return
    instance.id = entry.instance
    instance.generation = event.generation
    instance.definition = event.version
    instance.seed = event.seed
    instance.input_hash = input_hash(event.input)
    instance.started_at = entry.at
    instance.parent = event.parent
    instance.root = event.root or (entry.instance if event.parent is None else event.parent.instance)
    instance.tags = event.tags
    if event.first is not None:
        instance.made = True
        _seen(instance, event.first)


def input_hash(value: bytes) -> bytes:
    return blake2b(value, digest_size=16).digest()


def _decided(instance: Instance, entry: Entry, changed: Changed) -> None:
    decision = entry.decision
    for id in decision.withdraw:
        _close(instance, id, changed)
    if decision.open and decision.outcome is None:  # what the last decision asks for never begins
        held = frozenset(entry.held) if entry.held else None
        ids = entry.intents or decision.ids or [instance.intent_id(effect) for effect in decision.open]
        for place, effect in enumerate(decision.open):
            id = ids[place]
            intent = Intent(id, effect)
            if held is not None and id in held:
                intent.held = True
            instance.put(intent)
            changed.opened.append(intent)
    if decision.publish:
        instance.published.update(decision.publish)
    if decision.tags:
        _tag(instance, decision.tags)


def _tag(instance: Instance, tags: Iterable[tuple[str, str | None]]) -> None:
    """The mapping is replaced, not changed: the event of the start may have it, and so may a row."""
    changed = {**instance.tags, **dict(tags)}
    instance.tags = {name: value for name, value in changed.items() if value is not None}


def _close(instance: Instance, id: bytes, changed: Changed) -> None:
    changed.closed.append(instance.drop(id))


def _settle_status(instance: Instance, decision: Decision, changed: Changed) -> None:
    instance.stuck = decision.stuck
    if decision.stuck is not None:
        after = Status.STUCK
    elif decision.outcome is not None:
        for id in list(instance.open):
            _close(instance, id, changed)
        instance.outcome = decision.outcome
        after = decision.outcome.status
    else:
        after = Status.RUNNING if instance.calls else Status.WAITING
    if after is not instance.status:
        instance.status = change(instance.status, after)
