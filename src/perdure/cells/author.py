"""What a person writes: effects, receipts, the reducer and what it returns. Definitions only: nothing runs here.

    @perdure.cell("com.acme/order@1", key="order_id", effects=[Charge])
    def order(state: Order | None, event: OrderCreated | perdure.ReceiptOf[Charge], ctx: perdure.CellContext): ...

The annotations are the definition: from them come the schemas, and from the schemas the manifest.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeVar

import msgspec

from perdure.codec.canonical import Form
from perdure.codec.converters.frame import described
from perdure.codec.record import Place, Record, RecordMeta, Shape, Time, merge, placed, shape_of
from perdure.codec.schema import Name, Ref, Schema, Text, Variant, parse_name, resolve
from perdure.codec.schema import Record as RecordSchema
from perdure.errors import BadDefinition, SchemaMismatch
from perdure.kernel.receipt import Failure, ReceiptSignature, ReceiptStatus

from .manifest import NANOSECONDS, SECONDS, CellDef, EffectDef, Manifest, Subscription, effect_options, is_timeout
from .policy import POLICY

E = TypeVar("E", bound="Effect")

ASYNC: Final = "a reducer decides at once; what takes time is an effect"


class EffectMeta(RecordMeta):
    """Makes the classes of effects: records with options of their own."""

    def __new__(  # type: ignore[no-untyped-def]
        mcls, class_name, bases, namespace, /, *, name="", once=False, timeout=None, outside=""
    ):
        made = super().__new__(mcls, class_name, bases, namespace, name=name)
        try:
            options = effect_options({"once": once, "timeout": timeout, "outside": outside}, class_name)
        except BadDefinition as error:
            raise placed(error, error.path, Place.of(namespace["__module__"]).where) from None
        type.__setattr__(made, "__perdure_options__", options)
        return made


class Effect(Record, metaclass=EffectMeta):
    """A request for something outside: its fields are the parameters, its class `Receipt` is the answer.

    Its class `Frame`, if there is one, is the type of the pieces that its handler sends before that: `FrameOf`.

    once: it is handed out one time only; when the process dies under it, the receipt is `unknown`. timeout:
    nanoseconds. outside: the name of an executor outside of this process, which answers with a signed receipt.
    """

    Receipt: ClassVar[Any] = None
    Frame: ClassVar[Any] = None
    __perdure_options__: ClassVar[dict[str, Any]]

    if TYPE_CHECKING:

        def __init_subclass__(
            cls, name: str = "", once: bool = False, timeout: int | None = None, outside: str = ""
        ) -> None: ...

    def options(self, *, key: str = "", issuer: str = "", timeout: int | None = None) -> Request:
        """The same effect, with an idempotency key of yours, a reference that the receipt echoes, a timeout (ns).

        Without a key each effect that a cell asks for has its own, also one that tries again what failed.
        """
        return Request(self, key, issuer, timeout)


class Request(msgspec.Struct, frozen=True):
    """An effect with options. See `Effect.options`."""

    effect: Any
    key: str = ""
    issuer: str = ""
    timeout: int | None = None

    def __post_init__(self) -> None:
        _OPTIONS.plain({"key": self.key, "issuer": self.issuer})
        if self.timeout is not None and not is_timeout(self.timeout):
            raise SchemaMismatch("$.timeout", NANOSECONDS, described(self.timeout), SECONDS, _OPTIONS.name)


_OPTIONS: Final = Form(Ref("options"), {"options": RecordSchema({"key": Text(), "issuer": Text()})})


class Datum(msgspec.Struct, frozen=True):
    """An event or an effect by the name of its definition, with plain data: for reducers without Python types."""

    name: str
    value: Any


class ReceiptOf(Generic[E]):
    """The answer to an effect that this cell asked for. `value` is there if it is ok, `error` if not.

    Who answered is the `executor`: "effects" for the handlers of the engine, "kernel" for timers, children and
    deadlines, else the name of an executor outside, with what it cost and the signature. `cell`, `key`, `intent` and
    `entry` say where it was asked, `params_hash` for what, and `issuer` is the reference that was given then.
    """

    __slots__ = (
        "cell",
        "cost",
        "effect",
        "entry",
        "error",
        "executor",
        "intent",
        "issuer",
        "key",
        "params",
        "params_hash",
        "signature",
        "status",
        "value",
    )
    __match_args__ = ("effect", "value")

    def __init__(
        self,
        *,
        effect: Any,
        status: ReceiptStatus,
        value: Any = None,
        error: Failure | None = None,
        params: Any = None,
        intent: str = "",
        entry: int = 0,
        issuer: str = "",
        cell: str = "",
        key: str = "",
        executor: str = "",
        params_hash: str = "",
        cost: Any = None,
        signature: ReceiptSignature | None = None,
    ) -> None:
        self.effect = effect
        self.status: ReceiptStatus = status
        self.value = value
        self.error = error
        self.params = params
        self.intent = intent
        self.entry = entry
        self.issuer = issuer
        self.cell = cell
        self.key = key
        self.executor = executor
        self.params_hash = params_hash
        self.cost = cost
        self.signature = signature

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def __repr__(self) -> str:
        name = getattr(self.effect, "__name__", self.effect)
        return f"ReceiptOf[{name}](status={self.status!r}, value={self.value!r}, params={self.params!r})"


class FrameOf(msgspec.Struct, Generic[E], frozen=True, kw_only=True):
    """A piece of the answer to an effect that this cell asked for, sent by its handler before the receipt.

    `value` is what the handler sent, `number` counts the frames of one call from 1. The other fields are as in
    `ReceiptOf`.
    """

    effect: Any
    value: Any
    number: int = 1
    params: Any = None
    intent: str = ""
    entry: int = 0
    issuer: str = ""
    cell: str = ""
    key: str = ""
    params_hash: str = ""


class Rejected(Record, name="sys/Rejected@1"):
    """A receipt or a frame cannot be read. A cell whose event type has this hears of it; any other one fails."""

    code: str
    message: str
    effect: str
    intent: str
    payload_hash: str
    payload_size: int


class Next(msgspec.Struct, frozen=True):
    """What a reducer returns: the next state (None deletes the cell), domain events, effects."""

    state: Any
    events: Iterable[Any] = ()
    effects: Iterable[Any] = ()
    annotations: Any = None


class CellContext(msgspec.Struct, frozen=True):
    """What a reducer may know besides state and event. All of it is recorded, or derived from what is."""

    now: Time  # what the clock showed, nanoseconds since 1970; earlier than before if the clock was set back
    height: int  # the number of this entry in the journal
    entropy: bytes  # 64 bytes
    event_hash: str
    manifest_hash: str  # of the manifest in force when this cell was made, or went over to another definition
    cell: str
    cell_hash: str
    key: str
    mode: Literal["keyed", "unkeyed"]
    correlation: str = ""
    logical_now: Time = 0  # the same, but never earlier than before


class Cell:
    """A reducer with its definition. Made by `@cell`; called, it is the plain function."""

    policy = POLICY

    def __init__(
        self,
        function: Callable[..., Any],
        name: Name,
        key: Any,
        effects: tuple[type[Effect], ...],
        *,
        annotations: type[Record] | None = None,
        migrate: Callable[..., Any] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.__name__: str = function.__name__
        self.name = str(name)
        self.where = where(function)
        self.effects = self._effects(effects)
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise BadDefinition(function.__name__, "a plain function", "async def or yield", ASYNC, self.where)
        parameters = list(inspect.signature(function).parameters)
        if len(parameters) not in (2, 3):
            found = f"{len(parameters)} parameters"
            raise BadDefinition(
                function.__name__, "a reducer of (state, event) or (state, event, ctx)", found, "", self.where
            )
        self.context = len(parameters) == 3
        hints = self._hints()
        self.state = self._state(parameters[0], hints.get(parameters[0]))
        self.events, receipts, frames, self.takes_rejected = self._event(parameters[1], hints.get(parameters[1]))
        self._check_receipts(receipts)
        self.frames = self._check_frames(frames)
        self.keys = self._keys(key)
        self.annotations = None if annotations is None else shape_of(annotations, self.where)
        self.migrate = migrate

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<cell {self.name}>"

    @property
    def workflow(self) -> str:
        """The name of its instances: that of the definition, without the version."""
        return parse_name(self.name).workflow

    # ---- what its annotations say ----------------------------------------------------------------------------

    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.function, include_extras=True)
        except Exception as error:
            hint = "define the classes before the cell, in the same module"
            raise BadDefinition(
                self.__name__, "annotations", f"what cannot be resolved: {error}", hint, self.where
            ) from None

    def _effects(self, effects: tuple[type[Effect], ...]) -> dict[str, type[Effect]]:
        found: dict[str, type[Effect]] = {}
        for effect in effects:
            name = effect_name(effect, self.where)
            if found.setdefault(name, effect) is not effect:
                raise BadDefinition("effects", "each effect once", f"two of the name {name}", "", self.where)
        return found

    def _state(self, parameter: str, hint: Any) -> Shape:
        arms = members(hint)
        if type(None) not in arms or len(arms) != 2:
            found = "no annotation" if hint is None else str(hint)
            raise BadDefinition(
                parameter, "a record or None, such as `Order | None`", found, "None: there is no cell", self.where
            )
        return shape_of(next(arm for arm in arms if arm is not type(None)), self.where)

    def _event(
        self, parameter: str, hint: Any
    ) -> tuple[dict[str, type[Record]], set[type[Effect]], set[type[Effect]], bool]:
        events: dict[str, type[Record]] = {}
        receipts: set[type[Effect]] = set()
        frames: set[type[Effect]] = set()
        rejected = False
        for arm in members(hint):
            if typing.get_origin(arm) is ReceiptOf:
                receipts.update(members(typing.get_args(arm)[0]))
            elif typing.get_origin(arm) is FrameOf:
                frames.update(members(typing.get_args(arm)[0]))
            elif arm is Rejected:
                rejected = True
            elif isinstance(arm, type) and issubclass(arm, Record) and arm.__perdure_name__:
                if events.setdefault(arm.__perdure_name__, arm) is not arm:
                    raise BadDefinition(
                        parameter, "each event once", f"two of the name {arm.__perdure_name__}", "", self.where
                    )
            else:
                expected = "named records, ReceiptOf[...], FrameOf[...] and Rejected, joined by |"
                found = "no annotation" if hint is None else str(arm)
                raise BadDefinition(
                    parameter, expected, found, 'name it: class X(perdure.Record, name="...@1")', self.where
                )
        if not events:
            raise BadDefinition(parameter, "at least one event: a named record", str(hint), "", self.where)
        return events, receipts, frames, rejected

    def _check_receipts(self, receipts: set[type[Effect]]) -> None:
        """Each effect is answered, so each receipt must be taken; one of an effect that is not declared never comes."""
        answered = {effect for effect in self.effects.values() if effect is not _publish()}
        for effect in answered - receipts:
            found = f"no ReceiptOf[{effect.__name__}]"
            raise BadDefinition(
                self.__name__, "an event type with the receipt of each declared effect", found, "", self.where
            )
        for effect in receipts - answered:
            found = f"ReceiptOf[{effect.__name__}]"
            raise BadDefinition(
                self.__name__, "receipts of declared effects only", found, "add it to effects=[...]", self.where
            )

    def _check_frames(self, frames: set[type[Effect]]) -> tuple[str, ...]:
        """The names of the effects whose frames are events of this cell."""
        for effect in frames:
            if effect not in self.effects.values():
                raise BadDefinition(
                    self.__name__,
                    "frames of declared effects only",
                    f"FrameOf[{getattr(effect, '__name__', effect)}]",
                    "add it to effects=[...]",
                    self.where,
                )
            if effect.Frame is None:
                hint = "class Frame(perdure.Record): ..., inside of the effect"
                raise BadDefinition(effect.__name__, "a class Frame", "none", hint, self.where)
        return tuple(sorted(effect.__perdure_name__ for effect in frames))

    def _keys(self, key: Any) -> dict[str, str]:
        """For each event, the path of its key; nothing: there is one cell."""
        if key is None:
            return {}
        if isinstance(key, str):
            return dict.fromkeys(self.events, key)
        if isinstance(key, dict) and {getattr(event, "__perdure_name__", "") for event in key} == set(self.events):
            return {event.__perdure_name__: path for event, path in key.items()}
        names = ", ".join(event.__name__ for event in self.events.values())
        raise BadDefinition(self.__name__, f"key= as a path, or a dict of paths for {names}", repr(key), "", self.where)

    def shape(self, event: str) -> Shape:
        return shape_of(self.events[event], self.where)

    # ---- as data ---------------------------------------------------------------------------------------------

    def definition(self) -> CellDef:
        arms = (*self.events.values(), *([Rejected] if self.takes_rejected else []))
        return CellDef(
            self.name,
            self.state.schema,
            shape_of(typing.Union[arms], self.where).schema,  # noqa: UP007  # any number of them
            tuple(sorted(self.effects)),
            impl_of(self.function),
            self._key_schema(),
            self.context,
            None if self.annotations is None else self.annotations.schema,
            "" if self.migrate is None else impl_of(self.migrate),
            self.frames,
        )

    def _key_schema(self) -> Schema | None:
        found: Schema | None = None
        for name, path in self.keys.items():
            shape = shape_of(self.events[name])
            schema = at_path(shape.schema, path, shape.refs)
            if schema is None:
                raise BadDefinition(self.__name__, f"the key field {path!r} in {name}", "no such field", "", self.where)
            if found is not None and found != schema:
                raise BadDefinition(self.__name__, f"keys of one type at {path!r}", "different types", "", self.where)
            found = schema
        return found

    def subscriptions(self) -> list[Subscription]:
        return [Subscription(event, self.name, self.keys.get(event, "")) for event in self.events]


def cell(
    name: str,
    *,
    effects: Iterable[type[Effect]],
    key: Any = None,
    annotations: type[Record] | None = None,
    migrate: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Cell]:
    """Make a reducer a cell.

    name: `namespace/name@version`. effects: the only ones that it may emit; required, may be empty. key: the field of
    its events that holds the key, as a dotted path; or a dict from event class to path; None: there is one cell.
    annotations: the type of what it may return for people beside its state. migrate: a function that turns a state of
    the definition before this one into a state of this one, for `mode="migrate"`; annotated with several, of each.
    """
    parsed = parse_name(name, "$.name")
    if parsed.reserved:
        raise BadDefinition("$.name", "a name of yours", repr(name), "sys/* belongs to perdure")

    if not isinstance(effects, Iterable):
        raise BadDefinition("effects", "a list of effects, perhaps an empty one", repr(effects), "effects=[...]")
    return lambda function: Cell(function, parsed, key, tuple(effects), annotations=annotations, migrate=migrate)


# ---- from Python to the manifest ---------------------------------------------------------------------------------


def define(
    *cells: Cell, events: Iterable[type[Record]] = (), routing: Iterable[Subscription] | None = None
) -> Manifest:
    """The world of these cells. `events`: those that no cell takes. Without a routing the cells say it, in order."""
    refs: dict[str, Schema] = {}
    effects: dict[str, EffectDef] = {}
    for found in cells:
        try:
            for shape in (found.state, *map(shape_of, found.events.values())):
                merge(refs, shape.refs)
            if found.annotations is not None:
                merge(refs, found.annotations.refs)
            for effect in found.effects.values():
                _add_effect(effects, refs, effect)
        except BadDefinition as error:
            raise placed(error, found.__name__, found.where) from None
    for event in events:
        if not getattr(event, "__perdure_name__", "") or not isinstance(event, type):
            hint = 'class X(perdure.Record, name="...@1")'
            raise BadDefinition("events", "named records", repr(event)[:100], hint)
        merge(refs, shape_of(event).refs)
    routes = routing if routing is not None else [each for found in cells for each in found.subscriptions()]
    for number, route in enumerate(routes := tuple(routes)):
        if not isinstance(route, Subscription):
            hint = "perdure.cells.manifest.Subscription(event, cell, key_field), each by its name"
            raise BadDefinition(f"routing[{number}]", "a subscription", described(route), hint)
    return Manifest(
        {name: schema for name, schema in refs.items() if not parse_name(name).reserved},
        effects,
        {found.name: found.definition() for found in cells},
        routes,
    )


def _add_effect(effects: dict[str, EffectDef], refs: dict[str, Schema], effect: type[Effect]) -> None:
    name = effect_name(effect)
    if parse_name(name).reserved:
        return
    definition = effect_def(effect)
    if effects.setdefault(name, definition) != definition:
        hint = "a name has one definition: use the next version"
        raise BadDefinition("$", f"one effect of the name {name}", "two that differ", hint)
    merge(refs, {ref: schema for ref, schema in shape_of(effect).refs.items() if ref != name})
    merge(refs, receipt_shape(effect).refs)
    if effect.Frame is not None:
        merge(refs, shape_of(effect.Frame).refs)


def effect_name(effect: Any, where: str = "") -> str:
    if isinstance(effect, type) and issubclass(effect, Effect) and effect.__perdure_name__:
        return effect.__perdure_name__
    hint = 'class Charge(perdure.Effect, name="payment/charge@1")'
    raise BadDefinition("effects", "named effects", repr(effect), hint, where)


def effect_def(effect: type[Effect]) -> EffectDef:
    name = effect_name(effect)
    params = shape_of(effect).refs[name]
    frame = None if effect.Frame is None else shape_of(effect.Frame).schema
    return EffectDef(name, params, receipt_shape(effect).schema, frame=frame, **effect.__perdure_options__)


def receipt_shape(effect: type[Effect]) -> Shape:
    return shape_of(effect.Receipt)


def named(value: Any) -> str:
    """The name of the definition that an event or an effect is of; empty: of none."""
    name = value.name if isinstance(value, Datum) else getattr(type(value), "__perdure_name__", "")
    return name if isinstance(name, str) else ""


def meant_for(value: Any, what: str) -> str:
    """What to write in place of something that is no event, or no effect."""
    if isinstance(value, type):
        return f": this is a class, write {value.__name__}(...)"
    if named(value):
        return ""
    return f": {what} is a record with a name, or perdure.Datum(name, value)"


def at_path(schema: Schema, path: str, refs: Any) -> Schema | None:
    """The schema of what stands at a dotted path inside of a value; None: not always something of one schema."""
    schema = resolve(schema, refs)
    part, dot, rest = path.partition(".")
    if isinstance(schema, Variant) and part == "$value":
        inner = list(schema.arms.values())
    elif isinstance(schema, RecordSchema) and part in schema.fields:
        inner = [schema.fields[part]]
    else:
        return None
    found = {at_path(each, rest, refs) if dot else resolve(each, refs) for each in inner}
    return found.pop() if len(found) == 1 else None


def impl_of(function: Callable[..., Any]) -> str:
    """`module:function`. A script is the module that its file would be: run or imported, it is the same world."""
    module = function.__module__
    if module == "__main__":
        module = Path(getattr(sys.modules[module], "__file__", None) or "__main__").stem
    return f"{module}:{function.__qualname__}"


def members(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def where(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


def _publish() -> type[Effect]:
    from .effects import Publish

    return Publish
