"""One of several types, and types with conditions."""

from __future__ import annotations

import typing
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from perdure.codec.converters.containers import DictConverter
from perdure.codec.converters.frame import Converter, Mismatch, converter, described
from perdure.codec.converters.records import ModelConverter, RecordConverter, TypedDictConverter
from perdure.codec.converters.scalars import (
    AnyConverter,
    EnumConverter,
    FloatConverter,
    LiteralConverter,
    ScalarConverter,
    UnknownConverter,
)


class UnionConverter(Converter):
    """One of several types.

    A value is recorded in the form of its own arm. Where another arm could read that form as something else
    (two records, an Enum and a str, a set and a list) it is wrapped: {"$type": name of the arm, "$value":
    form}. Two records are always wrapped, so that a field added to one does not change how the other is read.

    Arms are put in an order of their own, because Python holds `A | B` equal to `B | A` and so may give us
    either.
    """

    def __init__(self, annotations: tuple[Any, ...]) -> None:
        arms = [converter(annotation) for annotation in annotations]
        self.arms = sorted(arms, key=lambda arm: (_RANKS.get(type(arm), 0), arm.label))
        self.tags = {arm: self.tag_of(arm) for arm in self.arms}
        self.by_tag = {tag: arm for arm, tag in self.tags.items()}
        self.label = " | ".join(arm.label for arm in self.arms)
        if all(arm.kinds for arm in arms):
            self.kinds = frozenset(kind for arm in arms for kind in arm.kinds)
        # Scalars that no other arm reads need no search.
        self.direct = {
            arm.kind: arm
            for arm in self.arms
            if isinstance(arm, ScalarConverter)
            and sum(arm.kind in other.kinds or not other.kinds for other in self.arms) == 1
        }
        self.wrapped = frozenset(arm for arm in self.arms if self.always_wrapped(arm))

    def tag_of(self, arm: Converter) -> str:
        kind = getattr(arm, "kind", None)
        if kind is not None and sum(other.label == arm.label for other in self.arms) > 1:
            return f"{kind.__module__}.{kind.__qualname__}"
        return arm.label

    def always_wrapped(self, arm: Converter) -> bool:
        records = [other for other in self.arms if isinstance(other, RecordConverter | ModelConverter | DictConverter)]
        return (
            isinstance(arm, RecordConverter | ModelConverter) and len(records) > 1 and getattr(arm, "tag", None) is None
        )

    def confusable(self, arm: Converter) -> bool:
        return any(other is not arm and (not other.kinds or other.kinds & arm.kinds) for other in self.arms)

    def to(self, value: Any) -> Any:
        direct = self.direct.get(type(value))
        if direct is not None:
            return direct.to(value)
        arm, plain = self.arm_of(value)
        if arm in self.wrapped or (self.confusable(arm) and not self.reads_as(plain, value)):
            return {"$type": self.tags[arm], "$value": plain}
        return plain

    def arm_of(self, value: Any) -> tuple[Converter, Any]:
        closest: Mismatch | None = None
        for arm in self.arms:
            try:
                return arm, arm.to(value)
            except Mismatch as mismatch:
                if closest is None or len(mismatch.path) > len(closest.path):
                    closest = mismatch
        raise self.closest(closest, value)

    def closest(self, mismatch: Mismatch | None, found: Any) -> Mismatch:
        """The error of the arm that got furthest, which is the one that was meant."""
        return mismatch if mismatch is not None and mismatch.path else Mismatch(self.label, described(found))

    def reads_as(self, plain: Any, value: Any) -> bool:
        try:
            back = self.read(plain, json=False)
        except Mismatch:
            return False
        return type(back) is type(value) and bool(back == value)

    def read(self, plain: Any, json: bool) -> Any:
        direct = self.direct.get(type(plain))
        if direct is not None and not json:
            return direct.read(plain, json)
        if type(plain) is dict and plain.keys() == _WRAPPER:
            arm = self.by_tag.get(plain["$type"]) if type(plain["$type"]) is str else None
            if arm is not None:
                return arm.read(plain["$value"], json)
        closest: Mismatch | None = None
        # What is meant exactly comes before what JSON may stand for: "2024-01-01" is a str in `date | str`.
        for as_json in (False, True) if json else (False,):
            for arm in self.arms:
                try:
                    return arm.read(plain, as_json)
                except Mismatch as mismatch:
                    if closest is None or len(mismatch.path) >= len(closest.path):
                        closest = mismatch
        raise self.closest(closest, plain)


_WRAPPER: Final = {"$type", "$value"}


def constrained(annotation: Any, arguments: tuple[Any, ...]) -> Converter:
    inner = converter(arguments[0])
    metas = [argument for argument in arguments[1:] if isinstance(argument, msgspec.Meta)]
    return ConstrainedConverter(inner, arguments[0], metas) if metas else inner


class ConstrainedConverter(Converter):
    """Annotated[X, msgspec.Meta(...)]: checked in both directions"""

    def __init__(self, inner: Converter, annotation: Any, metas: list[msgspec.Meta]) -> None:
        self.inner = inner
        self.label = inner.label
        self.kinds = inner.kinds
        self.checked = annotation
        for meta in metas:
            self.checked = typing.Annotated[self.checked, meta]

    def to(self, value: Any) -> Any:
        plain = self.inner.to(value)
        self.check(plain)
        return plain

    def read(self, plain: Any, json: bool) -> Any:
        value = self.inner.read(plain, json)
        self.check(plain if not json else self.inner.to(value))
        return value

    def check(self, plain: Any) -> None:
        try:
            msgspec.convert(plain, self.checked, builtin_types=_BUILTIN_TYPES)
        except msgspec.ValidationError as error:
            raise Mismatch(str(error).removeprefix("Expected "), described(plain)) from None


class AliasConverter(Converter):
    """A `type` alias, resolved at use because it may refer to itself."""

    def __init__(self, alias: Any) -> None:
        self.alias = alias
        self.label = alias.__name__

    def to(self, value: Any) -> Any:
        return converter(self.alias.__value__).to(value)

    def read(self, plain: Any, json: bool) -> Any:
        return converter(self.alias.__value__).read(plain, json)


_BUILTIN_TYPES: Final = (bytes, datetime, date, timedelta, Decimal, UUID)

# What says most about a value is tried first, what takes anything last.
_RANKS: Final[dict[type, int]] = {
    LiteralConverter: -2,
    EnumConverter: -1,
    FloatConverter: 1,
    TypedDictConverter: 1,
    DictConverter: 2,
    AnyConverter: 3,
    UnknownConverter: 4,
}
