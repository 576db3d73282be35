"""Histories that were read before are kept folded: a further page costs no second fold, a new entry only its own.

The least recently used go when all together are too large. Folding is work of a thread: it never holds up the loop, on
which an engine may commit.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import Any, Final

from perdure.kernel.batch import HeadRow, JournalRow
from perdure.kernel.entry import decode
from perdure.kernel.events import asked_of
from perdure.kernel.location import Patterns
from perdure.kernel.retention import FORGOTTEN
from perdure.ports.seen import Line
from perdure.ports.store import Queries
from perdure.runtime.history import Reader, read_history

KEPT_BYTES: Final = 64 * 2**20
LINE_BYTES: Final = 1200
"""What a line takes besides its values, about."""

VALUE_FACTOR: Final = 4
"""A decoded value takes about so many times the bytes of its row."""


class FoldedHistory:
    """The lines of an instance, and by the number of an entry who asked for it."""

    def __init__(self) -> None:
        self.reader = Reader()
        self.lines: list[Line] = []
        self.asked: dict[int, dict[str, str]] = {}
        self.size = 0
        self.lock = asyncio.Lock()
        self._patterns = Patterns()

    def fold(self, rows: list[JournalRow]) -> None:
        lines = self.reader.read(rows)
        for row, line in zip(rows, lines, strict=True):
            said = asked_of(decode(row.seq, row.instance, row.at, row.body, self._patterns).event)
            if said is not None and said.by is not None:
                self.asked[line.number] = {"by": said.by.id, "via": said.via, "reason": said.reason}
            self.size += LINE_BYTES + VALUE_FACTOR * len(row.body)
        self.lines += lines

    def page(self, after: int, before: int, limit: int) -> list[Line]:
        """The lines after a number; or, with `before`, the last ones before that."""
        numbers = _Numbers(self.lines)
        if before:
            end = bisect_left(numbers, before)
            return self.lines[max(0, end - limit) : end]
        begin = bisect_right(numbers, after)
        return self.lines[begin : begin + limit]


class _Numbers:
    """The numbers of lines, without a copy."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> int:
        return self._lines[index].number


class Histories:
    """`folded` counts the entries that were folded since the server began."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept: OrderedDict[int, FoldedHistory] = OrderedDict()
        self._kept_bytes = kept_bytes
        self.folded = 0

    async def of(self, queries: Queries, head: HeadRow) -> FoldedHistory:
        """The history of an instance up to now."""
        if head.reason == FORGOTTEN:
            self._kept.pop(head.id, None)
            return await self._unkept(queries, head)
        known = self._kept.setdefault(head.id, FoldedHistory())
        self._kept.move_to_end(head.id)
        async with known.lock:
            if self._kept.get(head.id) is not known:  # its fold was cut while this request waited
                return await self.of(queries, head)
            rows = await queries.history(head.id, known.reader.seq)
            if rows and not known.lines and rows[0].seq != head.id:  # a restored database begins in the middle
                self._kept.pop(head.id, None)
                return await self._unkept(queries, head)
            if rows:
                try:
                    await asyncio.to_thread(known.fold, rows)
                except BaseException:  # the thread goes on folding: what it makes is left to it
                    self._kept.pop(head.id, None)
                    raise
                self.folded += len(rows)
        self._make_room(head.id)
        return known

    async def _unkept(self, queries: Queries, head: HeadRow) -> FoldedHistory:
        found = FoldedHistory()
        found.reader, found.lines = await read_history(queries, head.id)
        return found

    def _make_room(self, but: int) -> None:
        size = sum(each.size for each in self._kept.values())
        for id in [each for each in self._kept if each != but]:
            if size <= self._kept_bytes:
                return
            size -= self._kept.pop(id).size


def asked_by(history: FoldedHistory, lines: list[Line]) -> dict[str, Any]:
    return {str(line.number): history.asked[line.number] for line in lines if line.number in history.asked}
