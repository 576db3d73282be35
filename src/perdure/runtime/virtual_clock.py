"""A clock that stands still until it is told to go on. Everything that happens in a simulated world is a
callback here.

Two times, as on a real machine: alarms count steady time that only grows, `now()` is a wall clock that
may jump. The dice come from the world's seed, so the same seed is the same history, byte for byte.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Collection
from typing import Final

START: Final = 1_700_000_000_000_000_000
"""Where every world begins, in nanoseconds since 1970: the 14th of November 2023."""

SECOND: Final = 1_000_000_000


class VirtualAlarm:
    """A callback that waits for its time: void when it was cancelled, or when its process has died."""

    __slots__ = ("callback", "cancelled", "life")

    def __init__(self, callback: Callable[[], None], life: Life) -> None:
        self.callback = callback
        self.cancelled = False
        self.life = life

    def cancel(self) -> None:
        self.cancelled = True


class Life:
    """Whether a simulated process lives. What it had asked of the clock dies with it."""

    __slots__ = ("alive",)

    def __init__(self) -> None:
        self.alive = True


class VirtualClock:
    """The world's own clock. Processes hold a `ProcessClock` of it."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._steady = 0
        self._offset = START
        self._queue: list[tuple[int, int, VirtualAlarm]] = []
        self._count = 0
        self.world = Life()

    # ---- perdure.ports.clock.Clock ---------------------------------------------------------------------

    def now(self) -> int:
        return self._steady + self._offset

    def entropy(self, size: int) -> bytes:
        return self._dice.randbytes(size)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.after(0, callback, self.world)

    def call_at(self, when: int, callback: Callable[[], None]) -> VirtualAlarm:
        return self.after(when - self.now(), callback, self.world)

    # ---- driving ---------------------------------------------------------------------------------------

    def after(self, delay: int, callback: Callable[[], None], life: Life | None = None) -> VirtualAlarm:
        """Run `callback` in `delay` nanoseconds of steady time, if `life` still lasts then."""
        alarm = VirtualAlarm(callback, life or self.world)
        self._count += 1
        heapq.heappush(self._queue, (self._steady + max(0, delay), self._count, alarm))
        return alarm

    def step(self, until: int | None = None) -> bool:
        """Run the next callback, moving time to it. False: there is none (before the steady time `until`)."""
        queue = self._queue
        while queue:
            when, _, alarm = queue[0]
            if until is not None and when > until:
                break
            heapq.heappop(queue)
            if alarm.cancelled or not alarm.life.alive:
                continue
            self._steady = max(self._steady, when)
            alarm.callback()
            return True
        if until is not None:
            self._steady = max(self._steady, until)
        return False

    @property
    def steady(self) -> int:
        return self._steady

    def next(self, but: Collection[object] = ()) -> int | None:
        """The steady time of the next callback, leaving out some; None: there is none."""
        waiting = (
            when for when, _, alarm in self._queue if not alarm.cancelled and alarm.life.alive and alarm not in but
        )
        return min(waiting, default=None)

    def skip(self, to: int) -> None:
        """Let time pass at once: what was due in it comes late, as after a machine has slept."""
        self._steady = max(self._steady, to)

    def jump(self, by: int) -> None:
        """The wall clock is set: forward or back, without any time passing."""
        self._offset += by


class ProcessClock:
    """The clock as one process sees it: its callbacks do not run after its death."""

    def __init__(self, clock: VirtualClock, life: Life) -> None:
        self._clock = clock
        self._life = life

    def now(self) -> int:
        return self._clock.now()

    def entropy(self, size: int) -> bytes:
        return self._clock.entropy(size)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._clock.after(0, callback, self._life)

    def call_at(self, when: int, callback: Callable[[], None]) -> VirtualAlarm:
        return self._clock.after(when - self._clock.now(), callback, self._life)
