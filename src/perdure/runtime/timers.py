"""Timers: which open work is due next. Rows are the truth; memory holds only what is due soon.

A million sleeping instances cost a million rows and nothing here: only work due before the horizon is kept in the
heap, and the next window is read when the horizon is reached.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Final

from perdure.kernel.batch import WorkRow

WINDOW: Final = 60_000_000_000
ROWS_MAX: Final = 10_000


class Timers:
    def __init__(self, read: Callable[[int, int], list[WorkRow]]) -> None:
        self._read = read
        self._heap: list[tuple[int, bytes]] = []
        self._rows: dict[bytes, WorkRow] = {}
        self._horizon = 0

    def opened(self, rows: Iterable[WorkRow]) -> None:
        for row in rows:
            if row.due <= self._horizon:
                self._push(row)

    def closed(self, intents: Iterable[bytes]) -> None:
        for intent in intents:
            self._rows.pop(intent, None)

    def due(self, now: int) -> list[WorkRow]:
        """What is due, earliest first; each row is given once."""
        if now >= self._horizon:
            self._refill(now)
        rows = []
        while self._heap and self._heap[0][0] <= now:
            _, intent = heapq.heappop(self._heap)
            row = self._rows.pop(intent, None)
            if row is not None:
                rows.append(row)
        return rows

    def next(self) -> int:
        """When to ask again."""
        while self._heap and self._heap[0][1] not in self._rows:
            heapq.heappop(self._heap)
        return min(self._heap[0][0], self._horizon) if self._heap else self._horizon

    def _refill(self, now: int) -> None:
        rows = self._read(now + WINDOW, ROWS_MAX)
        full = len(rows) == ROWS_MAX
        self._horizon = rows[-1].due if full else now + WINDOW
        if full and self._horizon <= now:
            self._horizon = now  # more is due than fits: ask again at once when these are through
        for row in rows:
            self._push(row)

    def _push(self, row: WorkRow) -> None:
        if row.intent not in self._rows:
            self._rows[row.intent] = row
            heapq.heappush(self._heap, (row.due, row.intent))
