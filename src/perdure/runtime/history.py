"""Histories as people read them: journal rows of one instance, decoded and put into words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar

from perdure.codec import decode as decode_value
from perdure.errors import CallerError, PerdureError
from perdure.kernel.apply import Changed, apply
from perdure.kernel.batch import HeadRow, InboxRow, JournalRow
from perdure.kernel.effects import TASK_WORKFLOW, Call, Child, Effect, Timer, Wait, attempt_of, due_of
from perdure.kernel.entry import Entry, decode
from perdure.kernel.events import (
    Address,
    CancelAsked,
    Event,
    Message,
    Migrated,
    Parked,
    ReceiptArrived,
    Redelivered,
    Released,
    Requested,
    Retried,
    Rewound,
    Settled,
    Started,
    Streamed,
    Tagged,
    Woken,
    asked_of,
)
from perdure.kernel.instance import Instance, Intent
from perdure.kernel.location import Patterns
from perdure.kernel.moment import when
from perdure.kernel.receipt import Failure
from perdure.kernel.rows import StoredInstance, decode_outcome, offer_of, told_tags
from perdure.kernel.snapshot import restore
from perdure.kernel.status import Status
from perdure.kernel.tags import told
from perdure.ports.frame import Frame
from perdure.ports.seen import Line, Summary, Waiting
from perdure.ports.store import ListPlace, Queries, change_of, place_of

Opened = Mapping[bytes, tuple[str, int]]
P = ParamSpec("P")
T = TypeVar("T")

FEW: Final = 64
"""So many entries are folded in less time than a thread takes to begin."""


EFFECTS: Final = "effects"
"""The executor of effects that are known by a name."""


class HistoryWatcher(Protocol):
    """Folds something else of a history beside the lines: each entry is decoded and applied once for all."""

    def heard(self, line: Line, entry: Entry, instance: Instance, changed: Changed) -> None:
        """An entry was applied: `instance` is as it is after that."""
        ...


class HistoryNow(NamedTuple):
    """A whole history as it was when it was read: what comes later changes nothing in it."""

    state: Instance
    lines: Sequence[Line]
    waiting: Sequence[Waiting]
    kept: int = 0  # messages that answered no wait when they came


class Reader:
    """Reads the history of one instance, as far as it goes now. More rows may be added when they come.

    `begin`: the instance as it was before the first row, where that is not its start.
    """

    def __init__(self, begin: Instance | None = None, watchers: Sequence[HistoryWatcher] = ()) -> None:
        self._watchers = watchers
        self.seq = 0 if begin is None else begin.seq  # of the last row read
        self._patterns = Patterns(() if begin is None else begin.patterns.texts())
        self._instance = begin
        self._kept = 0
        opened = () if begin is None else begin.open.values()
        since = 0 if begin is None else begin.started_at  # when it was opened is not known
        self._opened = {intent.id: (intent.effect.location, since) for intent in opened}

    @property
    def state(self) -> Instance:
        """The folded state: what is open, whether it is stuck, what it published, how it ended."""
        assert self._instance is not None, "a history has at least one entry"
        return self._instance

    def read(self, rows: Iterable[JournalRow]) -> list[Line]:
        """The rows in words. They follow those that were read before."""
        return [self._read(decode(row.seq, row.instance, row.at, row.body, self._patterns)) for row in rows]

    def _read(self, entry: Entry) -> Line:
        if self._instance is None:
            assert type(entry.event) is Started, "a history begins with its start"
            self._instance = Instance(Address(entry.event.workflow, entry.event.key))
        changed = apply(self._instance, entry)
        self.seq = entry.seq
        line = _line(entry, self._opened)
        if type(entry.event) is Message and not changed.closed:
            self._kept += 1
        for intent in changed.closed:
            self._opened.pop(intent.id, None)
        for intent in changed.opened:
            if intent.id in self._instance.open:
                self._opened[intent.id] = (intent.effect.location, entry.at)
        for watcher in self._watchers:
            watcher.heard(line, entry, self._instance, changed)
        return line

    def waiting(self, progress: Iterable[Frame] = ()) -> list[Waiting]:
        """What is open now, and how far it is, as far as it is known."""
        known = {(frame.location, frame.attempt): frame for frame in progress}
        return [waiting_of(intent, self._opened[intent.id][1], known) for intent in self.state.open.values()]

    def now(self, lines: list[Line]) -> HistoryNow:
        """The history up to now, for a reader that goes on with it while more rows are read here."""
        still = copy(self.state)
        still.open = {id: copy(intent) for id, intent in still.open.items()}
        still.published, still.tags = dict(still.published), dict(still.tags)
        return HistoryNow(still, lines[:], self.waiting(), self._kept)


async def read_history(queries: Queries, id: int, watchers: Sequence[HistoryWatcher] = ()) -> tuple[Reader, list[Line]]:
    """All that there is of an instance.

    A database that was restored from a snapshot may have no rows from before that: there it is what
    came after the last snapshot of the instance.
    """
    rows: Sequence[JournalRow] = await queries.history(id)
    begin = None
    if not rows or rows[0].seq != id:  # an id is the seq of the first entry
        record = await queries.record(id)
        if record is None:
            return Reader(), []
        begin, rows = begun(record), record.rows
    reader = Reader(begin, watchers)
    return reader, await aside(len(rows), reader.read, rows)


async def aside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Work on so many entries or rows: in a thread, if there are many. The loop of an engine goes on meanwhile.

    A simulated world has no loop that could go on.
    """
    if size <= FEW or asyncio._get_running_loop() is None:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def read_now(queries: Queries, id: int) -> HistoryNow:
    reader, lines = await read_history(queries, id)
    return reader.now(lines)


def begun(record: StoredInstance) -> Instance:
    """An instance as it was before the rows that a database has of it."""
    if record.snapshot is not None:
        return restore(record.snapshot)
    head = record.head  # it ended for good before this database began
    instance = Instance(Address(head.workflow, head.key))
    instance.id, instance.generation, instance.definition = head.id, head.generation, head.version
    instance.status, instance.started_at = Status(head.status), head.started_at
    instance.outcome = None if head.outcome is None else decode_outcome(head.outcome)
    return instance


def undelivered(rows: Iterable[InboxRow]) -> list[Line]:
    """Events that are on their way, in words. They have no numbers yet."""
    return [Line(0, when(row.at), *_event(offer_of(row).event, {})) for row in rows]


def alone(row: JournalRow) -> Line:
    """One row without those before it, of an instance that asks for nothing: the ruler."""
    return _line(decode(row.seq, row.instance, row.at, row.body, Patterns()), {})


def _line(entry: Entry, opened: Opened) -> Line:
    decision = entry.decision
    event, location, status, value, error = _event(entry.event, opened)
    outcome = ""
    if decision.outcome is not None:
        outcome, error = decision.outcome.status.value, error or decision.outcome.error
    elif decision.stuck is not None:
        outcome, error = "stuck", decision.stuck.error
    led_to = tuple(in_words(effect) for effect in decision.open)
    facts = tuple(fact.name for fact in decision.announce)
    asked = asked_of(entry.event)
    return Line(
        entry.number,
        when(entry.at),
        event,
        location,
        status,
        value,
        error,
        led_to,
        outcome,
        facts,
        entry.seq,
        decision.announce,
        decision.noted,
        by="" if asked is None or asked.by is None else asked.by.id,
        reason="" if asked is None else asked.reason,
    )


def _event(event: Event, opened: Opened) -> tuple[str, str, str, Any, Failure | None]:
    """The word, the location, the status, the value and the error of an event."""

    def place(intent: bytes) -> str:
        return opened[intent][0] if intent in opened else ""

    match event:
        case Started(first=Message(name=name, body=body)):
            return "made", name, "", value_of(body), None
        case Started(input=given):
            return "started", "", "", value_of(given), None
        case ReceiptArrived(intent=id, receipt=receipt):
            value = value_of(receipt.value) if receipt.value is not None else None
            return "receipt", place(id), receipt.status, value, receipt.error
        case Requested(intent=id, name=name, body=body):
            return "request", f"{place(id)}/{name}", "", value_of(body), None
        case Streamed(intent=id, body=body):
            return "frame", place(id), "", value_of(body), None
        case Message(name=name, body=body):
            return "message", name, "", value_of(body), None
        case CancelAsked(reason=reason):
            return "cancel", "", "", reason, None
        case Woken(location=at):
            return "woken", at, "", None, None
        case Retried():
            return "retry", "", "", None, None
        case Rewound(to=to):
            return "rewound" if to else "retry", to, "", None, None
        case Migrated(version=version, renamed=renamed):
            return "migrated", "", "", {"version": version, "map": dict(renamed)} if renamed else version, None
        case Settled(location=at, receipt=receipt):
            return (
                "settled",
                at,
                receipt.status,
                None if receipt.value is None else decode_value(receipt.value),
                (receipt.error),
            )
        case Tagged(tags=tags):
            return "tagged", "", "", {name: None if text is None else told(text) for name, text in tags.items()}, None
        case Redelivered(intent=id):
            return "redelivered", place(id), "", None, None
        case Parked(intent=id):
            return "parked", place(id), "", None, None
        case Released(intent=id):
            return "released", place(id), "", None, None


def value_of(data: bytes) -> Any:
    """What recorded bytes say. Those that are no value, such as a payload that an executor got wrong, as they are."""
    try:
        return decode_value(data)
    except PerdureError:
        return data


def word_of(effect: Effect) -> str:
    if type(effect) is Child and effect.workflow == TASK_WORKFLOW:
        return "task"
    return {Call: "step", Timer: "timer", Wait: "wait", Child: "child"}[type(effect)]


def effect_of(effect: Effect) -> str:
    """The name of an effect that is known by one, because it has a definition; else nothing."""
    params = effect.params if type(effect) is Wait or (type(effect) is Call and effect.executor == EFFECTS) else None
    asked = None if params is None else decode_value(params)
    return str(asked.get("effect", "")) if isinstance(asked, dict) else ""


def in_words(effect: Effect) -> str:
    """What a decision asks for."""
    name = effect_of(effect)
    if name:
        return f"effect {name} at {effect.location}"
    word = word_of(effect)
    attempt = f" (attempt {effect.attempt})" if type(effect) is Call and effect.attempt > 1 else ""
    return f"{word} {effect.location}{attempt}"


def waiting_of(intent: Intent, opened_at: int, progress: Mapping[tuple[str, int], Frame]) -> Waiting:
    """An open intent, as people see it."""
    effect = intent.effect
    due, name = due_of(effect), effect_of(effect)
    return Waiting(
        kind="effect" if name else "task" if word_of(effect) == "task" else type(effect).__name__.lower(),
        location=effect.location,
        since=when(opened_at),
        due=None if due is None else when(due),
        attempt=attempt_of(effect),
        delivery=intent.delivery,
        held=intent.held,
        what=name or _what(effect),
        once=type(effect) is Call and effect.deliveries_max == 1,
        progress=progress.get((effect.location, attempt_of(effect))),
        intent=intent.id.hex(),
    )


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
        told_tags(head),
        head.root,
        when(head.ended_at) if head.ended_at else None,
        head.reason,
    )


async def list_place(queries: Queries, before: int, by_change: bool = False) -> ListPlace | None:
    """Where a list goes on after the instance with an id; 0: it begins."""
    if not before:
        return None
    head = await queries.head(before)
    if head is None:
        raise CallerError(f"before={before}: no instance has this id; it is that of the last one of the page before")
    return change_of(head) if by_change else place_of(head)
