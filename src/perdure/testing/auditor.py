"""The auditor: it sees every durable row and every visible act of a world, and stops the world at the
first lie.

It folds each committed row for itself, so it holds a second opinion of every instance. The rules are
those of the design: acknowledged is durable, nothing is visible before it is durable, histories have no
gaps, live equals folded, replay makes the same decisions, one receipt per intent, deliveries are
journaled before they run, a fenced owner writes nothing, every domain event reaches each cell that it is
routed to once, and a receipt from outside is from the executor that was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.codec import decode as decode_value
from perdure.errors import PerdureError
from perdure.kernel.apply import SEEN_MIN, SEEN_MIN_MADE, Changed
from perdure.kernel.batch import Batch, HeadRow, JournalRow, Publication
from perdure.kernel.decision import NOTHING, Stuck
from perdure.kernel.effects import OURS, Call
from perdure.kernel.entry import Entry
from perdure.kernel.events import (
    Address,
    CancelAsked,
    Event,
    Message,
    Parked,
    ReceiptArrived,
    Redelivered,
    Ref,
    Released,
    Rewound,
    Started,
    Streamed,
)
from perdure.kernel.instance import Instance, Intent
from perdure.kernel.kernel import Kernel
from perdure.kernel.machine import Workflow
from perdure.kernel.mailbox import Accepted, Answer, Refused
from perdure.kernel.outside import Verify, objection, outside_of, unsigned
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.routing import Router
from perdure.kernel.rows import Before, decode_outcome, offer_of
from perdure.kernel.rules import AUDIT, IN_FORCE, RULER, decode_rules
from perdure.kernel.status import FINAL, TERMINAL, Status
from perdure.kernel.workflows import Workflows
from perdure.stores.memory import MemoryDatabase
from perdure.stores.rebuild import Indexes, _Fold, differences

from .executor import Execution

AUDITED: Final = ("no-identity", "not-outside", "wrong-executor", "bad-signature")
"""Refusals that the world records."""


class Violation(AssertionError):
    """A rule of the design was broken."""


class Opened(msgspec.Struct):
    """What the journal says of a call, and which of its deliveries were seen."""

    instance: int
    location: str
    executor: str
    deliveries_max: int
    held: bool
    delivery: int = 1  # the last one that is journaled
    strikes: int = 1  # those that count against the allowed ones
    counted: bool = True
    started: set[int] = msgspec.field(default_factory=set)
    answered: bool = False  # by its executor
    closed: bool = False


class Auditor(_Fold):
    """`ours`: the workflows are our own. Then none of them may raise, and all of memory and of the indexes is
    compared after each commit: that finds our errors, not those of a user's workflow."""

    def __init__(
        self,
        database: MemoryDatabase,
        workflows: Workflows[Workflow],
        slots: Mapping[str, int | None],
        *,
        ours: bool = True,
        verify: Verify = unsigned,
    ) -> None:
        super().__init__(None)
        self.slots = slots
        self._verify = verify
        self._ours = ours
        self._admitted: Counter[str] = Counter()
        self._database = database
        self._workflows = workflows
        self._seq = 0
        self._at = 0
        self._writer = 0  # the process that wrote last
        self._names: dict[tuple[str, str, int], int] = {}
        self._messages_recorded: Counter[tuple[int, str]] = Counter()
        self._remembered: dict[int, dict[str, None]] = {}  # ids that an instance must still know
        self._ended: dict[int, JournalRow] = {}
        self.calls: dict[bytes, Opened] = {}
        self._answers: Counter[bytes] = Counter()  # of any intent
        self._frames: Counter[bytes] = Counter()  # of any intent, the number of the last one
        self._asked_outside: dict[bytes, Intent] = {}
        self._router = Router()  # by the manifest in force
        self._to_hear: Counter[tuple[Address, str]] = Counter()  # how many events of a name each cell is to hear
        self._heard: Counter[tuple[Address, str]] = Counter()  # and how many it has heard
        self.audits: Counter[bytes] = Counter()  # refused receipts that the world has recorded, by intent
        self.offered: Counter[bytes] = Counter()  # receipts from outside that were offered, good and bad
        self.refusals: Counter[bytes] = Counter()  # those that were said to be refused
        self._early: dict[bytes, set[int]] = {}  # deliveries of ephemeral calls that are not durable yet
        self.executions: list[Execution] = []
        self.executed_keys: Counter[str] = Counter()
        self.touched: set[int] = set()
        self.may_break: set[str] = set()  # workflows whose machines raise on purpose
        self.cells: set[str] = set()  # workflows whose instances may rest for ever, and are replayed after every entry
        self.acknowledged: list[tuple[Ref, Event]] = []
        self.unknown = 0  # receipts with an unknown outcome

    # ---- what is written -------------------------------------------------------------------------------

    def wrote(self, process: int, epoch: int, batch: Batch) -> None:
        """A batch has just become durable."""
        if epoch != self._database.epoch:
            raise Violation(f"process {process} wrote with epoch {epoch}, but {self._database.epoch} is the owner's")
        self._writer = process
        for row in batch.journal:
            if row.seq != self._seq + 1:
                raise Violation(f"entry {row.seq} follows entry {self._seq}: the journal has a gap")
            if row.instance in self._ended:
                raise Violation(f"instance {row.instance} has ended and changes in entry {row.seq}")
            if row.at < self._at:
                raise Violation(f"entry {row.seq} was recorded before entry {self._seq}: time goes back")
            self._seq, self._at = row.seq, row.at
            self.take(row)
        self._check(self.problems)
        if not self._ours:
            return
        self.touched.update(row.instance for row in batch.journal)
        for executor, slots in self.slots.items():
            if slots is not None and self._admitted[executor] > slots:
                raise Violation(f"{self._admitted[executor]} calls are admitted to {executor}, which has {slots} slots")
        inbox = [row for _, row in self._database.inbox.values()]
        database = self._database
        stored = Indexes(
            database.heads,
            database.work,
            database.published,
            inbox,
            database.jobs,
            database.tags.keys(),
            database.counts,
            database.tasks,
        )
        self._check(differences(self.rebuilt(), stored))

    def refused(self, process: int, error: Exception) -> None:
        """A batch is not fenced and contradicts what is durable: its process went on from something else."""
        raise Violation(f"the store must refuse a batch of process {process}: {error}")

    def _check(self, problems: list[str]) -> None:
        if problems:
            raise Violation("; ".join(problems))

    def _index(self, instance: Instance, entry: Entry, changed: Changed, had: Before) -> None:
        """Called for each durable entry, once it is applied to our own copy."""
        super()._index(instance, entry, changed, had)
        self._audit_event(instance, entry)
        self._audit_routes(instance, entry)
        for intent in changed.opened:
            if outside_of(intent.effect) is not None:
                self._asked_outside[intent.id] = intent
            if type(intent.effect) is Call:
                if intent.id in self.calls:
                    raise Violation(f"{instance.address}: {intent.effect.location} was opened twice under one id")
                effect = intent.effect
                self.calls[intent.id] = Opened(
                    instance.id, effect.location, effect.executor, effect.deliveries_max, intent.held
                )
                self.calls[intent.id].started |= self._early.pop(intent.id, set())
                self._admitted[effect.executor] += not intent.held
        for intent in changed.closed:
            call = self.calls.get(intent.id)
            if call is not None:
                call.closed = True
                self._admitted[call.executor] -= not call.held
        stuck = entry.decision.stuck
        if stuck is not None and stuck.kept and self._ours and instance.address.workflow not in self.may_break:
            raise Violation(f"{instance.address} is stuck: {stuck.error.message}\n{stuck.error.traceback}")
        if had[0] is Status.FAILED and type(entry.event) is not Rewound:
            raise Violation(f"{instance.address} has failed and changes by {type(entry.event).__name__}")
        if instance.status in FINAL:
            self._ended[instance.id] = self._database.histories[instance.id][-1]

    def _audit_id(self, instance: Instance, id: str) -> None:
        """A message is taken once, as long as its id is among the last so many."""
        self._messages_recorded[instance.id, id] += 1
        remembered = self._remembered.setdefault(instance.id, {})
        if id in remembered:
            raise Violation(f"{instance.address} took the message {id!r} twice")
        remembered[id] = None
        if len(remembered) > (SEEN_MIN_MADE if instance.made else SEEN_MIN):
            del remembered[next(iter(remembered))]

    def _audit_event(self, instance: Instance, entry: Entry) -> None:
        match entry.event:
            case Started(workflow=workflow, key=key, generation=generation):
                name = (workflow, key, generation)
                if name in self._names:
                    raise Violation(f"{workflow}/{key} was started twice as generation {generation}")
                self._names[name] = instance.id
                if entry.event.first is not None:
                    self._audit_message(instance, entry.event.first)
            case Message():
                self._audit_message(instance, entry.event)
                if instance.address == RULER and entry.event.name == AUDIT:
                    self._audit_audit(entry)
            case ReceiptArrived():
                self._audit_receipt(instance, entry.event)
            case Streamed(intent=intent, number=number):
                if self._answers[intent] or number <= self._frames[intent]:
                    raise Violation(f"{instance.address}: frame {number} of {intent.hex()} is late or repeated")
                self._frames[intent] = number
            case _:
                self._audit_delivery(instance, entry)

    def _audit_message(self, instance: Instance, message: Message) -> None:
        self._heard[instance.address, message.name] += 1
        if message.id:
            self._audit_id(instance, message.id)

    def _audit_audit(self, entry: Entry) -> None:
        """The world was told of a receipt that was refused. That changes nothing."""
        assert isinstance(entry.event, Message)
        if entry.decision != NOTHING:
            raise Violation(f"a refused receipt has changed the world: {entry.decision}")
        self.audits[bytes.fromhex(decode_value(entry.event.body)["intent"])] += 1

    def _audit_receipt(self, instance: Instance, event: ReceiptArrived) -> None:
        self._answers[event.intent] += 1
        if self._answers[event.intent] > 1:
            raise Violation(f"{instance.address}: {event.intent.hex()} got a second receipt")
        asked = self._asked_outside.get(event.intent)
        by_deadline = event.receipt.by is None and (event.receipt.status == "timeout" or not self._ours)
        if asked is not None and not by_deadline:  # nor by the hand of a test
            against = objection(instance.address, asked, event.receipt, self._verify)
            if against is not None:
                raise Violation(f"{instance.address} heard what it should not: {against.text}")
        if event.intent in self.calls:
            self._audit_call(instance, event, self.calls[event.intent])

    def _audit_call(self, instance: Instance, event: ReceiptArrived, call: Opened) -> None:
        from_worker = self._database.workers and call.executor not in OURS and not call.held
        if from_worker and event.receipt.by is None and event.receipt.status != "unknown":
            raise Violation(f"{instance.address}: {call.location} is for workers, and somebody else has answered it")
        call.answered = event.receipt.status in ("ok", "error")
        self.unknown += event.receipt.status == "unknown"
        if not call.started and event.receipt.status == "ok":
            raise Violation(f"{instance.address}: {call.location} has a receipt and was never executed")

    def _audit_routes(self, instance: Instance, entry: Entry) -> None:
        """Who is to hear of what this entry announces, by the manifest that is in force at its place in the journal."""
        for fact in entry.decision.announce:
            self._to_hear.update((address, fact.name) for address in self._router.route(fact))
        if instance.address == RULER:
            for name, value in entry.decision.publish:
                if name == IN_FORCE:
                    self._router.enforce(decode_rules(value))

    def _audit_delivery(self, instance: Instance, entry: Entry) -> None:
        match entry.event:
            case Redelivered(intent=id, alone=alone):
                call = self.calls[id]
                call.delivery += 1
                call.counted = alone or call.deliveries_max == 1
                call.strikes += call.counted
                if call.strikes > call.deliveries_max:
                    raise Violation(
                        f"{instance.address}: {call.location} is delivered alone {call.strikes} times, "
                        f"{call.deliveries_max} are allowed"
                    )
            case Parked(intent=id):
                self.calls[id].strikes -= self.calls[id].counted
                self.calls[id].counted = False
            case Released(intent=id):
                self.calls[id].held = False
                self._admitted[self.calls[id].executor] += 1
            case _:
                pass

    # ---- what is seen ----------------------------------------------------------------------------------

    def executing(self, process: int, publication: Publication) -> None:
        """An executor was handed a call: the entry that asks for it and its delivery must be durable.

        Not so an ephemeral call: it may begin before, and a zombie may begin it once more.
        """
        call = self.calls.get(publication.intent)
        where = f"{publication.address}: {publication.effect.location}"
        if publication.effect.ephemeral:
            seen = call.started if call is not None else self._early.setdefault(publication.intent, set())
            seen.add(publication.delivery)
            return
        if call is None:
            raise Violation(f"{where} is executed before the entry that asks for it is durable")
        if call.held or publication.delivery in call.started or publication.delivery > call.delivery:
            state = "is held" if call.held else f"knows of {call.delivery}, and {sorted(call.started)} were seen"
            raise Violation(f"{where} is executed as delivery {publication.delivery}; the journal {state}")
        if call.answered and process == self._writer:  # a zombie may know no better
            raise Violation(f"{where} has its receipt and is executed again")
        call.started.add(publication.delivery)

    def fenced_twice(self, fenced: list[Any]) -> None:
        """A worker answered for the same claim once more."""
        if not fenced:
            raise Violation("a second answer for one claim was taken")

    def executed(self, execution: Execution) -> None:
        self.executions.append(execution)
        self.executed_keys[execution.key] += 1

    def acknowledge(self, to: Ref, event: Event, answer: Answer) -> None:
        """A caller was told that its event is recorded."""
        if isinstance(answer, Accepted):
            self._check_durable(to, event, answer)
            self.acknowledged.append((to, event))
        elif isinstance(answer, Refused) and answer.code in AUDITED and isinstance(event, ReceiptArrived):
            self.refusals[event.intent] += 1

    def posted(self, to: Ref, event: Event) -> None:
        """A caller's event is in the inbox table."""
        self.acknowledged.append((to, event))

    def _check_durable(self, to: Ref, event: Event, answer: Accepted) -> None:
        head = self._database.heads.get(answer.instance)
        if head is None:
            raise Violation(f"{type(event).__name__} to {to} was acknowledged, but no such instance is durable")
        match event:
            case Message(id=id) if id:
                if not self._messages_recorded[answer.instance, id] and not self._in_inbox(event):
                    raise Violation(f"the message {id!r} to {to} was acknowledged and is not durable")
            case CancelAsked():
                live = self._live.get(answer.instance)
                cancelled = live is None or live[0].cancelled or self._in_inbox(event)
                if not cancelled:
                    raise Violation(f"the cancel of {to} was acknowledged and is not durable")
            case _:
                pass

    def _in_inbox(self, event: Event) -> bool:
        if any(offer_of(row).event == event for _, row in self._database.inbox.values()):
            return True
        return any(live.kept == event for live, _ in self._live.values())

    def told_end(self, instance: int, address: Address, status: str) -> None:
        head = self._database.heads.get(instance)
        if head is None or head.status != status:
            raise Violation(f"{address} is said to have {status}, which is not durable")

    # ---- live, folded, replayed ------------------------------------------------------------------------

    def compare(self, kernel: Kernel) -> None:
        """The owner's memory against our own copy, for what was written since the last time."""
        live = kernel.instances()
        for id in self.touched:
            instance = live.get(id)
            ours = self._live.get(id)
            if instance is None or ours is None or instance.seq != ours[0].seq:
                continue
            difference = _difference(instance.state(), ours[0].state())
            if difference:
                raise Violation(f"{instance.address}: live state is not what the journal says: {difference}")
            if instance.address.workflow in self.cells:
                self._compare_machines(instance)
        self.touched.clear()

    def _compare_machines(self, live: Instance) -> None:
        """A cell is its state: what is in memory is what a replay of everything, and of the newest part, comes to."""
        if live.machine is None or live.stuck is not None or live.ended:
            return
        for whole in (True, False):
            if self.replay(live.id, whole=whole) != live.machine.snapshot():
                raise Violation(f"{live.address}: the cell in memory is not the one that a replay comes to")

    def rests(self, head: HeadRow) -> bool:
        """Whether an instance is a cell that waits for nothing but events."""
        live = self._live.get(head.id)
        return head.workflow in self.cells and live is not None and live[0].stuck is None and not live[0].open

    def replay(self, id: int, *, whole: bool) -> bytes | None:
        """Rebuild a machine from what is stored; `whole`: without its snapshot. Gives what it would keep in one."""
        head = self._database.heads[id]
        workflow = self._workflows.of(head.workflow, head.version)
        assert workflow is not None
        rows = self._database.histories[id]
        snapshot = None if whole else self._database.snapshots.get(id)
        if snapshot is not None:
            rows = [row for row in rows if row.seq > snapshot.seq]
        try:
            instance = fold(Address(head.workflow, head.key), snapshot, rows)
            ours = self._live.get(id)
            if ours is not None:
                difference = _difference(instance.state(), ours[0].state())
                if difference:
                    raise Violation(f"{instance.address}: the snapshot is not what the journal says: {difference}")
            machine = rebuild(instance, workflow)
            kept = machine.snapshot() if head.workflow in self.cells else None
            machine.dispose()
            return kept
        except PerdureError as error:
            raise Violation(f"{head.workflow}/{head.key} cannot be replayed: {error}") from error

    def replay_all(self, *, whole: bool) -> None:
        for id, head in self._database.heads.items():
            if whole or head.status not in TERMINAL:
                self.replay(id, whole=whole)

    # ---- the end ---------------------------------------------------------------------------------------

    def finish(self) -> None:
        """After the last fault, when all is quiet: nothing is left over, and nothing is missing."""
        database = self._database
        for id, head in database.heads.items():
            if head.status not in TERMINAL and not self.rests(head):
                waits = [intent.effect.location for intent in self._live[id][0].open.values()]
                raise Violation(f"{head.workflow}/{head.key} is {head.status} for ever, with {waits} open")
        if database.work or database.inbox or database.jobs:
            inbox = [offer_of(row) for _, row in database.inbox.values()]
            raise Violation(f"all have ended, and these rows are left: {database.work} {database.jobs} {inbox}")
        for call in self.calls.values():
            if not call.closed:
                raise Violation(f"instance {call.instance}: {call.location} was never answered")
        for to, event in self.acknowledged:
            self._check_delivered(to, event)
        self._check_routed()
        self._check_refused()

    def _check_delivered(self, to: Ref, event: Event) -> None:
        """Recorded, or its receiver had ended before it came."""
        instances = [id for id, head in self._database.heads.items() if to in (id, Address(head.workflow, head.key))]
        if not instances:
            raise Violation(f"{type(event).__name__} to {to} was acknowledged and is gone")
        if not isinstance(event, Message) or not event.id:
            return
        lives = any(self._database.heads[id].status not in TERMINAL for id in instances)
        if lives and not any(self._messages_recorded[id, event.id] for id in instances):
            raise Violation(f"the message {event.id!r} to {to} was acknowledged and never delivered")

    def _check_routed(self) -> None:
        """Every domain event was heard once by each cell that it is routed to."""
        for (address, name), wanted in self._to_hear.items():
            if self._heard[address, name] != wanted:
                raise Violation(f"{address} has heard {self._heard[address, name]} of {wanted} events {name}")

    def _check_refused(self) -> None:
        """Each refusal that a sender was told of is recorded, and no more of them than receipts were offered."""
        for intent, refused in self.refusals.items():
            if self.audits[intent] < refused:
                raise Violation(f"{refused} receipts of {intent.hex()} were refused, {self.audits[intent]} recorded")
        for intent, audited in self.audits.items():
            if audited > self.offered[intent]:
                raise Violation(f"{audited} refusals of {intent.hex()} recorded, {self.offered[intent]} offered")

    def kept(self, instance: int) -> bool:
        """Whether a stuck instance keeps an event, that a retry delivers again."""
        return instance in self._live and self._live[instance][0].kept is not None

    def stuck(self, instance: int) -> Stuck | None:
        """Where and why an instance is stuck."""
        return self._live[instance][0].stuck if instance in self._live else None

    def live(self, instance: int) -> Instance | None:
        """Our own copy of an instance, as long as it may change, and its last state for a while."""
        return self._live[instance][0] if instance in self._live else None

    def open_instances(self) -> list[Instance]:
        """Our own copies of all instances that have something open, the oldest first."""
        return [self._live[id][0] for id in sorted(self._live) if self._live[id][0].open]

    def outcome(self, address: Address) -> Any:
        id = self._database.names.get((address.workflow, address.key))
        head = self._database.heads.get(id) if id is not None else None
        return decode_outcome(head.outcome) if head is not None and head.outcome is not None else None


def _difference(live: dict[str, object], folded: dict[str, object]) -> str:
    if live == folded:
        return ""
    return ", ".join(f"{name}: {live[name]!r} against {folded[name]!r}" for name in live if live[name] != folded[name])
