"""Lists, sets, tuples, dicts: each item by the converter of its own annotation."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from perdure.codec.converters.frame import Converter, Mismatch, converter, deeper, sorted_by_bytes
from perdure.codec.converters.scalars import ANY
from perdure.errors import NotPlain


class ItemsConverter(Converter):
    """list[X], Sequence[X], tuple[X, ...]"""

    kinds = frozenset((list,))

    def __init__(self, kind: type, item: Any) -> None:
        self.kind = kind
        self.item = converter(item)
        self.label = f"{kind.__name__}[{self.item.label}]"

    def to(self, value: Any) -> Any:
        if type(value) is not self.kind and not self.accepts(value):
            self.refuse(value)
        return self.each(self.item.to, value)

    def accepts(self, value: Any) -> bool:
        return isinstance(value, self.kind)

    def read(self, plain: Any, json: bool) -> Any:
        if type(plain) is not list:
            self.refuse(plain)
        read = self.item.read
        return self.kind(self.each(lambda item: read(item, json), plain))

    def each(self, convert: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
        items: list[Any] = []
        try:
            for value in values:
                items.append(convert(value))
        except (Mismatch, NotPlain) as error:
            raise deeper(error, len(items)) from None
        return items


class SetConverter(ItemsConverter):
    """set[X], frozenset[X]: a list in the order of its canonical bytes"""

    def to(self, value: Any) -> Any:
        return sorted_by_bytes(super().to(value))

    def accepts(self, value: Any) -> bool:
        return isinstance(value, set | frozenset)

    def read(self, plain: Any, json: bool) -> Any:
        try:
            return super().read(plain, json)
        except TypeError:
            raise Mismatch(self.label, "items that no set can hold") from None


class RowConverter(Converter):
    """tuple[A, B]: a list of fixed length"""

    kinds = frozenset((list,))
    kind: type = tuple

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.columns = [converter(argument) for argument in arguments]
        self.label = f"tuple[{', '.join(column.label for column in self.columns)}]"

    def to(self, value: Any) -> Any:
        if type(value) is not self.kind:
            self.refuse(value)
        return self.each([column.to for column in self.columns], value)

    def read(self, plain: Any, json: bool) -> Any:
        if type(plain) is not list:
            self.refuse(plain)
        items = self.each([_reading(column, json) for column in self.columns], plain)
        return self.make(items)

    def make(self, items: list[Any]) -> Any:
        return tuple(items)

    def each(self, converts: list[Callable[[Any], Any]], values: Any) -> list[Any]:
        if len(values) != len(converts):
            raise Mismatch(f"{self.label} of length {len(converts)}", f"one of length {len(values)}")
        items: list[Any] = []
        try:
            for convert, value in zip(converts, values, strict=True):
                items.append(convert(value))
        except (Mismatch, NotPlain) as error:
            raise deeper(error, len(items)) from None
        return items


def _reading(column: Converter, json: bool) -> Callable[[Any], Any]:
    return lambda plain: column.read(plain, json)


class DictConverter(Converter):
    kinds = frozenset((dict,))

    def __init__(self, key: Any, value: Any) -> None:
        self.key = KeyConverter(key)
        self.value = converter(value)
        self.label = f"dict[{self.key.label}, {self.value.label}]"

    def to(self, value: Any) -> Any:
        if not isinstance(value, collections.abc.Mapping):
            self.refuse(value)
        to_key, to_value = self.key.to, self.value.to
        plain: dict[Any, Any] = {}
        name: Any = None
        try:
            for name, item in value.items():
                plain[to_key(name)] = to_value(item)
        except (Mismatch, NotPlain) as error:
            raise deeper(error, name) from None
        if len(plain) != len(value):
            self.refuse(value, " with two keys of one form")
        return plain

    def read(self, plain: Any, json: bool) -> Any:
        if type(plain) is not dict:
            self.refuse(plain)
        value: dict[Any, Any] = {}
        name: Any = None
        try:
            for name, item in plain.items():
                value[self.key.read(name, json)] = self.value.read(item, json)
        except (Mismatch, NotPlain) as error:
            raise deeper(error, name) from None
        return value


class KeyConverter(Converter):
    """Keys are str, int or bytes; what has a text form (UUID, date, Decimal...) is recorded as that text."""

    def __init__(self, annotation: Any) -> None:
        self.inner = converter(annotation)
        self.label = self.inner.label
        self.textual = bool(self.inner.kinds & _TEXT_KEYS)

    def to(self, value: Any) -> Any:
        plain = self.inner.to(value)
        if type(plain) is str or type(plain) is int or type(plain) is bytes or self.inner is ANY:
            return plain
        if self.textual and type(plain) in _TEXT_KEYS:
            if type(plain) is datetime:
                plain = plain.astimezone(UTC)
            return msgspec.to_builtins(plain)
        self.refuse(value, " as a key (keys are str, int, bytes, or have a text form)")

    def read(self, plain: Any, json: bool) -> Any:
        if json and type(plain) is str and int in self.inner.kinds and str not in self.inner.kinds:
            try:
                return self.inner.read(int(plain), json)  # JSON has no other keys than text
            except ValueError:
                self.refuse(plain)
        return self.inner.read(plain, json or self.textual)


_TEXT_KEYS: Final = frozenset((datetime, date, timedelta, Decimal, UUID))
