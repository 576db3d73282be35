"""Which converter an annotation gets: the list of everything that can be converted."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import types
import typing
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from perdure.codec.converters.containers import DictConverter, ItemsConverter, RowConverter, SetConverter
from perdure.codec.converters.frame import PLAIN_SCALARS, Converter, converter
from perdure.codec.converters.records import (
    DataclassConverter,
    ModelConverter,
    NamedTupleConverter,
    StructConverter,
    TypedDictConverter,
    substitute,
)
from perdure.codec.converters.scalars import (
    ANY,
    BytesConverter,
    DateConverter,
    DatetimeConverter,
    DecimalConverter,
    EnumConverter,
    FloatConverter,
    LiteralConverter,
    ScalarConverter,
    TextConverter,
    TimedeltaConverter,
    UnknownConverter,
)
from perdure.codec.converters.unions import AliasConverter, UnionConverter, constrained


def build(annotation: Any) -> Converter:
    """The table of what can be converted. Order matters only where a line says so."""
    if annotation is None or annotation in _ANYTHING or isinstance(annotation, _UNRESOLVED):
        return ANY
    if annotation is type(None):
        return ScalarConverter(type(None))
    if isinstance(annotation, typing.NewType):
        return converter(annotation.__supertype__)
    if type(annotation).__name__ == "TypeAliasType":  # `type X = ...` of Python 3.12
        return AliasConverter(annotation)

    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return constrained(annotation, arguments)
    if origin is typing.Union or origin is types.UnionType:
        return UnionConverter(arguments)
    if origin is typing.Literal:
        return LiteralConverter(arguments)
    if origin in (typing.Required, typing.NotRequired, typing.Final, typing.ClassVar):
        return converter(arguments[0])
    if type(origin).__name__ == "TypeAliasType":
        return converter(substitute(origin.__value__, dict(zip(origin.__type_params__, arguments, strict=False))))

    kind = origin or annotation
    if kind in PLAIN_SCALARS:
        return _SCALAR_CONVERTERS.get(kind, ScalarConverter)(kind)
    if kind in _LISTS:
        return ItemsConverter(list, arguments[0] if arguments else Any)
    if kind in _SETS:
        return SetConverter(_SETS[kind], arguments[0] if arguments else Any)
    if kind is tuple:
        if not arguments and annotation in (tuple, typing.Tuple):  # noqa: UP006
            return ItemsConverter(tuple, Any)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return ItemsConverter(tuple, arguments[0])
        return RowConverter(arguments)
    if kind in _DICTS:
        return DictConverter(*(arguments or (Any, Any)))
    if isinstance(kind, type):
        return _build_class(kind, arguments)
    return UnknownConverter(annotation)


def _build_class(kind: type, arguments: tuple[Any, ...]) -> Converter:
    if issubclass(kind, enum.Enum):
        return EnumConverter(kind)
    if issubclass(kind, msgspec.Struct):
        return StructConverter(kind, arguments)
    if typing.is_typeddict(kind):
        return TypedDictConverter(kind, arguments)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return NamedTupleConverter(kind, arguments)
    if callable(getattr(kind, "model_validate", None)) and callable(getattr(kind, "model_dump", None)):
        return ModelConverter(kind, arguments)  # before dataclasses: pydantic knows its own best
    if dataclasses.is_dataclass(kind):
        return DataclassConverter(kind, arguments)
    return UnknownConverter(kind)


_ANYTHING: Final = (Any, object, typing.NoReturn, typing.Never)
_UNRESOLVED: Final = (typing.TypeVar, typing.ForwardRef, str)


_SCALAR_CONVERTERS: Final[dict[type, type[ScalarConverter]]] = {
    float: FloatConverter,
    bytes: BytesConverter,
    datetime: DatetimeConverter,
    date: DateConverter,
    timedelta: TimedeltaConverter,
    Decimal: DecimalConverter,
    UUID: TextConverter,
}
_LISTS: Final = (list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Collection)
_SETS: Final[dict[Any, type]] = {
    set: set,
    frozenset: frozenset,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
}
_DICTS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
