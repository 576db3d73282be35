"""Redelivery: calls that were running when the process died are handed out again.

One of them may be what kills the process; the others only stood near it. If every delivery counted against a call's
allowed ones, a killer would exhaust the innocent beside it. So after the first death all are handed out again
together, uncounted; what more than one death has met is handed out one at a time, those with the fewest strikes
first: a killer is then alone when it kills, and only it gets the strike.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from perdure.ports.clock import Alarm, Clock

ALONE: Final = 2_000_000_000
"""How long such a call runs before the next one may join it: long calls must not wait for each other for ever."""

Lost = tuple[int, int, int, bytes]
"""Strikes, deliveries, instance, intent."""


class Redelivery:
    def __init__(self, clock: Clock, deliver: Callable[[int, bytes, bool], None]) -> None:
        self._clock = clock
        self._deliver = deliver
        self._lost: list[Lost] = []
        self._waiting: list[Lost] = []
        self.current: bytes | None = None
        self._alarm: Alarm | None = None

    def add(self, lost: list[Lost]) -> None:
        self._lost += lost

    def begin(self) -> None:
        """All are known: hand out again what died only once, and the first of the others."""
        lost, self._lost = self._lost, []
        for found in lost:
            _, deliveries, instance, intent = found
            if deliveries > 1 or len(lost) == 1:
                heapq.heappush(self._waiting, found)
            else:
                self._deliver(instance, intent, False)
        if self.current is None:
            self._next()

    def cleared(self, intent: bytes) -> None:
        """A call ended while the process lived on."""
        if intent == self.current:
            self._next()

    def clear(self) -> None:
        self._lost.clear()
        self._waiting.clear()
        self.current = None
        self._stop_alarm()

    def _next(self) -> None:
        self._stop_alarm()
        self.current = None
        if self._waiting:
            _, _, instance, intent = heapq.heappop(self._waiting)
            self.current = intent
            self._alarm = self._clock.call_at(self._clock.now() + ALONE, self._next)
            self._deliver(instance, intent, True)

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
