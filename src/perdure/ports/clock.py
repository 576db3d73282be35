"""The clock: the only source of time and of dice for everything above the kernel."""

from collections.abc import Callable
from typing import Protocol


class Alarm(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> int:
        """Nanoseconds since 1970 in UTC. It may jump; the kernel never lets recorded time go back."""
        ...

    def entropy(self, size: int) -> bytes: ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` after the current one, never inside it and never inside a task."""
        ...

    def call_at(self, when: int, callback: Callable[[], None]) -> Alarm:
        """Run `callback` when `now()` has reached `when`."""
        ...
