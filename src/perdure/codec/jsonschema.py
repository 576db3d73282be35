"""JSON Schema 2020-12: made from Python annotations, and data checked by it.

    schema_of(Purchase)           the schema of an annotation; a form has it, a definition keeps it
    read(schema, data)            the data with defaults and typed values, or `Misfit` with every problem
    to_json(data)                 typed values as the texts that JSON has for them

JSON has no Decimal, datetime, date, timedelta, UUID and bytes. A schema says `{"type": "string", "format": ...}` for
them; `read` gives the typed value, whether the text came or the value itself. Nothing is fetched for a schema, and its
patterns take linear time.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from base64 import b64encode
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec

from perdure.codec.convert import from_json, to_plain
from perdure.codec.converters.records import hints_of, substitute
from perdure.codec.converters.table import _DICTS, _LISTS, _SETS
from perdure.errors import BadSchema, Misfit, NotConvertible, NotPlain, Problem

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

FORMATS: Final[dict[str, type]] = {
    "decimal": Decimal,
    "date-time": datetime,
    "date": date,
    "duration": timedelta,
    "uuid": UUID,
    "byte": bytes,
}
"""Formats whose texts become typed values. `byte` is base64."""

HOPS_MAX: Final = 32
"""So many alternatives of alternatives are followed for one piece of data: a schema may refer to itself."""

_FORMAT_OF: Final = {kind: name for name, kind in FORMATS.items()}
_SCALARS: Final[dict[Any, dict[str, Any]]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
    **{kind: {"type": "string", "format": name} for kind, name in _FORMAT_OF.items()},
}
_META: Final = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "min_length": "minLength",
    "max_length": "maxLength",
    "title": "title",
    "description": "description",
    "examples": "examples",
}
_LENGTH_OF: Final = {"array": "Items", "object": "Properties"}


class Field(msgspec.Struct, frozen=True):
    """What a form says of a field, beside its type: `Annotated[str, perdure.Field(title="Why", widget="textarea")]`."""

    title: str = ""
    help: str = ""
    widget: str = ""

    def keywords(self) -> dict[str, Any]:
        found = {"title": self.title, "description": self.help, "x-widget": self.widget}
        return {name: value for name, value in found.items() if value}


# ---- annotations to schemas ----------------------------------------------------------------------------------------


def schema_of(annotation: Any) -> dict[str, Any]:
    """The schema of an annotation. A mapping is taken for a schema, and checked to be one."""
    if isinstance(annotation, dict):
        return checked(annotation)
    made = _Maker()
    schema = made.of(annotation)
    if made.definitions:
        schema = {**schema, "$defs": {name: made.definitions[name] for name in sorted(made.definitions)}}
    return schema


class _Maker:
    """Makes schemas. A class that refers to itself gets a definition of its own, others stand where they are used."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._inside: list[Any] = []
        self._recursive: set[Any] = set()

    def of(self, annotation: Any) -> dict[str, Any]:
        if annotation is None:
            return dict(_SCALARS[type(None)])
        if annotation in (Any, object):
            return {}
        if annotation in _SCALARS:
            return dict(_SCALARS[annotation])
        if isinstance(annotation, typing.NewType):
            return self.of(annotation.__supertype__)
        if type(annotation).__name__ == "TypeAliasType":
            return self._named(annotation, annotation.__name__, lambda: self.of(annotation.__value__))
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            return self._annotated(arguments)
        if origin is typing.Union or origin is types.UnionType:
            return self._union(arguments)
        if origin is typing.Literal:
            return _choice([to_json(to_plain(value)) for value in arguments])
        if origin in (typing.Required, typing.NotRequired, typing.Final):
            return self.of(arguments[0])
        kind = origin or annotation
        if kind in _LISTS:
            return {"type": "array", **self._items(arguments)}
        if kind in _SETS:
            return {"type": "array", **self._items(arguments), "uniqueItems": True}
        if kind is tuple:
            return self._tuple(arguments)
        if kind in _DICTS:
            schema: dict[str, Any] = {"type": "object"}
            if arguments and arguments[1] is not Any:
                schema["additionalProperties"] = self.of(arguments[1])
            return schema
        if isinstance(kind, type):
            return self._class(kind, arguments)
        raise BadSchema(
            f"{annotation!r} has no JSON Schema; use a dataclass, a TypedDict, an enum, scalars, list or dict"
        )

    def _items(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        return {"items": self.of(arguments[0])} if arguments and arguments[0] is not Any else {}

    def _tuple(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return {"type": "array", **self._items(arguments)}
        if not arguments:
            return {"type": "array"}
        count = len(arguments)
        columns = [self.of(argument) for argument in arguments]
        return {"type": "array", "prefixItems": columns, "items": False, "minItems": count}

    def _union(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        arms = [self.of(argument) for argument in sorted(arguments, key=lambda each: each is type(None))]
        return {"anyOf": arms}

    def _annotated(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        schema = self.of(arguments[0])
        for extra in arguments[1:]:
            if isinstance(extra, Field):
                schema |= extra.keywords()
            elif isinstance(extra, msgspec.Meta):
                schema |= _meta(extra, schema.get("type"))
        return schema

    def _class(self, kind: type, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if issubclass(kind, enum.Enum):
            return _choice([to_json(to_plain(member)) for member in kind])
        if callable(getattr(kind, "model_json_schema", None)):  # pydantic knows its own best
            return self._pydantic(kind)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._tuple(tuple(hints_of(kind).values()))
        fields = _fields(kind)
        if fields is None:
            raise BadSchema(
                f"{kind.__name__} has no JSON Schema; use a dataclass, a TypedDict, an enum, scalars, list or dict"
            )
        known = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=False))
        return self._named(kind, kind.__name__, lambda: self._record(fields, known))

    def _record(self, fields: list[tuple[str, Any, bool, Any]], known: dict[Any, Any]) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        for name, annotation, _, default in fields:
            properties[name] = self.of(substitute(annotation, known))
            if default is not _NO_DEFAULT:
                properties[name]["default"] = default
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required := [name for name, _, needed, _ in fields if needed]:
            schema["required"] = required
        return {**schema, "additionalProperties": False}

    def _named(self, kind: Any, name: str, make: Any) -> dict[str, Any]:
        if kind in self._inside:
            self._recursive.add(kind)
            return {"$ref": f"#/$defs/{name}"}
        self._inside.append(kind)
        schema: dict[str, Any] = make()
        self._inside.pop()
        if kind not in self._recursive:
            return schema
        self.definitions[name] = schema
        return {"$ref": f"#/$defs/{name}"}

    def _pydantic(self, kind: Any) -> dict[str, Any]:
        schema: dict[str, Any] = kind.model_json_schema()
        self.definitions |= schema.pop("$defs", {})
        return schema


_NO_DEFAULT: Final = object()


def _fields(kind: Any) -> list[tuple[str, Any, bool, Any]] | None:
    """Name, annotation, whether it must be given, and the default as JSON, of each field; None: the class has none."""
    hints = hints_of(kind)
    if dataclasses.is_dataclass(kind):
        return [
            (each.name, hints.get(each.name, Any), *_default(each.default, each.default_factory, dataclasses.MISSING))
            for each in dataclasses.fields(kind)
            if each.init
        ]
    if typing.is_typeddict(kind):
        required = kind.__required_keys__
        return [(name, hint, name in required, _NO_DEFAULT) for name, hint in hints.items()]
    if issubclass(kind, msgspec.Struct):
        return [
            (
                each.encode_name,
                hints.get(each.name, Any),
                *_default(each.default, each.default_factory, msgspec.NODEFAULT),
            )
            for each in msgspec.structs.fields(kind)
        ]
    return None


def _default(value: Any, factory: Any, missing: Any) -> tuple[bool, Any]:
    if value is missing and factory is missing:
        return True, _NO_DEFAULT
    try:
        return False, to_json(to_plain(factory() if value is missing else value))
    except (NotPlain, NotConvertible):
        return False, _NO_DEFAULT


def _meta(meta: msgspec.Meta, kind: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, keyword in _META.items():
        value = getattr(meta, name)
        if value is None:
            continue
        if name in ("min_length", "max_length") and kind in _LENGTH_OF:
            keyword = keyword.replace("Length", _LENGTH_OF[kind])  # noqa: PLW2901
        found[keyword] = value
    return found | (meta.extra_json_schema or {})


def _choice(values: list[Any]) -> dict[str, Any]:
    kinds = {type(value) for value in values}
    schema = dict(_SCALARS[kinds.pop()]) if len(kinds) == 1 and kinds <= {str, int} else {}
    return {**schema, "enum": values}


# ---- data ----------------------------------------------------------------------------------------------------------


def to_json(data: Any) -> Any:
    """Plain data with the texts that JSON has for typed values."""
    if isinstance(data, dict):
        return {name: to_json(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [to_json(item) for item in data]
    if isinstance(data, datetime | date | timedelta | UUID):
        return json.loads(msgspec.json.encode(data))
    if isinstance(data, Decimal):
        return str(data)
    return b64encode(data).decode() if isinstance(data, bytes) else data


def read(schema: dict[str, Any], data: Any) -> Any:
    """The data as the schema means it: defaults filled in, texts with a format as typed values.

    Raises `Misfit` with every problem, each with the JSON pointer of its place.
    """
    plain = _with_defaults(schema, to_json(data), schema)
    try:
        problems = [_problem(error) for error in _errors(schema, plain)]
    except ValueError:
        problems = _odd_keys(plain, "")
        if not problems:
            raise
    if problems:
        raise Misfit(problems)
    return _typed(schema, plain, schema)


def _odd_keys(plain: Any, where: str) -> list[Problem]:
    """Keys that no JSON can have."""
    if isinstance(plain, dict):
        odd = [Problem(where, f"a key is a text, found {key!r:.80}") for key in plain if not isinstance(key, str)]
        return odd + [each for key, value in plain.items() for each in _odd_keys(value, where + _token(key))]
    if isinstance(plain, list):
        return [each for place, value in enumerate(plain) for each in _odd_keys(value, f"{where}/{place}")]
    return []


def checked(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema itself, if it is one. Raises `BadSchema`, which says what is wrong with it."""
    try:
        _validator(_text(schema))
    except ValueError as error:
        raise BadSchema(f"it is not a JSON Schema: {str(error).partition(chr(10))[0]}") from None
    return schema


def _errors(schema: dict[str, Any], plain: Any) -> Iterator[Any]:
    found: Iterator[Any] = _validator(_text(schema)).iter_errors(plain)
    return found


def _text(schema: dict[str, Any]) -> str:
    try:
        return json.dumps(schema, sort_keys=True)
    except (TypeError, RecursionError) as error:
        raise BadSchema(f"a schema is plain JSON: {error}") from None


@lru_cache(maxsize=512)
def _validator(text: str) -> Any:
    import jsonschema_rs  # half a megabyte of code: only where a schema is used

    return jsonschema_rs.validator_for(
        json.loads(text),
        formats={name: _checks(kind) for name, kind in FORMATS.items()},
        validate_formats=True,
        pattern_options=jsonschema_rs.RegexOptions(),
        offline=True,
    )


def _checks(kind: type) -> Any:
    def fits(text: str) -> bool:
        try:
            from_json(text, kind)
        except NotConvertible:
            return False
        return True

    return fits


def _problem(error: Any) -> Problem:
    return Problem("".join(map(_token, error.instance_path)), str(error.message))


def _token(part: Any) -> str:
    """A part of a JSON pointer."""
    return f"/{str(part).replace('~', '~0').replace('/', '~1')}"


def _resolved(schema: Any, root: dict[str, Any]) -> Any:
    """The schema that a local reference means. References to other documents were refused when it was checked."""
    for _ in range(64):
        if not isinstance(schema, dict) or not str(schema.get("$ref", "")).startswith("#/"):
            break
        found: Any = root
        for part in schema["$ref"][2:].split("/"):
            found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
        schema = found
    return schema


def _with_defaults(schema: Any, plain: Any, root: dict[str, Any], hops: int = 0) -> Any:
    schema = _resolved(schema, root)
    if not isinstance(schema, dict):
        return plain
    if isinstance(plain, dict) and isinstance(schema.get("properties"), dict):
        filled = dict(plain)
        for name, part in schema["properties"].items():
            if name in filled:
                filled[name] = _with_defaults(part, filled[name], root)
            elif isinstance(part, dict) and "default" in part:
                filled[name] = part["default"]
        return filled
    if isinstance(plain, list) and isinstance(schema.get("items"), dict):
        return [_with_defaults(schema["items"], item, root) for item in plain]
    arm = _arm(schema, plain, root) if hops < HOPS_MAX else None
    return plain if arm is None else _with_defaults(arm, plain, root, hops + 1)


def _typed(schema: Any, plain: Any, root: dict[str, Any], hops: int = 0) -> Any:
    schema = _resolved(schema, root)
    if not isinstance(schema, dict):
        return plain
    if isinstance(plain, str) and schema.get("format") in FORMATS:
        return from_json(plain, FORMATS[schema["format"]])
    if isinstance(plain, int) and schema.get("type") == "number" and not isinstance(plain, bool):
        return float(plain)
    if isinstance(plain, dict) and (schema.get("properties") or schema.get("additionalProperties")):
        parts, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        return {name: _typed(parts.get(name, rest), value, root) for name, value in plain.items()}
    if isinstance(plain, list) and (schema.get("items") or schema.get("prefixItems")):
        columns = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        return [_typed(columns[at] if at < len(columns) else rest, item, root) for at, item in enumerate(plain)]
    arm = _arm(schema, plain, root) if hops < HOPS_MAX else None
    return plain if arm is None else _typed(arm, plain, root, hops + 1)


def _arm(schema: dict[str, Any], plain: Any, root: dict[str, Any]) -> Any:
    """The first of several alternatives that the data fits."""
    arms = schema.get("anyOf") or schema.get("oneOf") or ()
    definitions = root.get("$defs", {})
    for arm in arms:
        if isinstance(arm, dict) and next(_errors({**arm, "$defs": definitions}, plain), None) is None:
            return arm
    return None
