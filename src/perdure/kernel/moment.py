"""Moments: the recorded time and entropy of an entry.

Entropy is not stored per entry. An instance records one random seed when it starts; the entropy of entry number n is
the hash of the seed and n, so a replay has the same dice without a byte more in the journal.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from .decision import Decision

if TYPE_CHECKING:
    from .recording import Recording


class Moment(msgspec.Struct, frozen=True, gc=False):
    at: int  # nanoseconds since 1970 in UTC; never goes back within a shard
    seed: bytes
    number: int  # of the entry within its instance, from 1
    recorded: Decision | None = None  # in a replay: what was decided then, for what stands for changed code
    recording: Recording | None = None  # in a replay: what came next, for a machine that goes ahead
    seq: int = 0  # of the entry in the journal

    def entropy(self) -> bytes:
        return blake2b(self.number.to_bytes(8, "big"), key=self.seed[:64]).digest()
