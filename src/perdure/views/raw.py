"""Entries as they are kept: each field of event and decision by its name, and the bytes of the row."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.kernel.batch import JournalRow
from perdure.kernel.entry import Entry, decode
from perdure.kernel.location import Patterns
from perdure.kernel.moment import when
from perdure.runtime.history import value_of

IDS: Final = frozenset({"held", "id", "ids", "intent", "open", "seed", "state", "withdraw"})
"""Fields whose bytes name something: all other bytes are recorded values."""


class RawEntry(msgspec.Struct, frozen=True):
    """`body` is the decoded entry and the bytes of its row, as base64."""

    number: int
    seq: str
    at: datetime
    body: dict[str, Any]


def raw_entries(rows: Sequence[JournalRow], patterns: Sequence[str]) -> list[RawEntry]:
    """`patterns`: those that the instance had learned when the last of the rows was made."""
    return [_raw(row, decode(row.seq, row.instance, row.at, row.body, Patterns(patterns))) for row in rows]


def _raw(row: JournalRow, entry: Entry) -> RawEntry:
    body = {
        "event": _named(entry.event),
        "decision": _fields(entry.decision),
        "patterns": list(entry.patterns),
        "held": [each.hex() for each in entry.held],
        "behind": entry.behind,
        "bytes": b64encode(row.body).decode(),
    }
    return RawEntry(entry.number, str(row.seq), when(row.at), {name: each for name, each in body.items() if each})


def _named(value: msgspec.Struct) -> dict[str, Any]:
    return {"kind": type(value).__name__, **_fields(value)}


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    """What differs from the defaults."""
    found = {}
    for field in msgspec.structs.fields(value):
        each = getattr(value, field.name)
        if each != field.default and each not in ((), {}, b""):
            found[field.name] = _shown(field.name, each)
    return found


def _shown(field: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex() if field in IDS else value_of(value)
    if isinstance(value, msgspec.Struct):
        return _named(value)
    if isinstance(value, Mapping):
        return {str(name): _shown(field, each) for name, each in value.items()}
    if isinstance(value, tuple | list | frozenset | set):
        return [_shown(field, each) for each in value]
    return value
