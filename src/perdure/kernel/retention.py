"""Retention: how long an ended instance is kept, by the way in which it ended.

A family that is forgotten loses its entries, values and tasks. Its heads stay, as tombstones: without outcome and tags,
and with the reason `FORGOTTEN`. So a name that was used once is known for ever.
"""

from datetime import timedelta
from typing import Final

import msgspec

from perdure.errors import BadCall

FORGOTTEN: Final = "(forgotten)"
"""The reason of a head whose entries are gone."""


class Retention(msgspec.Struct, frozen=True):
    """How long instances are kept after their end. None: for ever."""

    completed: timedelta | None = None
    failed: timedelta | None = None
    cancelled: timedelta | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            span = getattr(self, name)
            if span is not None and (not isinstance(span, timedelta) or span < timedelta(0)):
                raise BadCall(f"Retention({name}={span!r:.80}): it is a timedelta that is not negative, or None")

    def of(self, status: str) -> timedelta | None:
        """How long an instance is kept that ended so; None: for ever, or it has not ended."""
        span: timedelta | None = getattr(self, status, None)
        return span
