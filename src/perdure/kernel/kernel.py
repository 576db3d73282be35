"""The kernel of one shard: offers go in, a batch of entries comes out.

    offer(offer)          an event for an instance; if the instance is not in memory, `cache.wanted` names it
    adopt(ref, record)    the runtime loaded it (or found nothing)
    advance(batch, now)   deliver one event to each ready instance in turn, until none is ready or the batch is full
    close(batch)          nothing that was caused here may be lost: undelivered events become inbox rows
    committed(batch)      the batch is durable: instances may be evicted again

`_take`, `_decide`, `_write`, `_apply` are the heart: an event, what the machine answers, the entry, and what follows.
Here is the order of things; each thing has a file: who is in memory (`cache.py`), why an event is refused
(`refusals.py`), how machines are made (`machines.py`), which calls may run (`slots.py`), the change of state
(`apply.py`), what others hear of it (`consequences.py`), how an instance begins (`creation.py`), what comes before
an event (`order.py`), what leaves no entry (`unrecorded.py`).

Nothing here does I/O or reads a clock; nothing that is decided here may be seen by anybody before the runtime has
committed the batch.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from perdure.errors import LimitExceeded

from . import creation, order, placement, snapshot, unrecorded
from .apply import apply
from .batch import Batch, JournalRow
from .cache import InstanceCache
from .check import check
from .consequences import Consequences
from .decision import NOTHING, Decision, Outcome
from .entry import Entry, Packed, encode, pack
from .events import (
    KERNEL_ONLY,
    CancelAsked,
    Event,
    Message,
    Migrated,
    ReceiptArrived,
    Redelivered,
    Ref,
    Released,
    Retried,
    Rewound,
    Settled,
    Started,
    Tagged,
    size_of,
)
from .gate import Deny, Gate
from .instance import Instance
from .machine import Workflow
from .machines import has_other_code, make, make_anew, migrate, spoil
from .mailbox import Accepted, Offer, Refused
from .moment import Moment
from .outside import Verify, unsigned
from .past import keep_open
from .receipt import Failure, Receipt
from .refusals import NOT_HERE, missing, refusal
from .routing import Router
from .rows import Loaded, before, has_new_head, inbox_row, write_head
from .rules import NO_RULES, RULER, RULING, Rules
from .slots import Slots
from .status import Status
from .workflows import Workflows

ENTRIES_MAX: Final = 1000
"""Entries in one batch. More would keep callers waiting without making a commit cheaper per entry."""

BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of journal in one batch, for the same reason."""

ROUND: Final = 64
"""How many events go through the kernel together: first all are taken, then all decided, then all written, then all
applied. One by one would do, but the code of all four does not fit into the caches of a processor: it takes longer by
a third."""

FOR_STUCK: Final = frozenset({Retried, Settled, CancelAsked, Rewound, Migrated, Tagged})
"""What an instance takes that is stuck as a whole; everything else waits."""


class TakenEvent(msgspec.Struct, frozen=True, eq=False):
    """An event on its way through a round."""

    instance: Instance
    offer: Offer
    event: Event
    heard: Event  # the same, or the kept event that a retry delivers again


class Written(msgspec.Struct, frozen=True, eq=False):
    """The entry of a taken event."""

    entry: Entry
    body: bytes
    denied: Sequence[tuple[bytes, str]]  # intents that the gate refuses, and why


class Kernel:
    def __init__(
        self,
        workflows: Iterable[Workflow],
        gate: Gate,
        *,
        seq: int = 0,
        at: int = 0,
        salt: bytes = b"",
        rules: Rules = NO_RULES,
        verify: Verify = unsigned,
        shard: int = 0,
        shards: int = 1,
    ) -> None:
        self.seq = seq
        self.at = at  # the journal's time: it never goes back
        self.clock = at  # what the clock shows: it may be set back, and deadlines count from it
        self.counts: Counter[str] = Counter()
        self.workflows: Workflows[Workflow] = Workflows(workflows)
        self.router = Router()
        for workflow in self.workflows:
            if workflow is self.workflows.newest(workflow.name):  # a fact goes to a name, whatever version runs there
                self.router.subscribe(workflow.name, workflow.subscriptions)
        self.router.enforce(rules)
        self.slots = Slots(gate)
        self.cache = InstanceCache(self.slots, self.counts)
        self.left: dict[bytes, tuple[str, str]] = {}
        """Rows of the inbox that this engine has no workflow for, with its name and version."""
        self.seeks = False
        """Whether the database itself may define workflows: it is asked before a parent hears that there is none."""
        self.sought: dict[bytes, Offer] = {}  # starts of children that wait for the answer; they are in `left`, too
        self.nowhere: set[bytes] = set()  # starts of children whose workflow the database does not define
        self.closing = False
        """From now on what is caused here is left to the next life, as inbox rows: even instances that answer each
        other for ever come to rest."""
        self._consequences = Consequences(self.slots, self.router, self.counts)
        self.verify = verify
        self._ready: deque[Instance] = deque()
        self._caused: list[Offer] = []
        self._in_hand: Offer | None = None  # it is being taken; still set when that raised
        self.salt = salt  # different in every life: ids of kept events must not repeat those of an earlier one
        self._shard = shard
        self._shards = shards
        self._fixed = placement.fixed_names(self.workflows)

    # ---- in: offers and loaded instances ------------------------------------------------------------------------

    def offer(self, offer: Offer) -> None:
        """Put an event into the mailbox of its instance; name the instance in `cache.wanted` if it is not there."""
        instance = self.cache.find(offer.to)
        if instance is None and offer.new:
            instance = self.cache.enter(offer.to, None)
        if instance is None:
            self.cache.want(offer)
        else:
            instance.mailbox.append(offer)
            if not instance.queued:
                self._make_ready(instance)

    def adopt(self, ref: Ref, record: Loaded | None) -> None:
        """Take in what the store knows of `ref`, and deliver what waited for it.

        Other code may get on with an instance that is stuck by a divergence: it is retried, once by each version.
        """
        instance = self.cache.adopt(ref, record)
        if instance.stuck is not None and not self.closing and has_other_code(instance, self.workflows):
            instance.mailbox.appendleft(Offer(instance.id, Retried()))
        self._make_ready(instance)

    def recover(self, instance_id: int, alive: Collection[bytes]) -> list[tuple[int, int, int, bytes]]:
        """The calls that were open when the process died, as (strikes, deliveries, instance, intent).

        `alive`: calls that a failed commit did not kill; their receipts will come. The runtime decides in which order
        the others are handed out again, and offers `Redelivered` for each. Asked twice, it names each call once. The
        calls of a stuck instance are handed out again when it goes on.
        """
        instance = self.cache.get(instance_id)
        return self.slots.recover(instance, alive) if instance is not None else []

    def _make_ready(self, instance: Instance) -> None:
        """Give it a turn, if there is an event for it. One that has its turn already is looked at again after it."""
        if instance.queued:
            return
        if instance.shelf and not instance.halted:
            instance.mailbox.extendleft(reversed(instance.shelf))
            instance.shelf.clear()
        if not instance.mailbox:
            return
        spoiled = instance.machine is None and instance.tail is None and instance.version > 0
        if not spoiled or instance.ended:
            instance.queued = True
            self._ready.append(instance)

    def undelivered(self) -> Iterator[Offer]:
        """Offers that are in memory only or not yet recorded."""
        if self._in_hand is not None:
            yield self._in_hand
        yield from self.cache.undelivered(self._ready)

    def instances(self) -> Mapping[int, Instance]:
        """Those in memory, by id."""
        return self.cache.instances()

    # ---- the turn -----------------------------------------------------------------------------------------------

    def advance(self, batch: Batch, now: int) -> None:
        """Deliver one event to each ready instance in turn. The order depends on the offers alone.

        It ends early when many more are wanted than before. A store that answers at once gives them now, and what is
        on its way to them need not be kept in the inbox until they are here.
        """
        self.clock, self.at = now, max(self.at, now)
        wanted, enough = self.cache.wanted, len(self.cache.wanted) + ROUND
        while self._ready and not full(batch) and len(wanted) < enough:
            round = self._take_round(batch)
            if len(round) == 1:  # as of one flow that does one step after the other: the same without lists
                taken = round[0]
                self._apply(taken, self._write(taken, self._decide(taken, self.seq + 1)), batch)
                self._done(taken.instance)
                continue
            decisions = [self._decide(taken, seq) for seq, taken in enumerate(round, self.seq + 1)]
            entries = [self._write(taken, decision) for taken, decision in zip(round, decisions, strict=True)]
            for taken, written in zip(round, entries, strict=True):
                self._apply(taken, written, batch)
                self._done(taken.instance)
        if self.slots.held_ids:
            self._release_held()
        self.slots.judge_again = False

    def _take_round(self, batch: Batch) -> list[TakenEvent]:
        """One event each of so many instances."""
        round: list[TakenEvent] = []
        room = BYTES_MAX - batch.size
        for _ in range(min(ROUND, len(self._ready), ENTRIES_MAX - len(batch.journal))):
            instance = self._ready.popleft()
            self._in_hand = instance.mailbox.popleft() if instance.mailbox else None
            taken = None if self._in_hand is None else self._take(instance, self._in_hand, batch)
            if taken is None or taken.instance is not instance:
                self._done(instance)
            if taken is None:
                continue
            round.append(taken)
            room -= size_of(taken.event)
            if room <= 0 or (type(taken.event) is Message and _may_rule(taken)):
                break  # beside what may change the rules nothing is decided
        self._in_hand = None
        return round

    def _done(self, instance: Instance) -> None:
        """Its event is dealt with; only now may it have another turn."""
        instance.queued = False
        if instance.mailbox or instance.shelf:
            self._make_ready(instance)

    @property
    def ready(self) -> bool:
        return bool(self._ready) or self.slots.judge_again

    def close(self, batch: Batch) -> None:
        """What this shard caused and did not deliver yet is written beside its cause."""
        if self._caused:
            for offer in self._caused:
                if not offer.taken and offer.inbox is None:
                    if self._here(offer.to):
                        self.keep(offer, batch)
                    else:
                        batch.outbox.append(inbox_row(self._inbox_id(), offer.to, offer.event, self.clock))
            self._caused.clear()

    def committed(self, batch: Batch) -> None:
        """Let go of instances whose machine is of no more use: they have ended, or must be rebuilt."""
        for id in batch.done_with:
            instance = self.cache.get(id)
            if instance is not None and instance.seq <= batch.journal[-1].seq:  # else it went on, and is not durable
                self.cache.forget(instance)

    # ---- take: what is to be recorded of an event ---------------------------------------------------------------

    def _take(self, instance: Instance, offer: Offer, batch: Batch) -> TakenEvent | None:
        """An event that is to be recorded; None: there is nothing to record."""
        rules = self.router.rules
        if instance.next_due <= self.clock:
            offer = order.in_time(self, instance, offer)
        if rules.migrating and type(offer.event) is not Migrated:
            offer = order.migration_first(self, instance, offer)
        event = offer.event
        if (
            type(event) is ReceiptArrived
            and offer.inbox is None
            and instance.machine is not None
            and instance.stuck is None
            and not (rules.migrating and order.outdated(self, instance))
        ):
            intent = instance.open.get(event.intent)
            if intent is not None and event.receipt.by is None:  # the usual case: a receipt that is waited for
                self.slots.stop(event.intent, intent.effect)
                if offer.caused:
                    offer.taken = True
                return TakenEvent(instance, offer, event, event)
        if type(event) is Message and (instance.id == 0 or instance.ended):
            event = creation.made_by(self, instance, event)
        elif type(event) is Retried and type(instance.kept) is Migrated and instance.address.workflow in rules.versions:
            event = Migrated()  # to what is in force now: it may be another definition than the one that failed
        answer = refusal(instance, event, self.workflows, rules, heard=offer.ticket is not None)
        if answer is not None:
            unrecorded.note(self, instance, event, answer)
        elif type(event) is ReceiptArrived and (offer.inbox is not None or event.receipt.by is not None):
            answer = unrecorded.not_admitted(self, instance, event, batch)
        if answer is None:
            if type(event) is ReceiptArrived:  # its executor is free, even if the instance cannot take the answer yet
                self.slots.stop(event.intent, instance.open[event.intent].effect)
            if instance.halted and type(event) not in FOR_STUCK:
                unrecorded.shelve(self, instance, offer, batch)
                return None
        elif type(answer) is Refused and answer.code in NOT_HERE and unrecorded.leave(self, offer, answer, batch):
            if offer.inbox is not None:
                self.left[offer.inbox] = missing(instance, event, self.workflows)
            return None
        offer.taken = True
        if offer.inbox is not None and batch.inbox_added.pop(offer.inbox, None) is None:
            batch.inbox_removed.append(offer.inbox)
        if answer is not None:
            unrecorded.answer_caller(self, offer, answer, batch)
            return None
        if type(event) is Started:
            instance, event = creation.new_instance(self, instance, event)
        elif type(event) is Redelivered:
            event = self.slots.again_or_unknown(instance, event)
        elif type(event) is Rewound:
            event = keep_open(instance, event)
        elif type(event) is Migrated and not event.version:
            event = Migrated(rules.versions[instance.address.workflow], rules.hash)
        heard = instance.kept if type(event) is Retried and instance.kept is not None else event
        if type(heard) is Rewound or (heard is not event and type(heard) is Started and heard.forked is not None):
            # Known before `apply`, because a decision is checked before it is applied.
            instance.identity = instance.identity.in_life(instance.version + 1)
        return TakenEvent(instance, offer, event, heard)

    # ---- decide: what the machine answers -----------------------------------------------------------------------

    def _decide(self, taken: TakenEvent, seq: int) -> Decision:
        """The machine's decision, or the kernel's own where the machine is not asked."""
        instance, event, heard = taken.instance, taken.event, taken.heard
        if type(event) is ReceiptArrived and instance.machine is not None:  # nearly always
            try:
                moment = Moment(self.clock, instance.seed, instance.version + 1, None, None, seq, self.at)
                return instance.machine.deliver(event, moment)
            except Exception as error:
                return spoil(instance, error)
        if type(event) is CancelAsked and instance.kept is not None:
            failure = Failure("Cancelled", event.reason)
            return Decision(outcome=Outcome(Status.CANCELLED, error=failure))
        if type(event) is Tagged:
            return NOTHING
        try:
            machine = instance.machine
            if type(heard) is Rewound:
                machine = make_anew(instance, self.workflows)
            elif machine is None:
                version = event.version if type(event) is Started else instance.definition
                machine = make(instance, version, self.workflows)
                self.counts["rebuilt"] += instance.version > 0
            if type(heard) in KERNEL_ONLY:
                return NOTHING
            seed = event.seed if type(event) is Started else instance.seed
            moment = Moment(self.clock, seed, instance.version + 1, None, None, seq, self.at)
            if type(heard) is Migrated:
                return migrate(instance, machine, heard, moment, self.workflows)
            return machine.deliver(heard, moment)
        except Exception as error:
            return spoil(instance, error)

    # ---- write: the entry ---------------------------------------------------------------------------------------

    def _write(self, taken: TakenEvent, decision: Decision) -> Written:
        """Build the entry. A decision that cannot be recorded counts as raising."""
        instance = taken.instance
        self.seq += 1
        if instance.id == 0:
            instance.id = self.seq
            self.cache.started(instance)
        intents: tuple[bytes, ...] = ()
        try:
            intents = check(instance, taken.heard, decision)
            if decision.announce and instance.address != RULER:  # it has judged what it hands on
                self.router.refuse_bad_keys(instance.address.workflow, decision.announce)
            return self._record(instance, taken.event, decision, intents)
        except Exception as error:
            if intents:  # else it was no decision, or an unsound one: nothing was admitted
                for id, effect in zip(intents, decision.open, strict=True):
                    self.slots.stop(id, effect)
            return self._record(instance, taken.event, spoil(instance, error), ())

    def _record(self, instance: Instance, event: Event, decision: Decision, intents: tuple[bytes, ...]) -> Written:
        held: tuple[bytes, ...] = ()
        denied: Sequence[tuple[bytes, str]] = ()
        packed: tuple[Packed, ...] = ()
        fresh: tuple[str, ...] = ()
        if decision.open:
            if decision.outcome is None:
                held, denied = self.slots.admit(instance.id, intents, decision.open)
            packed, fresh = pack(decision.open, instance.patterns)
        number, behind = instance.version + 1, self.at - self.clock
        entry = Entry(self.seq, instance.id, number, self.at, event, decision, held, fresh, intents, False, behind)
        body = encode(entry, packed)
        workflow = instance.workflow
        if (
            workflow is not None
            and len(body) > workflow.limits.bytes  # the cheap question first: nearly all are far below
            and len(body) - size_of(event) > workflow.limits.bytes
            and instance.machine is not None
            and not decision.begin
        ):
            size = len(body) - size_of(event)
            raise LimitExceeded(f"one decision of {size} bytes; the limit is {workflow.limits.bytes}")
        return Written(entry, body, denied)

    # ---- apply: the change, and whom it concerns ----------------------------------------------------------------

    def _apply(self, taken: TakenEvent, written: Written, batch: Batch) -> None:
        """Change the state, and tell everybody whom that concerns."""
        instance, entry, body = taken.instance, written.entry, written.body
        status = instance.status
        # A receipt of one that runs, and goes on running, leaves its head as it is: most entries are of that kind.
        runs = status is Status.RUNNING and type(entry.event) is ReceiptArrived and not entry.decision.tags
        had = (status, instance.definition, instance.tags, "") if runs else before(instance, entry)
        changed = apply(instance, entry)
        size = len(body)
        batch.journal.append(_row(JournalRow, (entry.seq, entry.instance, entry.at, body)))
        batch.size += size
        instance.tail_size += size
        if entry.decision.state:
            self.cache.weigh(instance)
        if instance.status is not status if runs else has_new_head(instance, entry, had):
            write_head(batch, instance, entry, had)
        self._consequences.tell(instance, entry, taken.heard, changed, batch, self.cause)
        if entry.decision.answers:
            batch.heard += entry.decision.answers
        if written.denied:
            self._tell_denied(instance, written.denied)
        if status is Status.STUCK and instance.status is not Status.STUCK:
            for *_, lost in self.recover(instance.id, ()):
                self.offer(Offer(instance.id, Redelivered(lost, alone=False)))
        if instance.tail_size > snapshot.SIZE_MIN or instance.made or getattr(instance.machine, "pruned", False):
            snapshot.take_if_due(instance, batch, self.counts)
        ticket = taken.offer.ticket
        if type(ticket) is bytes:
            batch.receipts.append(ticket)
        elif ticket is not None:
            batch.answers.append((ticket, Accepted(instance.id, instance.address, True, entry.decision.reply)))

    def _tell_denied(self, instance: Instance, denied: Sequence[tuple[bytes, str]]) -> None:
        for intent, reason in denied:
            failure = Failure("Denied", reason, retry=False)
            self.cause(instance.id, ReceiptArrived(intent, Receipt("error", error=failure)))

    def _release_held(self) -> None:
        for instance, id, verdict in self.slots.let_go():
            if type(verdict) is Deny:
                failure = Failure("Denied", verdict.reason, retry=False)
                self.offer(Offer(instance, ReceiptArrived(id, Receipt("error", error=failure))))
            else:
                self.offer(Offer(instance, Released(id)))

    # ---- what must not be lost ----------------------------------------------------------------------------------

    def cause(self, to: Ref, event: Event) -> None:
        """Put an event on its way that an entry of this batch has caused; `close` sees to what is not taken by then."""
        offer = Offer(to, event, caused=True)
        self._caused.append(offer)
        if not self.closing and self._here(to):
            self.offer(offer)

    def keep(self, offer: Offer, batch: Batch) -> None:
        """Write an event beside its cause: it is delivered from the inbox, now or in the next life."""
        offer.inbox = self._inbox_id()
        offer.at = self.clock
        batch.inbox_added[offer.inbox] = inbox_row(offer.inbox, offer.to, offer.event, offer.at)

    def _inbox_id(self) -> bytes:
        self.counts["kept"] += 1
        return self.seq.to_bytes(8, "big") + self.salt + (self.counts["kept"] & 0xFFFFFFFF).to_bytes(4, "big")

    def _here(self, to: Ref) -> bool:
        """Whether an instance lives on this shard."""
        return self._shards == 1 or placement.place(to, self._shards, self._fixed) == self._shard


_row: Final[Callable[[type[JournalRow], tuple[int, int, int, bytes]], JournalRow]] = tuple.__new__
"""Makes a row without the Python function that named tuples are made by."""


def full(batch: Batch) -> bool:
    """What is ready has to wait for the next one: `advance` adds nothing to this one."""
    return len(batch.journal) >= ENTRIES_MAX or batch.size >= BYTES_MAX


def _may_rule(taken: TakenEvent) -> bool:
    """Whether an event may change what is in force."""
    return taken.instance.address == RULER and taken.event.name.startswith(RULING)  # type: ignore[union-attr]
