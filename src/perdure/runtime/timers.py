"""Timers: which open work is due next. Rows are the truth; memory holds only what is due soon.

A million sleeping instances cost a million rows and nothing here: only work due before the horizon is kept in the
heap, and what comes next is read when the horizon is reached. Rows are read in their order, and each is given once: one
that nothing became of, because its instance is stuck or its code is not here, waits until memory is loaded again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

from perdure.kernel.batch import WorkRow
from perdure.ports.store import BEGINNING, Place

WINDOW: Final = 60_000_000_000
ROWS_MAX: Final = 10_000


class Timers:
    def __init__(self) -> None:
        self._heap: list[Place] = []
        self._rows: dict[bytes, WorkRow] = {}
        self._horizon = BEGINNING  # what stands before this place was read
        self._meanwhile: dict[bytes, WorkRow | None] | None = (
            None  # opened, or closed (None), while rows are being read
        )

    def opened(self, rows: Iterable[WorkRow]) -> None:
        for row in rows:
            if (row.due, row.intent) <= self._horizon:
                self._push(row)
            elif self._meanwhile is not None:
                self._meanwhile[row.intent] = row

    def closed(self, intents: Iterable[bytes]) -> None:
        for intent in intents:
            self._rows.pop(intent, None)
            if self._meanwhile is not None:
                self._meanwhile[intent] = None

    def due(self, now: int) -> list[WorkRow]:
        """What is due, earliest first; each row is given once. There may be more: see `next`."""
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
        horizon = max(0, self._horizon[0])
        return min(self._heap[0][0], horizon) if self._heap else horizon

    def exhausted(self, now: int) -> bool:
        """Whether more must be read to know what is due."""
        return now >= self._horizon[0]

    def window(self, now: int) -> tuple[int, int, Place]:
        """What to read: before when, how many rows, after which place. `fill` is called with what was found."""
        self._meanwhile = {}
        return now + WINDOW, ROWS_MAX, self._horizon

    def fill(self, now: int, rows: list[WorkRow]) -> None:
        full = len(rows) == ROWS_MAX
        self._horizon = (rows[-1].due, rows[-1].intent) if full else (now + WINDOW + 1, b"")
        meanwhile, self._meanwhile = self._meanwhile or {}, None
        for row in rows:
            if row.intent not in meanwhile:
                self._push(row)
        self.opened(row for row in meanwhile.values() if row is not None)

    def _push(self, row: WorkRow) -> None:
        if row.intent not in self._rows:
            self._rows[row.intent] = row
            heapq.heappush(self._heap, (row.due, row.intent))
