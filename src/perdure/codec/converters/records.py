"""Classes with named fields: dataclass, TypedDict, msgspec struct, NamedTuple, pydantic model."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.codec.converters.containers import RowConverter
from perdure.codec.converters.frame import Converter, Mismatch, converter, deeper, described, did_you_mean
from perdure.codec.converters.scalars import ANY
from perdure.errors import NotPlain


@dataclasses.dataclass(slots=True)
class FieldConverter:
    name: str  # in Python
    plain: str  # in the plain data
    annotation: Any
    required: bool
    init: bool = True


class RecordConverter(Converter):
    """A class with named fields: a dict of all of them.

    Fields are resolved at first use, not when the converter is built, so that a class may refer to itself and
    to classes that are defined later.
    """

    kinds = frozenset((dict,))

    def __init__(self, kind: type, arguments: tuple[Any, ...]) -> None:
        self.kind = kind
        self.arguments = arguments
        self.label = kind.__name__
        if arguments:
            self.label += f"[{', '.join(converter(argument).label for argument in arguments)}]"
        self._resolved: list[tuple[FieldConverter, Converter]] | None = None

    def fields(self) -> list[FieldConverter]:
        raise NotImplementedError

    def make(self, values: dict[str, Any]) -> Any:
        return self.kind(**values)

    def resolved(self) -> list[tuple[FieldConverter, Converter]]:
        if self._resolved is None:
            known = dict(zip(getattr(self.kind, "__parameters__", ()), self.arguments, strict=False))
            self._resolved = [
                (field, converter(substitute(field.annotation, known) if known else field.annotation))
                for field in self.fields()
            ]
        return self._resolved

    def to(self, value: Any) -> Any:
        if type(value) is not self.kind:
            self.refuse(value)
        return self.fields_to(value, getattr)

    def fields_to(self, value: Any, get: Callable[[Any, str], Any]) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        name = ""
        try:
            for field, convert in self.resolved():
                name = field.name
                if field.init:
                    plain[field.plain] = convert.to(get(value, name))
        except (Mismatch, NotPlain) as error:
            raise deeper(error, name) from None
        return plain

    def read(self, plain: Any, json: bool) -> Any:
        if type(plain) is not dict:
            self.refuse(plain)
        values: dict[str, Any] = {}
        name = ""
        try:
            for field, convert in self.resolved():
                name = field.plain
                if name in plain:
                    if field.init:
                        values[field.name] = convert.read(plain[name], json)
                elif field.required:
                    raise Mismatch(convert.label, "nothing")
        except (Mismatch, NotPlain) as error:
            raise deeper(error, name) from None
        if json:
            self.refuse_unknown(plain)
        return self.made(values)

    def made(self, values: dict[str, Any]) -> Any:
        try:
            return self.make(values)
        except Exception as error:  # the class's own checks, such as __post_init__
            raise Mismatch(self.label, f"values that it refuses: {error}") from None

    def refuse_unknown(self, plain: dict[Any, Any]) -> None:
        known = [field.plain for field, _ in self.resolved()]
        for name in plain:
            if name not in known:
                raise Mismatch(f"the fields of {self.label}", f"the unknown field {name!r}" + did_you_mean(name, known))


class DataclassConverter(RecordConverter):
    def fields(self) -> list[FieldConverter]:
        hints = hints_of(self.kind)
        return [
            FieldConverter(
                field.name,
                field.name,
                hints.get(field.name, Any),
                field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING and field.init,
                field.init,
            )
            for field in dataclasses.fields(self.kind)
        ]


class TypedDictConverter(RecordConverter):
    """A dict; its class is not there at run time, so unknown keys are all that can tell it from another."""

    def fields(self) -> list[FieldConverter]:
        required = self.kind.__required_keys__  # type: ignore[attr-defined]
        return [FieldConverter(name, name, hint, name in required) for name, hint in hints_of(self.kind).items()]

    def make(self, values: dict[str, Any]) -> Any:
        return values

    def to(self, value: Any) -> Any:
        if not isinstance(value, dict):
            self.refuse(value)
        plain: dict[str, Any] = {}
        name = ""
        try:
            for field, convert in self.resolved():
                name = field.name
                if name in value:
                    plain[name] = convert.to(value[name])
                elif field.required:
                    raise Mismatch(convert.label, "nothing")
        except (Mismatch, NotPlain) as error:
            raise deeper(error, name) from None
        if len(plain) != len(value):
            self.refuse_unknown(value)
        return plain


class StructConverter(RecordConverter):
    """A msgspec struct, renamed and tagged as it says. Never `array_like`: names survive changes."""

    def __init__(self, kind: type[msgspec.Struct], arguments: tuple[Any, ...]) -> None:
        super().__init__(kind, arguments)
        config = kind.__struct_config__
        self.tag_field, self.tag = config.tag_field, config.tag

    def fields(self) -> list[FieldConverter]:
        hints = hints_of(self.kind)
        return [
            FieldConverter(field.name, field.encode_name, hints.get(field.name, field.type), field.required)
            for field in msgspec.structs.fields(self.kind)
        ]

    def to(self, value: Any) -> Any:
        plain = super().to(value)
        if self.tag_field is not None:
            plain[self.tag_field] = self.tag
        return plain

    def read(self, plain: Any, json: bool) -> Any:
        if type(plain) is dict and plain.get(self.tag_field, self.tag) != self.tag:
            raise Mismatch(repr(self.tag), described(plain[self.tag_field])).at(self.tag_field)
        return super().read(plain, json)

    def refuse_unknown(self, plain: dict[Any, Any]) -> None:
        super().refuse_unknown({name: None for name in plain if name != self.tag_field})


class NamedTupleConverter(RowConverter):
    def __init__(self, kind: type, arguments: tuple[Any, ...]) -> None:
        self.kind = kind
        self.arguments = arguments
        self.label = kind.__name__

    @functools.cached_property
    def columns(self) -> list[Converter]:  # type: ignore[override]
        hints = hints_of(self.kind)
        known = dict(zip(getattr(self.kind, "__parameters__", ()), self.arguments, strict=False))
        names: tuple[str, ...] = self.kind._fields  # type: ignore[attr-defined]
        return [converter(substitute(hints.get(name), known)) for name in names]

    def make(self, items: list[Any]) -> Any:
        return self.kind(*items)


class ModelConverter(Converter):
    """A pydantic model, recognised by its methods: perdure never imports pydantic."""

    def __init__(self, kind: Any, arguments: tuple[Any, ...]) -> None:
        self.kind = kind
        self.label = kind.__name__
        self.kinds = frozenset((dict, list, str, int, float))  # a RootModel may be any of them

    def to(self, value: Any) -> Any:
        if type(value) is not self.kind:
            self.refuse(value)
        return ANY.to(value.model_dump(by_alias=True, round_trip=True))

    def read(self, plain: Any, json: bool) -> Any:
        try:
            return self.kind.model_validate(plain)
        except ValueError as error:
            raise self.mismatch(error) from None

    def mismatch(self, error: ValueError) -> Mismatch:
        errors = getattr(error, "errors", None)
        if not callable(errors):
            return Mismatch(self.label, str(error))
        first = errors()[0]
        mismatch = Mismatch(f"{self.label}: {first['msg']}", described(first.get("input")))
        mismatch.path.extend(reversed(first["loc"]))
        return mismatch


def hints_of(kind: Any, local: dict[str, Any] | None = None) -> dict[str, Any]:
    """The annotations of a class or function, without those whose names cannot be resolved."""
    try:
        return typing.get_type_hints(kind, localns=local, include_extras=True)
    except Exception:
        pass
    hints: dict[str, Any] = {}
    for base in reversed(getattr(kind, "__mro__", (kind,))):
        for name, annotation in getattr(base, "__annotations__", {}).items():
            single: Any = types.SimpleNamespace(__annotations__={name: annotation})
            names = vars(sys.modules.get(base.__module__, types))
            try:
                hints[name] = typing.get_type_hints(single, names, local, include_extras=True)[name]
            except Exception:
                hints.pop(name, None)
    return hints


def substitute(annotation: Any, known: dict[Any, Any]) -> Any:
    """The annotation with type parameters replaced: list[T] of Box[int] is list[int]."""
    if not known:
        return annotation
    if isinstance(annotation, typing.TypeVar):
        return known.get(annotation, Any)
    parameters = getattr(annotation, "__parameters__", ())
    if not parameters:
        return annotation
    return annotation[tuple(known.get(parameter, Any) for parameter in parameters)]
