"""Pasts: what a machine is told when an instance is rewound, retried or forked, instead of its own history.

A past is made from a history (`Behind` reads one, `rewind`, `retry` and `fork` choose from it) and
travels in the event `Rewound`. Nothing refers to an intent by its id there: after a rewind all ids are new, so a
receipt is known by the location and the attempt that it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

from .apply import apply
from .batch import JournalRow, SnapshotRow
from .decision import NOTHING, Decision
from .effects import Call, Child, Effect, attempt_of
from .entry import Entry, decode, decode_run, encode_run
from .events import Address, CancelAsked, Event, ReceiptArrived, Rewound, Started
from .instance import Instance, Intent
from .location import Patterns
from .mailbox import Refused
from .receipt import Receipt
from .replay import deliveries
from .snapshot import restore
from .workflows import OWN

Way = Literal["same", "again", "now"]
"""How a machine takes an item of its past: it must decide what it decided then; it decides again, at the recorded time;
or it decides again, at the time of the rewind."""

WAYS = get_args(Way)


class Item(msgspec.Struct, frozen=True):
    """One delivery. `location` and `attempt`: of the operation that a receipt answers."""

    number: int
    at: int
    event: Event
    decision: Decision
    location: str = ""
    attempt: int = 0
    way: Way = "same"
    seed: bytes = b""  # of the instance that lived it: a fork goes on with its own


def still_running(instance: Instance, event: Rewound) -> Refused | None:
    """The refusal of a rewind that would drop what is running and is not to be forced. A task waits for a person."""
    running = [
        intent.effect.location
        for intent in instance.open.values()
        if intent.id not in event.open and _runs(intent.effect)
    ]
    if event.force or not running:
        return None
    return Refused("running", f"{instance.address}: what would be dropped is running: {', '.join(running)}")


def _runs(effect: Effect) -> bool:
    return isinstance(effect, Call) or (isinstance(effect, Child) and not effect.workflow.startswith(OWN))


def keep_open(instance: Instance, event: Rewound) -> Rewound:
    """What stays open: all intents of the past without a receipt. A receipt that is kept will not be delivered."""
    kept = instance.kept
    answered = kept.intent if type(kept) is ReceiptArrived else b""
    still = tuple([id for id in event.open if id in instance.open and id != answered])
    return msgspec.structs.replace(event, open=still)


class Past(msgspec.Struct, frozen=True):
    items: tuple[Item, ...]
    noted: tuple[str, ...] = ()  # in what is decided again: a version that was pinned stays pinned
    base: bytes = b""  # what the machine had saved before the first item; empty: that is the first of all
    base_at: int = 0  # the last entry in that


class _Packed(msgspec.Struct, array_like=True):
    seeds: list[bytes]
    items: list[tuple[bytes, int, str, int, int, int]]
    noted: tuple[str, ...]
    base: bytes
    base_at: int


def write(past: Past) -> bytes:
    seeds = list(dict.fromkeys(item.seed for item in past.items))
    bodies = encode_run((item.number, item.at, item.event, item.decision) for item in past.items)
    items = [
        (body, item.at, item.location, item.attempt, WAYS.index(item.way), seeds.index(item.seed))
        for item, body in zip(past.items, bodies, strict=True)
    ]
    return msgspec.msgpack.encode(_Packed(seeds, items, past.noted, past.base, past.base_at))


def read(data: bytes) -> Past:
    packed = msgspec.msgpack.decode(data, type=_Packed)
    entries = decode_run((at, body) for body, at, *_ in packed.items)
    items = [
        Item(each.number, at, each.event, each.decision, location, attempt, WAYS[way], packed.seeds[seed])
        for each, (_, at, location, attempt, way, seed) in zip(entries, packed.items, strict=True)
    ]
    return Past(tuple(items), packed.noted, packed.base, packed.base_at)


class Point(NamedTuple):
    """A place in a past: before the item there, or, when it is `now`, at its delivery, which then happens again."""

    place: int
    now: bool


class Behind:
    """What an instance has behind it, from its beginning or from a snapshot on.

    Where it was rewound, that is the past that it was given then, and what came after.
    """

    def __init__(self, address: Address, rows: Iterable[JournalRow], snapshot: SnapshotRow | None = None) -> None:
        self.instance = Instance(address) if snapshot is None else restore(snapshot)
        self.items: list[Item] = []
        self._base = self.instance.snapshot_at or b""
        self._base_at = self.instance.version
        self._noted: tuple[str, ...] = ()
        self._names: dict[bytes, tuple[str, int]] = {}
        self._opened_in: dict[bytes, int] = {}
        for intent in self.instance.open.values():
            self._opened(intent, self.instance.version)
        patterns = Patterns(self.instance.patterns.texts())
        entries = [decode(row.seq, row.instance, row.at, row.body, patterns) for row in rows]
        delivered = {entry.number: event for entry, event in deliveries(entries)}
        for entry in entries:
            self._read(entry, delivered.get(entry.number))

    def _read(self, entry: Entry, event: Event | None) -> None:
        """Take in an entry, and the event that it delivered to the machine, if any."""
        location, attempt = self._names.get(event.intent, ("", 0)) if type(event) is ReceiptArrived else ("", 0)
        for intent in apply(self.instance, entry).opened:
            self._opened(intent, entry.number)
        if event is None:
            return
        rewound = event if type(event) is Rewound else event.forked if type(event) is Started else None
        seed = self.instance.seed
        if rewound is None:
            self.items.append(Item(entry.number, entry.clock, event, entry.decision, location, attempt, seed=seed))
            return
        past = read(rewound.past)
        earlier: list[Item] = []
        if past.base and not self._base:  # read from the beginning, it has behind it what was saved then
            earlier = [item for item in self.items if item.number <= past.base_at]
            self._noted = (*self._noted, *past.noted, *entry.decision.noted)
        else:
            self._base, self._base_at = past.base, past.base_at
            self._noted = (*past.noted, *entry.decision.noted)
        self.items = [*earlier, *[item for item in past.items if item.way != "now"]]
        decision = entry.decision
        for now in [item for item in past.items if item.way == "now"]:  # what was opened was opened by this, if by any
            decision = msgspec.structs.replace(decision, send=(*now.decision.send, *decision.send))
            here = Item(entry.number, entry.clock, now.event, decision, now.location, now.attempt, "again", seed)
            self.items.append(here)
            decision = NOTHING
        mark = msgspec.structs.replace(rewound, past=write(Past(())), force=False)
        self.items.append(Item(entry.number, entry.clock, mark, decision, way="again", seed=seed))

    def _opened(self, intent: Intent, number: int) -> None:
        self._names[intent.id] = intent.effect.location, attempt_of(intent.effect)
        self._opened_in[intent.id] = number

    @property
    def input(self) -> bytes:
        first = self.items[0].event
        assert type(first) is Started, "a whole past begins with its start"
        return first.input

    def point_of(self, location: str) -> Point | None:
        """Where the operation at a location begins, or the first one below it; None: nothing was done there.

        After a snapshot there may be only a part of what is below a location: there it must be this very one.
        """
        for place, item in enumerate(self.items):
            notes = [note.partition(" ")[2] for note in item.decision.noted]
            opened = [effect.location for effect in item.decision.open] + notes
            if location in opened or (not self._base and any(_within(each, location) for each in opened)):
                return Point(place, now=type(item.event) is not Rewound)
            # What a rewind decided again says only what was answered.
            if not self._base and _within(item.location, location):
                return Point(place, now=False)
        return None

    def answer_at(self, location: str) -> Point | None:
        """Where the operation at a location was answered for good; None: it was not."""
        places = [place for place, item in enumerate(self.items) if item.location == location]
        return Point(places[-1], now=True) if places else None

    def locations(self) -> set[str]:
        """Where something was done."""
        noted = {note.partition(" ")[2] for item in self.items for note in item.decision.noted}
        return noted | {effect.location for item in self.items for effect in item.decision.open}

    def rewind(self, to: str, point: Point, force: bool) -> Rewound:
        """Go back to a point. What came later did not happen."""
        same, now = self._until(point)
        first = self.items[point.place].number
        open = tuple([id for id in self.instance.open if self._opened_in[id] < first])
        past = Past((*same, *now), self._noted, self._base, self._base_at)
        return Rewound(write(past), to, open, self.instance.rewound, force, renew=None)

    def retry(self) -> Rewound | None:
        """Of an instance that has failed: what failed is done again, and all else stays done.

        None: some of that lies before the snapshot.
        """
        outcome = self.instance.outcome
        assert outcome is not None
        again = set(outcome.again)
        if self._base and not again <= {item.location for item in self.items}:
            return None
        first = next((place for place, item in enumerate(self.items) if _answers(item, again)), len(self.items) - 1)
        rest = [item for item in self.items[first:] if not _answers(item, again)]
        past = self._past(self.items[:first], rest)
        return Rewound(write(past), after=self.instance.rewound, renew=outcome.renew, again=outcome.again)

    def fork(self, key: str, at: str, point: Point, edit: Mapping[str, bytes]) -> Rewound:
        """The same as a rewind, for another instance; `edit` has other values for what was answered before."""
        same, now = self._until(point)
        items = [_edited(_of(key, item), edit) for item in (*same, *now)]
        first = next((place for place, item in enumerate(same) if item.location in edit), len(same))
        return Rewound(write(self._past(items[:first], items[first:])), at, after=items[-1].number, renew=None)

    def _until(self, point: Point) -> tuple[list[Item], list[Item]]:
        now = self.items[point.place : point.place + point.now]
        return self.items[: point.place], [msgspec.structs.replace(item, way="now") for item in now]

    def answered(self, point: Point) -> set[str]:
        """Where there is an answer that a fork at this point could edit."""
        items = self.items[: point.place + point.now]
        return {item.location for item in items if type(item.event) is ReceiptArrived}

    def dropped(self, point: Point) -> list[str]:
        """The locations that a rewind to this point drops: what the point's own decision opened, and all after it."""
        opened = [effect.location for item in self.items[point.place :] for effect in item.decision.open]
        return list(dict.fromkeys(opened))

    def cancelled(self, point: Point) -> bool:
        return any(type(item.event) is CancelAsked for item in self.items[: point.place + point.now])

    def _past(self, same: list[Item], rest: list[Item]) -> Past:
        noted = [note for item in rest if item.way != "now" for note in item.decision.noted]
        anew = [
            msgspec.structs.replace(
                item,
                decision=Decision(send=item.decision.send),  # what was sent is not sent again
                way="now" if item.way == "now" else "again",
            )
            for item in rest
        ]
        return Past((*same, *anew), (*self._noted, *noted), self._base, self._base_at)


def _within(location: str, scope: str) -> bool:
    return location == scope or location.startswith(scope + "/")


def _answers(item: Item, locations: set[str]) -> bool:
    """Whether an item answers what stands at one of these locations, or a pause between its attempts."""
    return item.location in locations or item.location.partition("/backoff#")[0] in locations


def _of(key: str, item: Item) -> Item:
    """The item as another instance has it behind it."""
    if type(item.event) is not Started:
        return item
    return msgspec.structs.replace(item, event=msgspec.structs.replace(item.event, key=key, generation=1))


def _edited(item: Item, edit: Mapping[str, bytes]) -> Item:
    if type(item.event) is not ReceiptArrived or item.location not in edit:
        return item
    return msgspec.structs.replace(item, event=ReceiptArrived(item.event.intent, Receipt("ok", edit[item.location])))
