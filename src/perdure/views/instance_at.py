"""One instance as it was at an entry of its history: a cut of the fold that shows it now.

`PastStates` keeps of each entry what it changed. A cut costs as much as it shows, wherever in the history it is made.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from perdure.codec import decode
from perdure.errors import UnknownEntry
from perdure.kernel.apply import Changed
from perdure.kernel.decision import Outcome, Stuck
from perdure.kernel.entry import Entry
from perdure.kernel.instance import Instance, Intent
from perdure.kernel.receipt import Failure
from perdure.kernel.status import Status
from perdure.ports.seen import Line
from perdure.runtime.history import waiting_of

from .look import ShownEntry, ShownError, ShownWait, shown_entry, shown_error, shown_wait, told
from .operations import Operation, Operations

NEVER = 2**63


class PastInstance(msgspec.Struct, frozen=True):
    """`entry` is the last one that counts, `seq` its place in the journal; `changed` has its words.

    `total`: how many operations there were; `operations` may be the last of them.
    """

    entry: int
    seq: str
    at: datetime
    status: str
    operations: list[Operation]
    waiting: list[ShownWait]
    published: dict[str, Any]
    result: Any
    error: ShownError | None
    changed: ShownEntry
    total: int
    state: Any | UnsetType = UNSET  # of a cell, where its code is


class _Open:
    """An intent that was open from one entry on, and before another. `place` is its place among all that were open."""

    __slots__ = ("begin", "end", "intent", "place", "since")

    def __init__(self, begin: int, place: int, intent: Intent, since: int) -> None:
        self.begin, self.end, self.place, self.since = begin, NEVER, place, since
        self.intent = Intent(intent.id, intent.effect, intent.delivery, held=intent.held)


class _End(NamedTuple):
    number: int
    stuck: Stuck | None
    outcome: Outcome | None


class PastStates:
    """What an instance was after each entry. A `Reader` tells of the entries.

    `begin`: the instance before the first entry, where that is not its start.
    """

    def __init__(self, begin: Instance | None = None) -> None:
        self._numbers: list[int] = []
        self._statuses: list[Status] = []
        self._opened: list[_Open] = []
        self._open: dict[bytes, _Open] = {}
        self._published: dict[str, list[tuple[int, bytes]]] = {}
        self._ends = [_End(0, None, None) if begin is None else _End(0, begin.stuck, begin.outcome)]
        if begin is not None:
            self._published = {name: [(0, value)] for name, value in begin.published.items()}
            for intent in begin.open.values():
                self._put(0, intent, begin.started_at)

    def heard(self, line: Line, entry: Entry, instance: Instance, changed: Changed) -> None:
        number = line.number
        self._numbers.append(number)
        self._statuses.append(instance.status)
        for intent in changed.closed:
            self._drop(intent.id, number)
        for intent in changed.opened:
            if intent.id in instance.open:
                again = self._drop(intent.id, number)
                self._put(number, intent, entry.at, -1 if again is None else again.place)
        resumed = changed.resumed
        if resumed is not None and resumed.id in self._open:
            known = self._drop(resumed.id, number)
            assert known is not None
            self._put(number, resumed, known.since, known.place)
        for name, value in entry.decision.publish if instance.published else ():
            if instance.published.get(name) == value:
                self._published.setdefault(name, []).append((number, value))
        last = self._ends[-1]
        if instance.stuck is not last.stuck or instance.outcome is not last.outcome:
            self._ends.append(_End(number, instance.stuck, instance.outcome))

    def _put(self, number: int, intent: Intent, since: int, place: int = -1) -> None:
        open = _Open(number, len(self._opened) if place < 0 else place, intent, since)
        self._opened.append(open)
        self._open[intent.id] = open

    def _drop(self, id: bytes, number: int) -> _Open | None:
        open = self._open.pop(id, None)
        if open is not None:
            open.end = number
        return open

    def status(self, number: int) -> Status:
        return self._statuses[bisect_right(self._numbers, number) - 1]

    def waiting(self, number: int) -> list[ShownWait]:
        upto = bisect_right(self._opened, number, key=lambda open: open.begin)
        found = [open for open in self._opened[:upto] if open.end > number]
        found.sort(key=lambda open: open.place)
        return [shown_wait(waiting_of(open.intent, open.since, {})) for open in found]

    def published(self, number: int) -> dict[str, Any]:
        found = {}
        for name, values in self._published.items():
            place = bisect_right(values, number, key=lambda value: value[0])
            if place:
                found[name] = values[place - 1][1]
        return told(found)

    def result(self, number: int) -> Any:
        outcome = self._end(number).outcome
        return None if outcome is None or outcome.value is None else decode(outcome.value)

    def error(self, number: int) -> Failure | None:
        end = self._end(number)
        if end.stuck is not None:
            return end.stuck.error
        return None if end.outcome is None else end.outcome.error

    def _end(self, number: int) -> _End:
        return self._ends[bisect_right(self._ends, number, key=lambda end: end.number) - 1]


def instance_at(  # noqa: PLR0917
    name: str, lines: list[Line], past: PastStates, operations: Operations, entry: int, limit: int = 0
) -> PastInstance:
    """A history up to an entry, by its number. `limit`: the last so many operations; 0: all."""
    place = bisect_right(lines, entry, key=lambda line: line.number)
    if not lines or entry > lines[-1].number or not place:
        has = f"its entries are {lines[0].number} to {lines[-1].number}" if lines else "nothing is kept of it"
        raise UnknownEntry(f"{name} has no entry {entry}: {has}")
    line = lines[place - 1]
    return PastInstance(
        entry,
        str(line.seq),
        line.at,
        past.status(entry).value,
        operations.upto(entry, limit),
        past.waiting(entry),
        past.published(entry),
        past.result(entry),
        shown_error(past.error(entry)),
        shown_entry(line),
        operations.count(entry),
    )
