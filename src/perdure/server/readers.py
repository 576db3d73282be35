"""Histories that were read before are kept folded: a further page costs no second fold, a new entry only its own.
Pages, the state at an entry and operations are cuts of one fold.

The least recently used go when all together are too large. Folding is work of a thread: it never holds up the loop, on
which an engine may commit.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from perdure.kernel.apply import Changed
from perdure.kernel.batch import HeadRow, JournalRow
from perdure.kernel.entry import Entry
from perdure.kernel.events import Event, asked_of
from perdure.kernel.instance import Instance
from perdure.kernel.retention import FORGOTTEN
from perdure.kernel.rows import StoredInstance
from perdure.ports.seen import Line
from perdure.ports.store import Queries
from perdure.runtime.history import HistoryNow, Reader, aside, begun
from perdure.views.instance_at import PastStates
from perdure.views.operations import Operations

T = TypeVar("T")

KEPT_BYTES: Final = 64 * 2**20
LINE_BYTES: Final = 2000
"""What a line takes besides its values, with its part of an operation, about."""

VALUE_FACTOR: Final = 4
"""A decoded value takes about so many times the bytes of its row."""


class FoldedHistory:
    """The lines of an instance, its first event, its operations, what it was at each entry, and who asked for one."""

    def __init__(self) -> None:
        self.asked: dict[int, dict[str, str]] = {}
        self.first: Event | None = None
        self.operations, self.past = Operations(), PastStates()
        self.reader = Reader(None, (self.operations, self.past, self))
        self.lines: list[Line] = []
        self.size = self.counted = 0
        self.lock = asyncio.Lock()

    def heard(self, line: Line, entry: Entry, instance: Instance, changed: Changed) -> None:
        if self.first is None:
            self.first = entry.event
        said = asked_of(entry.event)
        if said is not None and said.by is not None:
            self.asked[line.number] = {"by": said.by.id, "via": said.via, "reason": said.reason}

    def fold(self, rows: Sequence[JournalRow]) -> None:
        self.lines += self.reader.read(rows)
        self.size += LINE_BYTES * len(rows) + VALUE_FACTOR * sum([len(row.body) for row in rows])

    def begin(self, record: StoredInstance) -> None:
        """A history whose beginning this database does not have."""
        begin = begun(record)
        self.past = PastStates(begin)
        self.reader = Reader(begin, (self.operations, self.past, self))

    @property
    def last(self) -> int:
        """The number of the last entry."""
        return self.lines[-1].number if self.lines else 0

    def now(self) -> HistoryNow:
        return self.reader.now(self.lines)

    def page(self, after: int, before: int, limit: int) -> list[Line]:
        """The lines after a number; or, with `before`, the last ones before that."""
        if before:
            end = bisect_left(self.lines, before, key=_number)
            return self.lines[max(0, end - limit) : end]
        begin = bisect_right(self.lines, after, key=_number)
        return self.lines[begin : begin + limit]

    def asked_for(self, lines: list[Line]) -> dict[str, Any]:
        return {str(line.number): self.asked[line.number] for line in lines if line.number in self.asked}


def _number(line: Line) -> int:
    return line.number


class Histories:
    """`folded` counts the entries that were folded since the server began."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept: OrderedDict[int, FoldedHistory] = OrderedDict()
        self._kept_bytes = kept_bytes
        self._size = 0
        self.folded = 0

    async def cut(self, queries: Queries, head: HeadRow, work: Callable[[FoldedHistory], T]) -> T:
        """What `work` makes of the history up to now. Long ones are folded, and cut, in a thread.

        Nothing is folded meanwhile, so `work` sees one state; what it answers must not change when more is folded.
        """
        while True:
            known = self._kept.setdefault(head.id, FoldedHistory())
            self._kept.move_to_end(head.id)
            async with known.lock:
                if self._kept.get(head.id) is not known:  # its fold was cut while this request waited
                    continue
                if head.reason == FORGOTTEN:
                    self._drop(head.id)
                    known = FoldedHistory()
                folded = False
                try:
                    await self._go_on(queries, head, known)
                    folded = True
                    answer = await aside(len(known.lines), work, known)
                except BaseException as error:  # a cancelled request leaves its fold to the thread that goes on with it
                    if not folded or not isinstance(error, Exception):
                        self._drop(head.id)
                    raise
            self._make_room(head.id, known)
            return answer

    async def _go_on(self, queries: Queries, head: HeadRow, known: FoldedHistory) -> None:
        """Fold what came since. A restored database may begin in the midst of a history."""
        if known.lines and not await queries.history(head.id, known.reader.seq, 1):
            return  # most often: one row is looked for, and no thread is asked
        rows: Sequence[JournalRow] = await queries.history(head.id, known.reader.seq)
        if not known.lines and (not rows or rows[0].seq != head.id):
            record = await queries.record(head.id)
            if record is None:
                return
            known.begin(record)
            rows = record.rows
        self.folded += len(rows)
        await aside(len(rows), known.fold, rows)

    def _make_room(self, id: int, read: FoldedHistory) -> None:
        """The history that was just read is the last one, and stays."""
        if self._kept.get(id) is read:
            self._size += read.size - read.counted
            read.counted = read.size
        while self._size > self._kept_bytes and (first := next(iter(self._kept))) != id:
            self._drop(first)

    def _drop(self, id: int) -> None:
        gone = self._kept.pop(id, None)
        self._size -= 0 if gone is None else gone.counted
