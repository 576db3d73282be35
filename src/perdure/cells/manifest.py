"""The manifest: a world of cells as data. Schemas, effects, cells and routing, in one canonical form with one hash.

A manifest file (JSON or YAML) and Python classes both give a `Manifest`; whatever runs, runs from it. Reading is
strict: an unknown property is refused with its path. What the parts must have to do with each other is in `check.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from perdure.codec import digest, encode, is_text
from perdure.codec.schema import Ref, Schema, Unit, from_data, parse_name, properties, schema_hash, to_data
from perdure.errors import BadDefinition

UNIT: Final = Unit()
DELIVERIES: Final = 4
"""How often an effect is handed out at most when the process dies under it; one that may run once: 1."""


NANOSECONDS: Final = "a positive number of nanoseconds"
SECONDS: Final = "a second is 1_000_000_000"


class EffectDef(msgspec.Struct, frozen=True):
    """`outside`: no handler in this process performs it; who does answers with a signed receipt under this name.

    `frame`: what its handler may send before the receipt, for cells that take it.
    """

    name: str
    params: Schema
    receipt: Schema = UNIT
    once: bool = False
    timeout: int | None = None  # nanoseconds
    outside: str = ""
    frame: Schema | None = None

    def data(self) -> dict[str, Any]:
        given: dict[str, Any] = {"params": to_data(self.params), "receipt": to_data(self.receipt)}
        if self.once:
            given["once"] = True
        if self.timeout is not None:
            given["timeout"] = self.timeout
        if self.outside:
            given["outside"] = self.outside
        if self.frame is not None:
            given["frame"] = to_data(self.frame)
        return given


class CellDef(msgspec.Struct, frozen=True):
    """`event` is one named schema or a variant of named ones. `impl` says where the reducer is: `module:function`."""

    name: str
    state: Schema
    event: Schema
    effects: tuple[str, ...]
    impl: str
    key: Schema | None = None
    context: bool = True  # whether the reducer takes the context
    annotations: Schema | None = None
    migrate: str = ""  # where the function is that turns a state of the definition before into one of this
    frames: tuple[str, ...] = ()  # effects whose frames are events of the cell

    def data(self) -> dict[str, Any]:
        given: dict[str, Any] = {
            "state": to_data(self.state),
            "event": to_data(self.event),
            "effects": list(self.effects),
            "impl": self.impl,
        }
        if self.key is not None:
            given["key"] = to_data(self.key)
        if not self.context:
            given["context"] = False
        if self.annotations is not None:
            given["annotations"] = to_data(self.annotations)
        if self.migrate:
            given["migrate"] = self.migrate
        if self.frames:
            given["frames"] = list(self.frames)
        return given

    def schemas(self) -> list[Schema]:
        """All that it is made of."""
        return [found for found in (self.state, self.event, self.key, self.annotations) if found is not None]


class Subscription(msgspec.Struct, frozen=True):
    """Events of this schema go to the cell whose key stands at `key_field`; a cell without keys has none."""

    event: str
    cell: str
    key_field: str = ""

    def data(self) -> dict[str, Any]:
        given = {"event": self.event, "cell": self.cell}
        return {**given, "key_field": self.key_field} if self.key_field else given


class Manifest(msgspec.Struct, frozen=True, dict=True):
    """See the module. Two manifests with one hash are the same world."""

    schemas: Mapping[str, Schema] = {}
    effects: Mapping[str, EffectDef] = {}
    cells: Mapping[str, CellDef] = {}
    routing: tuple[Subscription, ...] = ()

    def data(self) -> dict[str, Any]:
        """The form in a file."""
        return {
            "schemas": {name: to_data(schema) for name, schema in self.schemas.items()},
            "effects": {name: effect.data() for name, effect in self.effects.items()},
            "cells": {name: cell.data() for name, cell in self.cells.items()},
            "routing": [subscription.data() for subscription in self.routing],
        }

    @cached_property
    def bytes(self) -> bytes:
        return encode(self.data())

    @cached_property
    def hash(self) -> str:
        return digest(self.bytes)

    @cached_property
    def known_schemas(self) -> Mapping[str, Schema]:
        """With those that every world has."""
        from .system import SCHEMAS

        return {**SCHEMAS, **self.schemas}

    @cached_property
    def known_effects(self) -> Mapping[str, EffectDef]:
        from .system import EFFECTS

        return {**EFFECTS, **self.effects}

    def effect_hash(self, name: str) -> str:
        """Of an effect and all that its schemas refer to."""
        effect = self.known_effects[name]
        given = effect.data() | {
            "params": schema_hash(effect.params, self.known_schemas),
            "receipt": schema_hash(effect.receipt, self.known_schemas),
        }
        if effect.frame is not None:
            given["frame"] = schema_hash(effect.frame, self.known_schemas)
        return digest(encode({"name": name, **given}))

    def cell_hash(self, name: str) -> str:
        """Of a cell, its schemas, its effects, and all that those refer to; not of the code of its reducer."""
        return self._cell_hashes[name]

    @cached_property
    def _cell_hashes(self) -> Mapping[str, str]:
        return {name: self._cell_hash(name, cell) for name, cell in self.cells.items()}

    def _cell_hash(self, name: str, cell: CellDef) -> str:
        given = cell.data() | {
            "state": schema_hash(cell.state, self.known_schemas),
            "event": schema_hash(cell.event, self.known_schemas),
            "effects": {effect: self.effect_hash(effect) for effect in cell.effects},
        }
        if cell.annotations is not None:
            given["annotations"] = schema_hash(cell.annotations, self.known_schemas)
        return digest(encode({"name": name, **given}))

    def arms(self, cell: CellDef) -> dict[str, str]:
        """The event schemas that a cell takes, each with the arm that it is."""
        return arms_of(cell.event, self.schemas)


def arms_of(event: Schema, schemas: Mapping[str, Schema]) -> dict[str, str]:
    """A named event is itself, with no arm; the named arms of a variant are events too."""
    found: dict[str, str] = {}
    if isinstance(event, Ref):
        found[event.name] = ""
        event = schemas.get(event.name, event)
    arms = getattr(event, "arms", None) or {}
    return found | {schema.name: arm for arm, schema in arms.items() if isinstance(schema, Ref)}


def read(data: Any) -> Manifest:
    """A manifest from plain data. Raises `BadDefinition` with the path of what is wrong."""
    properties(data, "$", (), ("schemas", "effects", "cells", "routing"))
    schemas = {
        _own_name(name, f"$.schemas.{name}"): from_data(schema, f"$.schemas.{name}")
        for name, schema in _map(data, "schemas").items()
    }
    effects = {
        _own_name(name, f"$.effects.{name}"): _read_effect(name, effect, f"$.effects.{name}")
        for name, effect in _map(data, "effects").items()
    }
    cells = {
        _own_name(name, f"$.cells.{name}"): _read_cell(name, cell, f"$.cells.{name}")
        for name, cell in _map(data, "cells").items()
    }
    routing = _expect(data.get("routing", []), list, "a list of subscriptions", "$.routing")
    subscriptions = tuple([_read_subscription(found, f"$.routing[{n}]") for n, found in enumerate(routing)])
    return Manifest(schemas, effects, cells, subscriptions)


def _read_effect(name: str, data: Any, path: str) -> EffectDef:
    properties(data, path, ("params",), ("receipt", "once", "timeout", "outside", "frame"))
    params = from_data(data["params"], f"{path}.params")
    receipt = from_data(data.get("receipt", "unit"), f"{path}.receipt")
    frame = from_data(data["frame"], f"{path}.frame") if "frame" in data else None
    return EffectDef(name, params, receipt, frame=frame, **effect_options(data, path))


def effect_options(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What is said of an effect besides its schemas, in a file or in Python. Raises `BadDefinition`."""
    timeout = data.get("timeout")
    if timeout is not None and not is_timeout(timeout):
        raise BadDefinition(f"{path}.timeout", NANOSECONDS, repr(timeout)[:100], SECONDS)
    outside = data.get("outside", "")
    if not is_text(outside):
        raise BadDefinition(f"{path}.outside", "the name of an executor", ascii(outside)[:100])
    return {
        "once": _expect(data.get("once", False), bool, "true or false", f"{path}.once"),
        "timeout": timeout,
        "outside": outside,
    }


def is_timeout(value: Any) -> bool:
    return type(value) is int and value > 0


def _read_cell(name: str, data: Any, path: str) -> CellDef:
    optional = ("key", "context", "annotations", "migrate", "frames")
    properties(data, path, ("state", "event", "effects", "impl"), optional)
    return CellDef(
        name,
        from_data(data["state"], f"{path}.state"),
        from_data(data["event"], f"{path}.event"),
        _read_effects(data["effects"], f"{path}.effects"),
        _expect(data["impl"], str, "module:function", f"{path}.impl"),
        from_data(data["key"], f"{path}.key") if "key" in data else None,
        _expect(data.get("context", True), bool, "true or false", f"{path}.context"),
        from_data(data["annotations"], f"{path}.annotations") if "annotations" in data else None,
        _expect(data.get("migrate", ""), str, "module:function", f"{path}.migrate"),
        _read_effects(data.get("frames", []), f"{path}.frames"),
    )


def _read_effects(data: Any, path: str) -> tuple[str, ...]:
    effects = _expect(data, list, "a list of effects, perhaps an empty one", path)
    for n, effect in enumerate(effects):
        parse_name(effect, f"{path}[{n}]")
    if len(set(effects)) != len(effects):
        raise BadDefinition(path, "each effect once", repr(effects))
    return tuple(sorted(effects))


def _read_subscription(data: Any, path: str) -> Subscription:
    properties(data, path, ("event", "cell"), ("key_field",))
    field = _expect(data.get("key_field", ""), str, "a dotted path", f"{path}.key_field")
    for part in ("event", "cell"):
        parse_name(data[part], f"{path}.{part}")
    return Subscription(data["event"], data["cell"], field)


def _own_name(name: Any, path: str) -> str:
    if parse_name(name, path).reserved:
        raise BadDefinition(
            path, "a name of yours", repr(name), "sys/* belongs to perdure: it is there without being named"
        )
    return str(name)


def _map(data: Any, part: str) -> dict[Any, Any]:
    found: dict[Any, Any] = _expect(data.get(part, {}), dict, "definitions by name", f"$.{part}")
    return found


def _expect(value: Any, kind: type, what: str, path: str) -> Any:
    if type(value) is not kind:
        raise BadDefinition(path, what, repr(value)[:100])
    return value
