"""What an engine measures of its own work, for people: two readings of a clock and an append for each commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from perdure.ports.clock import Clock
from perdure.ports.shards import Figures

LAST: Final = 256
"""Commits whose times are kept."""

MINUTE: Final = 60_000_000_000


class Meter:
    """Of all shards of an engine."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now
        self._took: deque[int] = deque(maxlen=LAST)
        self._ended: dict[str, tuple[int, int, int]] = {}

    def committed(self, took: int, jobs: Iterable[str]) -> None:
        """A commit is durable; the jobs of these queues ended in it."""
        self._took.append(took)
        for queue in jobs:
            now = self.now() // MINUTE
            minute, ended, before = self._ended.get(queue, (now, 0, 0))
            if minute != now:
                ended, before = 0, ended if minute == now - 1 else 0
            self._ended[queue] = now, ended + 1, before

    def figures(self) -> Figures:
        last = self.now() // MINUTE - 1
        self._ended = {queue: counted for queue, counted in self._ended.items() if counted[0] >= last}
        took = sorted(self._took)
        if not took:
            return Figures(ended=self._ended)
        return Figures(took[len(took) // 2] / 1e9, took[len(took) * 95 // 100] / 1e9, self._ended)
