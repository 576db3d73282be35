"""Another past, or a pruned one: how a machine is told what happened before, and goes on from there.

A rewind, a retry and a fork tell a machine a past that differs from its journal. A snapshot is the machine's own past,
pruned. In both the events are delivered again, and decisions that are recorded must come out the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import Divergence
from perdure.kernel.decision import NOTHING, Decision, Send
from perdure.kernel.difference import Difference
from perdure.kernel.effects import Call, Child, Effect, Wait, attempt_of, due_of
from perdure.kernel.events import Address, Event, Message, ReceiptArrived, Requested, Rewound, Started
from perdure.kernel.moment import TIME_MAX, Moment
from perdure.kernel.past import Item as PastItem
from perdure.kernel.past import Past, read, write
from perdure.kernel.receipt import Receipt
from perdure.kernel.replay import divergence

from .author import same_operations
from .change import in_order
from .log import Item, Log
from .said import Said
from .start import start

if TYPE_CHECKING:
    from .machine import FlowMachine
    from .operation import Operation

Place = tuple[str, int]
"""A location and an attempt."""


def go_back(machine: FlowMachine, event: Rewound, moment: Moment, *, fork: bool) -> Decision:
    """Live through a past, then go on from there: all that is open then is opened now."""
    past = read(event.past)
    machine.noted_before = frozenset(past.noted)
    if past.base:
        machine.log = Log()
        restore(machine, past.base)
    machine.rewinding = rewinding = machine.rewinding or Rewinding()
    for operation in machine.operations.values():
        rewinding.opened(operation, machine.moment.at)
    anew = SaidAgain(past.items, fork)
    items = iter([item for item in past.items if item.way != "now"])
    for item in items:
        anew.decided(item, _deliver_again(machine, item, moment, items))
    late = [msgspec.structs.replace(item, way="again") for item in rewinding.late.values()]
    now = [item for item in past.items if item.way == "now"]
    mark = msgspec.structs.replace(event, past=write(Past((*late, *now))))
    decision = mark_rewind(machine, mark, moment, now, anew)
    if moment.recorded is not None and machine.passed_by == moment.number:
        decision = in_order(decision, moment.recorded)
    if machine.log is not None:
        machine.log.add(moment, mark, decision)
    return decision


def _deliver_again(machine: FlowMachine, item: PastItem, rewound: Moment, rest: Iterator[PastItem]) -> Decision:
    """One delivery of the past."""
    same = item.way == "same"
    if not same and machine.main is not None and machine.main.done():
        return NOTHING
    moment = Moment(item.at, item.seed, item.number, item.decision if same else rewound.recorded)
    event = _as_of_now(machine, item)
    if event is None:
        assert machine.rewinding is not None
        machine.rewinding.late[item.location, item.attempt] = item
        return NOTHING
    location = ""
    if type(event) is Rewound:
        decision = mark_rewind(machine, event, moment, list(read(event.past).items), None)
    else:
        location = machine.happened(event, moment)
        machine.run()
        decision = machine.decision()
    if same:
        if machine.passed_by == item.number:
            decision = in_order(decision, item.decision)
        if not same_operations(item.decision, decision):
            later = tuple([each.decision for each in rest])
            raise _diverged(machine, item.number, Difference(item.decision, decision, later))
    if type(event) is Message or type(event) is Requested:
        location = "" if machine.log is None else machine.log.taken.pop(item.number, "")
    if machine.log is not None:
        machine.log.add(moment, event, decision, location)
    return decision


def _as_of_now(machine: FlowMachine, item: PastItem) -> Event | None:
    """The event of an item, with the ids of this life; None: what it answers is not open."""
    event = item.event
    if type(event) is ReceiptArrived:
        operation = machine.rewinding.at(item) if machine.rewinding is not None else None
        if operation is None or machine.operations.get(operation.id) is not operation:
            return None
        return ReceiptArrived(operation.id, event.receipt)
    return event


def mark_rewind(
    machine: FlowMachine, event: Rewound, moment: Moment, now: list[PastItem], anew: SaidAgain | None
) -> Decision:
    """The moment of a rewind: what is open is opened again, by other ids."""
    machine.begin(moment)
    for item in now:
        if item.way == "again":
            assert machine.rewinding is not None
            machine.rewinding.late[item.location, item.attempt] = item
        elif type(item.event) is Started:  # it did something then, so it was not refused
            start(machine, item.event, new=False)
        elif (told := _as_of_now(machine, item)) is not None:
            machine.happened(told, moment)
    _release(machine, moment.number)
    machine.run()
    _renew(machine, event, moment)
    machine.said = said = machine.said or Said()
    said.reports.clear()  # of failures long ago: their hooks were told then
    if anew is not None:
        said.noted[:0] = anew.noted
        said.sent[:] = [*anew.sent, *anew.not_sent(said.sent)]
        said.published[:0] = anew.published.items()
        said.tags[:0] = anew.tags.items()
        said.responded[:0] = anew.responded
    return machine.decision()


def _renew(machine: FlowMachine, event: Rewound, moment: Moment) -> None:
    if machine.lives is None:
        machine.lives = Lives()
    machine.lives.renew(event.renew, moment.number)
    assert machine.identity is not None
    family, machine.life = machine.family, moment.number
    machine.identity = machine.identity.in_life(moment.number)
    operations, machine.operations = machine.operations, {}
    machine.opened.clear()
    machine.withdrawn = [id for id in machine.withdrawn if id in event.open]
    for operation in operations.values():
        if operation.id not in event.open:
            _reopen(machine, operation, event, moment, family)
        machine.operations[operation.id] = operation


def _reopen(machine: FlowMachine, operation: Operation, event: Rewound, moment: Moment, family: str) -> None:
    effect = operation.effect
    assert machine.identity is not None and machine.lives is not None and machine.rewinding is not None
    id = machine.identity.intent(effect.location, attempt_of(effect))
    opened_at = machine.rewinding.opened_at(effect)
    if type(effect) is Call:
        effect = msgspec.structs.replace(effect, life=machine.lives.of(effect.location))
    elif type(effect) is Wait:
        machine.mailbox.waits_as(operation, effect, id)
    elif type(effect) is Child and effect.key.startswith(f"{family}/"):
        effect = msgspec.structs.replace(effect, key=machine.family + effect.key[len(family) :])
    due = due_of(effect)
    if due is not None and opened_at is not None and effect.location in event.again:  # it waits as long as then
        effect = msgspec.structs.replace(effect, due=min(TIME_MAX, due - opened_at + moment.at))
    operation.id, operation.effect = id, effect
    machine.opened[id] = effect


def answered_before(machine: FlowMachine, operation: Operation, rewinding: Rewinding) -> bool:
    """Whether there is an answer already, from before the instance was rewound."""
    receipt = rewinding.answer(operation.effect)
    if receipt is None:
        rewinding.opened(operation, machine.moment.at)
        return False
    machine.note("answered", operation.effect.location)
    if operation.fire is not None:
        machine.loop.call_soon(operation.fire)
    elif operation.future is not None:
        operation.future.set_result(receipt)
    return True


def restore(machine: FlowMachine, snapshot: bytes) -> None:
    marks, items = Log.load(snapshot)
    assert machine.log is not None
    machine.log.resumes = dict(marks)
    try:
        for item in items:
            current = _replay(machine, item, Moment(item.at, item.seed, item.number, item.decision))
            if not same_operations(item.decision, current):
                later = tuple([item.decision for item in items])
                raise _diverged(machine, item.number, Difference(item.decision, current, later))
    except BaseException:
        machine.dispose()
        raise


def _replay(machine: FlowMachine, item: Item, moment: Moment) -> Decision:
    if type(item.event) is Rewound:
        machine.rewinding = machine.rewinding or Rewinding()
        for operation in machine.operations.values():
            machine.rewinding.opened(operation, moment.at)
        current = mark_rewind(machine, item.event, moment, list(read(item.event.past).items), None)
    else:
        if item.ghost:
            machine.begin(moment)
            _release(machine, moment.number)
        else:
            machine.happened(item.event, moment)
        machine.run()
        current = machine.decision()
    if machine.passed_by == moment.number:
        current = in_order(current, item.decision)
    assert machine.log is not None
    machine.log.taken.pop(moment.number, None)
    machine.log.append(item)
    return current


def _diverged(machine: FlowMachine, number: int, difference: Difference) -> Divergence:
    return divergence(machine.address, number, machine.flow, machine, difference)


def _release(machine: FlowMachine, number: int) -> None:
    if machine.log is not None:
        machine.log.release(number)


def shape(machine: FlowMachine) -> tuple[Any, ...]:
    """What must be equal in a machine and its rebuilt twin, as far as that can be seen from outside."""
    paths = [task.path for task in machine.loop.pending()]
    mail = machine.mailbox.entries(), list(machine.held)
    undos = [] if machine._undos is None else machine._undos.locations()
    return list(machine.operations), mail, undos, paths, len(machine.losers), bool(machine.log and machine.log.barriers)


class Lives:
    """Since which rewind the work at a location is other work than before: it has another idempotency key then."""

    def __init__(self) -> None:
        self._all = 0
        self._some: dict[str, int] = {}

    def of(self, location: str) -> int:
        return self._some.get(location, self._all)

    def renew(self, locations: tuple[str, ...] | None, life: int) -> None:
        """None: everything."""
        if locations is None:
            self._all = life
            self._some.clear()
        else:
            self._some.update(dict.fromkeys(locations, life))


class SaidAgain:
    """What a flow says while its past is decided again, and had not said then: that is said with the rewind.

    A fork has published nothing yet, so it publishes what there was before it, too.
    """

    def __init__(self, past: tuple[PastItem, ...], fork: bool) -> None:
        self.noted: list[str] = []
        self.sent: list[Send] = []
        self.published: dict[str, bytes] = {}
        self.tags: dict[str, str | None] = {}
        self.responded: list[tuple[str, bytes]] = []
        self._sent_then = Counter(
            [_content(send) for item in past if item.way != "same" for send in item.decision.send]
        )
        self._fork = fork

    def decided(self, item: PastItem, decision: Decision) -> None:
        again = item.way == "again"
        if again or self._fork:
            self.published.update(decision.publish)
            self.tags.update(decision.tags)
        if again:
            self.noted += decision.noted
            self.responded += decision.respond
        self.sent += self.not_sent(decision.send) if again else ()

    def not_sent(self, sends: Iterable[Send]) -> list[Send]:
        """Those among them that were not sent then. Each that was sent counts once."""
        fresh = []
        for send in sends:
            if self._sent_then[_content(send)]:
                self._sent_then[_content(send)] -= 1
            else:
                fresh.append(send)
        return fresh


def _content(send: Send) -> tuple[Address, str, bytes]:
    return send.to, send.name, send.body


class Rewinding:
    """What is open by its place, and answers that came before the operation that they belong to was opened again."""

    def __init__(self) -> None:
        self.late: dict[Place, PastItem] = {}
        self._open: dict[Place, tuple[Operation, int]] = {}

    def opened(self, operation: Operation, at: int) -> None:
        self._open[_place(operation.effect)] = operation, at

    def at(self, item: PastItem) -> Operation | None:
        """The last operation that was opened where an item answers one."""
        found = self._open.get((item.location, item.attempt))
        return None if found is None else found[0]

    def opened_at(self, effect: Effect) -> int | None:
        found = self._open.get(_place(effect))
        return None if found is None else found[1]

    def answer(self, effect: Effect) -> Receipt | None:
        """What was answered long ago."""
        item = self.late.pop(_place(effect), None)
        return None if item is None else item.event.receipt  # type: ignore[union-attr]


def _place(effect: Effect) -> Place:
    return effect.location, attempt_of(effect)
