"""Histories as people read them: journal rows of one instance, decoded and put into words."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.codec import decode as decode_value
from perdure.kernel.batch import HeadRow, JournalRow
from perdure.kernel.effects import Call, Child, Effect, Timer, Wait
from perdure.kernel.entry import Entry, decode
from perdure.kernel.events import (
    CancelAsked,
    Message,
    Parked,
    Received,
    Redelivered,
    Released,
    Retried,
    Skipped,
    Started,
)
from perdure.kernel.identity import Identity
from perdure.kernel.events import Address
from perdure.kernel.instance import Instance
from perdure.kernel.apply import apply
from perdure.kernel.location import Patterns
from perdure.kernel.receipt import Failure


class Line(msgspec.Struct, frozen=True):
    """One entry. `event` is one word, `location` the operation it belongs to, `value` what came, `opened` what it led to."""

    number: int
    at: datetime
    event: str
    location: str = ""
    status: str = ""
    value: Any = None
    error: Failure | None = None
    opened: tuple[str, ...] = ()
    outcome: str = ""


class Summary(msgspec.Struct, frozen=True):
    """An instance in a list."""

    id: int
    workflow: str
    key: str
    generation: int
    version: str
    status: str
    started_at: datetime
    changed_at: datetime
    parent: int
    tags: dict[str, str]


class Waiting(msgspec.Struct, frozen=True):
    """What an instance has open, since when, and what would move it."""

    kind: str
    location: str
    since: datetime
    due: datetime | None
    attempt: int
    delivery: int
    held: bool
    what: str


def entries_of(rows: Iterable[JournalRow]) -> list[Entry]:
    """The decoded entries of one instance, from its first on."""
    patterns = Patterns()
    return [decode(row.seq, row.instance, row.at, row.body, patterns) for row in rows]


def lines(entries: Iterable[Entry]) -> list[Line]:
    told: list[Line] = []
    names: dict[bytes, str] = {}
    identity: Identity | None = None
    for entry in entries:
        if type(entry.event) is Started:
            address = Address(entry.event.workflow, entry.event.key)
            identity = Identity(address, entry.event.generation)
        assert identity is not None
        for effect in entry.decision.open:
            names[identity.intent(effect.location, effect.attempt if type(effect) is Call else 1)] = (
                effect.location
            )
        told.append(_line(entry, names))
    return told


def _line(entry: Entry, names: dict[bytes, str]) -> Line:
    decision = entry.decision
    event, location, status, value, error = "", "", "", None, None
    match entry.event:
        case Started(input=given):
            event, value = "started", decode_value(given)
        case Received(intent=id, receipt=receipt):
            event, location, status, error = "receipt", names.get(id, ""), receipt.status, receipt.error
            value = decode_value(receipt.value) if receipt.value is not None else None
        case Message(name=name, body=body):
            event, location, value = "message", name, decode_value(body)
        case CancelAsked(reason=reason):
            event, value = "cancel", reason
        case Retried():
            event = "retry"
        case Skipped(location=at):
            event, location = "skip", at
        case Redelivered(intent=id):
            event, location = "redelivered", names.get(id, "")
        case Parked(intent=id):
            event, location = "parked", names.get(id, "")
        case Released(intent=id):
            event, location = "released", names.get(id, "")
    outcome = ""
    if decision.outcome is not None:
        outcome, error = decision.outcome.status.value, error or decision.outcome.error
    elif decision.stuck is not None:
        outcome, error = "stuck", decision.stuck.error
    opened = tuple(_opened(effect) for effect in decision.open)
    return Line(entry.number, when(entry.at), event, location, status, value, error, opened, outcome)


def _opened(effect: Effect) -> str:
    word = {Call: "step", Timer: "timer", Wait: "wait", Child: "child"}[type(effect)]
    attempt = f" (attempt {effect.attempt})" if type(effect) is Call and effect.attempt > 1 else ""
    return f"{word} {effect.location}{attempt}"


def state_of(entries: Iterable[Entry]) -> Instance:
    """The folded state of one instance: what is open, whether it is stuck, what it published."""
    instance: Instance | None = None
    for entry in entries:
        if instance is None:
            assert type(entry.event) is Started, "a history begins with its start"
            instance = Instance(Address(entry.event.workflow, entry.event.key))
        apply(instance, entry)
    assert instance is not None, "a history has at least one entry"
    return instance


def open_work(entries: list[Entry]) -> list[Waiting]:
    instance = state_of(entries)
    since = {}
    for entry in entries:
        for effect in entry.decision.open:
            since[effect.location] = entry.at
    return [
        Waiting(
            kind=type(intent.effect).__name__.lower(),
            location=intent.effect.location,
            since=when(since[intent.effect.location]),
            due=when(intent.effect.due)
            if isinstance(intent.effect, Timer | Wait) and intent.effect.due is not None
            else None,
            attempt=intent.effect.attempt if type(intent.effect) is Call else 1,
            delivery=intent.delivery,
            held=intent.held,
            what=_what(intent.effect),
        )
        for intent in instance.open.values()
    ]


def _what(effect: Effect) -> str:
    match effect:
        case Call(executor=executor):
            return executor
        case Wait(names=names):
            return ", ".join(names)
        case Child(workflow=workflow, key=key):
            return f"{workflow}/{key}"
        case Timer():
            return ""


def summary(head: HeadRow) -> Summary:
    return Summary(
        head.id,
        head.workflow,
        head.key,
        head.generation,
        head.version,
        head.status,
        when(head.started_at),
        when(head.changed_at),
        head.parent,
        msgspec.json.decode(head.tags, type=dict[str, str]) if head.tags else {},
    )


def when(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1e9, UTC)
