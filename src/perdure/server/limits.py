"""How much an actor or an address may ask. Time is an argument."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

BODY_MAX: Final = 1024 * 1024
VALUE_BODY_MAX: Final = 16 * 1024 * 1024
"""Bytes of a request whose body is an input, a definition or an answer."""

URL_MAX: Final = 8 * 1024
HEADERS_MAX: Final = 100
DEPTH_MAX: Final = 64
VALUES_MAX: Final = 500_000
"""Values in a body, those within others included: each costs the loop of the engine a few microseconds."""

LARGE_BODY: Final = 64 * 1024
"""Larger bodies are read in a thread."""

READ_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 10.0
STREAMS_MAX: Final = 20
DENIED_SECONDS: Final = 60.0
"""How often the audit has an entry of an actor's refused writes."""

KNOWN_MAX: Final = 10_000


class Buckets:
    """A token bucket for each name. The least recently used names are forgotten first."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._rate, self._burst = per_second, burst
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, now: float) -> float:
        """Take one; the answer is 0, or after how many seconds one will be there."""
        left = self._left(name, now)
        self._keep(name, left - 1 if left >= 1 else left, now)
        return 0.0 if left >= 1 else (1 - left) / self._rate

    def is_empty(self, name: str, now: float) -> bool:
        return self._left(name, now) < 1

    def _left(self, name: str, now: float) -> float:
        left, at = self._known.get(name, (self._burst, now))
        return min(self._burst, left + (now - at) * self._rate)

    def _keep(self, name: str, left: float, now: float) -> None:
        self._known[name] = left, now
        self._known.move_to_end(name)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)


def requests() -> Buckets:
    """Of one actor."""
    return Buckets(50, 200)


def failed_logins() -> Buckets:
    """Of one address."""
    return Buckets(5 / 60, 5)
