"""Values that are one piece of plain data, and values of no annotation at all."""

from __future__ import annotations

import binascii
import enum
from base64 import b64decode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from perdure.codec.converters.frame import (
    ABSENT,
    PLAIN_SCALARS,
    Converter,
    Mismatch,
    converter,
    deeper,
    described,
    sorted_by_bytes,
)
from perdure.codec.values import encode
from perdure.errors import NotPlain


class AnyConverter(Converter):
    def to(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN_SCALARS:
            return value
        if kind is list or kind is tuple:
            return self._items(value)
        if kind is dict:
            return self._fields(value)
        if kind is set or kind is frozenset:
            return sorted_by_bytes(self._items(value))
        known = converter(kind)
        if known is not self and not isinstance(known, UnknownConverter):
            return known.to(value)
        return self._subclass(value)

    def read(self, plain: Any, json: bool) -> Any:
        return plain

    def _items(self, values: Iterable[Any]) -> list[Any]:
        items: list[Any] = []
        try:
            for value in values:
                items.append(value if type(value) in PLAIN_SCALARS else self.to(value))
        except (Mismatch, NotPlain) as error:
            raise deeper(error, len(items)) from None
        return items

    def _fields(self, values: Mapping[Any, Any]) -> dict[Any, Any]:
        fields: dict[Any, Any] = {}
        name: Any = None
        try:
            for name, value in values.items():
                fields[name] = value if type(value) in PLAIN_SCALARS else self.to(value)
        except (Mismatch, NotPlain) as error:
            raise deeper(error, name) from None
        return fields

    def _subclass(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._fields(value)
        if isinstance(value, list | tuple):
            return self._items(value)
        if isinstance(value, set | frozenset):
            return sorted_by_bytes(self._items(value))
        if isinstance(value, _SUBCLASSABLE):
            return value  # the encoding is that of the base
        encode(value)  # refuses, and says what to do
        raise AssertionError("encode accepted what has no plain form")


class UnknownConverter(Converter):
    def __init__(self, annotation: Any) -> None:
        self.label = getattr(annotation, "__qualname__", None) or str(annotation)

    def to(self, value: Any) -> Any:
        raise Mismatch("a type that can be recorded", f"the annotation {self.label}, which cannot")

    def read(self, plain: Any, json: bool) -> Any:
        self.to(plain)


class ScalarConverter(Converter):
    """A type that is plain data itself."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.label = "None" if kind is type(None) else kind.__name__
        self.kinds = frozenset((kind,))

    def to(self, value: Any) -> Any:
        if type(value) is self.kind:
            return value
        # Subclasses of scalars (a StrEnum, a driver's own UUID) are recorded as the plain type, except bool
        # as int.
        if isinstance(value, self.kind) and type(value) is not bool and not isinstance(value, enum.Enum):
            return value
        self.refuse(value)

    def read(self, plain: Any, json: bool) -> Any:
        if type(plain) is self.kind:
            return plain
        return self.parse(plain) if json else self.to(plain)

    def parse(self, plain: Any) -> Any:
        """From the form that JSON has to use for this type."""
        return self.to(plain)


class FloatConverter(ScalarConverter):
    def to(self, value: Any) -> Any:
        if type(value) is int:
            try:
                return float(value)
            except OverflowError:
                self.refuse(value, " (out of range)")
        return super().to(value)


class TextConverter(ScalarConverter):
    """A type that JSON has to write as text."""

    def parse(self, plain: Any) -> Any:
        if type(plain) is not str:
            return self.to(plain)
        try:
            return self.to(msgspec.convert(plain, self.kind))
        except msgspec.ValidationError:
            self.refuse(plain)


class DatetimeConverter(TextConverter):
    def to(self, value: Any) -> Any:
        if isinstance(value, datetime) and value.utcoffset() is None:
            self.refuse(value, " without a time zone")
        return super().to(value)


class DateConverter(TextConverter):
    def to(self, value: Any) -> Any:
        if isinstance(value, datetime):
            self.refuse(value)
        return super().to(value)


class TimedeltaConverter(TextConverter):
    def parse(self, plain: Any) -> Any:
        if type(plain) is int or type(plain) is float:
            try:
                return timedelta(seconds=plain)
            except (OverflowError, ValueError):
                self.refuse(plain)
        return super().parse(plain)


class DecimalConverter(TextConverter):
    def parse(self, plain: Any) -> Any:
        return Decimal(plain) if type(plain) is int else super().parse(plain)


class BytesConverter(ScalarConverter):
    def parse(self, plain: Any) -> Any:
        if type(plain) is not str:
            return self.to(plain)
        try:
            return b64decode(plain, validate=True)
        except (binascii.Error, ValueError):
            self.refuse(plain, " (not base64)")


class EnumConverter(Converter):
    """The value of a member; its name, if a value of the Enum has no plain form"""

    def __init__(self, kind: type[enum.Enum]) -> None:
        self.kind = kind
        self.label = kind.__name__
        try:
            self.forms = {member: ANY.to(member.value) for member in kind}
            self.members = {encode(form): member for member, form in self.forms.items()}
        except (NotPlain, Mismatch):
            self.forms = {member: member.name for member in kind}
            self.members = {encode(form): member for member, form in self.forms.items()}
        self.kinds = frozenset(type(form) for form in self.forms.values())

    def to(self, value: Any) -> Any:
        if not isinstance(value, self.kind):
            self.refuse(value)
        return self.forms.get(value, value.value)

    def read(self, plain: Any, json: bool) -> Any:
        member = self.members.get(encode(plain))
        if member is not None:
            return member
        if issubclass(self.kind, enum.Flag) and type(plain) is int:
            with suppress(ValueError):
                flags = self.kind(plain)
                if flags.value == plain:  # before Python 3.11.4, bits that are no flags are left out silently
                    return flags
        choices = ", ".join(repr(form) for form in self.forms.values())
        raise Mismatch(f"{self.label} (one of {choices})", described(plain))


class LiteralConverter(Converter):
    def __init__(self, values: tuple[Any, ...]) -> None:
        # By bytes, because 1 == True while Literal[1] is not Literal[True].
        plain = {encode(ANY.to(value)): value for value in values}
        self.values = plain
        self.label = f"one of {', '.join(sorted(repr(value) for value in values))}"
        self.kinds = frozenset(type(ANY.to(value)) for value in values)

    def to(self, value: Any) -> Any:
        plain = ANY.to(value)
        if self.values.get(encode(plain), ABSENT) != value:
            self.refuse(value)
        return plain

    def read(self, plain: Any, json: bool) -> Any:
        value = self.values.get(encode(plain), ABSENT)
        if value is ABSENT:
            self.refuse(plain)
        return value


ANY: Final = AnyConverter()
_SUBCLASSABLE: Final = (str, int, float, bytes, datetime, date, timedelta, Decimal, UUID)
