"""Snapshots: kernel state and machine state of one instance at an entry. An optimisation, never the truth."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from perdure.codec import seal, unseal

from .batch import BESIDE_MAX, Batch, SnapshotRow
from .decision import Outcome, Stuck
from .entry import pack, unpack
from .events import Address, Event, Parent
from .instance import Instance, Intent
from .location import Patterns
from .machine import Rebuild
from .status import Status

SIZE_MIN: Final = 32 * 1024
"""A tail shorter than this is read faster than a snapshot is worth."""

SOONER: Final = 8
"""An instance that was made by a message has a small state and is often asleep: its tail is so many times shorter."""


class _State(msgspec.Struct, array_like=True):
    machine: bytes
    workflow: str
    key: str
    generation: int
    definition: str
    status: Status
    version: int
    seed: bytes
    input_hash: bytes
    started_at: int
    parent: Parent | None
    tags: dict[str, str]
    patterns: list[str]
    open: list[tuple[bytes, tuple[Any, ...], int, int, bool, bool]]
    seen: list[str]
    published: dict[str, bytes]
    cancelled: bool
    rewound: int = 0
    made: bool = False
    stuck: Stuck | None = None
    kept: Event | None = None
    outcome: Outcome | None = None
    frames: dict[bytes, int] = {}  # of open intents, the number of the last recorded frame, if there is one


class _Descendant(_State, array_like=True):
    """An instance whose root is not its parent. The others have no field for it, and are written as ever."""

    root: int = 0


_decoder = msgspec.msgpack.Decoder(_Descendant)
_encoder = msgspec.msgpack.Encoder()


def due(instance: Instance) -> bool:
    """The tail has outgrown the last snapshot: doubling keeps the cost per entry constant on average.

    Or its machine says that it has `pruned` as much as it keeps. Or it was woken for this entry, and will soon sleep
    again. Then it leaves its state at once: beside the entry, which is written anyway, a small state costs less than in
    a row of its own, on a page that no other event shares.
    """
    if instance.woken and max(instance.weight, instance.snapshot_size) <= BESIDE_MAX and not instance.mailbox:
        return True
    if getattr(instance.machine, "pruned", False):
        return True
    enough = SIZE_MIN // SOONER if instance.made else SIZE_MIN
    return instance.tail_size > enough and instance.tail_size > instance.snapshot_size


def take(instance: Instance) -> SnapshotRow | None:
    """The row, or None when the machine has nothing shorter than its journal (asked again when that has doubled)."""
    assert instance.machine is not None
    data = instance.machine.snapshot()
    if data is None:
        instance.snapshot_size = 2 * instance.tail_size
        return None
    body = write(instance, data)
    instance.snapshot_size, instance.tail_size = len(body), 0
    instance.woken = False
    return SnapshotRow(instance.id, instance.seq, body)


def write(instance: Instance, machine: bytes) -> bytes:
    """All that `apply` folded, and what its machine has saved. The same state gives the same bytes."""
    opened = _opened(instance) if instance.open else []
    fields = (
        machine,
        instance.address.workflow,
        instance.address.key,
        instance.generation,
        instance.definition,
        instance.status,
        instance.version,
        instance.seed,
        instance.input_hash,
        instance.started_at,
        instance.parent,
        instance.tags,
        instance.patterns.texts(),
        opened,
        list(instance.seen),
        instance.published,
        instance.cancelled,
        instance.rewound,
        instance.made,
        instance.stuck,
        instance.kept,
        instance.outcome,
        {intent.id: intent.frames for intent in instance.open.values() if intent.frames},
    )
    plain = instance.root == _root(instance)
    return seal(_encoder.encode(_State(*fields) if plain else _Descendant(*fields, instance.root)))


def _root(instance: Instance) -> int:
    return instance.id if instance.parent is None else instance.parent.instance


def _opened(instance: Instance) -> list[tuple[bytes, tuple[Any, ...], int, int, bool, bool]]:
    packed, fresh = pack(tuple(intent.effect for intent in instance.open.values()), instance.patterns)
    assert not fresh, "an open effect whose pattern was never recorded"
    return [
        (intent.id, effect, intent.delivery, intent.strikes, intent.counted, intent.held)
        for intent, effect in zip(instance.open.values(), packed, strict=True)
    ]


def restore(row: SnapshotRow) -> Instance:
    """An instance as `apply` had left it at the snapshot's entry."""
    state = _decoder.decode(unseal(row.body))
    instance = Instance(Address(state.workflow, state.key))
    instance.id = row.instance
    instance.generation = state.generation
    instance.definition = state.definition
    instance.status = state.status
    instance.version = state.version
    instance.seq = row.seq
    instance.seed = state.seed
    instance.input_hash = state.input_hash
    instance.started_at = state.started_at
    instance.parent = state.parent
    instance.root = state.root or _root(instance)
    instance.tags = state.tags
    instance.patterns = Patterns(state.patterns)
    for id, packed, delivery, strikes, counted, held in state.open:
        effect = unpack(packed, instance.patterns)
        instance.put(Intent(id, effect, delivery, strikes, counted, held, state.frames.get(id, 0)))
    instance.seen = dict.fromkeys(state.seen)  # their content is not known here
    instance.published = state.published
    instance.cancelled = state.cancelled
    instance.rewound = state.rewound
    instance.made = state.made
    instance.stuck, instance.kept, instance.outcome = state.stuck, state.kept, state.outcome
    instance.snapshot_at, instance.tail = state.machine, []
    instance.snapshot_size = len(row.body)
    return instance


def take_if_due(instance: Instance, batch: Batch, counts: Counter[str]) -> None:
    if not due(instance):
        return
    if instance.ended or instance.halted or instance.machine is None:
        return  # a snapshot has no room for what a stuck instance waits for
    try:
        row = take(instance)
    except Rebuild:
        batch.done_with.append(instance.id)
        return
    except Exception:  # an optimisation must not stop what works without it; asked again when the tail has doubled
        counts["snapshots_failed"] += 1
        instance.snapshot_size = 2 * instance.tail_size
        return
    if row is not None:
        batch.snapshots[instance.id] = row
