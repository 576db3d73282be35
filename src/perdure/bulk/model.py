"""What a bulk is asked for, what it publishes, and one part of its work."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

WORKFLOW: Final = "perdure.bulk"
PUBLISHED: Final = "bulk"
SELECTED_MAX: Final = 100_000
PART_MAX: Final = 200
"""Events that one part of a bulk sends; its receipt is one entry."""

ERRORS_MAX: Final = 1000
RATE_MAX: Final = 10_000.0


class BulkWork(msgspec.Struct, frozen=True):
    """The input of a bulk. `instances` are the ids that the filter `where` found at `counted_at`, 8 bytes each."""

    verb: str
    params: dict[str, Any]
    where: str
    counted_at: datetime
    instances: bytes
    rate: float
    errors_max: int
    by: str
    reason: str


class RefusedInstance(msgspec.Struct, frozen=True):
    id: str
    code: str
    text: str


class BulkProgress(msgspec.Struct, frozen=True):
    """What a bulk publishes after each part."""

    verb: str
    params: dict[str, Any]
    where: str
    counted_at: datetime
    rate: float
    errors_max: int
    by: str
    reason: str
    total: int
    done: int
    left: int
    refused: list[RefusedInstance]


class BulkPart(msgspec.Struct, frozen=True):
    """Instances that one call of a bulk acts on. It stops early after `errors_left` refusals."""

    key: str  # of the bulk
    verb: str
    params: dict[str, Any]
    instances: tuple[int, ...]
    errors_left: int
    by: str
    reason: str


class PartDone(msgspec.Struct, frozen=True):
    """How far a part came: `taken` instances, of which some were refused."""

    taken: int
    refused: list[RefusedInstance]


Perform = Callable[[BulkPart], Awaitable[PartDone]]


def pack(ids: Sequence[int]) -> bytes:
    return struct.pack(f">{len(ids)}q", *ids)


def unpack(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(data) // 8}q", data)
