"""A flow without an engine: its machine, a clock that stands still, steps that are done when the rig says so.

The machine can be thrown away and rebuilt after every entry: from all its entries, one by one
(`rebuild="journal"`); from its last snapshot and the entries after it (`rebuild="snapshot"`); or from rows, by the
kernel itself, which lets the machine go ahead (`rebuild="rows"`). What it decides must not depend on that, to the
last byte. `rebuild="write"` only keeps the rows.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Literal

import msgspec

import perdure
from perdure.codec import decode, encode, to_plain
from perdure.errors import Fatal
from perdure.executors.info import NO_WORK
from perdure.flows import rewind
from perdure.kernel.apply import apply
from perdure.kernel.batch import JournalRow
from perdure.kernel.decision import Decision, Outcome
from perdure.kernel.effects import Call, Child, Effect, attempt_of, due_of
from perdure.kernel.entry import Entry, pack
from perdure.kernel.entry import encode as encode_entry
from perdure.kernel.events import Address, CancelAsked, Event, Message, ReceiptArrived, Rewound, Started
from perdure.kernel.identity import Identity
from perdure.kernel.instance import Instance
from perdure.kernel.location import Patterns
from perdure.kernel.machine import Rebuild as MustRebuild
from perdure.kernel.moment import Moment
from perdure.kernel.past import Behind
from perdure.kernel.problem import Report
from perdure.kernel.receipt import DONE, Failure, Receipt
from perdure.kernel.replay import fold, rebuild
from perdure.ports.executor import Work

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000

Rebuild = Literal["never", "journal", "snapshot", "rows", "write"]
REBUILDS: tuple[Rebuild, ...] = ("never", "journal", "snapshot", "rows")


class Rig:
    def __init__(
        self,
        flow: perdure.Flow[..., Any],
        *args: Any,
        rebuild: Rebuild = "never",
        seed: int | None = None,
        booms: int = 0,
    ) -> None:
        self.flow = flow
        self.rebuild = rebuild
        self.dice = None if seed is None else random.Random(seed)
        self.identity = Identity(Address(flow.name, "k"), 1)
        self.machine = self._machine(None)
        self.entries: list[tuple[Event, Moment, Decision]] = []
        self.open: dict[bytes, Effect] = {}
        self.reports: list[Report] = []  # which hooks would be told of what
        self.calls: list[str] = []  # locations of executed steps, in order
        self.now = START
        self.outcome: Outcome | None = None
        self.snapshot: bytes | None = None
        self.snapshots = 0
        self.tail: list[tuple[Event, Moment, Decision]] = []
        self.replayed_max = 0
        self.code_changed = False
        self.booms = booms  # so many steps named boom fail
        self.instance = Instance(Address(flow.name, "k"))
        self.rows: list[JournalRow] = []
        self.deliver(Started(flow.name, "k", flow.encode_input(args, {}), b"seed" * 4, "1"))

    def _machine(self, snapshot: bytes | None) -> Any:
        return self.flow.machine(f"{self.flow.name}/k", snapshot)

    # ---- what happens to the flow -------------------------------------------------------------------------

    def deliver(self, event: Event) -> Decision:
        moment = Moment(self.now, b"seed" * 4, len(self.entries) + 1)
        decision: Decision = self.machine.deliver(event, moment)
        self.reports += decision.reports
        decision = msgspec.structs.replace(decision, reports=())  # they are not recorded
        self.entries.append((event, moment, decision))
        self.tail.append(self.entries[-1])
        if isinstance(event, ReceiptArrived):
            del self.open[event.intent]
        for id in decision.withdraw:
            del self.open[id]
        for effect in decision.open:
            id = self.identity.intent(effect.location, attempt_of(effect))
            assert id not in self.open
            self.open[id] = effect
        self.outcome = decision.outcome
        if self.rebuild in ("rows", "write"):
            self._write(event, moment, decision)
        if self.outcome is None and self.rebuild == "rows":
            self._rebuild_from_rows()
        elif self.outcome is None and self.rebuild in ("journal", "snapshot"):
            self._rebuild()
        return decision

    def _write(self, event: Event, moment: Moment, decision: Decision) -> None:
        """The row that a kernel would write, and what it would make of the instance."""
        packed, fresh = pack(decision.open, self.instance.patterns)
        entry = Entry(moment.number, 1, moment.number, moment.at, event, decision, (), fresh)
        self.rows.append(JournalRow(entry.seq, 1, entry.at, encode_entry(entry, packed)))
        apply(self.instance, entry)

    def _rebuild_from_rows(self) -> None:
        log = self.machine.log is not None  # else the flow has just begun its first loop
        before, instance = seen_of(self.machine, log), fold(self.instance.address, None, self.rows)
        assert instance.state() == self.instance.state()
        self.machine.dispose()
        self.machine = rebuild(instance, self.flow)
        assert seen_of(self.machine, log) == before

    def _rebuild(self) -> None:
        if self.rebuild == "snapshot":
            try:
                data = self.machine.snapshot()
            except MustRebuild:
                data = None
            if data is not None:
                self.snapshot, self.tail = data, []
                self.snapshots += 1
        self.machine.dispose()
        self.machine = self._machine(self.snapshot)
        for event, moment, recorded in self.tail:
            again = msgspec.structs.replace(moment, recorded=recorded)
            assert self.machine.deliver(event, again) == recorded
        self.replayed_max = max(
            self.replayed_max, len(self.tail if self.machine.log is None else self.machine.log.items)
        )

    # ---- another past -------------------------------------------------------------------------------------

    @property
    def behind(self) -> Behind:
        patterns, rows = Patterns(), []
        for event, moment, decision in self.entries:
            packed, fresh = pack(decision.open, patterns)
            patterns.learn(fresh)
            entry = Entry(moment.number, 1, moment.number, moment.at, event, decision, (), fresh)
            rows.append(JournalRow(moment.number, 1, moment.at, encode_entry(entry, packed)))
        return Behind(Address(self.flow.name, "k"), rows)

    def retry(self) -> Decision:
        event = self.behind.retry()
        assert event is not None
        return self._go_back(event)

    def rewind(self, to: str) -> Decision:
        behind = self.behind
        point = behind.point_of(to)
        assert point is not None, f"nothing was done at {to}"
        return self._go_back(behind.rewind(to, point, force=True))

    def _go_back(self, event: Rewound) -> Decision:
        """As the kernel does it: what is open still stays open, and a new machine is told its past."""
        event = msgspec.structs.replace(event, open=tuple(id for id in event.open if id in self.open))
        self.machine.dispose()
        self.machine = self._machine(None)
        self.snapshot, self.tail = None, []
        self.open = {id: effect for id, effect in self.open.items() if id in event.open}
        self.identity = self.identity.in_life(len(self.entries) + 1)
        return self.deliver(event)

    def send(self, name: str, body: object = None) -> Decision:
        return self.deliver(Message(name, encode(to_plain(body))))

    def cancel(self, reason: str = "") -> Decision:
        return self.deliver(CancelAsked(reason))

    def answer(self, location: str, receipt: Receipt | None = None) -> Decision:
        """Answer the open effect at a location: a step is performed, a timer fires."""
        id = next(id for id, effect in self.open.items() if effect.location == location)
        return self.deliver(ReceiptArrived(id, receipt or self._perform(id, self.open[id])))

    def deliver_to(self, location: str) -> Decision:
        """As `answer` for a step, without looking through everything that is open."""
        id = self.identity.intent(location, 1)
        return self.deliver(ReceiptArrived(id, self._perform(id, self.open[id])))

    def pass_time(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)
        for due, _, location in self._due():
            if due <= self.now and location in self.locations:
                self.answer(location)

    def run(self, entries_max: int = 1_000_000) -> Any:
        """Answer everything, the oldest first (or in the order of the dice), until the end; the result."""
        self.run_some(entries_max)
        return self.result

    def run_some(self, entries: int) -> None:
        for _ in range(entries):
            if self.outcome is not None:
                return
            calls = [effect.location for effect in self.open.values() if isinstance(effect, Call | Child)]
            if calls:
                self.answer(calls[0] if self.dice is None else self.dice.choice(calls))
            else:
                due = self._due()
                assert due, f"nothing moves: {self.locations}"
                self.now = max(self.now, due[0][0])
                self.answer(due[0][2])

    # ---- what can be seen of it ---------------------------------------------------------------------------

    @property
    def locations(self) -> list[str]:
        return [effect.location for effect in self.open.values()]

    @property
    def result(self) -> Any:
        assert self.outcome is not None, f"it still waits for {self.locations}"
        if self.outcome.status == "completed":
            assert self.outcome.value is not None
            return self.flow.decode_result(self.outcome.value)
        assert self.outcome.error is not None
        return f"{self.outcome.status}: {self.outcome.error}"

    def _due(self) -> list[tuple[int, int, str]]:
        found = [(due_of(effect), n, effect.location) for n, effect in enumerate(self.open.values())]
        return sorted((due, n, location) for due, n, location in found if due is not None)

    def _perform(self, id: bytes, effect: Effect) -> Receipt:
        if not isinstance(effect, Call):
            return DONE if not hasattr(effect, "names") else Receipt("timeout", error=Failure("Timeout", "late"))
        self.calls.append(effect.location)
        if effect.location.rpartition("/")[2].startswith("boom") and self.booms > 0:
            self.booms -= 1
            return Receipt("error", error=Failure("Fatal", "boom", retry=False))
        work = self.machine.work(id)
        if work is None and self.code_changed:
            return NO_WORK
        assert isinstance(work, Work), f"{effect.location}: a rebuilt machine has lost the work of an open step"
        try:
            value = finished(work.function(*work.args, **work.kwargs))
        except Exception as error:
            retry = not isinstance(error, Fatal)
            return Receipt("error", error=Failure(type(error).__name__, str(error), retry=retry))
        return Receipt("ok", encode(to_plain(value, work.returns)))


def finished(value: Any) -> Any:
    if not asyncio.iscoroutine(value):
        return value
    try:
        value.send(None)
    except StopIteration as end:
        return end.value
    value.close()
    raise RuntimeError("a step of the rig may not wait")


def same_in_every_rebuild(flow: perdure.Flow[..., Any], *args: Any, drive: Callable[[Rig], Any]) -> Rig:
    """Drive a flow hot, replayed after each entry, and restored after each: the same entries each time."""
    rigs = [Rig(flow, *args, rebuild=rebuild) for rebuild in REBUILDS]
    results = [drive(rig) for rig in rigs]
    for rig, result in zip(rigs, results, strict=True):
        assert result == results[0]
        assert rig.entries == rigs[0].entries
        assert rig.calls == rigs[0].calls
    return rigs[2]


def changed(old: Any, new: Any, drive: Callable[[Rig], Any], then: Callable[[Rig], Any] = Rig.run) -> Any:
    """An instance begins with the old code, is driven so far, and goes on with the new one; its result."""
    rig = Rig(perdure.flow(name="f")(old))
    drive(rig)
    rig.machine.dispose()
    rig.code_changed = True
    rig.flow = perdure.flow(name="f")(new)
    rig.machine = rig.flow.machine("f/k", None)
    for event, moment, recorded in rig.entries:
        again = msgspec.structs.replace(moment, recorded=recorded)
        decision = rig.machine.deliver(event, again)
        assert not rig.flow.differs(recorded, decision), (recorded, decision)
    return then(rig)


def seen_of(machine: Any, log: bool) -> tuple[object, ...]:
    """All that one can see of a machine, besides where its code stands."""
    kept = machine.log.items if log else []
    items = [(i.number, i.at, i.event, i.decision.open, i.decision.noted, i.location, i.ghost) for i in kept]
    operations, mail, undos, paths, losers, barriers = rewind.shape(machine)
    shape = operations, mail, undos, sorted(paths), losers, barriers  # `as_completed` makes tasks in any order
    return shape, machine.moment.at, machine.moment.number, machine.loop.now, items


def value_of(data: bytes | None) -> Any:
    return None if data is None else decode(data)
