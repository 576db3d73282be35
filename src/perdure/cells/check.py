"""What must hold of a manifest before anything runs. Each refusal has a code, a path and a hint: `BadManifest`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from perdure.codec import schema as types
from perdure.codec.record import placed
from perdure.codec.schema import Ref, Schema, label, parse_name, references, resolve
from perdure.errors import BadDefinition, BadManifest

from .author import at_path
from .manifest import CellDef, Manifest, Subscription


def check(manifest: Manifest) -> None:
    for name, schema in manifest.schemas.items():
        _check_schema(manifest, schema, f"$.schemas[{name!r}]")
    for name, effect in manifest.effects.items():
        _check_schema(manifest, effect.params, f"$.effects[{name!r}].params")
        _check_schema(manifest, effect.receipt, f"$.effects[{name!r}].receipt")
        if effect.frame is not None:
            _check_schema(manifest, effect.frame, f"$.effects[{name!r}].frame")
            if effect.outside:
                hint = "who is outside answers once: with a receipt"
                raise BadDefinition(
                    f"$.effects[{name!r}].frame", "frames of a handler", f"outside={effect.outside!r:.80}", hint
                )
    versions: dict[str, str] = {}
    for name, cell in manifest.cells.items():
        _check_cell(manifest, cell, f"$.cells[{name!r}]")
        other = versions.setdefault(parse_name(name).workflow, name)
        if other != name:
            text = f"{other} is in the manifest too: cells that began with it keep it, new ones need one definition"
            raise BadManifest("two-versions", f"$.cells[{name!r}]", text)
    for number, subscription in enumerate(manifest.routing):
        _check_route(manifest, subscription, f"$.routing[{number}]")


def _check_schema(manifest: Manifest, schema: Schema, path: str) -> None:
    for inner, name in references(schema, path):
        if name not in manifest.known_schemas:
            raise BadManifest("missing-reference", inner, _unknown("schema", name, manifest.known_schemas))
    _check_inside(manifest, schema, path)


def _check_inside(manifest: Manifest, schema: Schema, path: str) -> None:
    try:
        types.check(schema, manifest.known_schemas, path)
    except BadDefinition as error:
        # What is wrong behind a name has a path that begins there, which is no place in a manifest.
        raise error if error.path.startswith(path) else placed(error, path, "") from None


def _check_cell(manifest: Manifest, cell: CellDef, path: str) -> None:
    for part, schema in (("state", cell.state), ("event", cell.event), ("annotations", cell.annotations)):
        for inner, name in references(schema, f"{path}.{part}") if schema is not None else ():
            if name not in manifest.known_schemas:
                raise BadManifest("unknown-schema", inner, _unknown("schema", name, manifest.known_schemas))
        if schema is not None:
            _check_inside(manifest, schema, f"{path}.{part}")
    state = resolve(cell.state, manifest.known_schemas)
    if isinstance(state, types.Option | types.Unit):
        raise BadDefinition(
            f"{path}.state", "a type without null", label(state), "null is no state: it deletes the cell"
        )
    _check_event(manifest, cell, path)
    for number, effect in enumerate(cell.effects):
        if effect not in manifest.known_effects:
            text = _unknown("effect", effect, manifest.known_effects)
            raise BadManifest("unknown-effect", f"{path}.effects[{number}]", text)
    for number, effect in enumerate(cell.frames):
        if effect not in cell.effects or manifest.known_effects[effect].frame is None:
            text = f"{effect} is no effect of this cell that has frames: name it in effects, and give it a frame"
            raise BadManifest("no-frames", f"{path}.frames[{number}]", text)
    if cell.key is not None and not isinstance(cell.key, types.KEYS):
        text = f"a key is int, nat, text, uuid or hash, found {label(cell.key)}"
        raise BadManifest("key-type", f"{path}.key", text)
    _check_impl(cell.impl, f"{path}.impl")
    if cell.migrate:
        _check_impl(cell.migrate, f"{path}.migrate")


def _check_impl(impl: str, path: str) -> None:
    module, colon, function = impl.partition(":")
    parts = [*module.split("."), *function.split(".")]
    if not colon or not all(part.isidentifier() or part in _UNNAMED for part in parts):
        text = f"the only runtime is Python: module:function, found {impl!r}"
        raise BadManifest("unsupported-runtime", path, text)


_UNNAMED: Final = ("<locals>", "<lambda>")
"""What Python calls code that no file can name: tests define cells in tests."""


def _check_event(manifest: Manifest, cell: CellDef, path: str) -> None:
    """One named event, or a variant of named ones. Receipts are no part of it: they follow from the effects."""
    event = cell.event
    arms = event.arms.values() if isinstance(event, types.Variant) else [event]
    for arm in arms:
        if not isinstance(arm, Ref):
            text = f"an event is a schema with a name, or a variant of such, found {label(arm)}"
            raise BadManifest("event-family", f"{path}.event", text)
        if parse_name(arm.name).reserved and arm.name != "sys/Rejected@1":
            raise BadManifest("event-family", f"{path}.event", f"{arm.name} is no event that a cell can take")
    whole = resolve(event, manifest.known_schemas)
    named = (
        [arm.name for arm in whole.arms.values() if isinstance(arm, Ref)] if isinstance(whole, types.Variant) else []
    )
    for name in named:
        if named.count(name) > 1:
            raise BadManifest("event-family", f"{path}.event", f"an event {name} could be either of two arms")


def _check_route(manifest: Manifest, route: Subscription, path: str) -> None:
    if route.cell not in manifest.cells:
        raise BadManifest("unknown-cell", f"{path}.cell", _unknown("cell", route.cell, manifest.cells))
    if parse_name(route.event).reserved:
        raise BadManifest("event-family", f"{path}.event", f"{route.event} is not routed: sys/* comes by itself")
    if route.event not in manifest.schemas:
        raise BadManifest("unknown-schema", f"{path}.event", _unknown("event", route.event, manifest.schemas))
    cell = manifest.cells[route.cell]
    arms = manifest.arms(cell)
    if route.event not in arms:
        text = f"{route.cell} does not take {route.event}; it takes {', '.join(sorted(arms))}"
        raise BadManifest("routing-mismatch", f"{path}.event", text)
    if cell.key is None:
        if route.key_field:
            text = f"{route.cell} has no keys, so its route has no key_field, found {route.key_field!r}"
            raise BadManifest("key-unexpected", f"{path}.key_field", text)
        return
    if not route.key_field:
        text = f"{route.cell} has keys: say which field of {route.event} holds it"
        raise BadManifest("key-missing", f"{path}.key_field", text)
    found = at_path(Ref(route.event), route.key_field, manifest.known_schemas)
    if found is None:
        text = f"{route.event} has no field {route.key_field!r}"
        raise BadManifest("key-missing", f"{path}.key_field", text)
    if found != resolve(cell.key, manifest.known_schemas):
        text = f"the key of {route.cell} is {label(cell.key)}, and {route.key_field!r} is {label(found)}"
        raise BadManifest("key-type", f"{path}.key_field", text)


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"there is no {kind} {name!r} in the manifest" + (f"; did you mean {near[0]!r}?" if near else "")
