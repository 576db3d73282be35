"""Cells in a test: a reducer called by itself, the effects that cells of a world have open, and their states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from perdure.cells.author import (
    Cell,
    CellContext,
    Datum,
    FrameOf,
    Next,
    ReceiptOf,
    Rejected,
    Request,
    effect_name,
    named,
)
from perdure.cells.bound_manifest import BoundEffect, Definition, encode_event, manifest
from perdure.cells.machine import NOTHING, CellMachine
from perdure.codec import decode, encode
from perdure.codec.record import Record, shape_of
from perdure.errors import CallerError, UnknownIntent
from perdure.kernel.batch import HeadRow
from perdure.kernel.effects import Call, Wait
from perdure.kernel.events import Address, ReceiptArrived
from perdure.kernel.instance import Instance, Intent
from perdure.kernel.limits import refuse_excess
from perdure.kernel.moment import Moment
from perdure.kernel.receipt import Receipt
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.rules import key_text
from perdure.kernel.status import TERMINAL

from .simulation import Simulation
from .steps import OpenEffects
from .user_simulation import UserSimulation

NOW: Final = 1_700_000_000_000_000_000
"""What the clock shows for a reducer that is called by itself: what it shows first in a world, too."""

NO_ANSWER: Final = {
    "timeout": "nobody answered in time",
    "cancelled": "it was cancelled",
    "unknown": "the executor died before it answered",
}
"""Receipts without an answer, and what they say."""


# ---- one reducer, by itself ------------------------------------------------------------------------------


class Reduced(NamedTuple):
    """What a reducer answered, in the form in which it would be recorded. `state` None: the cell is deleted."""

    state: Any
    events: list[Any]
    effects: list[Any]


def reduce(cell: Cell, state: Any, event: Any, **context: Any) -> Reduced:
    """`(state, event) -> (state, events, effects)`, without an engine: what goes in and comes out is checked.

    state: None: there is no cell yet. event: an event, a `ReceiptOf` or `FrameOf` (with its `params`), or a `Rejected`.
    context: fields of `CellContext`; `now` is 2023-11-14 and `key` the key of the event, unless they are given.

    Raises what the reducer raises; `SchemaMismatch` where a value is not of its schema; `BadDecision` for an effect
    that is not declared. In an engine the cell would be stuck.
    """
    if not isinstance(cell, Cell):
        raise CallerError(f"reduce(cell, state, event) takes a cell, found {cell!r}; did you forget @perdure.cell?")
    world = manifest(cell).manifest
    definition = _Watched(world, world.cells[cell.name], cell)
    taken, body = _taken(definition, event)
    definition.context = {"manifest_hash": world.hash, "key": _key_of(cell, event), **context}
    before = b"" if state is None else definition.state.encode(state)
    machine = CellMachine(definition, definition.context["key"], msgspec.msgpack.encode((before, world.hash, {})))
    decision = machine.reduce(taken, body, Moment(NOW, b"seed", 1, seq=1), context.get("correlation", ""))
    refuse_excess(decision, definition.limits)
    after = definition.state.build(decode(machine.state)) if machine.state else None
    given = definition.given
    return Reduced(after, list(map(_canonical, given.events)), list(map(_canonical, given.effects)))


class _Watched(Definition):
    """A cell that gets the context of the test, and keeps what its reducer returned."""

    context: dict[str, Any]
    given: Next

    def reduce(self, state: Any, event: Any, context: Any) -> Any:
        unknown = sorted(set(self.context) - set(CellContext.__struct_fields__))
        if unknown:
            known = ", ".join(CellContext.__struct_fields__)
            raise CallerError(f"a reducer's context has no {unknown[0]!r}; it has: {known}")
        given = super().reduce(state, event, msgspec.structs.replace(context, **self.context))
        if isinstance(given, Next):  # else the machine says what is wrong
            self.given = given = msgspec.structs.replace(
                given, events=tuple(given.events), effects=tuple(given.effects)
            )
        return given

    def fact(self, event: Any) -> tuple[str, bytes]:
        """Which events there are is a matter of the whole manifest; here each is checked by its own class."""
        if isinstance(event, Record) and named(event):
            return named(event), shape_of(type(event)).encode(event)
        return super().fact(event)


def _taken(definition: Definition, event: Any) -> tuple[Any, bytes]:
    """The event as the reducer takes it, and its bytes."""
    if isinstance(event, ReceiptOf):
        return _receipt_taken(definition, event)
    if isinstance(event, FrameOf):
        return _frame_taken(definition, event)
    if isinstance(event, Rejected):
        if not definition.takes_rejected:
            raise CallerError(f"{definition.cell.name} does not take Rejected: it fails where a receipt cannot be read")
        return event, encode(event.message)
    forms = {name: form for name, (_, form) in definition.events.items()}
    name, body = encode_event(event, forms, f"the cell {definition.cell.name}")
    return definition.event(name, decode(body)), body


def _receipt_taken(definition: Definition, receipt: ReceiptOf[Any]) -> tuple[Any, bytes]:
    name = receipt.effect if isinstance(receipt.effect, str) else effect_name(receipt.effect)
    effect = definition.effects.get(name)
    if effect is None:
        known = ", ".join(sorted(definition.effects)) or "none"
        raise CallerError(f"{definition.cell.name} gets no receipt of {name}: it declares {known}")
    body = effect.receipt.encode(receipt.value) if receipt.ok else NOTHING
    params = None if receipt.params is None else effect.params.build(effect.params.plain(receipt.params))
    fields = {name: getattr(receipt, name) for name in ReceiptOf.__slots__}
    fields |= {"value": effect.receipt.build(decode(body)) if receipt.ok else None, "params": params}
    return ReceiptOf(**fields), body


def _frame_taken(definition: Definition, frame: FrameOf[Any]) -> tuple[Any, bytes]:
    name = frame.effect if isinstance(frame.effect, str) else effect_name(frame.effect)
    if name not in definition.cell.frames:
        known = ", ".join(definition.cell.frames) or "no frames"
        raise CallerError(f"{definition.cell.name} gets no frame of {name}: it takes {known}")
    effect = definition.effects[name]
    body = effect.frame.encode(frame.value)
    params = None if frame.params is None else effect.params.build(effect.params.plain(frame.params))
    return msgspec.structs.replace(frame, value=effect.frame.build(decode(body)), params=params), body


def _key_of(cell: Cell, event: Any) -> str:
    path = cell.keys.get(named(event), "")
    if not path or not isinstance(event, Record):
        return ""
    value: Any = shape_of(type(event)).plain(event)
    for part in path.split("."):
        value = value[part]
    return key_text(value) or ""


def _canonical(given: Any) -> Any:
    """An event or an effect as it is recorded: whatever the reducer does to its objects later."""
    if isinstance(given, Request):
        return msgspec.structs.replace(given, effect=_canonical(given.effect))
    if not isinstance(given, Record):
        return given
    shape = shape_of(type(given))
    return shape.build(shape.plain(given))


# ---- what the cells of a world have open -----------------------------------------------------------------


class OpenEffect(NamedTuple):
    """An effect that waits for an answer. `params` is its plain data; `cell` the name of who asked, with its `key`.

    Of any other workflow that waits for a message: `effect` has the names of the messages, and `bound` is None.
    """

    effect: Any
    intent: str
    cell: str
    key: str
    params: Any
    instance: int
    bound: BoundEffect | None

    def __repr__(self) -> str:
        return f"<open {self.effect!r} of {self.cell} {self.key!r}>"


def open_effects(simulation: UserSimulation) -> list[OpenEffect]:
    waiting = _executor(simulation).waiting
    found = []
    for instance in simulation.auditor.open_instances():
        definition = simulation.workflows.of(instance.address.workflow, instance.definition)
        for intent in instance.open.values():
            if not isinstance(definition, Definition):
                if isinstance(intent.effect, Wait):
                    found.append(_open_wait(instance, intent.id, intent.effect))
            elif intent.id in waiting or type(intent.effect) is Wait:
                found.append(_open_effect(instance, definition, intent))
    return found


def _open_wait(instance: Instance, intent: bytes, wait: Wait) -> OpenEffect:
    to = instance.address
    return OpenEffect(", ".join(wait.names), intent.hex(), to.workflow, to.key, None, instance.id, None)


def _open_effect(instance: Instance, definition: Definition, intent: Intent) -> OpenEffect:
    assert isinstance(intent.effect, Call | Wait)
    asked = decode(intent.effect.params or b"")
    effect, params = definition.effects[asked["effect"]], asked["params"]
    value = effect.params.build(params)
    value = Datum(asked["effect"], value) if isinstance(effect.face, str) else value
    name, key = definition.cell.name, instance.address.key
    return OpenEffect(value, intent.id.hex(), name, key, params, instance.id, effect)


def find_open(found: Sequence[OpenEffect], wanted: Any) -> OpenEffect:
    """The one that is meant: by itself, by its intent, or by an effect equal to it."""
    if isinstance(wanted, OpenEffect):
        wanted = wanted.intent
    same = [each for each in found if wanted in (each.intent, each.effect)]
    if len(same) == 1:
        return same[0]
    if same:
        raise CallerError(f"{len(same)} open effects are {wanted!r}: answer one of world.pull_effects()")
    known = ", ".join(map(repr, found)) or "none"
    raise UnknownIntent(repr(wanted), known)


def answer_open(simulation: UserSimulation, found: OpenEffect, receipt: Receipt) -> None:
    intent = bytes.fromhex(found.intent)
    executor = _executor(simulation)
    if intent in executor.waiting:
        executor.answer(intent, receipt)
    else:
        simulation.request(found.instance, ReceiptArrived(intent, receipt), "receipt")
    simulation.rest()


def send_frame(simulation: UserSimulation, found: OpenEffect, value: Any) -> None:
    if found.bound is None:
        raise CallerError(f"{found!r} has no frames: it waits for a message")
    form = found.bound.frame
    if form is None:
        raise CallerError(f"{found.bound.definition.name} has no frames: it has no class Frame")
    intent = bytes.fromhex(found.intent)
    _executor(simulation).frame(intent, form.plain(value))
    simulation.rest()


def _executor(simulation: UserSimulation) -> OpenEffects:
    owner = simulation.owner
    assert owner is not None, "a process that dies is replaced at once"
    assert isinstance(owner.effects, OpenEffects)
    return owner.effects


def state_of(world: Simulation, cell: str, key: object = "") -> Any:
    """The state of a cell, by the journal alone; None: there is no cell."""
    id = world.database.names.get((cell.partition("@")[0], key_text(key) or ""))
    return None if id is None else state_of_instance(world, world.database.heads[id])


def state_of_instance(world: Simulation, head: HeadRow) -> Any:
    """The state of what runs under a head; None: it has ended, or is no cell."""
    workflow = world.workflows.of(head.workflow, head.version)
    if head.status in TERMINAL or not isinstance(workflow, Definition):
        return None
    machine = rebuild(fold(Address(head.workflow, head.key), None, world.database.histories[head.id]), workflow)
    assert isinstance(machine, CellMachine)
    return workflow.state.build(decode(machine.state)) if machine.state else None
