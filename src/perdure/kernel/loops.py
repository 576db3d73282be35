"""What the body of a loop answers: another iteration, or the end. Every dialect with loops takes these two."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Continue(msgspec.Struct, Generic[T], frozen=True):
    """A loop's body says: another iteration, with this state."""

    state: T = None  # type: ignore[assignment]


class Break(msgspec.Struct, Generic[T], frozen=True):
    """A loop's body says: done, with this value."""

    value: T = None  # type: ignore[assignment]
