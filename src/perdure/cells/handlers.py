"""Handlers: the code that performs an effect. What it returns is the payload of the receipt."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from perdure.codec import schema as types
from perdure.codec.record import shape_of
from perdure.codec.schema import Schema, parse_name
from perdure.errors import BadDefinition, SchemaMismatch
from perdure.kernel.batch import Publication
from perdure.ports.executor import Work
from perdure.ports.secrets import SCHEMA as SECRET
from perdure.ports.secrets import Secret

from .author import Effect, effect_name, receipt_shape
from .bound_manifest import Data
from .manifest import Manifest


class Call(msgspec.Struct, frozen=True):
    """What a handler may know of the call it performs, besides the parameters.

    `idempotency_key` is equal however often the effect is handed out; `delivery` grows when a crash ran it again.
    `timeout`: how long the call may take, in nanoseconds, if there is a limit.
    """

    cell: str
    key: str
    intent: str
    idempotency_key: str
    delivery: int = 1
    timeout: int | None = None


class PlainParams(Data):
    """Plain data, but for references to secrets: those are objects, in whose places an executor puts the values."""

    def build(self, plain: Any) -> Any:
        return self._referring(self.schema, super().build(plain))

    def _referring(self, schema: Schema, plain: Any) -> Any:
        match schema:
            case types.Ref(name=name):
                return Secret(**plain) if name == SECRET else self._referring(self.refs[name], plain)
            case types.Option(item=item):
                return None if plain is None else self._referring(item, plain)
            case types.Record(fields=fields):
                return {name: self._referring(field, plain[name]) for name, field in fields.items()}
            case types.Variant(arms=arms):
                return {**plain, "$value": self._referring(arms[plain["$tag"]], plain["$value"])}
            case types.List(item=item) | types.Set(item=item):
                return [self._referring(item, each) for each in plain]
            case types.Map(value=value):
                return {key: self._referring(value, each) for key, each in plain.items()}
            case _:
                return plain


class EffectHandler:
    """See `effect_handler`. Called, it is the plain function."""

    dialect = "cell"  # by it a command finds the handlers of a module

    def __init__(self, effect: type[Effect] | str, function: Callable[..., Any]) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self._params: Any = None  # until it is bound: an effect without a class is known by its name alone
        self._receipt: Any = None
        self._frame: Any = None
        if isinstance(effect, str):
            self.effect = str(parse_name(effect))
        else:
            self.effect = effect_name(effect)
            self._params, self._receipt = shape_of(effect), receipt_shape(effect)
            self._frame = None if effect.Frame is None else shape_of(effect.Frame)

    def bound(self, manifest: Manifest) -> EffectHandler:
        """With the schemas of the manifest, if it has none of its own."""
        definition = manifest.known_effects.get(self.effect)
        if self._params is not None or definition is None:
            return self
        made = EffectHandler(self.effect, self.function)
        made._params = PlainParams(definition.params, manifest.known_schemas)
        made._receipt = Data(definition.receipt, manifest.known_schemas)
        if definition.frame is not None:
            made._frame = Data(definition.frame, manifest.known_schemas)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<handler of {self.effect}>"

    def work(self, params: Any, key: str, publication: Publication) -> Work:
        """What an executor runs. `key` is the idempotency key that the cell asked for; empty: the derived one."""
        call = Call(
            publication.address.workflow,
            publication.address.key,
            publication.intent.hex(),
            key or publication.identity.idempotency_key(publication.effect.location),
            publication.delivery,
            publication.effect.timeout,
        )
        function = self._perform if self.is_async else self._perform_sync
        frame = None if self._frame is None else self._plain_frame
        return Work(function, (self._params.build(params), call), {}, Any, frame)

    async def _perform(self, params: Any, call: Call) -> Any:
        return self._plain(await self.function(params, call))

    def _perform_sync(self, params: Any, call: Call) -> Any:
        given = self.function(params, call)
        return self._finish(given) if inspect.isawaitable(given) else self._plain(given)

    async def _finish(self, given: Awaitable[Any]) -> Any:
        return self._plain(await given)

    def _plain(self, given: Any) -> Any:
        """What it returned, if that is a receipt of its effect."""
        return self._checked(self._receipt, given, "returned")

    def _plain_frame(self, given: Any) -> Any:
        """What it emits, if that is a frame of its effect."""
        return self._checked(self._frame, given, "emits")

    def _checked(self, form: Any, given: Any, verb: str) -> Any:
        try:
            return form.plain(given)
        except SchemaMismatch as error:
            what = f"what the handler of {self.effect} {verb}"
            where = f"{what}, {error.where}" if error.where else what
            raise SchemaMismatch(error.path, error.expected, error.found, error.hint, where) from None


def effect_handler(effect: type[Effect] | str) -> Callable[[Callable[..., Any]], EffectHandler]:
    """Make a function `(params, call)` the one that performs an effect. A plain `def` runs in a thread.

    An effect that has no class, because it stands in a manifest file only, is given by its name: `params` and what is
    returned are plain data then. Give it to the engine: `perdure.open(url, workflows=[...], handlers=[charge])`.
    """
    if not isinstance(effect, str):
        effect_name(effect)

    def define(function: Callable[..., Any]) -> EffectHandler:
        if len(inspect.signature(function).parameters) != 2:
            raise BadDefinition(repr(function), "a function of (params, call)", "another signature")
        return EffectHandler(effect, function)

    return define
