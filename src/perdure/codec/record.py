"""Schemas written as Python classes.

    class OrderCreated(perdure.Record, name="com.acme/OrderCreated@1"):
        order_id: str
        cents: perdure.Nat

A record is frozen, equal by value, built by position or by keyword, and matched by `case OrderCreated(order_id)`. Its
annotations are its schema: the table of what may stand there is `_view` below and in docs/cells/types.md. What may not
is refused when the class is created. A class with a name is referred to by it; one without a name is part of whatever
holds it.

`shape_of(annotation)` gives the `Shape` of a type: its schema, the canonical form of its values, and the way back from
plain data to Python objects. Turning objects into plain data judges nothing: what does not belong passes through, and
`canonical.py`, which judges everything, refuses it.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import operator
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias, dataclass_transform
from uuid import UUID

import msgspec

from perdure.codec import schema as schemas
from perdure.codec.canonical import Convert, Form, NoFit
from perdure.codec.schema import Refs, Schema, check, parse_name
from perdure.errors import BadDefinition, SchemaMismatch

Nat: TypeAlias = Annotated[int, schemas.Nat()]
Time: TypeAlias = Annotated[int, schemas.Time()]  # nanoseconds; a datetime has no more than microseconds
Duration: TypeAlias = Annotated[int, schemas.Duration()]
Hash: TypeAlias = Annotated[str, schemas.Hash()]


class Shape(Form):
    """The form of a Python type: plain data of its objects, and objects of plain data."""

    def __init__(self, view: _View) -> None:
        super().__init__(view.schema, view.refs)
        self._unpack = view.unpack
        self._build = view.build
        self.refuses = view.refuses

    def plain(self, value: Any) -> Any:
        """The canonical plain data of a Python object, or of plain data that spells it."""
        return self.judge(value if self._unpack is None else self._unpack(value))

    def build(self, plain: Any) -> Any:
        """The Python object of canonical plain data. Raises `SchemaMismatch` if a class refuses its values."""
        if self._build is None:
            return plain
        try:
            return self._build(plain)
        except NoFit as refusal:
            raise refusal.error(self.name) from None


def shape_of(annotation: Any, where: str = "") -> Shape:
    """The shape of an annotation. Raises `BadDefinition` if it has none; `where` is the place to name in it."""
    try:
        hash(annotation)
    except TypeError:  # such as Annotated[int, []]
        return Shape(_view(annotation))
    try:
        return _shape_of(annotation)
    except BadDefinition as error:
        raise placed(error, error.path, where) from None


@lru_cache(maxsize=4096)
def _shape_of(annotation: Any) -> Shape:
    return Shape(_view(annotation))


# ---- records --------------------------------------------------------------------------------------------


class RecordMeta(msgspec.StructMeta):
    """Makes the classes of records: frozen structs that know their schema."""

    __perdure_name__: str  # "" if it has none
    __perdure_hints__: dict[str, Any]  # the annotations of its fields, resolved
    __perdure_view__: _View

    def __new__(
        mcls, class_name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, *, name: str = ""
    ) -> RecordMeta:
        place = Place.of(namespace["__module__"])
        if name:
            parsed = _placed_name(name, class_name, place.where)
            if parsed.reserved and not namespace["__module__"].startswith("perdure."):
                expected = "a namespace of your own"
                raise BadDefinition(class_name, expected, name, "sys/* belongs to perdure", place.where)
        try:
            made: RecordMeta = super().__new__(mcls, class_name, bases, namespace, frozen=True)
        except TypeError as error:  # such as a field without a default behind one with
            raise BadDefinition(class_name, "the fields of a record", str(error), where=place.where) from None
        made.__perdure_name__ = name
        made.__perdure_hints__ = {**_inherited_hints(made), **_own_hints(made, place, namespace)}
        made.__perdure_view__ = _record_view(made, place.where)
        return made


class _View(msgspec.Struct, frozen=True):
    """How Python sees a schema."""

    schema: Schema
    refs: Refs = {}
    unpack: Convert | None = None  # of objects, to what `canonical.py` judges; None: they are that already
    build: Convert | None = None  # of canonical plain data, to objects; None: it is one
    hashable: bool = True  # whether the objects may stand in a Python set
    refuses: bool = False  # whether `build` may refuse canonical plain data


class Place(msgspec.Struct, frozen=True):
    """Where a class statement stands, and the names that it sees."""

    where: str
    globals: dict[str, Any]
    locals: dict[str, Any]

    @staticmethod
    def of(module: str) -> Place:
        frame = inspect.currentframe()
        while frame is not None and frame.f_globals.get("__name__") != module:
            frame = frame.f_back
        if frame is None:  # made by a call somewhere else, such as types.new_class
            return Place(module, vars(sys.modules.get(module, types)), {})
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        names: dict[str, Any] = {}
        outer: types.FrameType | None = frame
        while outer is not None and outer.f_globals is frame.f_globals and outer.f_code.co_name != "<module>":
            names = {**outer.f_locals, **names}
            outer = outer.f_back
        return Place(where, frame.f_globals, names)


def _placed_name(name: str, class_name: str, where: str) -> schemas.Name:
    try:
        return parse_name(name, class_name)
    except BadDefinition as error:
        raise placed(error, class_name, where) from None


def placed(error: BadDefinition, path: str, where: str) -> BadDefinition:
    """The same error, of this part and at this place."""
    return BadDefinition(path, error.expected, error.found, error.hint, where or error.where)


def _inherited_hints(kind: type) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__[1:]):
        hints.update(base.__dict__.get("__perdure_hints__", {}))
    return hints


def _own_hints(kind: type, place: Place, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of a class, with the names in them looked up where the class stands."""
    hints: dict[str, Any] = {}
    for field, annotation in inspect.get_annotations(kind).items():
        single = type(kind.__name__, (), {"__annotations__": {field: annotation}})
        try:
            known = {**place.locals, **namespace}
            hints[field] = typing.get_type_hints(single, place.globals, known, include_extras=True)[field]
        except Exception as error:
            path, found = f"{kind.__name__}.{field}", f"{annotation!r}, which cannot be resolved: {error}"
            raise BadDefinition(path, "a type", found, "define it before this class", place.where) from None
    return hints


def _record_view(kind: Any, where: str) -> _View:
    fields: dict[str, _View] = {}
    refs: dict[str, Schema] = {}
    for field in kind.__struct_fields__:  # in the order of the constructor
        path = f"{kind.__name__}.{field}"
        try:
            schemas.field_name(field, path)
            fields[field] = _view(kind.__perdure_hints__[field])
            merge(refs, fields[field].refs)
        except BadDefinition as error:
            raise placed(error, path, where) from None
    schema: Schema = schemas.Record({field: view.schema for field, view in fields.items()})
    try:
        if kind.__perdure_name__:
            merge(refs, {kind.__perdure_name__: schema})
            schema = schemas.Ref(kind.__perdure_name__)
        check(schema, refs)
    except BadDefinition as error:
        raise placed(error, kind.__name__, where) from None
    _check_defaults(kind, fields, where)
    hashable = all(view.hashable for view in fields.values())
    refuses = hasattr(kind, "__post_init__") or any(view.refuses for view in fields.values())
    return _View(schema, refs, _unpack_record(kind, fields), _build_record(kind, fields), hashable, refuses)


def _check_defaults(kind: Any, fields: dict[str, _View], where: str) -> None:
    defaults = kind.__struct_defaults__  # of the last fields; a factory, such as of [], is not called here
    for name, default in zip(kind.__struct_fields__[-len(defaults) :] if defaults else (), defaults, strict=True):
        if type(default).__module__.startswith("msgspec"):
            continue
        try:
            Shape(fields[name]).plain(default)
        except SchemaMismatch as error:
            path = f"{kind.__name__}.{name}{error.path[1:]}"
            raise BadDefinition(path, error.expected, f"the default {error.found}", error.hint, where) from None


def _unpack_record(kind: type, fields: dict[str, _View]) -> Convert:
    names = tuple(fields)
    values_of = operator.attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, n) for n in names]
    deeper = [(name, view.unpack) for name, view in fields.items() if view.unpack is not None]

    def unpack(value: Any) -> Any:
        if type(value) is not kind:
            return value
        plain = dict(zip(names, values_of(value), strict=True))
        for name, inner in deeper:
            plain[name] = inner(plain[name])
        return plain

    return unpack


def _build_record(kind: type, fields: dict[str, _View]) -> Convert:
    builders = [(name, view.build) for name, view in fields.items()]
    label = kind.__name__

    def build(plain: Any) -> Any:
        values: list[Any] = []
        name = ""
        try:
            for name, inner in builders:  # the handler wants to know where it stopped
                values.append(plain[name] if inner is None else inner(plain[name]))
        except NoFit as refusal:
            raise refusal.below(f".{name}") from None
        try:
            return kind(*values)
        except Exception as error:  # the class's own checks, in __post_init__
            raise NoFit(label, f"values that it refuses: {error}") from None

    return build


def merge(refs: dict[str, Schema], more: Refs) -> None:
    """Adds schemas by their names. Raises `BadDefinition` if one of the names has another schema already."""
    for name, schema in more.items():
        if refs.setdefault(name, schema) != schema:
            hint = "a name has one schema for ever: use the next version"
            raise BadDefinition("$", f"one schema of the name {name}", "two that differ", hint)


# ---- what an annotation may be --------------------------------------------------------------------------


def _view(annotation: Any) -> _View:
    """The table of what may stand in a record. Anything else is refused."""
    if annotation is None or annotation is type(None):
        return _View(schemas.Unit())
    if isinstance(annotation, typing.NewType):
        return _view(annotation.__supertype__)
    if type(annotation).__name__ == "TypeAliasType":  # `type X = ...` of Python 3.12
        return _view(annotation.__value__)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        marked = next((mark for mark in annotation.__metadata__ if isinstance(mark, _MARKS)), None)
        return _view(arguments[0]) if marked is None else _View(marked)
    if origin is typing.Union or origin is types.UnionType:
        return _union(arguments)
    if origin is typing.Literal:
        return _literal(arguments)
    if origin is list and len(arguments) == 1:
        return _list(_view(arguments[0]))
    if origin in (set, frozenset) and len(arguments) == 1:
        return _set(origin, _view(arguments[0]), annotation)
    if origin is dict and len(arguments) == 2:
        return _dict(*map(_view, arguments))
    if isinstance(annotation, type):
        if annotation in _SCALARS:
            return _SCALARS[annotation]
        if issubclass(annotation, Record) and annotation is not Record:
            return annotation.__perdure_view__
    raise BadDefinition("$", _ALLOWED, _spelled(annotation), _advice(annotation))


def _union(arguments: tuple[Any, ...]) -> _View:
    arms = [argument for argument in arguments if argument is not type(None)]
    view = _view(arms[0]) if len(arms) == 1 else _variant(arms)
    return _option(view) if len(arms) < len(arguments) else view


def _option(view: _View) -> _View:
    unpack, build = _unless_none(view.unpack), _unless_none(view.build)
    return _View(schemas.Option(view.schema), view.refs, unpack, build, view.hashable, view.refuses)


def _unless_none(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _variant(kinds: list[Any]) -> _View:
    """A union of records: each arm has the short name of its class."""
    arms: dict[str, _View] = {}
    tags: dict[type, str] = {}
    refs: dict[str, Schema] = {}
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Record)):
            raise BadDefinition("$", "a union of records, or of one type and None", f"{_spelled(kind)} in a union")
        view, tag = _view(kind), short_name(kind)
        if tag in arms:
            hint = "name one of them otherwise, or put it into a field of another record"
            raise BadDefinition("$", "a union of records with different names", f"two of the name {tag}", hint)
        arms[tag], tags[kind] = view, tag
        merge(refs, view.refs)

    def unpack(value: Any) -> Any:
        tag = tags.get(type(value))
        if tag is None:
            return value
        inner = arms[tag].unpack
        return {"$tag": tag, "$value": value if inner is None else inner(value)}

    def build(plain: Any) -> Any:
        inner = arms[plain["$tag"]].build
        try:
            return plain["$value"] if inner is None else inner(plain["$value"])
        except NoFit as refusal:
            raise refusal.below(".$value") from None

    schema = schemas.Variant({tag: view.schema for tag, view in arms.items()})
    hashable, refuses = all(view.hashable for view in arms.values()), any(view.refuses for view in arms.values())
    return _View(schema, refs, unpack, build, hashable, refuses)


def short_name(kind: type[Record]) -> str:
    """What an arm of this class is called: `OrderCreated`."""
    name = kind.__perdure_name__
    return parse_name(name).name if name else kind.__name__


def _literal(values: tuple[Any, ...]) -> _View:
    """Words: a variant of arms without a value."""
    for value in values:
        if type(value) is not str:
            raise BadDefinition("$", "a Literal of text", f"the value {value!r}", "use int, bool or other words")
        schemas.arm_name(value, "$")

    def unpack(value: Any) -> Any:
        return {"$tag": value, "$value": None} if isinstance(value, str) else value

    schema = schemas.Variant({value: schemas.Unit() for value in values})
    return _View(schema, {}, unpack, operator.itemgetter("$tag"))


def _list(item: _View) -> _View:
    def unpack(value: Any) -> Any:
        return [item.unpack(inner) for inner in value] if isinstance(value, list | tuple) else value  # type: ignore[misc]

    unpack_all = None if item.unpack is None else unpack
    build = _build_items(list, item.build)
    return _View(schemas.List(item.schema), item.refs, unpack_all, build, False, item.refuses)


def _set(kind: type, item: _View, annotation: Any) -> _View:
    if not item.hashable:
        hint = "lists, dicts and sets cannot stand in a set of Python: use a list, or frozenset inside"
        raise BadDefinition("$", "a set of something that can be hashed", _spelled(annotation), hint)

    def unpack(value: Any) -> Any:
        if isinstance(value, set | frozenset | list | tuple):
            return [item.unpack(inner) for inner in value]  # type: ignore[misc]
        return value

    made = FrozenSetInOrder if kind is frozenset else SetInOrder
    build = _build_items(made, item.build) or made
    unpack_all = None if item.unpack is None else unpack
    return _View(schemas.Set(item.schema), item.refs, unpack_all, build, kind is frozenset, item.refuses)


class SetInOrder(set[Any]):
    """A set that is walked in one order in every process: Python's own order depends on a seed of the process."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=repr))


class FrozenSetInOrder(frozenset[Any]):
    """The same for frozen sets."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=repr))


def _stays(kind: Any, base: Any, name: str) -> None:
    """What a set makes of itself and others is walked in order, too."""
    plain = getattr(base, name)

    def method(self: Any, *others: Any) -> Any:
        found = plain(self, *others)
        return found if found is NotImplemented else kind(found)

    setattr(kind, name, method)


for _kind, _base in ((SetInOrder, set), (FrozenSetInOrder, frozenset)):
    for _name in ("and", "or", "sub", "xor", "rand", "ror", "rsub", "rxor"):
        _stays(_kind, _base, f"__{_name}__")
    for _name in ("copy", "difference", "intersection", "symmetric_difference", "union"):
        _stays(_kind, _base, _name)


def _build_items(kind: type, build: Convert | None) -> Convert | None:
    if build is None:
        return None

    def build_all(plain: Any) -> Any:
        items: list[Any] = []
        try:
            for inner in plain:
                items.append(build(inner))
        except NoFit as refusal:
            raise refusal.below(f"[{len(items)}]") from None
        return items if kind is list else kind(items)

    return build_all


def _dict(key: _View, value: _View) -> _View:
    if not isinstance(key.schema, schemas.KEYS):
        expected = "int, Nat, str, UUID or Hash as the key of a dict"
        hint = "use a list of records with two fields"
        raise BadDefinition("$", expected, schemas.label(key.schema), hint)
    key_build = _uuid_of_key if isinstance(key.schema, schemas.Uuid) else None

    def unpack(plain: Any) -> Any:
        return {k: value.unpack(v) for k, v in plain.items()} if isinstance(plain, dict) else plain  # type: ignore[misc]

    def build(plain: Any) -> Any:
        built: dict[Any, Any] = {}
        name: Any = None
        try:
            for name, inner in plain.items():  # the handler wants to know where it stopped
                built[name if key_build is None else key_build(name)] = (
                    inner if value.build is None else value.build(inner)
                )
        except NoFit as refusal:
            raise refusal.below(f"[{name!r}]"[:60]) from None
        return built

    schema = schemas.Map(key.schema, value.schema)
    unpack_all = None if value.unpack is None else unpack
    build_all = None if key_build is value.build is None else build
    return _View(schema, value.refs, unpack_all, build_all, False, value.refuses)


def _uuid_of_key(plain: bytes) -> UUID:
    return UUID(bytes=plain)


def _build_datetime(nanoseconds: int) -> datetime:
    if nanoseconds % 1000:
        hint = "a datetime holds no more: annotate the field with perdure.Time"
        raise NoFit("a time of whole microseconds", f"{nanoseconds} nanoseconds", hint)
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def _build_timedelta(nanoseconds: int) -> timedelta:
    if nanoseconds % 1000:
        hint = "a timedelta holds no more: annotate the field with perdure.Duration"
        raise NoFit("a duration of whole microseconds", f"{nanoseconds} nanoseconds", hint)
    return timedelta(microseconds=nanoseconds // 1000)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MARKS: Final = (schemas.Nat, schemas.Time, schemas.Duration, schemas.Hash)
_SCALARS: Final[dict[type, _View]] = {
    bool: _View(schemas.Bool()),
    int: _View(schemas.Int()),
    Decimal: _View(schemas.Dec128()),
    bytes: _View(schemas.Bytes()),
    str: _View(schemas.Text()),
    datetime: _View(schemas.Time(), build=_build_datetime, refuses=True),
    timedelta: _View(schemas.Duration(), build=_build_timedelta, refuses=True),
    UUID: _View(schemas.Uuid()),
}

# ---- refusing the rest ----------------------------------------------------------------------------------

_ALLOWED: Final = (
    "bool, int, perdure.Nat, Decimal, bytes, str, datetime, perdure.Time, timedelta, perdure.Duration, UUID, "
    "perdure.Hash, None, list[T], set[T], frozenset[T], dict[K, V], T | None, a Record, a union of Records, "
    "or a Literal of text"
)


def _spelled(annotation: Any) -> str:
    return annotation.__qualname__ if type(annotation) is type else str(annotation)


def _advice(annotation: Any) -> str:
    kind = typing.get_origin(annotation) or annotation
    for known, advice in _ADVICE:
        if kind is known:
            return advice
    if isinstance(kind, type):
        if issubclass(kind, enum.Enum):
            return "write Literal['a', 'b']"
        if dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct) or kind is Record:
            return "write a subclass of perdure.Record"
    return ""


_ADVICE: Final[tuple[tuple[Any, str], ...]] = (
    (float, "floats have no exact form: use Decimal, or int of a small unit such as cents"),
    (list, "say of what: list[str]"),
    (set, "say of what: set[str]"),
    (frozenset, "say of what: frozenset[str]"),
    (dict, "say of what: dict[str, int]"),
    (tuple, "use list[T], or a Record with a field for each place"),
    (date, "use datetime, or str"),
    (Any, "every field has a type"),
    (object, "every field has a type"),
)

# ---- the base, last because making it needs all of the above ----------------------------------------


if TYPE_CHECKING:
    # What a type checker needs to know. As a subclass of msgspec.Struct it would have to be told of two transforms.
    @dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
    class Record:
        __perdure_name__: ClassVar[str]
        __perdure_view__: ClassVar[_View]

        def __init_subclass__(cls, name: str = "") -> None: ...

else:

    class Record(msgspec.Struct, metaclass=RecordMeta):
        """The base of every class that is a schema."""
