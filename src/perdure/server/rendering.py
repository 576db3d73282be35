"""Answers as JSON: times in UTC, durations in seconds, bytes as base64, large values cut, withheld values left out."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from .redacting import Redactor

CUT: Final = 8 * 1024
PREVIEW: Final = 256
VALUES: Final = frozenset({"value", "result", "input", "data", "answer", "body", "state", "payload", "args", "bracket"})
"""Fields of documents that hold recorded values."""

MAPS_OF_VALUES: Final = frozenset({"published"})
TEXTS_OF_VALUES: Final = frozenset({"progress"})
"""What a running step tells of its work."""

WITHHELD: Final = {"$withheld": True}
SAFE_MAX: Final = 2**53


def to_bytes(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_other)
    except UnicodeEncodeError:  # what is no text was given by a caller, or raised by an author's code
        return json.dumps(plain(value), default=_other).encode()
    except (TypeError, ValueError, RecursionError):
        return msgspec.json.encode(plain(value), enc_hook=_other)


def plain(value: Any) -> Any:
    """A document of JSON types: structs and records are objects."""
    kind = type(value)
    if value is None or kind is str or kind is bool or kind is float:  # most values: the rest of the way is long
        return value
    if kind is int:
        return value if -SAFE_MAX <= value <= SAFE_MAX else str(value)
    if kind is dict:
        return {key if isinstance(key, str) else str(key): plain(each) for key, each in value.items()}
    if isinstance(value, msgspec.Struct):
        return {
            field: plain(found)
            for field in value.__struct_fields__
            if (found := getattr(value, field)) is not msgspec.UNSET
        }
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): plain(each) for key, each in value.items()}
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {field: plain(getattr(value, field)) for field in value._fields}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return int(value) if -SAFE_MAX <= value <= SAFE_MAX else str(value)
    return _other(value)


def iso(time: datetime) -> str:
    """In UTC; a time without a zone is one of UTC."""
    known = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return known.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _other(value: Any) -> Any:
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value)


def shown(value: Any, *, values: bool = True, whole: str | None = "", redactor: Redactor | None = None) -> Any:
    """A document for a reader: without recorded values, if the reader may not see them; large values cut.

    `whole` is where the whole values are; None: nothing is cut.
    """
    document = plain(value)
    if values and not redactor and len(to_bytes(document)) <= CUT:
        return document  # no value in it can be too large
    redactor = redactor or Redactor()
    return redactor.texts(_Showing(values, whole, redactor).document(document))


def trimmed(document: Any, names: list[str]) -> Any:
    """Only these fields of a document, or of the items of a list. Raises `KeyError` of an unknown one."""
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        return {**document, "items": [trimmed(each, names) for each in document["items"]]}
    return {name: document[name] for name in names}


class _Showing(NamedTuple):
    values: bool
    whole: str | None
    redactor: Redactor

    def document(self, document: Any) -> Any:
        if isinstance(document, dict):
            return {name: self._field(name, each) for name, each in document.items()}
        if isinstance(document, list):
            return [self.document(each) for each in document]
        return document

    def _field(self, name: str, value: Any) -> Any:
        if name in VALUES and value is not None:
            return self._value(value)
        if name in MAPS_OF_VALUES and isinstance(value, dict):
            return {key: self._value(each) for key, each in self.redactor.value(value).items()}
        if name == "picture":
            return value  # `state` of its nodes is a word
        if not self.values and isinstance(value, dict) and name == "error":
            return {"type": value.get("type"), "message": "", "data": None, "traceback": ""}
        if not self.values and name in TEXTS_OF_VALUES:
            return None
        if not self.values and name == "parts" and isinstance(value, list):
            return [{**each, "reason": ""} for each in value if isinstance(each, dict)]
        return self.document(value)

    def _value(self, value: Any) -> Any:
        if not self.values:
            return WITHHELD
        return cut(self.redactor.value(value), self.whole)


def cut(value: Any, whole: str | None = "") -> Any:
    """A value that is too large for a list, as a preview, its size, and where it is `whole`."""
    if whole is None or isinstance(value, int | float | bool) or (isinstance(value, str) and len(value) < CUT // 4):
        return value
    encoded = msgspec.json.encode(value)
    if len(encoded) <= CUT:
        return value
    found = {"$cut": encoded[:PREVIEW].decode(errors="ignore"), "bytes": len(encoded)}
    return {**found, "href": whole} if whole else found
