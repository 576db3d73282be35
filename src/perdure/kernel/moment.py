"""Moments: the recorded time and entropy of an entry.

Entropy is not stored per entry. An instance records one random seed when it starts; the entropy of entry number n is
the hash of the seed and n, so a replay has the same dice without a byte more in the journal.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from .decision import Decision

if TYPE_CHECKING:
    from .look_ahead import LookAhead

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)

TIME_MAX: Final = 2**63 - 1
"""The last nanosecond that fits into a row, in the year 2262. A longer wait ends then."""


class Moment(msgspec.Struct, frozen=True, gc=False):
    at: int  # what the clock showed, nanoseconds since 1970 in UTC; deadlines count from it. A clock may be set back
    seed: bytes
    number: int  # of the entry within its instance, from 1
    recorded: Decision | None = None  # in a replay: what was decided then, for what stands for changed code
    recording: LookAhead | None = None  # in a replay: what came next, for a machine that goes ahead
    seq: int = 0  # of the entry in the journal
    logical: int = 0  # the journal's time, which never goes back; the same as `at` unless the clock was set back

    def entropy(self) -> bytes:
        return blake2b(self.number.to_bytes(8, "big"), key=self.seed[:64]).digest()


def when(at: int) -> datetime:
    """Recorded nanoseconds as a time: the microsecond in which they lie, never the next one.

    In whole numbers: a float has no room for the nanoseconds of today.
    """
    return EPOCH + timedelta(microseconds=at // 1000)


def at_of(when: datetime) -> int:
    """A time as it is recorded, in nanoseconds."""
    return (when - EPOCH) // MICROSECOND * 1000


def first_nanosecond(when: float) -> int:
    """The first nanosecond that is not before `when`, as floats have it."""
    found = round(when * 1e9)
    while found / 1e9 < when:
        found += 1
    return found
