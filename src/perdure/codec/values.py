"""One value, one sequence of bytes.

Plain data is None, bool, int, float, str, bytes, list, dict, and the scalars datetime, date, timedelta,
Decimal and UUID. `encode` gives it its only encoding, so equal bytes (and equal hashes) mean the same value,
however it was spelled. `decode_strict` accepts that encoding and nothing else; `decode` is for bytes that we
wrote ourselves.

The rules, all of CBOR (RFC 8949), one form for each value:

    whole value   tag 55799 in front, and inside the hash; definite lengths; nothing behind it
    int           shortest head; beyond 64 bits tag 2 or 3 with the fewest bytes
    float         always a float (1.0 is not 1), the shortest of 16, 32, 64 bits that keeps it; NaN is f97e00
    dict          keys str, bytes or 64-bit int, in order of their encodings: shorter first, then bytewise
    tuple         as a list; subclasses of plain types as the plain type
    datetime      aware only; tag 0, UTC: 2013-03-21T20:04:00Z, or six digits of fraction if it has any
    date          tag 1004 (RFC 8943): 2013-03-21
    timedelta     tag 1002 (RFC 9581): {1: whole seconds, -6: microseconds 1..999999 or absent}
    Decimal       tag 4: [exponent, mantissa], finite, digits as written (1.10 is not 1.1; -0 is 0)
    UUID          tag 37: its 16 bytes

Bool is no key because Python holds True equal to 1 and so could not tell the two keys apart; wider ints are
no keys because their hashes can be made to collide. Why this encoder:
docs/decisions/0003-encoding-of-values.md.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Coroutine
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isnan
from typing import Any, Final
from uuid import UUID

import cbor2

from perdure.errors import NotPlain

DEPTH_MAX: Final = 128  # containers inside containers; some frames each, far below the interpreter's limit
DECIMAL_DIGITS_MAX: Final = 1000  # conversion of digits is quadratic: a limit keeps hostile input cheap
DECIMAL_EXPONENT_MAX: Final = 999_999  # what every decimal library can hold

SELF_DESCRIBED: Final = b"\xd9\xd9\xf7"


def encode(value: Any) -> bytes:
    """The canonical bytes of plain data. Raises `NotPlain` with the path of what has none."""
    # Small scalars are most of what a step returns: they leave here without building anything.
    kind = type(value)
    if kind is str:
        if len(value) < 24 and value.isascii():
            text: bytes = value.encode()
            return _TAGGED_TEXT[len(text)] + text
    elif kind is int:
        if 0 <= value < 1024:
            return _TAGGED_INT[value]  # type: ignore[no-any-return]
    elif value is None:
        return _TAGGED_NONE
    elif kind is bool:
        return _TAGGED_TRUE if value else _TAGGED_FALSE
    out = [SELF_DESCRIBED]
    try:
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return SELF_DESCRIBED + scalar(value)
        _write(value, out, 0)
    except Exception as error:
        raise _explain(value, error) from None
    return b"".join(out)


def decode(data: bytes) -> Any:
    """The value of bytes that `encode` wrote. Others may pass for something: they need `decode_strict`."""
    size = len(data)
    if size < 7:
        small = _SMALL.get(data, _ABSENT)
        if small is not _ABSENT:
            return small
        if size == 6 and data[3] == 0x19:
            return data[4] << 8 | data[5]
    try:
        if 4 < size < 28 and data[3] == 0x60 + size - 4:
            return data[4:].decode()
        # Without the leading tag, because cbor2 makes what is inside any tag immutable: tuples, frozendicts.
        return _loads(data[3:], tag_hook=_tag)
    except Exception:
        from perdure.codec.strict import decode_strict

        return decode_strict(data)  # names the reason


def digest(data: bytes) -> str:
    """The name of these bytes: `sha256:` and 64 hex digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def is_text(value: object) -> bool:
    """Whether it is text that has bytes: half a surrogate pair has none."""
    return isinstance(value, str) and value.encode(errors="ignore").decode() == value


# ---- writing: one function per shape of value --------------------------------------------------------------


def _write(value: Any, out: list[bytes], depth: int) -> None:
    kind = type(value)
    if kind is dict:
        _write_dict(value, out, depth)
    elif kind is list or kind is tuple:
        _write_list(value, out, depth)
    elif (scalar := _SCALARS.get(kind)) is not None:
        out.append(scalar(value))
    else:
        _write(_as_plain_type(value), out, depth)


def _write_dict(value: dict[Any, Any], out: list[bytes], depth: int) -> None:
    if depth == DEPTH_MAX:
        raise _Refused
    out.append(head(0xA0, len(value)))
    names = tuple(value)
    for name, encoded in _SHAPES.get(names) or _shape(names):
        item = value[name]
        kind = type(item)
        # The branches repeat `_write`, in order of frequency, because a call costs more than what it would
        # do.
        if kind is str:
            text = item.encode()
            size = len(text)
            out.append(encoded + _TEXT[size] + text if size < 24 else encoded + head(0x60, size) + text)
        elif kind is int:
            out.append(encoded + (_INT[item] if 0 <= item < 1024 else _int(item)))
        elif kind is dict:
            out.append(encoded)
            _write_dict(item, out, depth + 1)
        elif kind is list or kind is tuple:
            out.append(encoded)
            _write_list(item, out, depth + 1)
        elif (scalar := _SCALARS.get(kind)) is not None:
            out.append(encoded + scalar(item))
        else:
            out.append(encoded)
            _write(_as_plain_type(item), out, depth + 1)


def _write_list(value: list[Any] | tuple[Any, ...], out: list[bytes], depth: int) -> None:
    if depth == DEPTH_MAX:
        raise _Refused
    out.append(head(0x80, len(value)))
    for item in value:
        kind = type(item)
        if kind is str:
            text = item.encode()
            size = len(text)
            out.append(_TEXT[size] + text if size < 24 else head(0x60, size) + text)
        elif kind is int:
            out.append(_INT[item] if 0 <= item < 1024 else _int(item))
        elif kind is dict:
            _write_dict(item, out, depth + 1)
        elif kind is list or kind is tuple:
            _write_list(item, out, depth + 1)
        elif (scalar := _SCALARS.get(kind)) is not None:
            out.append(scalar(item))
        else:
            _write(_as_plain_type(item), out, depth + 1)


def head(major: int, number: int) -> bytes:
    """The shortest head of a major type (given in its bit position) with its number or length."""
    if number < 24:
        return _HEAD[major | number]
    if number < 0x100:
        return bytes((major | 24, number))
    if number < 0x1_0000:
        return _HEAD_16(major | 25, number)
    if number < 0x1_0000_0000:
        return _HEAD_32(major | 26, number)
    return _HEAD_64(major | 27, number)


# ---- dicts: the same few sets of keys come again and again, so their order is worked out once --------------

_SHAPES: Final[dict[tuple[Any, ...], list[tuple[Any, bytes]]]] = {}
_SHAPES_MAX: Final = 1024


def _shape(names: tuple[Any, ...]) -> list[tuple[Any, bytes]]:
    shape = sorted(((name, _key(name)) for name in names), key=_canonical_order)
    if len(names) <= 16 and all(type(name) is str and len(name) <= 40 for name in names):
        # Only text: a str equals nothing but a str, while the tuple (True,) would find the shape of (1,).
        if len(_SHAPES) >= _SHAPES_MAX:
            _SHAPES.clear()
        _SHAPES[names] = shape
    elif len({encoded for _, encoded in shape}) != len(shape):
        # A subclass of str may define equality as it likes, so that a dict holds one encoded key twice.
        raise _Refused
    return shape


def _canonical_order(item: tuple[Any, bytes]) -> tuple[int, bytes]:
    encoded = item[1]
    return len(encoded), encoded


def _key(name: Any) -> bytes:
    kind = type(name)
    if kind not in _KEYS:
        name = None if kind is bool else _as_plain_type(name)
        kind = type(name)
        if kind not in _KEYS:
            raise _Refused
    if kind is int and not -0x1_0000_0000_0000_0000 <= name < 0x1_0000_0000_0000_0000:
        raise _Refused
    return _SCALARS[kind](name)


_KEYS: Final = frozenset((str, int, bytes))


# ---- scalars -----------------------------------------------------------------------------------------------


def _text(value: str) -> bytes:
    text = value.encode()
    return head(0x60, len(text)) + text


def _bytes(value: bytes) -> bytes:
    return head(0x40, len(value)) + value


def _int(value: int) -> bytes:
    if value >= 0:
        if value <= 0xFFFF_FFFF_FFFF_FFFF:
            return head(0x00, value)
        return b"\xc2" + _bytes(value.to_bytes((value.bit_length() + 7) // 8, "big"))
    value = -1 - value
    if value <= 0xFFFF_FFFF_FFFF_FFFF:
        return head(0x20, value)
    return b"\xc3" + _bytes(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _float(value: float) -> bytes:
    if isnan(value):
        return b"\xf9\x7e\x00"
    try:
        single = _FLOAT_32.pack(0xFA, value)
    except OverflowError:
        return _FLOAT_64.pack(0xFB, value)
    if _FLOAT_32.unpack(single)[1] != value:
        return _FLOAT_64.pack(0xFB, value)
    try:
        half = _FLOAT_16.pack(0xF9, value)
    except OverflowError:
        return single
    return half if _FLOAT_16.unpack(half)[1] == value else single


def _datetime(value: datetime) -> bytes:
    if value.utcoffset() is None:
        raise _Refused
    return b"\xc0" + _text(value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z")


def _date(value: date) -> bytes:
    return b"\xd9\x03\xec\x6a" + value.isoformat().encode()


def _timedelta(value: timedelta) -> bytes:
    seconds = b"\x01" + _int(value.days * 86_400 + value.seconds)
    if not value.microseconds:
        return b"\xd9\x03\xea\xa1" + seconds
    return b"\xd9\x03\xea\xa2" + seconds + b"\x25" + _int(value.microseconds)


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) > DECIMAL_DIGITS_MAX or abs(exponent) > DECIMAL_EXPONENT_MAX:
        raise _Refused
    mantissa = int("".join(map(str, digits)))
    return b"\xc4\x82" + _int(exponent) + _int(-mantissa if sign else mantissa)


def _uuid(value: UUID) -> bytes:
    return b"\xd8\x25\x50" + value.bytes


# ---- reading our own bytes: cbor2, and the one tag that it does not know -----------------------------------


def decimal_of(exponent: int, mantissa: int) -> Decimal:
    """The Decimal with exactly these digits, whatever the precision of the current context."""
    return Decimal(f"{mantissa}E{exponent}")


def timedelta_of(seconds: int, microseconds: int) -> timedelta:
    return timedelta(seconds=seconds, microseconds=microseconds)


def _tag(tag: Any, *_: Any) -> timedelta:
    if tag.tag != 1002:
        raise _Refused
    return timedelta_of(tag.value[1], tag.value.get(-6, 0))


# ---- refusals: found on a second walk, so that the first one need not keep paths ---------------------------


class _Refused(Exception):
    """Something in this value is not plain; `_explain` finds out what and where."""


def _as_plain_type(value: Any) -> Any:
    for base, convert in _BASES:
        if isinstance(value, base):
            return convert(value)
    raise _Refused


# What a subclass is recorded as. Its base's own methods are used: a subclass may have changed its text or its
# sum.
_BASES: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, bytes),
    (dict, dict),
    (list, list),
    (tuple, tuple),
    (datetime, lambda value: datetime.combine(value.date(), value.time(), value.tzinfo)),
    (date, lambda value: date(value.year, value.month, value.day)),
    (timedelta, lambda value: timedelta(value.days, value.seconds, value.microseconds)),
    (Decimal, Decimal),
    (UUID, lambda value: UUID(bytes=value.bytes)),
)


def _explain(value: Any, error: Exception) -> Exception:
    trail: list[Any] = [("$", value, 0)]
    while trail:
        path, item, depth = trail.pop()
        if isinstance(item, dict | list | tuple):
            if depth == DEPTH_MAX:
                return NotPlain(path, f"a value nested deeper than {DEPTH_MAX} levels", "flatten it; check for a cycle")
            if isinstance(item, dict):
                for name in item:
                    if refusal := _explain_key(path, name):
                        return refusal
                children = [(join(path, name), child, depth + 1) for name, child in item.items()]
                if len({_key(name) for name in item}) != len(item):
                    return NotPlain(path, "a dict that holds one key twice", "use str keys")
            else:
                children = [(f"{path}[{index}]", child, depth + 1) for index, child in enumerate(item)]
            trail.extend(reversed(children))
        elif refusal := _explain_scalar(path, item):
            return refusal
    if isinstance(error, RecursionError):  # not too deep in itself, but its caller has left us no room
        return NotPlain("$", "a value nested too deeply to be written here", "flatten it")
    return error


def _explain_key(path: str, name: Any) -> NotPlain | None:
    try:
        _key(name)
    except UnicodeEncodeError:
        return NotPlain(path, "a key that is not valid Unicode", "replace its lone surrogates")
    except Exception:
        return NotPlain(path, f"a key of type {type_name(name)}", "keys are str, bytes or 64-bit int")
    return None


def _explain_scalar(path: str, item: Any) -> NotPlain | None:
    try:
        _write(item, [], 0)
    except UnicodeEncodeError:
        return NotPlain(path, "text that is not valid Unicode", "replace its lone surrogates, or record bytes")
    except Exception:
        if isinstance(item, datetime) and item.tzinfo is None:
            return NotPlain(path, "a datetime without a time zone", "give it one, for example tzinfo=UTC")
        if isinstance(item, datetime):
            return NotPlain(path, "a datetime out of range in UTC", "use one between the years 1 and 9999")
        if isinstance(item, Decimal):
            return NotPlain(path, f"the Decimal {str(item)[:40]}", "use a finite one of at most 1,000 digits")
        if isinstance(item, set | frozenset):
            return NotPlain(path, "a set", "use a sorted list, or annotate it as a set")
        if isinstance(item, bytearray | memoryview):
            return NotPlain(path, f"a {type_name(item)}", "copy it with bytes()")
        missing = isinstance(item, Coroutine)
        advice = "an await is missing" if missing else "convert it to plain data (str, int, dict...)"
        return NotPlain(path, f"a value of type {type_name(item)}", advice)
    return None


def join(path: str, name: Any) -> str:
    """The path of a field of what is at `path`."""
    if isinstance(name, str):
        return f"{path}.{name}" if name.isidentifier() else f"{path}[{name!r}]"
    return f"{path}[{name!r}]"


def type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# ---- tables ------------------------------------------------------------------------------------------------

_HEAD_16: Final = struct.Struct(">BH").pack
_HEAD_32: Final = struct.Struct(">BI").pack
_HEAD_64: Final = struct.Struct(">BQ").pack
_FLOAT_16: Final = struct.Struct(">Be")
_FLOAT_32: Final = struct.Struct(">Bf")
_FLOAT_64: Final = struct.Struct(">Bd")

_HEAD: Final = [bytes((byte,)) for byte in range(256)]
_TEXT: Final = _HEAD[0x60:0x78]
_INT: Final = [head(0x00, number) for number in range(1024)]

_SCALARS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: b"\xf6",
    bool: lambda value: b"\xf5" if value else b"\xf4",
    int: _int,
    str: _text,
    float: _float,
    bytes: _bytes,
    datetime: _datetime,
    date: _date,
    timedelta: _timedelta,
    Decimal: _decimal,
    UUID: _uuid,
}

_TAGGED_TEXT: Final = [SELF_DESCRIBED + start for start in _TEXT]
_TAGGED_INT: Final[list[bytes]] = [SELF_DESCRIBED + number for number in _INT]
_TAGGED_NONE: Final = SELF_DESCRIBED + b"\xf6"
_TAGGED_TRUE: Final = SELF_DESCRIBED + b"\xf5"
_TAGGED_FALSE: Final = SELF_DESCRIBED + b"\xf4"

# Immutable answers may be shared between callers.
_SMALL: Final[dict[bytes, Any]] = {
    _TAGGED_NONE: None,
    _TAGGED_TRUE: True,
    _TAGGED_FALSE: False,
    SELF_DESCRIBED + b"\x60": "",
    **{data: number for number, data in enumerate(_TAGGED_INT)},
}

_ABSENT: Final = object()
_loads: Final = cbor2.loads
