"""The reader that trusts nothing.

`decode_strict` accepts the encoding that `encode` gives a value and refuses every other sequence of bytes
with one error that says which rule is broken and where. It allocates no more than the input has bytes, goes
no deeper than `DEPTH_MAX`, and takes time proportional to the input.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from typing import Any, Final, NoReturn
from uuid import UUID

from perdure.codec.values import (
    DECIMAL_DIGITS_MAX,
    DECIMAL_EXPONENT_MAX,
    DEPTH_MAX,
    SELF_DESCRIBED,
    decimal_of,
    encode,
    timedelta_of,
)
from perdure.errors import NotCanonical


def decode_strict(data: bytes) -> Any:
    """The value of canonical bytes from anywhere. Raises `NotCanonical` with reason and offset."""
    data = bytes(data)
    if not data.startswith(SELF_DESCRIBED):
        raise NotCanonical("the self-describe tag d9d9f7 is missing", 0)
    reader = _Reader(data)
    try:
        value = reader.item(0)
    except RecursionError:  # only if the caller has left us no room
        reader.refuse("nested too deeply to be read here", reader.position)
    if reader.position != len(data):
        reader.refuse("there are bytes behind the value", reader.position)
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = len(SELF_DESCRIBED)
        self.open_tags = 0

    def refuse(self, reason: str, offset: int) -> NoReturn:
        raise NotCanonical(reason, offset)

    def item(self, depth: int) -> Any:
        start = self.position
        major, info, number = self.head()
        match major:
            case 0:
                return number
            case 1:
                return -1 - number
            case 2:
                return self.take(number, start)
            case 3:
                return self.text(number, start)
            case 4:
                return self.list(number, start, depth)
            case 5:
                return self.dict(number, start, depth)
            case 6:
                return self.tagged(number, start, depth)
            case _:
                return self.simple(info, number, start)

    def head(self) -> tuple[int, int, int]:
        """Major type, additional information, and the number that follows from it."""
        start = self.position
        first = self.take(1, start)[0]
        major, info = first >> 5, first & 31
        if info < 24:
            return major, info, info
        if info == 31:
            self.refuse("indefinite lengths are not allowed", start)
        if info > 27:
            self.refuse(f"the byte {first:02x} has no meaning", start)
        number = int.from_bytes(self.take(1 << info - 24, start), "big")
        if major != 7 and number < _SHORTER[info]:
            self.refuse(f"{number} is not written in the fewest bytes", start)
        return major, info, number

    def take(self, size: int, start: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            self.refuse("the value is cut short", start)
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def text(self, size: int, start: int) -> str:
        try:
            return self.take(size, start).decode()
        except UnicodeDecodeError:
            self.refuse("text is not valid UTF-8", start)

    def list(self, count: int, start: int, depth: int) -> list[Any]:
        self.check_room(count, start, depth)
        value: list[Any] = []
        for _ in range(count):  # a comprehension would be one more frame for each level
            value.append(self.item(depth + 1))
        return value

    def dict(self, count: int, start: int, depth: int) -> dict[Any, Any]:
        self.check_room(2 * count, start, depth)
        value: dict[Any, Any] = {}
        before = b""
        for _ in range(count):
            key_start = self.position
            if self.data[key_start : key_start + 1] and self.data[key_start] >> 5 > 3:
                self.refuse("a key is not str, bytes or 64-bit int", key_start)
            key = self.item(depth + 1)
            encoded = self.data[key_start : self.position]
            if encoded == before:
                self.refuse(f"the key {key!r} is there twice"[:100], key_start)
            if (len(encoded), encoded) < (len(before), before):
                self.refuse(f"the key {key!r} is out of order"[:100], key_start)
            value[key] = self.item(depth + 1)
            before = encoded
        return value

    def check_room(self, items: int, start: int, depth: int) -> None:
        if depth >= DEPTH_MAX + self.open_tags:  # the list inside a Decimal is no level of its own
            self.refuse(f"nested deeper than {DEPTH_MAX} levels", start)
        if items > len(self.data) - self.position:  # each item has at least one byte
            self.refuse("the value is cut short", start)

    def simple(self, info: int, number: int, start: int) -> Any:
        match info:
            case 20:
                return False
            case 21:
                return True
            case 22:
                return None
            case 25 | 26 | 27:
                value = _FLOATS[info].unpack(number.to_bytes(1 << info - 24, "big"))[0]
                return self.checked(value, "a float is not in its shortest form", start)
            case _:
                self.refuse("undefined and other simple values are not allowed", start)

    def tagged(self, tag: int, start: int, depth: int) -> Any:
        if tag not in _TAGS:
            self.refuse(f"the tag {tag} is not known", start)
        if self.open_tags == 2:
            self.refuse("no more than a big int in a Decimal is a tag inside a tag", start)
        self.open_tags += 1
        content = self.item(depth)
        self.open_tags -= 1
        name, build = _TAGS[tag]
        try:
            value = build(content)
        except Exception:
            self.refuse(f"tag {tag} does not hold a {name}", start)
        return self.checked(value, f"tag {tag} does not hold a {name} in its only form", start)

    def checked(self, value: Any, reason: str, start: int) -> Any:
        """A scalar is canonical if it is what `encode` makes of it: no second set of rules to keep equal."""
        if encode(value)[len(SELF_DESCRIBED) :] != self.data[start : self.position]:
            self.refuse(reason, start)
        return value


def _big(content: Any) -> int:
    return int.from_bytes(_expect(bytes, content), "big")


def _big_negative(content: Any) -> int:
    return -1 - _big(content)


def _datetime(content: Any) -> datetime:
    return datetime.fromisoformat(_expect(str, content)).astimezone(UTC)


def _date(content: Any) -> date:
    return date.fromisoformat(_expect(str, content))


def _decimal(content: Any) -> Any:
    exponent, mantissa = _expect(list, content)
    if abs(_expect(int, mantissa)) >= 10**DECIMAL_DIGITS_MAX or abs(_expect(int, exponent)) > DECIMAL_EXPONENT_MAX:
        raise ValueError
    return decimal_of(exponent, mantissa)


def _timedelta(content: Any) -> Any:
    seconds, microseconds = _expect(int, _expect(dict, content)[1]), _expect(int, content.get(-6, 0))
    return timedelta_of(seconds, microseconds)


def _uuid(content: Any) -> UUID:
    return UUID(bytes=_expect(bytes, content))


def _expect(kind: type, content: Any) -> Any:
    if type(content) is not kind:
        raise TypeError
    return content


_SHORTER: Final = {24: 24, 25: 0x100, 26: 0x1_0000, 27: 0x1_0000_0000}
_FLOATS: Final = {25: struct.Struct(">e"), 26: struct.Struct(">f"), 27: struct.Struct(">d")}
_TAGS: Final[dict[int, tuple[str, Any]]] = {
    0: ("datetime", _datetime),
    2: ("big int", _big),
    3: ("big int", _big_negative),
    4: ("Decimal", _decimal),
    37: ("UUID", _uuid),
    1002: ("timedelta", _timedelta),
    1004: ("date", _date),
}
