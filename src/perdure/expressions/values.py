"""The values that expressions take and make: plain data, and three leaves that callers and readers put into it.

`Ref` stands for a value that is kept elsewhere, `Secret` for one that an executor injects, `ABSENT` for none.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final
from uuid import UUID

import msgspec

from .budget import BITS_MAX, DEPTH_MAX, ENTRY, ITEM, SCAN, Failure, Meter

KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    Decimal: "number",
    str: "text",
    bytes: "bytes",
    list: "list",
    dict: "object",
    datetime: "datetime",
    date: "date",
    timedelta: "duration",
    UUID: "uuid",
}


class NeedsRead(Exception):
    """The evaluation needs what is at `path` in the value of `ref`. Read it, then evaluate again."""

    def __init__(self, ref: Ref, path: tuple[str | int, ...]) -> None:
        super().__init__(ref, path)
        self.ref = ref
        self.path = path


class Ref:
    """A value that is kept elsewhere. Passed whole it stays a reference.

    A subclass that has read some paths already overrides `read` and answers those.
    """

    def __init__(self, length: int | None = None) -> None:
        self.length = length  # what `length` answers without a read

    def read(self, path: tuple[str | int, ...]) -> Any:
        raise NeedsRead(self, path)


class Secret(msgspec.Struct, frozen=True):
    name: str


class SecretText(msgspec.Struct, frozen=True):
    """A text with secrets in it. No filter, comparison or guard takes it."""

    parts: tuple[str | Secret, ...]


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()


def kind(value: Any) -> str:
    """The kind of plain data; of a reference, the kind of what it stands for."""
    found = KINDS.get(type(value))
    return kind(opened(value)) if found is None else found


def opened(value: Any) -> Any:
    """The value that a reference stands for; any other value as it is."""
    if isinstance(value, Ref):
        return value.read(())
    if type(value) not in KINDS:
        raise Failure(f"{type(value).__name__} is no plain data")
    return value


def shown(value: Any) -> str:
    """A value for an error message, shortened."""
    match value:
        case str():
            return repr(value[:60]) + ("" if len(value) <= 60 else f"… ({len(value):,} characters)")
        case list() | dict():
            return f"{kind(value)} with {len(value):,} element{'' if len(value) == 1 else 's'}"
        case bytes():
            return f"{len(value):,} bytes"
        case int() if value.bit_length() > 200:
            return f"number with {value.bit_length():,} bits"
        case None | bool() | int():
            return scalar_text(value)
        case Decimal() | datetime() | date() | timedelta() | UUID():
            return f"{type(value).__name__} {scalar_text(value)[:60]}"
        case _:
            return "reference" if isinstance(value, Ref) else repr(value)[:60]


def text_size(value: str) -> int:
    return len(value) if value.isascii() else 4 * len(value)


def keys_of(value: dict[Any, Any]) -> list[Any]:
    """Keys in order: maps have no other order that a replay could keep."""
    try:
        return sorted(value)
    except TypeError:
        return sorted(value, key=lambda key: (KINDS[type(key)], key))


def measure(value: Any, limit: int) -> None:
    """Refuse a value that, written out, is larger than the limit or too deep: parts may be shared many times."""
    left = limit
    ahead = [(value, 0)]
    while ahead:
        item, depth = ahead.pop()
        if isinstance(item, list | dict):
            left -= 56 + len(item) * (ITEM if isinstance(item, list) else ENTRY)
            if left < 0:
                raise Failure(f"the result has more than {limit:,} bytes", "budget")
            if depth == DEPTH_MAX:
                raise Failure(f"the result has more than {DEPTH_MAX} levels", "budget")
            ahead.extend((child, depth + 1) for child in (item if isinstance(item, list) else item.values()))
        else:
            left -= text_size(item) if isinstance(item, str) else ITEM
    if left < 0:
        raise Failure(f"the result has more than {limit:,} bytes", "budget")


def equal(meter: Meter, one: Any, two: Any) -> bool:
    """Whether two values are equal. Values of unlike kinds are not, and a decimal equals no float."""
    first, second = type(one), type(two)
    if first is second and first is not list and first is not dict and first in KINDS:
        if first is str:
            meter.spend(len(one) >> SCAN)
        return bool(one == two)
    one, two = opened(one), opened(two)
    first, second = type(one), type(two)
    if KINDS[first] != KINDS[second]:
        return False
    if first is list:
        meter.spend(min(len(one), len(two)))
        return len(one) == len(two) and all(equal(meter, a, b) for a, b in zip(one, two, strict=True))
    if first is dict:
        meter.spend(min(len(one), len(two)))
        return one.keys() == two.keys() and all(equal(meter, item, two[key]) for key, item in one.items())
    if first is not second and {first, second} == {Decimal, float}:
        return False
    return bool(one == two)


def scalar_text(value: Any) -> str:
    """The text of a scalar that is no text."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            if not isfinite(value):
                raise Failure("a number that is not finite has no text")
            return repr(value)
        case int() if value.bit_length() > BITS_MAX:
            raise Failure(f"the number has more than {BITS_MAX:,} bits", "budget")
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
        case date():
            return value.isoformat()
        case timedelta():
            return str(msgspec.to_builtins(value))
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return str(value)


def text_of(meter: Meter, value: Any) -> str:
    """A text as it is, any other value as JSON."""
    if type(value) is str:
        meter.make(text_size(value))
        return value
    out: list[str] = []
    _write(meter, value, out, quoted=False)
    return "".join(out)


def json_of(meter: Meter, value: Any) -> str:
    out: list[str] = []
    _write(meter, value, out, quoted=True)
    return "".join(out)


def _write(meter: Meter, value: Any, out: list[str], *, quoted: bool, depth: int = 0) -> None:
    value = opened(value)
    if depth > DEPTH_MAX:
        raise Failure(f"it has more than {DEPTH_MAX} levels", "budget")
    if isinstance(value, list):
        meter.spend(2 * len(value))
        _put(meter, out, "[")
        for index, item in enumerate(value):
            _put(meter, out, ", " if index else "")
            _write(meter, item, out, quoted=True, depth=depth + 1)
        _put(meter, out, "]")
    elif isinstance(value, dict):
        meter.spend(2 * len(value))
        _put(meter, out, "{")
        for index, key in enumerate(keys_of(value)):
            _put(meter, out, ", " if index else "")
            _write(meter, key if isinstance(key, str) else scalar_text(key), out, quoted=True, depth=depth + 1)
            _put(meter, out, ": ")
            _write(meter, value[key], out, quoted=True, depth=depth + 1)
        _put(meter, out, "}")
    elif isinstance(value, str):
        meter.make(text_size(value))
        out.append(_quote(meter, value) if quoted else value)
    elif isinstance(value, bytes):
        meter.make(len(value) * 4 // 3 + 6)
        out.append(f'"{scalar_text(value)}"' if quoted else scalar_text(value))
    else:
        text = scalar_text(value)
        as_text = quoted and value is not None and not isinstance(value, bool | int | float)
        _put(meter, out, f'"{text}"' if as_text else text)


def _quote(meter: Meter, text: str) -> str:
    written = json.dumps(text, ensure_ascii=False)
    meter.make(len(written) - len(text))
    return written


def _put(meter: Meter, out: list[str], text: str) -> None:
    meter.make(len(text))
    out.append(text)


LITERALS: Final[dict[str, Callable[[str], Any]]] = {
    "decimal": lambda text: _finite(Decimal(text)),
    "datetime": lambda text: _aware(datetime.fromisoformat(text)),
    "date": date.fromisoformat,
    "duration": lambda text: msgspec.convert(text, timedelta),
    "uuid": UUID,
    "bytes": lambda text: base64.b64decode(text, validate=True),
}
"""The kinds that JSON has no literal for, and how their text is read."""


def _finite(value: Decimal) -> Decimal:
    if not value.is_finite() or len(value.as_tuple().digits) > 300 or abs(value.adjusted()) > 6000:
        raise ValueError("use a finite decimal with at most 300 digits")
    return value


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("use a time with a zone, for example Z")
    return value.astimezone(UTC)
