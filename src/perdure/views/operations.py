"""The operations of an instance: each with its attempts, in the order in which they were opened.

Tree, timeline and compact journal are three drawings of this list. An entry belongs to the operation that it answers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from perdure.codec import decode as decode_value
from perdure.errors import PerdureError
from perdure.kernel.apply import Changed
from perdure.kernel.effects import Call, Child, Effect, Timer, Wait, attempt_of, due_of
from perdure.kernel.entry import Entry
from perdure.kernel.events import (
    Event,
    Message,
    Parked,
    ReceiptArrived,
    Redelivered,
    Released,
    Settled,
    Streamed,
)
from perdure.kernel.identity import Identity
from perdure.kernel.instance import Instance, Intent
from perdure.kernel.moment import when
from perdure.ports.seen import Line

from .look import ShownError, shown_error

NANOSECONDS: Final = 1_000_000_000
MAX: Final = 2**63


class Part(msgspec.Struct, frozen=True):
    """A stretch of time: held, running, waiting."""

    kind: str
    begin: datetime
    end: datetime | None


class Operation(msgspec.Struct, frozen=True):
    """One attempt at one location. `entries` are the numbers of the entries that belong to it.

    `key` is the idempotency key of a step. `input` is known of children, and of steps that leave the process.
    """

    location: str
    kind: str
    attempt: int
    status: str
    opened: int
    closed: int | None
    opened_at: datetime
    closed_at: datetime | None
    due: datetime | None
    deliveries: int
    what: str
    child: str | None
    entries: list[int]
    parts: list[Part]
    value: Any = None
    error: ShownError | None = None
    key: str = ""
    input: Any = None
    timeout: float | None = None
    once: bool = False


class CompactRow(msgspec.Struct, frozen=True):
    """An operation, or the instance itself, with the entries that belong to it: each entry belongs to one row."""

    kind: str
    location: str
    attempt: int
    status: str
    what: str
    opened: int
    closed: int | None
    opened_at: datetime
    closed_at: datetime | None
    entries: list[int]


class _Change(NamedTuple):
    """What an entry changed in an operation. `end`: when the part before ended; `runs`: another one began then."""

    number: int
    fields: dict[str, Any]
    end: datetime | None = None
    runs: bool = False


class _Track:
    """One operation through its history. What it was is put together when it is asked for: a page of entries is not
    held up by it."""

    __slots__ = (
        "answered_by",
        "changes",
        "deliveries",
        "effect",
        "entries",
        "held",
        "identity",
        "made",
        "opened",
        "since",
    )

    def __init__(self, opened: int, since: datetime, intent: Intent, identity: Identity) -> None:
        self.opened, self.since = opened, since
        self.effect, self.held, self.identity = intent.effect, intent.held, identity
        self.entries = [opened]
        self.answered_by: list[int] = []  # entries that belong to this operation and to no other
        self.changes: list[_Change] = []
        self.deliveries = 1
        self.made: list[Operation] = []  # as it was opened, and after each change

    @property
    def closed(self) -> bool:
        return any("closed" in change.fields for change in self.changes)

    def change(self, number: int, end: datetime | None = None, runs: bool = False, **fields: Any) -> None:
        self.changes.append(_Change(number, fields, end, runs))

    @property
    def now(self) -> Operation:
        return self._after(len(self.changes))

    def at(self, number: int) -> Operation:
        place = len(self.changes)
        while place and self.changes[place - 1].number > number:
            place -= 1
        entries = self.entries if self.entries[-1] <= number else self.entries[: bisect_right(self.entries, number)]
        return msgspec.structs.replace(self._after(place), entries=entries)

    def _after(self, place: int) -> Operation:
        if not self.made:
            self.made.append(self._first())
        while len(self.made) <= place:
            last, change = self.made[-1], self.changes[len(self.made) - 1]
            parts = last.parts if change.end is None else _ended_part(last, change.end)
            if change.runs and change.end is not None:
                parts = [*parts, Part("running", change.end, None)]
            self.made.append(msgspec.structs.replace(last, parts=parts, **change.fields))
        return self.made[place]

    def _first(self) -> Operation:
        effect = self.effect
        due = due_of(effect)
        status = "held" if self.held else _live(effect)
        call = effect if isinstance(effect, Call) else None
        return Operation(
            location=effect.location,
            kind=_kind(effect),
            attempt=attempt_of(effect),
            status=status,
            opened=self.opened,
            closed=None,
            opened_at=self.since,
            closed_at=None,
            due=None if due is None else when(due),
            deliveries=1,
            what=_what(effect),
            child=f"{effect.workflow}/{effect.key}" if isinstance(effect, Child) else None,
            entries=[],
            parts=[Part(status, self.since, None)],
            input=_input(effect),
            key="" if call is None else self.identity.idempotency_key(call.location, call.life),
            timeout=None if call is None or call.timeout is None else call.timeout / NANOSECONDS,
            once=call is not None and call.deliveries_max == 1,
        )


class Operations:
    """The operations of a history, which a `Reader` tells of each entry. The list at an entry is a cut of this fold."""

    def __init__(self) -> None:
        self._tracks: list[_Track] = []
        self._opened: list[int] = []
        self._open: dict[bytes, _Track] = {}
        self._places: dict[str, _Track] = {}  # the last operation of each location
        self._own: list[int] = []  # entries that belong to no operation
        self._begun: datetime | None = None

    def heard(self, line: Line, entry: Entry, instance: Instance, changed: Changed) -> None:
        number, at = line.number, line.at
        owner = self._belongs(entry.event, line, at)
        taken = _taken(entry.event, changed.closed)
        for intent in changed.closed:
            track = self._open.pop(intent.id, None)
            if track is None:
                continue
            if intent is taken:
                track.change(number, at, closed=number, closed_at=at, status="ok", value=line.value)
                track.entries.append(number)
                owner = track
            elif not track.closed:
                track.change(number, at, closed=number, closed_at=at, status=_ended(entry.event, intent))
                track.entries.append(number)
                owner = owner or track
        for intent in changed.opened:
            self._begin(instance, intent, number, at)
        self._begun = self._begun or at
        (self._own if owner is None else owner.answered_by).append(number)

    def count(self, until: int | None = None) -> int:
        """How many were opened, up to an entry."""
        return len(self._opened) if until is None else bisect_right(self._opened, until)

    def upto(self, until: int | None = None, limit: int = 0) -> list[Operation]:
        """The last `limit` (0: all) operations as they are now, or as they were after an entry."""
        end = self.count(until)
        number = until if until is not None else MAX
        return [track.at(number) for track in self._tracks[max(0, end - limit) if limit else 0 : end]]

    def compact(self, after: int = 0, before: int = 0, limit: int = 0) -> list[CompactRow]:
        """Rows whose first entry stands after one entry; or, with `before`, the last rows that begin before that."""
        rows = [_compact(track) for track in self._tracks]
        if self._own and self._begun is not None:
            own = CompactRow(
                "instance", "", 0, "", "the instance itself", self._own[0], None, self._begun, None, self._own[:]
            )
            rows.insert(0, own)
        rows = [row for row in rows if row.opened > after and (not before or row.opened < before)]
        return rows if not limit else rows[-limit:] if before else rows[:limit]

    def _begin(self, instance: Instance, intent: Intent, number: int, at: datetime) -> None:
        if intent.id in self._open:
            return
        track = _Track(number, at, intent, instance.identity)
        self._tracks.append(track)
        self._opened.append(number)
        self._open[intent.id] = self._places[intent.effect.location] = track

    def _belongs(self, event: Event, line: Line, at: datetime) -> _Track | None:
        """The operation that an entry answers."""
        number = line.number
        match event:
            case ReceiptArrived(intent=intent, receipt=receipt) if intent in self._open:
                track = self._open[intent]
                error = shown_error(receipt.error)
                track.change(
                    number, at, closed=number, closed_at=at, status=receipt.status, value=line.value, error=error
                )
            case Redelivered(intent=intent) if intent in self._open:
                track = self._open[intent]
                track.deliveries += 1
                track.change(number, deliveries=track.deliveries)
            case Released(intent=intent) if intent in self._open:
                track = self._open[intent]
                track.change(number, at, True, status="running")
            case Streamed(intent=intent) | Parked(intent=intent) if intent in self._open:
                track = self._open[intent]
            case Settled(location=location, receipt=receipt) if location in self._places:
                track = self._places[location]
                track.change(number, status=receipt.status, value=line.value, error=shown_error(receipt.error))
            case _:
                return None
        track.entries.append(number)
        return track


def _compact(track: _Track) -> CompactRow:
    now = track.now
    return CompactRow(
        now.kind,
        now.location,
        now.attempt,
        now.status,
        now.what,
        now.opened,
        now.closed,
        now.opened_at,
        now.closed_at,
        track.answered_by[:],
    )


def _ended_part(operation: Operation, at: datetime) -> list[Part]:
    parts = operation.parts
    if parts and parts[-1].end is None:
        return [*parts[:-1], msgspec.structs.replace(parts[-1], end=at)]
    return parts


def _taken(event: Event, closed: Iterable[Intent]) -> Intent | None:
    """The wait that a message ended: its machine withdraws it in the entry that takes the message."""
    if not isinstance(event, Message):
        return None
    waits = [(intent, intent.effect.names) for intent in closed if isinstance(intent.effect, Wait)]
    return next((intent for intent, names in waits if not names or event.name in names), None)


def _ended(event: Event, intent: Intent) -> str:
    """What closes an operation without a receipt of its own: a withdrawal, a rewind, the end of the instance."""
    if isinstance(event, ReceiptArrived) and event.intent == intent.id:
        return event.receipt.status
    return "dropped"


def _kind(effect: Effect) -> str:
    match effect:
        case Call():
            return "step"
        case Timer():
            return "timer"
        case Wait():
            return "wait"
        case Child(workflow="perdure.task"):
            return "task"
        case Child():
            return "child"


def _live(effect: Effect) -> str:
    return "running" if isinstance(effect, Call) else "waiting"


def _what(effect: Effect) -> str:
    match effect:
        case Call(executor=executor):
            return executor
        case Wait(names=names):
            return ", ".join(names)
        case Child(workflow=workflow, key=key):
            return f"{workflow}/{key}"
        case _:
            return ""


def _input(effect: Effect) -> Any:
    data = effect.input if isinstance(effect, Child) else getattr(effect, "params", None)
    return _value(data) if data else None


def _value(data: bytes) -> Any:
    try:
        return decode_value(data)
    except PerdureError:
        return data
