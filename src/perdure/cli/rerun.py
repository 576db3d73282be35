"""A recorded history, delivered again to the code of a flow, up to any entry. Nothing is run and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from perdure.codec import decode
from perdure.flows.author import Flow
from perdure.flows.machine import FlowMachine
from perdure.kernel.batch import JournalRow
from perdure.kernel.decision import Decision
from perdure.kernel.effects import Effect
from perdure.kernel.entry import Entry
from perdure.kernel.events import KERNEL_ONLY, Address, CancelAsked, Event, Retried, Rewound
from perdure.kernel.instance import Instance
from perdure.kernel.moment import Moment
from perdure.kernel.replay import deliveries, fold, since_rewind
from perdure.runtime.history import Line, Reader, in_words

from .text import first_line, short


class Parted(Exception):
    """At this entry the code does something else than it did, or raises."""

    def __init__(self, entry: int) -> None:
        super().__init__(entry)
        self.entry = entry


class Delivery(NamedTuple):
    """An entry, and a machine that stands before it. `event`: what the flow gets of it; None: nothing."""

    machine: FlowMachine
    entry: Entry
    event: Event | None
    seed: bytes
    open: dict[bytes, Effect]  # before it

    def deliver(self) -> Decision:
        assert self.event is not None
        recorded = None if self.raised else self.entry.decision  # what raised did so live, when nothing was recorded
        return self.machine.deliver(
            self.event, Moment(self.entry.at, self.seed, self.entry.number, recorded, None, self.entry.seq)
        )

    @property
    def raised(self) -> bool:
        return raised(self.entry.decision)

    def asked(self, decision: Decision) -> list[str]:
        """What a decision on this entry asks for, in words."""
        words = [*map(in_words, decision.open), *decision.noted]
        words += [f"withdraw {in_words(self.open[id])}" for id in decision.withdraw]
        words += [f"send {send.name} to {send.to}" for send in decision.send]
        words += [f"publish {name} = {short(decode(value))}" for name, value in decision.publish]
        words += [f"respond {short(decode(value))}" for _, value in decision.respond]
        if decision.outcome is not None:
            outcome = decision.outcome
            value = "" if outcome.value is None else f" {short(decode(outcome.value))}"
            error = "" if outcome.error is None else f": {first_line(str(outcome.error))}"
            words.append(f"{outcome.status}{value}{error}")
        if decision.stuck is not None:
            words.append(f"stuck: {first_line(str(decision.stuck.error))}")
        return words

    def parts(self, now: Decision, flow: Flow[Any, Any]) -> bool:
        """The code does something else than it did."""
        return not self.raised and (raised(now) or flow.differs(self.entry.decision, now))


class History:
    """What is recorded of an instance, and the code to replay it on. Always the whole journal, never a snapshot."""

    def __init__(self, address: Address, rows: list[JournalRow], flow: Flow[Any, Any]) -> None:
        self.address = address
        self.rows = rows
        self.flow = flow
        self.state = fold(address, None, rows)
        self._lines: list[Line] = Reader().read(rows)
        self.first = self._lines[0].number  # not always 1: a fork goes on counting
        self.last = self._lines[-1].number

    def line(self, number: int) -> Line:
        return self._lines[number - self.first]

    def machine(self) -> FlowMachine:
        return FlowMachine(self.flow, str(self.address), None)

    def replay(self, machine: FlowMachine, until: int) -> Iterator[int]:
        """Deliver what the entries before one delivered, since the last rewind. The number of each, once it is done."""
        before = self._before(until)
        for entry, event in since_rewind(deliveries(before.tail or ())):
            moment = Moment(entry.at, before.seed, entry.number, entry.decision, None, entry.seq)
            try:
                parted = self.flow.differs(entry.decision, machine.deliver(event, moment))
            except Exception as error:
                raise Parted(entry.number) from error
            if parted:
                raise Parted(entry.number)
            yield entry.number

    def at(self, number: int) -> Delivery:
        before, machine = self._before(number), self.machine()
        entry = (self.state.tail or [])[number - self.first]
        heard = _heard(before, entry.event)
        try:
            for _ in self.replay(machine, number) if type(heard) is not Rewound else ():  # which brings its own past
                pass
        except Parted:
            machine.dispose()
            raise
        effects = {id: intent.effect for id, intent in before.open.items()}
        return Delivery(machine, entry, heard, self.state.seed, effects)

    def _before(self, number: int) -> Instance:
        return fold(self.address, None, self.rows[: number - self.first])


def _heard(before: Instance, event: Event) -> Event | None:
    """What a flow gets of an event. A retry delivers what was kept, and some events are the kernel's alone."""
    if type(event) is CancelAsked and before.kept is not None:
        return None
    heard = before.kept if type(event) is Retried and before.kept is not None else event
    return None if type(heard) in KERNEL_ONLY else heard


def raised(decision: Decision) -> bool:
    """The machine raised: the instance is stuck, and what had been delivered counts for nothing."""
    return decision.stuck is not None and decision.stuck.kept
