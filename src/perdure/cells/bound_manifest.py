"""A manifest joined with its code: what the kernel runs. Binding finds every reducer, or says which is missing."""

from __future__ import annotations

import copy
import importlib
import typing
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import Any

import msgspec

from perdure.codec import decode, encode
from perdure.codec.canonical import Form
from perdure.codec.record import Record, shape_of
from perdure.codec.schema import Ref, Schema, parse_name
from perdure.errors import BadDecision, BadDefinition, BadManifest, CallerError, KeyMismatch, UnknownEvent
from perdure.kernel.decision import Decision, Fact
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.limits import MEBIBYTE, Limits
from perdure.kernel.machine import Machine
from perdure.kernel.receipt import is_interrupt
from perdure.kernel.routing import Router
from perdure.kernel.routing import Subscription as KernelSubscription
from perdure.kernel.rules import FactRoute, Rules

from . import system
from .author import Cell, Datum, define, meant_for, members, named, receipt_shape, where
from .check import check
from .compare import contrasts
from .machine import CellMachine
from .manifest import CellDef, EffectDef, Manifest, Subscription, read
from .policy import NO_CELLS, POLICY

LIMITS = Limits(effects=64, messages=256, bytes=MEBIBYTE)


class Data(Form):
    """A schema without a Python type: its values are plain data."""

    def build(self, plain: Any) -> Any:
        return copy.deepcopy(plain)


class BoundEffect(msgspec.Struct, frozen=True):
    """`face`: what a reducer knows it by, its class or its name."""

    definition: EffectDef
    hash: str
    short: str
    params: Any
    receipt: Any
    face: Any
    frame: Any = None

    @property
    def performed(self) -> bool:
        """By a handler: not by the kernel, and not outside."""
        return self.definition.name not in system.OF_THE_KERNEL and not self.definition.outside


class Definition:
    """One cell of a manifest: a workflow of the cell dialect."""

    parameters = b""
    policy = POLICY
    subscriptions: tuple[KernelSubscription, ...] = ()  # they stand in the manifest

    def __init__(self, manifest: Manifest, cell: CellDef, reducer: Any, limits: Limits = LIMITS) -> None:
        name = parse_name(cell.name)
        self.cell = cell
        self.hash = manifest.cell_hash(cell.name)
        self.name = name.workflow
        self.version = version_of(cell.name, self.hash)
        self.limits = limits
        self.function = reducer.function if isinstance(reducer, Cell) else reducer
        typed = reducer if isinstance(reducer, Cell) else None
        self.state: Any = typed.state if typed is not None else _data(manifest, cell.state)
        arms = manifest.arms(cell)
        self.takes_rejected = system.REJECTED in arms
        self.events: dict[str, tuple[str, Any]] = {
            event: (arm, typed.shape(event) if typed is not None else _data(manifest, Ref(event)))
            for event, arm in arms.items()
            if event != system.REJECTED
        }
        self._typed = typed is not None
        self._annotations: Any = None
        if cell.annotations is not None:
            self._annotations = typed.annotations if typed is not None else _data(manifest, cell.annotations)
        self._migrate = typed.migrate if typed is not None else None
        if self._migrate is None and cell.migrate:
            self._migrate = load(cell.migrate, f"$.cells[{cell.name!r}].migrate")
        self._facts = {event: _data(manifest, Ref(event)) for event in manifest.schemas}
        self.effects = {
            effect: _bind_effect(manifest, effect, typed.effects.get(effect) if typed is not None else None)
            for effect in cell.effects
        }

    def __repr__(self) -> str:
        return f"<cell {self.cell.name} {self.hash}>"

    # ---- for the machine -----------------------------------------------------------------------------------------

    def event(self, name: str, plain: Any) -> Any:
        """The event as the reducer takes it. It was checked when it came, but by the manifest that was in force."""
        if name not in self.events:
            raise UnknownEvent(name, self.events, f"the cell {self.cell.name} takes no such event")
        _, form = self.events[name]
        value = form.build(form.judge(plain))
        return value if self._typed else Datum(name, value)

    def refuses(self, name: str) -> bool:
        """Whether the types of the reducer may refuse an event that its schema allows."""
        return name in self.events and getattr(self.events[name][1], "refuses", False)

    def fact(self, event: Any) -> tuple[str, bytes]:
        """The name and the canonical bytes of an event that the reducer emits."""
        return encode_event(event, self._facts, f"the manifest of {self.cell.name}")

    def reduce(self, state: Any, event: Any, context: Any) -> Any:
        arguments = (state, event, context) if self.cell.context else (state, event)
        return called(self.function, *arguments)

    def annotate(self, annotations: Any) -> bytes:
        if self._annotations is None:
            raise BadDecision(self.cell.name, "it returned annotations and declares none: @cell(..., annotations=...)")
        return self._annotations.encode(annotations)  # type: ignore[no-any-return]

    def read_state(self, machine: Machine) -> Any:
        """The state of a cell as its reducer takes it; None: there is no cell."""
        assert isinstance(machine, CellMachine)
        return self.state.build(decode(machine.state)) if machine.state else None

    # ---- what callers need ---------------------------------------------------------------------------------------

    def encode_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        raise CallerError(f"{self.name} is a cell: the first event that is routed to it makes it: engine.send(...)")

    def encode_plain_input(self, value: Any) -> bytes:
        return self.encode_input((), {})

    def decode_result(self, value: bytes) -> Any:
        return decode(value)

    # ---- what the kernel needs (perdure.kernel.machine.Workflow) -------------------------------------------------

    def machine(self, address: str, snapshot: bytes | None) -> Machine:
        return CellMachine(self, address[len(self.name) + 1 :], snapshot)

    def migrated(self, address: str, machine: Machine, manifest: str) -> CellMachine:
        """The machine of this definition with what a machine of an earlier one holds."""
        assert isinstance(machine, CellMachine)
        if machine.definition.version == self.version:  # it could not go away from here, and now it need not
            return machine.moved_to(self, machine.state, manifest)
        if self._migrate is None:
            raise BadManifest("no-migration", f"$.cells[{self.cell.name!r}]", "it has no migrate function")
        state = called(self._migrate, _argument(self._migrate, machine))
        return machine.moved_to(self, self.state.encode(state), manifest)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return recorded != current

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        then, now = difference.recorded, difference.current
        source = where(self.function)
        advice = (
            "A reducer decides the same whenever it gets the same. If it was meant to change, give the cell the next "
            f"version instead of changing {self.cell.name}, and apply the manifest."
        )
        if then.state != now.state and (then.open, then.announce, then.outcome) == (
            now.open,
            now.announce,
            now.outcome,
        ):
            return Explanation(f"state {then.state.hex()[:12]}", f"state {now.state.hex()[:12]}", "", source, advice)
        for number, (one, other) in enumerate(zip_longest(then.announce, now.announce), 1):
            if one != other:
                return Explanation(_event_in_words(one, number), _event_in_words(other, number), "", source, advice)
        return Explanation(source=source, advice=advice)


class Catalog:
    """The events of a manifest, for their senders."""

    def __init__(self, manifest: Manifest) -> None:
        self.hash = manifest.hash
        self._events = {name: _data(manifest, Ref(name)) for name in manifest.schemas}
        self._router = Router()
        self._router.enforce(in_force(manifest))

    @classmethod
    def read(cls, definitions: bytes | None) -> Catalog:
        if definitions is None:
            raise CallerError(NO_CELLS)
        return cls(read(decode(definitions)))

    def encode(self, event: Any, key: str | None = None) -> tuple[str, bytes]:
        """The name and the canonical bytes of an event; `key`: of the cell that it is meant for."""
        return self._checked(*encode_event(event, self._events, "the manifest in force"), key)

    def encode_json(self, name: str, data: Any) -> tuple[str, bytes]:
        """The same for JSON data."""
        form = self._events.get(name) if isinstance(name, str) else None  # type: ignore[redundant-expr]
        if form is None:
            raise UnknownEvent(str(name)[:100], self._events, "the manifest in force knows no such event")
        return self._checked(name, encode(form.from_json(data)), None)

    def _checked(self, name: str, body: bytes, key: str | None) -> tuple[str, bytes]:
        """The event, if it is meant for this key, and if its keys can name instances."""
        fact = Fact(name, body)
        if key is not None:
            for address in self._router.route(fact):
                if address.key != key:
                    raise KeyMismatch(name, key, address.key)
        objection = self._router.objection(fact)
        if objection:
            raise CallerError(objection)
        return name, body


class BoundManifest:
    """A manifest with its code. Registered in an engine, it is the cells and the instance that rules over them."""

    def __init__(self, manifest: Manifest, reducers: Mapping[str, Any] | None = None, limits: Limits = LIMITS) -> None:
        check(manifest)
        self.manifest = manifest
        found = reducers or {}
        self.cells = [
            Definition(manifest, cell, found.get(name) or _agreed(manifest, name), limits)
            for name, cell in manifest.cells.items()
        ]
        self.in_force = in_force(manifest)
        self.earlier: list[Definition] = []
        """Definitions that are not in the manifest, for cells that began with them."""


def manifest(
    *cells: Cell,
    events: Iterable[type[Record]] = (),
    routing: Iterable[Subscription] | None = None,
    limits: Mapping[str, int] | None = None,
) -> BoundManifest:
    """The world of these cells, ready to run: `perdure.open(url, workflows=[perdure.manifest(order, stock)])`.

    events: those that no cell takes, but some emit. routing: which event goes to which cell, by which field; without it
    the cells say it, in the order in which they are given. limits: see `limits_of`. Of several versions of a cell the
    newest is in the manifest; the others run the cells that began with them.
    """
    events = tuple(events)
    given: dict[str, Cell] = {}
    for cell in cells:
        if not isinstance(cell, Cell):
            raise BadDefinition("manifest", "cells", repr(cell)[:100], "@perdure.cell(...) makes a function a cell")
        if given.setdefault(cell.name, cell) is not cell:
            two = f"two: here and at {given[cell.name].where}"
            hint = "give the newer one the next version"
            raise BadDefinition(cell.name, "one cell of this name", two, hint, cell.where)
    cells = tuple(given.values())
    newest: dict[str, Cell] = {}
    for cell in cells:
        name = parse_name(cell.name)
        workflow = name.workflow
        if workflow not in newest or parse_name(newest[workflow].name).version < name.version:
            newest[workflow] = cell
    current = [cell for cell in cells if cell in newest.values()]
    kept = limits_of(limits)
    bound = BoundManifest(define(*current, events=events, routing=routing), {cell.name: cell for cell in current}, kept)
    taken = [event for cell in cells for event in cell.events.values()]
    for cell in cells:
        if cell not in current:
            alone = define(cell, events=[*events, *taken])  # it may emit what others take
            bound.earlier.append(Definition(alone, alone.cells[cell.name], cell, kept))
    return bound


def limits_of(given: Mapping[str, int] | None) -> Limits:
    """What one delivery may lead to at most: `effects` (64), `events` (256), and `bytes` of all that (1 MiB)."""
    fields = {"effects": "effects", "events": "messages", "bytes": "bytes"}
    for name, limit in (given or {}).items():
        if name not in fields:
            raise BadDefinition("limits", f"limits of {', '.join(fields)}", repr(name)[:100])
        if type(limit) is not int or limit < 0:
            raise BadDefinition(f"limits.{name}", "a whole number", repr(limit)[:100])
    return msgspec.structs.replace(LIMITS, **{fields[name]: limit for name, limit in (given or {}).items()})


def encode_event(event: Any, known: Mapping[str, Form], who: str) -> tuple[str, bytes]:
    """The name and the canonical bytes of an event: a record, or its name with plain data."""
    name = named(event)
    form = known.get(name)
    if form is None:
        raise UnknownEvent(name or repr(event)[:100], known, f"{who} knows no such event{meant_for(event, 'an event')}")
    if isinstance(event, Datum):
        return name, form.encode(event.value)
    shape = shape_of(type(event))
    if shape.refs.items() <= form.refs.items():
        return name, shape.encode(event)
    return name, form.encode(shape.plain(event))  # another version of the class than the manifest's


def in_force(manifest: Manifest) -> Rules:
    """What the kernel needs to know of a manifest."""
    versions: dict[str, str] = {}
    for name in manifest.cells:
        parsed = parse_name(name)
        versions[parsed.workflow] = version_of(name, manifest.cell_hash(name))
    routes = []
    for found in manifest.routing:
        parsed = parse_name(found.cell)
        routes.append(FactRoute(found.event, parsed.workflow, found.key_field))
    return Rules(manifest.hash, versions, tuple(routes))


def version_of(name: str, hash: str) -> str:
    """What the journal records of a definition: its version and, because a version can be edited, its hash."""
    return f"{parse_name(name).version}-{hash[7:19]}"


def load(impl: str, path: str) -> Callable[..., Any]:
    """The function that a manifest names at this path."""
    module_name, _, function_name = impl.partition(":")
    try:
        module: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever the module does when it is imported
        text = f"{impl!r} cannot be imported: {type(error).__name__}: {error}"
        raise BadManifest("unknown-module", path, text) from error
    found = module
    for part in function_name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise BadManifest("unknown-module", path, f"the module {module_name!r} has no function {function_name!r}")
    return found  # type: ignore[no-any-return]


def _event_in_words(fact: Fact | None, number: int) -> str:
    return "no more events" if fact is None else f"event {number}, {fact.name} {decode(fact.body)!r:.200}"


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of the author returns. Nothing that it raises may end the engine; Ctrl-C still does."""
    try:
        return function(*arguments)
    except Exception:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        text = f"{where(function)} raised {type(error).__name__}({error}), which is not an Exception"
        raise BadDecision(function.__qualname__, text) from error


def _argument(migrate: Callable[..., Any], machine: CellMachine) -> Any:
    """The old state as the function takes it: by the annotation with its schema, or as plain data."""
    hints = [hint for name, hint in typing.get_type_hints(migrate).items() if name != "return"]
    plain = decode(machine.state)
    if not hints:
        return plain
    shapes = [shape_of(hint) for hint in members(hints[0])]
    cell = machine.definition.cell
    for shape in shapes:
        if shape.schema == cell.state:
            return shape.build(shape.plain(plain))
    taken = " or ".join(shape.name or str(shape.schema) for shape in shapes)
    there = machine.definition.state.name or str(cell.state)
    text = f"the state is of {there}, and {where(migrate)} takes {taken}"
    raise BadDecision(cell.name, f"{text}; annotate its parameter with all that it is to take, joined by |")


def _agreed(manifest: Manifest, name: str) -> Any:
    """The reducer that a manifest names, if it is a plain function or the very cell that the manifest describes."""
    path = f"$.cells[{name!r}]"
    reducer: Any = load(manifest.cells[name].impl, f"{path}.impl")
    if not isinstance(reducer, Cell):
        return reducer
    own = define(reducer)
    if reducer.name != name:
        raise BadManifest("code-mismatch", f"{path}.impl", f"this is the cell {reducer.name} in the code")
    if own.cell_hash(name) == manifest.cell_hash(name):
        return reducer
    described = Manifest(
        {each: schema for each, schema in manifest.schemas.items() if each in own.schemas},
        {each: effect for each, effect in manifest.effects.items() if each in own.effects},
        {name: manifest.cells[name]},
    )
    found = contrasts(described, msgspec.structs.replace(own, routing=()))
    words = [f"{each.path} is {each.before!r:.80} here and {each.after!r:.80} in the code" for each in found]
    place = found[0].path if found else path
    raise BadManifest("code-mismatch", place, "; ".join(words[:3]) + ("; and more" if words[3:] else ""))


def _data(manifest: Manifest, schema: Schema) -> Data:
    return Data(schema, manifest.known_schemas)


def _bind_effect(manifest: Manifest, name: str, kind: Any) -> BoundEffect:
    definition = manifest.known_effects[name]
    kind = kind or system.CLASSES.get(name)
    return BoundEffect(
        definition,
        manifest.effect_hash(name),
        parse_name(name).name,
        _data(manifest, definition.params) if kind is None else shape_of(kind),
        _data(manifest, definition.receipt) if kind is None else receipt_shape(kind),
        name if kind is None else kind,
        _bind_frame(manifest, definition, kind),
    )


def _bind_frame(manifest: Manifest, definition: EffectDef, kind: Any) -> Any:
    if definition.frame is None:
        return None
    return _data(manifest, definition.frame) if kind is None else shape_of(kind.Frame)
