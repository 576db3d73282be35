"""Retention: how long an ended instance is kept, by the way in which it ended."""

from datetime import timedelta

import msgspec

from perdure.errors import BadCall


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
