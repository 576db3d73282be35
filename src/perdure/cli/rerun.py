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
from perdure.kernel.events import KERNEL_ONLY, Address, CancelAsked, Event, Retried
from perdure.kernel.instance import Instance
from perdure.kernel.moment import Moment
from perdure.kernel.replay import deliveries, fold
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
        return self.machine.deliver(self.event, Moment(self.entry.at, self.seed, self.entry.number, recorded))

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
        self.lines: list[Line] = Reader().read(rows)
        self.state = fold(address, None, rows)

    def machine(self) -> FlowMachine:
        return FlowMachine(self.flow, str(self.address), None)

    def replay(self, machine: FlowMachine, count: int) -> Iterator[int]:
        """Deliver what the first so many entries delivered. The number of each, once that is done."""
        before = fold(self.address, None, self.rows[:count])
        for entry, event in deliveries(before.tail or ()):
            moment = Moment(entry.at, before.seed, entry.number, entry.decision)
            try:
                parted = self.flow.differs(entry.decision, machine.deliver(event, moment))
            except Exception as error:
                raise Parted(entry.number) from error
            if parted:
                raise Parted(entry.number)
            yield entry.number

    def at(self, number: int) -> Delivery:
        machine = self.machine()
        try:
            for _ in self.replay(machine, number - 1):
                pass
        except Parted:
            machine.dispose()
            raise
        before = fold(self.address, None, self.rows[: number - 1])
        entry = (self.state.tail or [])[number - 1]
        effects = {id: intent.effect for id, intent in before.open.items()}
        return Delivery(machine, entry, _heard(before, entry.event), self.state.seed, effects)


def _heard(before: Instance, event: Event) -> Event | None:
    """What a flow gets of an event. A retry delivers what was kept, and some events are the kernel's alone."""
    if type(event) is CancelAsked and before.kept is not None:
        return None
    heard = before.kept if type(event) is Retried and before.kept is not None else event
    return None if type(heard) in KERNEL_ONLY else heard


def raised(decision: Decision) -> bool:
    """The machine raised: the instance is stuck, and what had been delivered counts for nothing."""
    return decision.stuck is not None and decision.stuck.kept
