"""How long to wait before the next attempt. Every dialect that retries asks this one value."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any

import msgspec

from perdure.errors import BadCall


class Backoff(msgspec.Struct, frozen=True):
    """The delay after the failure of attempt n is min(max, base * factor ** (n - 1)) seconds: `base` after the first.

    `jitter` (0 to 1) shortens each delay by up to that share, from recorded entropy.
    """

    base: float = 0.1
    factor: float = 2
    max: float = 30
    jitter: float = 0

    def __post_init__(self) -> None:
        given = (self.base, self.factor, self.max, self.jitter)
        if not all(map(_is_number, given)):
            raise BadCall(f"{self}: all of a backoff are numbers, in seconds")
        if self.base < 0 or self.factor < 0 or self.max < 0 or not 0 <= self.jitter <= 1:
            raise BadCall(f"{self}: nothing of a backoff is negative, and its jitter is at most 1")

    def seconds(self, attempt: int, dice: Callable[[], float]) -> float:
        try:
            delay = min(self.max, self.base * self.factor ** (attempt - 1))
        except OverflowError:
            delay = self.max
        return delay * (1 - self.jitter * dice()) if self.jitter else delay


def _is_number(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and not isnan(value))
