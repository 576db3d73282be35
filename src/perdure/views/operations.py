"""The operations of an instance: each with its attempts, in the order in which they were opened.

Tree, timeline and compact journal are three drawings of this list. An entry belongs to the operation that it answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.codec import decode as decode_value
from perdure.errors import PerdureError
from perdure.kernel.apply import apply
from perdure.kernel.batch import JournalRow
from perdure.kernel.effects import Call, Child, Effect, Timer, Wait, attempt_of, due_of
from perdure.kernel.entry import decode
from perdure.kernel.events import (
    Address,
    Event,
    Parked,
    ReceiptArrived,
    Redelivered,
    Released,
    Settled,
    Started,
    Streamed,
)
from perdure.kernel.instance import Instance, Intent
from perdure.kernel.location import Patterns
from perdure.kernel.moment import when
from perdure.ports.store import Queries

from .look import ShownError, shown_error

NANOSECONDS: Final = 1_000_000_000


class Part(msgspec.Struct, frozen=True):
    """A stretch of time: held, running, waiting."""

    kind: str
    begin: datetime
    end: datetime | None


class Operation(msgspec.Struct):
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


async def operations(queries: Queries, instance: int) -> list[Operation]:
    return Operations().read(await queries.history(instance))


class Operations:
    """Folds journal rows into operations. More rows may be added when they come."""

    def __init__(self) -> None:
        self._patterns = Patterns(())
        self._instance: Instance | None = None
        self._open: dict[bytes, Operation] = {}
        self.found: list[Operation] = []

    def read(self, rows: Iterable[JournalRow]) -> list[Operation]:
        for row in rows:
            self._read(row)
        return self.found

    def _read(self, row: JournalRow) -> None:
        entry = decode(row.seq, row.instance, row.at, row.body, self._patterns)
        if self._instance is None:
            if type(entry.event) is not Started:
                return  # the database was restored from a snapshot: what came before is not here
            self._instance = Instance(Address(entry.event.workflow, entry.event.key))
        at, number = when(entry.at), entry.number
        self._belongs(entry.event, number, at)
        changed = apply(self._instance, entry)
        for intent in changed.closed:
            operation = self._open.pop(intent.id, None)
            if operation is not None and operation.closed is None:
                operation.closed, operation.closed_at = number, at
                operation.status = _ended(entry.event, intent)
                operation.entries.append(number)
                _end_part(operation, at)
        for intent in changed.opened:
            self._begin(intent, number, at)

    def _begin(self, intent: Intent, number: int, at: datetime) -> None:
        if intent.id in self._open:
            return
        effect = intent.effect
        due = due_of(effect)
        operation = Operation(
            location=effect.location,
            kind=_kind(effect),
            attempt=attempt_of(effect),
            status="held" if intent.held else _live(effect),
            opened=number,
            closed=None,
            opened_at=at,
            closed_at=None,
            due=None if due is None else when(due),
            deliveries=1,
            what=_what(effect),
            child=f"{effect.workflow}/{effect.key}" if isinstance(effect, Child) else None,
            entries=[number],
            parts=[Part("held" if intent.held else _live(effect), at, None)],
            input=_input(effect),
        )
        if isinstance(effect, Call) and self._instance is not None:
            operation.key = self._instance.identity.idempotency_key(effect.location, effect.life)
            operation.timeout = None if effect.timeout is None else effect.timeout / NANOSECONDS
            operation.once = effect.deliveries_max == 1
        self.found.append(operation)
        self._open[intent.id] = operation

    def _belongs(self, event: Event, number: int, at: datetime) -> None:
        """The entry answers an open operation."""
        match event:
            case ReceiptArrived(intent=intent, receipt=receipt) if intent in self._open:
                operation = self._open[intent]
                operation.closed, operation.closed_at, operation.status = number, at, receipt.status
                operation.value = None if receipt.value is None else _value(receipt.value)
                operation.error = shown_error(receipt.error)
                operation.entries.append(number)
                _end_part(operation, at)
            case Redelivered(intent=intent) if intent in self._open:
                self._open[intent].deliveries += 1
                self._open[intent].entries.append(number)
            case Released(intent=intent) if intent in self._open:
                operation = self._open[intent]
                operation.entries.append(number)
                operation.status = "running"
                _end_part(operation, at)
                operation.parts.append(Part("running", at, None))
            case Streamed(intent=intent) | Parked(intent=intent) if intent in self._open:
                self._open[intent].entries.append(number)
            case Settled(location=location, receipt=receipt):
                for operation in reversed(self.found):
                    if operation.location == location:
                        operation.status, operation.value = receipt.status, None
                        operation.error = shown_error(receipt.error)
                        if receipt.value is not None:
                            operation.value = _value(receipt.value)
                        operation.entries.append(number)
                        break
            case _:
                pass


def _end_part(operation: Operation, at: datetime) -> None:
    if operation.parts and operation.parts[-1].end is None:
        operation.parts[-1] = msgspec.structs.replace(operation.parts[-1], end=at)


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
