"""Another past for a machine whose state is a value: what `retry` of a failure tells it.

The machine begins again, is told every item of the past, and answers with all that is open then. After a rewind the ids
of intents are new, so a receipt finds its operation by location and attempt. The receipts of what failed are no part of
the past: what failed is open at the end, and is done again.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from .decision import Decision
from .effects import Effect, attempt_of
from .events import Event, ReceiptArrived, Rewound, Started
from .moment import Moment
from .past import Item, read
from .receipt import Receipt

Place = tuple[str, int]
"""A location and an attempt."""


class ValueMachine(Protocol):
    """A machine that can begin again and knows the effects that it has open."""

    def deliver(self, event: Event, moment: Moment) -> Decision: ...

    def begin_again(self, snapshot: bytes | None, life: int) -> None:
        """Forget everything, or all since a snapshot. From now on ids of intents are those of another life."""
        ...

    def open_effects(self) -> dict[bytes, Effect]: ...


def rewind(machine: ValueMachine, event: Rewound, moment: Moment) -> Decision:
    """Tell the past of a rewind to a machine. The answer opens all that it has open then."""
    past = read(event.past)
    machine.begin_again(past.base or None, moment.number)
    late: dict[Place, Receipt] = {}  # answers that came before their operation was opened again
    decision = Decision()
    for item in past.items:
        if isinstance(item.event, Rewound):
            continue
        at = Moment(item.at, item.seed or moment.seed, item.number, None, None, moment.seq, item.at)
        decision = _told(machine, item, at, late) or decision
    still = {id for id in event.open if id in machine.open_effects()}
    opened = {id: effect for id, effect in machine.open_effects().items() if id not in still}
    ordered = sorted(opened.items(), key=lambda each: (each[1].location, attempt_of(each[1])))
    return msgspec.structs.replace(
        decision,
        open=tuple(effect for _, effect in ordered),
        intents=tuple(id for id, _ in ordered),
        withdraw=(),
        noted=(),
        publish=decision.publish if decision.outcome is not None else (),
        respond=(),
    )


def _told(machine: ValueMachine, item: Item, at: Moment, late: dict[Place, Receipt]) -> Decision | None:
    event = item.event
    if isinstance(event, ReceiptArrived):
        found = _at(machine, (item.location, item.attempt))
        if found is None:
            late[item.location, item.attempt] = event.receipt
            return None
        event = ReceiptArrived(found, event.receipt)
    elif isinstance(event, Started) and event.forked is not None:
        event = msgspec.structs.replace(event, forked=None)
    decision = machine.deliver(event, at)
    while late and decision.outcome is None:
        answered = next((place for place in late if _at(machine, place) is not None), None)
        if answered is None:
            break
        found = _at(machine, answered)
        assert found is not None
        decision = machine.deliver(ReceiptArrived(found, late.pop(answered)), at)
    return decision


def _at(machine: ValueMachine, place: Place) -> bytes | None:
    """The open intent at a place."""
    for id, effect in machine.open_effects().items():
        if (effect.location, attempt_of(effect)) == place:
            return id
    return None
