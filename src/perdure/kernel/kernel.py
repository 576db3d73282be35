"""The kernel of one shard: offers go in, a batch of entries comes out.

    offer(offer)          an event for an instance; if the instance is not in memory, `wanted` names it
    adopt(ref, record)    the runtime loaded it (or found nothing)
    advance(batch, now)   deliver one event to each ready instance in turn, until nobody is ready or the batch is full
    close(batch)          nothing that was caused here may be lost: undelivered events become inbox rows
    committed(batch)      the batch is durable: instances may be evicted again

`_take`, `_decide`, `_write`, `_apply` are the heart: an event, what the machine answers, the entry, and what follows.
Nothing here does I/O or reads a clock; nothing that is decided here may be seen by anybody before the runtime has
committed the batch.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from perdure.codec import encode as encode_value
from perdure.errors import BadDecision, Divergence, UnknownVersion

from . import placement, snapshot
from .apply import Changed, apply, content, input_hash
from .batch import (
    Batch,
    HeadRow,
    JournalRow,
    Publication,
    PublishedRow,
    SnapshotRow,
)
from .check import check
from .decision import NOTHING, Decision, Outcome, Stuck
from .effects import OURS, Call, Child, Effect, due_of, is_queued
from .entry import Entry, Packed, encode, pack
from .events import (
    KERNEL_ONLY,
    OF_AN_INTENT,
    Address,
    CancelAsked,
    Event,
    Message,
    Migrated,
    Parent,
    Received,
    Redelivered,
    Ref,
    Released,
    Retried,
    Rewound,
    Settled,
    Started,
    Woken,
)
from .gate import Defer, Deny, Gate
from .identity import Identity
from .instance import Instance, Intent
from .job import asked, job_row
from .machine import Governed, Machine, Rebuild, Workflow
from .mailbox import STALE, Accepted, Answer, Offer, Refused
from .manifest import APPLY, AUDIT, MANIFEST, NO_MANIFEST, RULES, WORLD, Manifest, decode_manifest
from .moment import Moment
from .outside import Verify, objection, unsigned
from .past import still_running
from .receipt import Failure, Receipt, failure_of
from .replay import fold, rebuild
from .routing import Router
from .rows import Loaded, decode_outcome, has_row, head_row, inbox_row, receipt_of, response_name, work_row
from .slots import Slots
from .status import FINAL, Status, ended
from .workflows import Workflows

ENTRIES_MAX: Final = 1000
"""Entries in one batch. More would keep callers waiting without making a commit cheaper per entry."""

BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of journal in one batch, for the same reason."""

SPILL_MAX: Final = 16 * 1024 * 1024
"""Bytes of states that one batch takes along from instances that are dropped from memory."""

SMALL: Final = 4096
"""A state of so many bytes is always worth its writing when its instance goes to sleep: to wake it by calling its
reducer again costs more than to read it. A larger one is written when what came since the last time is as large."""

ROUND: Final = 64
"""How many events go through the kernel together: first all are taken, then all decided, then all written, then all
applied. One by one would do, but the code of all four does not fit into the caches of a processor: it takes longer by
a third."""

FOR_STUCK: Final = frozenset({Retried, Settled, CancelAsked, Rewound})
"""What a stuck instance takes; everything else waits."""

NEW_HEAD: Final = frozenset({Started, Rewound, Migrated})
"""Events after which the head of an instance is written, also where its status is the one that it had."""


NOT_FOR_CELLS: Final = frozenset({Message, Rewound, Woken, CancelAsked})
"""What cells, or the world that they are in, do not take from everybody, or not at all."""

NOT_HERE: Final = frozenset({"unknown-workflow", "unknown-version"})
"""Refusals of this engine alone: another may have the code."""


class Taken(msgspec.Struct, frozen=True, eq=False):
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
        manifest: Manifest = NO_MANIFEST,
        verify: Verify = unsigned,
        shard: int = 0,
        shards: int = 1,
    ) -> None:
        self._shard = shard
        self._shards = shards
        self.workflows: Workflows[Workflow] = Workflows(workflows)
        self.router = Router()
        for workflow in self.workflows:
            if workflow is self.workflows.newest(workflow.name):  # a fact goes to a name, whatever version runs there
                self.router.subscribe(workflow.name, workflow.subscriptions)
        self.router.enforce(manifest)
        self._verify = verify
        self.seq = seq
        self.at = at
        self._salt = salt  # different in every life: ids of kept events must not repeat those of an earlier one
        self.counts: Counter[str] = Counter()
        self.wanted: dict[Ref, None] = {}
        self.weight = 0  # bytes of state in memory, of machines whose state is a value
        self.forgotten_seq = 0  # the last entry of anything dropped from memory: what was read before it is old
        self._by_id: OrderedDict[int, Instance] = OrderedDict()  # least recently used first
        self._by_address: dict[Address, Instance] = {}
        self._absent: dict[Ref, list[Offer]] = {}
        self._arrivals = 0
        self._ready: deque[Instance] = deque()
        self._caused: list[Offer] = []
        self.slots = Slots(gate)
        self._judge_again = False
        self.closing = False
        """From now on what is caused here is left to the next life, as inbox rows: even a world whose cells answer each
        other for ever comes to rest."""

    # ---- in: offers and loaded instances ----------------------------------------------------------------------

    def offer(self, offer: Offer) -> None:
        """Put an event into the mailbox of its instance; name the instance in `wanted` if it is not in memory."""
        instance = self._find(offer.to)
        if instance is None and offer.new:
            instance = self._enter(offer.to, None)
        if instance is None:
            self._wait(offer.to, offer)
            self.wanted[offer.to] = None
        else:
            instance.mailbox.append(offer)
            if not instance.queued:
                self._make_ready(instance)

    def _wait(self, ref: Ref, offer: Offer) -> None:
        self._arrivals += 1
        offer.number = self._arrivals
        self._absent.setdefault(ref, []).append(offer)

    def adopt(self, ref: Ref, record: Loaded | None) -> None:
        """Take in what the store knows of `ref`, and deliver what waited for it."""
        self.wanted.pop(ref, None)
        offers = self._absent.pop(ref, [])
        instance = self._find(ref)
        if instance is None:
            instance = self._enter(ref, record)
        if instance.id:
            offers += self._absent.pop(instance.id, [])
        if self._by_address.get(instance.address) is instance:
            offers += self._absent.pop(instance.address, [])
        offers.sort(key=_by_arrival)
        instance.mailbox.extend(offers)
        self._make_ready(instance)

    def _enter(self, ref: Ref, record: Loaded | None) -> Instance:
        if record is None:
            instance = Instance(ref if isinstance(ref, Address) else Address("", ""))
            if isinstance(ref, Address):
                self._by_address[ref] = instance
            return instance
        id = record.instance if isinstance(record, SnapshotRow) else record.head.id
        instance = self._by_id.get(id) or self._revive(record)
        self._by_id[instance.id] = instance
        if isinstance(ref, Address) or not instance.ended:  # else a later generation may bear the name
            self._name(instance)
        return instance

    def _revive(self, record: Loaded) -> Instance:
        if isinstance(record, SnapshotRow):
            instance = snapshot.restore(record)
        elif record.head.status in FINAL:
            return _ended(record.head)
        else:
            instance = fold(Address(record.head.workflow, record.head.key), record.snapshot, record.rows)
        for intent in instance.open.values():
            if type(intent.effect) is Call and not intent.held and not self._is_away(intent.effect):
                self.slots.found(intent.id)
        return instance

    def recover(self, instance_id: int, alive: Collection[bytes]) -> list[tuple[int, int, int, bytes]]:
        """The calls that were open when the process died, as (strikes, deliveries, instance, intent).

        `alive`: calls that a failed commit did not kill; their receipts will come. The runtime decides in which order
        the others are handed out again, and offers `Redelivered` for each. Asked twice, it names each call once. The
        calls of a stuck instance are handed out again when it goes on.
        """
        lost: list[tuple[int, int, int, bytes]] = []
        instance = self._by_id.get(instance_id)
        for intent in list(instance.open.values()) if instance is not None else ():
            if type(intent.effect) is not Call:
                continue
            if intent.id in self.slots.orphans and intent.id in alive:
                self.slots.run(intent.id, intent.effect)
            elif instance.status is Status.STUCK:  # type: ignore[union-attr]
                continue
            elif intent.held and intent.id not in self.slots.held_ids:
                self.slots.hold(instance_id, intent.id, intent.effect)
                self._judge_again = True
            elif intent.id in self.slots.orphans:
                self.slots.run(intent.id, intent.effect)
                lost.append((intent.strikes, intent.delivery, instance_id, intent.id))
        return lost

    # ---- the turn ------------------------------------------------------------------------------------------------

    def advance(self, batch: Batch, now: int) -> None:
        """Deliver one event to each ready instance in turn. The order depends on the offers alone."""
        self.at = max(self.at, now)
        while self._ready and not full(batch):
            round = self._take_round(batch)
            if len(round) == 1:  # as of one flow that does one step after the other: the same without lists
                self._apply(round[0], self._write(round[0], self._decide(round[0], self.seq + 1)), batch)
                self._done(round[0].instance)
                continue
            decisions = [self._decide(taken, seq) for seq, taken in enumerate(round, self.seq + 1)]
            entries = [self._write(taken, decision) for taken, decision in zip(round, decisions, strict=True)]
            for taken, written in zip(round, entries, strict=True):
                self._apply(taken, written, batch)
                self._done(taken.instance)
        if self.slots.held_ids:
            self._release_held()
        self._judge_again = False

    def _take_round(self, batch: Batch) -> list[Taken]:
        """One event each of so many instances."""
        round: list[Taken] = []
        room = BYTES_MAX - batch.size
        for _ in range(min(ROUND, len(self._ready), ENTRIES_MAX - len(batch.journal))):
            instance = self._ready.popleft()
            taken = self._take(instance, instance.mailbox.popleft(), batch) if instance.mailbox else None
            if taken is not None:
                round.append(taken)
                room -= _size(taken.event)
                if type(taken.event) is Message and _may_rule(taken):
                    room = 0  # nothing is decided beside it
            if taken is None or taken.instance is not instance:
                self._done(instance)
            if room <= 0:
                break
        return round

    def _done(self, instance: Instance) -> None:
        """Its event is dealt with; only now may it have another turn."""
        instance.queued = False
        if instance.mailbox or instance.shelf:
            self._make_ready(instance)

    @property
    def ready(self) -> bool:
        return bool(self._ready) or self._judge_again

    def close(self, batch: Batch) -> None:
        """What this shard caused and did not deliver yet is written beside its cause."""
        if self._caused:
            for offer in self._caused:
                if not offer.taken and offer.inbox is None:
                    if self._here(offer.to):
                        self._keep(offer, batch)
                    else:
                        batch.outbox.append(inbox_row(self._inbox_id(), offer.to, offer.event, self.at))
            self._caused.clear()

    def committed(self, batch: Batch) -> None:
        """Let go of instances whose machine is of no more use: they have ended, or must be rebuilt."""
        for id in batch.done_with:
            instance = self._by_id.get(id)
            if instance is not None and instance.seq <= batch.journal[-1].seq:  # else it went on, and is not durable
                self._forget(instance)

    # ---- one event ----------------------------------------------------------------------------------------------

    def _take(self, instance: Instance, offer: Offer, batch: Batch) -> Taken | None:
        """An event that is to be recorded; None: there is nothing to record."""
        if self.router.manifest.migrating and type(offer.event) is not Migrated:
            offer = self._migration_first(instance, offer)
        event = offer.event
        if (
            type(event) is Received
            and offer.inbox is None
            and instance.machine is not None
            and instance.stuck is None
            and not (self.router.manifest.migrating and self._outdated(instance))
        ):
            intent = instance.open.get(event.intent)
            if intent is not None and event.receipt.by is None:  # the usual case: a receipt that is waited for
                self.slots.stop(event.intent, intent.effect)
                if offer.caused:
                    offer.taken = True
                return Taken(instance, offer, event, event)
        if type(event) is Message and (instance.id == 0 or instance.ended):
            event = self._made_by(instance, event)
        answer = self._refusal(instance, event, heard=offer.ticket is not None)
        if answer is None and type(event) is Received and (offer.inbox is not None or event.receipt.by is not None):
            answer = self._not_admitted(instance, event, batch)
        if answer is None:
            if type(event) is Received:  # its executor is free, even if the instance cannot take the answer yet
                self.slots.stop(event.intent, instance.open[event.intent].effect)
            if instance.stuck is not None and type(event) not in FOR_STUCK:
                self._shelve(instance, offer, batch)
                return None
        elif type(answer) is Refused and answer.code in NOT_HERE and self._leave(offer, batch):
            return None
        offer.taken = True
        if offer.inbox is not None and batch.inbox_added.pop(offer.inbox, None) is None:
            batch.inbox_removed.append(offer.inbox)
        if answer is not None:
            self._answer(offer, answer, batch)
            return None
        if type(event) is Started:
            instance, event = self._new_instance(instance, event)
        elif type(event) is Redelivered:
            event = self._again_or_unknown(instance, event)
        elif type(event) is Rewound:
            event = self._rewind(instance, event)
        elif type(event) is Migrated:
            event = Migrated(self.router.manifest.versions[instance.address.workflow])
        heard = instance.kept if type(event) is Retried and instance.kept is not None else event
        if type(heard) is Rewound or (heard is not event and type(heard) is Started and heard.forked is not None):
            # Known before `apply`, because a decision is checked before it is applied.
            instance.identity = instance.identity.in_life(instance.version + 1)
        return Taken(instance, offer, event, heard)

    def _not_admitted(self, instance: Instance, event: Received, batch: Batch) -> Answer | None:
        """The refusal of a receipt from outside that is not what it should be. The world records it."""
        intent = instance.open[event.intent]
        job = None
        if self._is_away(intent.effect) and not intent.held:  # what is held was answered by the gate
            job = asked(intent.effect, intent.delivery)  # type: ignore[arg-type]
        against = objection(instance.address, intent, event.receipt, self._verify, job)
        if against is None:
            return None
        self.counts["receipts_refused"] += 1
        told = {
            "code": against.code,
            "why": against.text,
            "who": against.executor,
            "what": against.effect,
            "instance": str(instance.address),
            "intent": event.intent.hex(),
        }
        self._cause(WORLD, Message(AUDIT, encode_value(told), "", str(instance.address)))
        batch.audits.append(f"a receipt for {instance.address} was refused ({against.code}): {against.text}")
        return Refused(against.code, against.text)  # type: ignore[arg-type]

    def _refusal(self, instance: Instance, event: Event, *, heard: bool) -> Answer | None:
        """The answer to an event that is not recorded; None: record it. `heard`: its sender waits for the answer."""
        if type(event) is Started:
            # A start that was acknowledged before is no longer refused for its version, nor is a fork: it gets the
            # newest, as any instance does whose version is gone.
            asked = (heard and event.forked is None) or event.workflow in self.router.manifest.versions
            return self._start_refusal(instance, event, event.version if asked else "")
        if instance.id == 0:
            self._let_go(instance)
            if type(event) in OF_AN_INTENT:
                return self._stale()
            return Refused("unknown-instance", f"there is no instance {instance.address}")
        if type(event) in OF_AN_INTENT:
            intent = instance.open.get(event.intent)  # type: ignore[union-attr]
            if intent is None or (type(event) is Released and not intent.held):
                return self._stale()
        elif (answer := self._control_refusal(instance, event)) is not None:
            return answer
        workflow = instance.address.workflow
        refusal = self.workflows.refusal(workflow, instance.definition if instance.made else "")
        if refusal is None and self._outdated(instance) and not instance.ended:
            refusal = self.workflows.refusal(workflow, self.router.manifest.versions[workflow])
        return refusal

    def _control_refusal(self, instance: Instance, event: Event) -> Answer | None:
        """The same for what callers and other instances send."""
        if type(event) in NOT_FOR_CELLS and (against := self._not_for_cells(instance, event)):
            return Refused("refused", f"{instance.address.workflow} is {against}")
        match event:
            case Message(id=id) if id in instance.seen:
                if event.name != APPLY and instance.seen[id] not in (None, content(event)):  # counts are added to that
                    text = (
                        f"{instance.address} has taken another message with the id {id!r:.80}: an id names one message"
                    )
                    return Refused("refused", f"{text}; send this one with an id of its own")
                self.counts["duplicate"] += 1
                return Accepted(instance.id, instance.address, fresh=False)
            case CancelAsked(intent=asked) if asked and (instance.parent is None or instance.parent.intent != asked):
                return self._stale()
            case CancelAsked() if instance.ended or (instance.cancelled and instance.stuck is None):
                return Accepted(instance.id, instance.address, fresh=False)
            case Rewound():
                return self._rewind_refusal(instance, event)
            case Retried() | Settled() if instance.stuck is None:
                return Refused("not-stuck", f"{instance.address} is {instance.status}, not stuck")
            case Settled() if instance.stuck is not None and instance.stuck.kept:
                return Refused("refused", f"{instance.address} stopped at an event, not at an effect: retry or cancel")
            case Settled(location=at) if instance.stuck is not None and instance.stuck.location != at:
                return Refused("refused", f"{instance.address} is not stuck at {at!r}: {instance.stuck.location!r}")
            case Migrated() if instance.ended or not self._outdated(instance):
                return self._stale()
            case _ if instance.ended:
                return Refused("ended", f"{instance.address} {ended(instance.status)} and takes no {_word(event)}")
            case _:
                return None

    def _not_for_cells(self, instance: Instance, event: Event) -> str:
        """Why an event that others take is none for a cell, or for the world; empty: it is. Whoever sent it."""
        if instance.address == WORLD:
            return "" if type(event) is Message else "the world of this database: it takes events, and lasts as long"
        if not instance.made and instance.address.workflow not in self.router.manifest.versions:
            return ""
        match event:
            case Message(sender=""):
                return "a cell: its events are routed to it"
            case Rewound():
                return "a cell: its state is what its events made of it; it does not go back"
            case Woken():
                return "a cell: what it asked for is answered when it is due, and not before"
            case _:
                return ""

    def _rewind_refusal(self, instance: Instance, event: Rewound) -> Answer | None:
        if instance.cancelled or instance.status in FINAL:
            word = ended(Status.CANCELLED if instance.cancelled else instance.status)
            return Refused("ended", f"{instance.address} {word}, and stays so: fork it")
        if event.after != instance.rewound:
            return Refused("refused", f"{instance.address} was rewound by somebody else meanwhile: look again")
        return still_running(instance, event)

    def _rewind(self, instance: Instance, event: Rewound) -> Rewound:
        """What stays open: all of the past that nobody answered. A receipt that is kept will not be delivered."""
        kept = instance.kept
        answered = kept.intent if type(kept) is Received else b""
        still = tuple([id for id in event.open if id in instance.open and id != answered])
        return msgspec.structs.replace(event, open=still)

    def _let_go(self, unstarted: Instance) -> None:
        """Nothing has this name. What still waits for it may start it: until then it must be found."""
        if not unstarted.mailbox:
            self._by_address.pop(unstarted.address, None)

    def _start_refusal(self, instance: Instance, event: Started, version: str) -> Answer | None:
        refusal = self.workflows.refusal(event.workflow, version)
        made_by = "" if event.first is None else event.first.sender
        if not made_by and event.workflow in self.router.manifest.versions:
            refusal = Refused("refused", f"{event.workflow} is a cell: the first event that is routed to it makes it")
        elif event.workflow == WORLD.workflow and event.key != WORLD.key:
            refusal = Refused("refused", f"there is one world: {WORLD}")
        if instance.id == 0:
            if refusal is not None:
                self._let_go(instance)
            return refusal
        again = instance.ended and (
            event.reuse == "always" or (event.reuse == "failed" and instance.status is not Status.COMPLETED)
        )
        if again or (refusal is not None and refusal.code in ("unknown-workflow", "refused")):
            return refusal
        if event.parent is not None and event.parent.intent and event.parent != instance.parent:
            return Refused("key-in-use", f"{instance.address} exists already; a child needs a key of its own")
        if input_hash(event.input) != instance.input_hash or event.forked is not None:
            return Refused("key-in-use", f"{instance.address} exists already, with another input")
        return Accepted(instance.id, instance.address, fresh=False)

    def _migration_first(self, instance: Instance, offer: Offer) -> Offer:
        """An instance of an outdated definition goes over to the one in force before anything else happens to it."""
        if not self._outdated(instance) or instance.ended or instance.stuck is not None:
            return offer
        workflow = instance.address.workflow
        needed = (instance.definition, self.router.manifest.versions[workflow])
        if any(self.workflows.exactly(workflow, version) is None for version in needed):
            return offer  # it is refused here: another engine may have the code
        instance.mailbox.appendleft(offer)
        return Offer(instance.id, Migrated())

    def _outdated(self, instance: Instance) -> bool:
        return self.router.manifest.outdated(instance.address.workflow, instance.definition)

    def _made_by(self, instance: Instance, message: Message) -> Event:
        """A message to an instance of a governed workflow that does not exist, or no longer, makes it."""
        workflow, key = instance.address.workflow, instance.address.key
        version = self.router.manifest.versions.get(workflow)
        if version is None:
            return message
        name = f"{self.seq}\x00{instance.address}".encode()
        seed = blake2b(name, key=self._salt, digest_size=16).digest()
        input = self.router.manifest.hash.encode()
        return Started(workflow, key, input, seed, version, reuse="always", first=message)

    def _new_instance(self, before: Instance, event: Started) -> tuple[Instance, Started]:
        """A start of a terminal key is a new generation: another instance under the same name."""
        instance = before
        if before.id != 0:
            instance = Instance(before.address)
            instance.queued = True  # until its first entry is recorded
            mailbox, before.mailbox = before.mailbox, deque()
            for offer in mailbox:  # what names the earlier generation by its id stays with it
                (before if isinstance(offer.to, int) else instance).mailbox.append(offer)
            self._by_address[instance.address] = instance
        workflow = self.workflows.of(event.workflow, event.version)
        assert workflow is not None, "a start of an unknown workflow is refused"
        generation = before.generation + 1
        event = msgspec.structs.replace(event, generation=generation, version=workflow.version, reuse="")
        if event.forked is not None:
            instance.version = event.forked.after  # it goes on counting where its past ends
        # Known before `apply`, because a decision is checked before it is applied.
        life = 0 if event.forked is None else instance.version + 1
        instance.identity = Identity(instance.address, event.generation, event.seed, life)
        return instance, event

    def _again_or_unknown(self, instance: Instance, event: Redelivered) -> Event:
        """A call that was asked as often as it may be is answered `unknown` instead of being asked again."""
        intent = instance.open[event.intent]
        assert type(intent.effect) is Call
        allowed = intent.effect.deliveries_max
        if intent.strikes < allowed or (allowed > 1 and not event.alone):
            return event
        failure = Failure(
            "WorkerLost" if self._is_away(intent.effect) else "ProcessDied",
            f"the {'worker was lost' if self._is_away(intent.effect) else 'process died'} while it executed this"
            + (f", each of {intent.delivery} times" if intent.delivery > 1 else ""),
            retry=False,
        )
        self.slots.stop(intent.id, intent.effect)
        return Received(intent.id, Receipt("unknown", error=failure))

    def _decide(self, taken: Taken, seq: int) -> Decision:
        """The machine's decision, or the kernel's own where the machine is not asked."""
        instance, event, heard = taken.instance, taken.event, taken.heard
        if type(event) is Received and instance.machine is not None:  # nearly always
            try:
                moment = Moment(self.at, instance.seed, instance.version + 1, None, None, seq)
                return instance.machine.deliver(event, moment)
            except Exception as error:
                return self._spoil(instance, error)
        if type(event) is CancelAsked and instance.kept is not None:
            failure = Failure("Cancelled", event.reason)
            return Decision(outcome=Outcome(Status.CANCELLED, error=failure))
        try:
            machine = instance.machine
            if type(heard) is Rewound:
                machine = self._made_anew(instance)
            elif machine is None:
                version = event.version if type(event) is Started else instance.definition
                workflow = self.workflows.of(instance.address.workflow, version)
                assert workflow is not None, "an event for an unknown workflow is refused"
                machine = instance.machine = rebuild(instance, workflow)
                self.counts["rebuilt"] += instance.version > 0
                instance.workflow, instance.tail, instance.snapshot_at = workflow, None, None
            if type(heard) in KERNEL_ONLY:
                return NOTHING
            if type(heard) is Migrated:
                return self._migrate(instance, machine, heard.version)
            seed = event.seed if type(event) is Started else instance.seed
            return machine.deliver(heard, Moment(self.at, seed, instance.version + 1, None, None, seq))
        except Exception as error:
            return self._spoil(instance, error)

    def _migrate(self, instance: Instance, machine: Machine, version: str) -> Decision:
        """The machine of another definition, made from what this one holds."""
        workflow = self.workflows.exactly(instance.address.workflow, version)
        if workflow is None or not isinstance(workflow, Governed):
            raise UnknownVersion(f"{instance.address} goes over to version {version}, which is not registered here")
        instance.machine = migrated = workflow.migrated(str(instance.address), machine)
        machine.dispose()
        instance.workflow = workflow
        return Decision(state=migrated.digest, begin=migrated.snapshot() or b"")

    def _made_anew(self, instance: Instance) -> Machine:
        """A machine without a past: it is about to be told another."""
        if instance.machine is not None:
            instance.machine.dispose()
        workflow = instance.workflow = self.workflows.of(instance.address.workflow, instance.definition)
        assert workflow is not None, "an event for an unknown workflow is refused"
        instance.machine = machine = workflow.machine(str(instance.address), None)
        instance.tail = instance.snapshot_at = None
        return machine

    def _spoil(self, instance: Instance, error: Exception) -> Decision:
        """Poison does not spread: this instance stops with its event kept; its machine is rebuilt before a retry."""
        if instance.machine is not None:
            instance.machine.dispose()
        instance.machine = instance.tail = None
        location = error.location if isinstance(error, Divergence) else ""
        return Decision(stuck=Stuck(failure_of(error), location, kept=True))

    def _write(self, taken: Taken, decision: Decision) -> Written:
        """Build the entry. A decision that cannot be recorded counts as raising."""
        instance = taken.instance
        self.seq += 1
        if instance.id == 0:
            instance.id = self.seq
            self._by_id[instance.id] = instance
            self._by_address[instance.address] = instance
        intents: tuple[bytes, ...] = ()
        try:
            intents = check(instance, taken.heard, decision)
            if decision.announce and instance.address != WORLD:  # it has judged what it hands on
                self._refuse_bad_keys(instance, decision)
            return self._record(instance, taken.event, decision, intents)
        except Exception as error:
            if intents:  # else it was no decision, or an unsound one: nothing was admitted
                for id, effect in zip(intents, decision.open, strict=True):
                    self.slots.stop(id, effect)
            return self._record(instance, taken.event, self._spoil(instance, error), ())

    def _refuse_bad_keys(self, instance: Instance, decision: Decision) -> None:
        for fact in decision.announce:
            objection = self.router.objection(fact)
            if objection:
                raise BadDecision(instance.address.workflow, f"it emitted {objection}")

    def _record(self, instance: Instance, event: Event, decision: Decision, intents: tuple[bytes, ...]) -> Written:
        held: tuple[bytes, ...] = ()
        denied: Sequence[tuple[bytes, str]] = ()
        packed: tuple[Packed, ...] = ()
        fresh: tuple[str, ...] = ()
        if decision.open:
            if decision.outcome is None:
                held, denied = self._admit(instance, intents, decision.open)
            packed, fresh = pack(decision.open, instance.patterns)
        entry = Entry(self.seq, instance.id, instance.version + 1, self.at, event, decision, held, fresh, intents)
        body = encode(entry, packed)
        workflow = instance.workflow
        if (
            workflow is not None
            and len(body) > workflow.limits.bytes  # the cheap question first: nearly all are far below
            and len(body) - _size(event) > workflow.limits.bytes
            and instance.machine is not None
            and not decision.begin
        ):
            size = len(body) - _size(event)
            raise OverflowError(f"one decision of {size} bytes; the limit is {workflow.limits.bytes}")
        return Written(entry, body, denied)

    def _admit(
        self, instance: Instance, intents: tuple[bytes, ...], effects: tuple[Effect, ...]
    ) -> tuple[tuple[bytes, ...], Sequence[tuple[bytes, str]]]:
        """Ask the gate about each call: which are held, and which are denied. Neither is handed out."""
        held: list[bytes] = []
        denied: list[tuple[bytes, str]] = []
        for place, effect in enumerate(effects):
            if type(effect) is Call:
                verdict = self.slots.admit(instance.id, intents[place], effect)
                if type(verdict) is Defer or type(verdict) is Deny:
                    held.append(intents[place])
                    if type(verdict) is Deny:
                        denied.append((intents[place], verdict.reason))
        return tuple(held), denied

    def _apply(self, taken: Taken, written: Written, batch: Batch) -> None:
        """Change the state, and tell everybody whom that concerns."""
        instance, entry, body = taken.instance, written.entry, written.body
        before = instance.status
        changed = apply(instance, entry)
        size = len(body)
        batch.journal.append(_row(JournalRow, (entry.seq, entry.instance, entry.at, body)))
        batch.size += size
        instance.tail_size += size
        if entry.decision.state:
            self._weigh(instance)
        if instance.status is not before or type(entry.event) in NEW_HEAD:
            batch.heads[instance.id] = head_row(instance, entry.at)
        self._spread(instance, entry, taken.heard, changed, batch)
        if written.denied:
            self._tell_denied(instance, written.denied)
        if before is Status.STUCK and instance.status is not Status.STUCK:
            for *_, lost in self.recover(instance.id, ()):
                self.offer(Offer(instance.id, Redelivered(lost, alone=False)))
        if instance.tail_size > snapshot.SIZE_MIN or instance.made:
            self._maybe_snapshot(instance, batch)
        ticket = taken.offer.ticket
        if type(ticket) is bytes:
            batch.receipts.append(ticket)
        elif ticket is not None:
            batch.answers.append((ticket, Accepted(instance.id, instance.address, True, entry.decision.reply)))

    def _weigh(self, instance: Instance) -> None:
        weight: int = getattr(instance.machine, "size", 0)  # one that does not say counts as nothing
        self.weight += weight - instance.weight
        instance.weight = weight

    def _tell_denied(self, instance: Instance, denied: Sequence[tuple[bytes, str]]) -> None:
        for intent, reason in denied:
            failure = Failure("Denied", reason, retry=False)
            self._cause(instance.id, Received(intent, Receipt("error", error=failure)))

    def _release_held(self) -> None:
        for instance, id, verdict in self.slots.let_go():
            if type(verdict) is Deny:
                failure = Failure("Denied", verdict.reason, retry=False)
                self.offer(Offer(instance, Received(id, Receipt("error", error=failure))))
            else:
                self.offer(Offer(instance, Released(id)))

    # ---- what an entry implies -----------------------------------------------------------------------------------

    def _spread(self, instance: Instance, entry: Entry, heard: Event, changed: Changed, batch: Batch) -> None:
        """What others hear of an entry: executors after the commit, other instances in the same transaction."""
        answered = heard.intent if type(heard) is Received else b""
        for intent in changed.closed:
            if intent.id == answered and type(intent.effect) is Call:
                self._answered(intent, heard.receipt, batch)  # type: ignore[union-attr]
            else:
                self._stop(instance, heard, intent, batch)
        for intent in changed.opened:
            effect = intent.effect
            if type(effect) is Call:
                if intent.held:
                    continue
                if effect.executor not in OURS:
                    self._hand_over(instance, intent, effect, batch)
                elif effect.ephemeral:
                    batch.early.append(self._publication(instance, intent, effect))
                    batch.light += _is_light(entry, changed)
                else:
                    batch.publications[intent.id] = self._publication(instance, intent, effect)
            elif type(effect) is Child:
                self._start_child(instance, intent, effect)
            elif (row := work_row(instance.id, intent)) is not None:
                batch.work_opened[intent.id] = row
        if changed.resumed is not None:
            resumed = changed.resumed
            assert type(resumed.effect) is Call
            if is_queued(resumed.effect):
                self._hand_over(instance, resumed, resumed.effect, batch)
            else:
                batch.publications[resumed.id] = self._publication(instance, resumed, resumed.effect)
        decision = entry.decision
        if decision.send or decision.announce:
            self._send(instance, decision)
        for message, value in decision.respond:
            name = response_name(message)
            batch.published[instance.id, name] = PublishedRow(instance.id, name, value)
        for name, value in decision.publish:
            batch.published[instance.id, name] = PublishedRow(instance.id, name, value)
            if name == MANIFEST and instance.address == WORLD:
                self.router.enforce(decode_manifest(value))
        if decision.reports:
            batch.reports += decision.reports
        if instance.parent is not None:
            self._tell_parent(instance, instance.parent, entry.event)
        if instance.outcome is not None:
            batch.ended.append((instance.id, instance.address, instance.outcome))
            batch.done_with.append(instance.id)
        elif decision.stuck is not None:
            batch.stuck.append((instance.id, instance.address, decision.stuck))
            if decision.stuck.kept:
                batch.done_with.append(instance.id)

    def _send(self, instance: Instance, decision: Decision) -> None:
        sender = str(instance.address)
        for send in decision.send:
            self._cause(send.to, Message(send.name, send.body, send.id, sender))
        for fact in decision.announce:
            addresses = self.router.route(fact)
            self.counts["unrouted"] += not addresses
            for place, address in enumerate(addresses):
                id = fact.id
                if id and address in addresses[:place]:  # two subscriptions lead to it: it is no duplicate
                    id = f"{id}\x00{place}"
                self._cause(address, Message(fact.name, fact.body, id, sender, fact.correlation))

    def _tell_parent(self, instance: Instance, parent: Parent, event: Event) -> None:
        """A detached child answers when it has started, any other when it has ended."""
        if not parent.intent:
            return
        if parent.detached and type(event) is Started:
            value = encode_value(instance.address.key)
            self._cause(parent.instance, Received(parent.intent, Receipt("ok", value)))
        elif instance.outcome is not None and not parent.detached:
            self._cause(parent.instance, Received(parent.intent, receipt_of(instance.outcome)))

    def _start_child(self, instance: Instance, intent: Intent, child: Child) -> None:
        parent = Parent(instance.id, intent.id, child.detached)
        seed = Moment(self.at, instance.seed, instance.version).entropy()[:16] + intent.id
        reuse = "always" if instance.rewound else ""  # the key may be that of a child that was dropped
        start = Started(child.workflow, child.key, child.input, seed, child.version, parent, reuse=reuse)
        self._cause(Address(child.workflow, child.key), start)

    def _is_away(self, effect: Effect) -> bool:
        """Whether a call is for others to perform: workers, or the next engine that serves its queue."""
        return is_queued(effect) and not self.slots.gate.performs(effect.executor)  # type: ignore[union-attr]

    def _hand_over(self, instance: Instance, intent: Intent, call: Call, batch: Batch) -> None:
        """A call of a queue becomes a job, for workers or for this engine itself."""
        batch.jobs_opened[intent.id] = job_row(instance, intent, call, self.at)
        if not self._is_away(call):
            batch.publications[intent.id] = self._publication(instance, intent, call)

    def _publication(self, instance: Instance, intent: Intent, call: Call) -> Publication:
        work = None
        if call.params is None and instance.machine is not None:
            work = instance.machine.work(intent.id)
        id, address = instance.id, instance.address
        return Publication(intent.id, id, address, call, intent.delivery, work, instance.identity)

    def _answered(self, intent: Intent, receipt: Receipt, batch: Batch) -> None:
        """A call was closed by its own receipt. It was freed when that was taken, unless it is an orphan."""
        if intent.id in self.slots.orphans:
            self.slots.stop(intent.id, intent.effect)
        if is_queued(intent.effect):
            self._close_job(intent, batch)
        if batch.publications.pop(intent.id, None) is None and receipt.status not in ("ok", "error"):
            batch.stops.append(intent.id)

    def _stop(self, instance: Instance, event: Event, intent: Intent, batch: Batch) -> None:
        """Any other intent was closed: by a receipt, or because nobody wants its answer any more."""
        effect = intent.effect
        if type(effect) is Call:
            self.slots.stop(intent.id, effect)
            if is_queued(effect):
                self._close_job(intent, batch)
            if batch.publications.pop(intent.id, None) is None:
                batch.stops.append(intent.id)
        elif type(effect) is Child:
            own = type(event) is Received and event.intent == intent.id
            if not own and not effect.detached:
                cancel = CancelAsked(f"{instance.address} no longer waits", intent.id)
                self._cause(Address(effect.workflow, effect.key), cancel)
        elif has_row(effect) and batch.work_opened.pop(intent.id, None) is None:
            batch.work_closed.append(intent.id)

    @staticmethod
    def _close_job(intent: Intent, batch: Batch) -> None:
        batch.jobs_opened.pop(intent.id, None)
        batch.jobs_closed.append(intent.id)

    def _cause(self, to: Ref, event: Event) -> None:
        offer = Offer(to, event, caused=True)
        self._caused.append(offer)
        if not self.closing and self._here(to):
            self.offer(offer)

    def _maybe_snapshot(self, instance: Instance, batch: Batch) -> None:
        if not snapshot.due(instance):
            return
        if instance.ended or instance.stuck is not None or instance.machine is None:
            return  # a snapshot has no room for what a stuck instance waits for
        try:
            row = snapshot.take(instance)
        except Rebuild:
            batch.done_with.append(instance.id)
            return
        except Exception:  # an optimisation must not stop what works without it; asked again when the tail has doubled
            self.counts["snapshots_failed"] += 1
            instance.snapshot_size = 2 * instance.tail_size
            return
        if row is not None:
            batch.snapshots[instance.id] = row

    # ---- answers, shelves, slots ---------------------------------------------------------------------------------

    def _answer(self, offer: Offer, answer: Answer, batch: Batch) -> None:
        if type(offer.ticket) is bytes:
            batch.receipts.append(offer.ticket)
        elif offer.ticket is not None:
            batch.answers.append((offer.ticket, answer))
        elif isinstance(answer, Refused):
            self.counts["refused"] += 1
            event = offer.event
            if type(event) is Started and event.parent is not None:
                failure = Failure("ChildRefused", answer.reason, retry=False)
                self._cause(event.parent.instance, Received(event.parent.intent, Receipt("error", error=failure)))

    def _stale(self) -> Answer:
        self.counts["stale"] += 1
        return STALE

    def _shelve(self, instance: Instance, offer: Offer, batch: Batch) -> None:
        """A stuck instance takes no events. They are kept as inbox rows and delivered when it goes on."""
        event = offer.event
        if isinstance(event, Redelivered | Released):  # `recover` finds it again when the instance goes on
            effect = instance.open[event.intent].effect
            self.slots.stop(event.intent, effect)
            if type(event) is Redelivered and not self._is_away(effect):
                self.slots.orphans.add(event.intent)
            self._answer(offer, Accepted(instance.id, instance.address), batch)
            return
        again = _comes_again(instance, event)
        if again and any(other.event == offer.event for other in instance.shelf):
            self._answer(offer, STALE, batch)
            return
        if offer.inbox is None:
            if not again:
                self._keep(offer, batch)
            self._answer(offer, Accepted(instance.id, instance.address), batch)
            offer.ticket = None
        instance.shelf.append(offer)

    def _leave(self, offer: Offer, batch: Batch) -> bool:
        """An engine without the workflow must not use up what waits for it in the inbox: another may have it."""
        if offer.ticket is not None or (type(offer.event) is Started and offer.event.parent is not None):
            return False
        if offer.inbox is None and offer.caused:
            self._keep(offer, batch)
        return offer.inbox is not None

    def _keep(self, offer: Offer, batch: Batch) -> None:
        offer.inbox = self._inbox_id()
        batch.inbox_added[offer.inbox] = inbox_row(offer.inbox, offer.to, offer.event, self.at)

    def _inbox_id(self) -> bytes:
        self.counts["kept"] += 1
        number = (self.counts["kept"] & 0xFFFFFFFF).to_bytes(4, "big")
        return self.seq.to_bytes(8, "big") + self._salt + number

    def _here(self, to: Ref) -> bool:
        """Whether an instance lives on this shard."""
        return self._shards == 1 or placement.place(to, self._shards) == self._shard

    # ---- memory -------------------------------------------------------------------------------------------------

    def _find(self, ref: Ref) -> Instance | None:
        if type(ref) is int:
            instance = self._by_id.get(ref)
            if instance is not None:
                self._by_id.move_to_end(ref)
            return instance
        instance = self._by_address.get(ref)  # type: ignore[arg-type]
        if instance is not None and instance.id in self._by_id:
            self._by_id.move_to_end(instance.id)
        return instance

    def _name(self, instance: Instance) -> None:
        """A name means the last generation."""
        current = self._by_address.get(instance.address)
        if current is None or current.generation <= instance.generation or current.id == 0:
            self._by_address[instance.address] = instance

    def _make_ready(self, instance: Instance) -> None:
        """Give it a turn, if there is an event for it. One that has its turn already is looked at again after it."""
        if instance.queued:
            return
        if instance.shelf and instance.status is not Status.STUCK:
            instance.mailbox.extendleft(reversed(instance.shelf))
            instance.shelf.clear()
        if not instance.mailbox:
            return
        spoiled = instance.machine is None and instance.tail is None and instance.version > 0
        if not spoiled or instance.ended:
            instance.queued = True
            self._ready.append(instance)

    def _forget(self, instance: Instance) -> None:
        """Drop an instance from memory; what waits in its mailbox waits for it to be loaded again."""
        self.weight -= instance.weight
        instance.weight = 0
        self.forgotten_seq = max(self.forgotten_seq, instance.seq)
        self._by_id.pop(instance.id, None)
        if self._by_address.get(instance.address) is instance:
            del self._by_address[instance.address]
        if instance.machine is not None:
            instance.machine.dispose()
        if instance.mailbox or instance.shelf:
            for offer in [*instance.shelf, *instance.mailbox]:
                self._wait(instance.id, offer)
            if instance.mailbox:
                self.wanted[instance.id] = None
            instance.mailbox.clear()
            instance.shelf.clear()

    def evict(self, keep: int, durable_seq: int, batch: Batch) -> int:
        """Drop the least recently used instances above `keep`. Only durable, idle ones may go.

        One whose state is a value leaves it in the batch: it is woken by one read. One whose call is running will soon
        be asked again, and would have to be rebuilt: it stays, up to four times `keep`.
        """
        surplus = len(self._by_id) - keep
        if surplus <= 0:
            return 0
        also_running = len(self._by_id) > 4 * keep
        idle = (
            instance
            for instance in self._by_id.values()
            if instance.seq <= durable_seq
            and (also_running or not instance.calls)
            and not instance.mailbox
            and not instance.shelf
        )
        gone = [instance for instance, _ in zip(idle, range(surplus), strict=False)]
        written = 0
        for instance in gone:
            if (
                instance.weight
                and written < SPILL_MAX
                and (instance.weight <= SMALL or instance.tail_size >= instance.weight)
            ):
                written += self._leave_snapshot(instance, batch)
            self._forget(instance)
        return len(gone)

    def relieve(self, budget: int, durable_seq: int, batch: Batch) -> int:
        """Above a budget of bytes, drop the least recently used states until three quarters of it are left.

        Each leaves a snapshot in the batch, unless it has one: a large state is dear to rebuild from many entries.
        Those whose calls are running go last. What one batch should not carry is dropped after the next one.
        """
        if self.weight <= budget:
            return 0
        idle = [
            instance
            for instance in self._by_id.values()
            if instance.weight and instance.seq <= durable_seq and not instance.mailbox and not instance.shelf
        ]
        gone = written = 0
        for instance in sorted(idle, key=_is_calling):
            if self.weight <= budget * 3 // 4 or written > SPILL_MAX:
                break
            written += self._leave_snapshot(instance, batch)
            self._forget(instance)
            gone += 1
        self.counts["spilled"] += gone
        return gone

    def _leave_snapshot(self, instance: Instance, batch: Batch) -> int:
        """Write the state of an instance that goes, unless it stands there already. The answer is its size."""
        if not instance.tail_size or instance.stuck is not None or instance.machine is None or instance.ended:
            return 0
        row = snapshot.take(instance)
        assert row is not None, "a state that is a value can be written"
        batch.snapshots[instance.id] = row
        return len(row.body)

    def dispose(self) -> None:
        """This memory is dropped: let go of every machine."""
        for instance in self._by_id.values():
            if instance.machine is not None:
                instance.machine.dispose()

    def undelivered(self) -> Iterator[Offer]:
        """Offers that are in memory only or not yet recorded."""
        for instance in self._by_id.values():
            yield from instance.mailbox
        for instance in self._by_address.values():
            if instance.id == 0:
                yield from instance.mailbox
        for instance in self._ready:
            if instance.id == 0 and self._by_address.get(instance.address) is not instance:
                yield from instance.mailbox  # of an id that nobody has
        for offers in self._absent.values():
            yield from offers

    def instances(self) -> Mapping[int, Instance]:
        return self._by_id


_row: Final[Callable[[type[JournalRow], tuple[int, int, int, bytes]], JournalRow]] = tuple.__new__
"""Makes a row without the Python function that named tuples are made by."""


def _ended(head: HeadRow) -> Instance:
    """One that has ended for good: of its past nothing is needed."""
    instance = Instance(Address(head.workflow, head.key))
    instance.id, instance.generation, instance.input_hash = head.id, head.generation, head.input_hash
    instance.status = Status(head.status)
    instance.outcome = decode_outcome(head.outcome) if head.outcome is not None else None
    return instance


def full(batch: Batch) -> bool:
    """What is ready has to wait for the next one: `advance` adds nothing to this one."""
    return len(batch.journal) >= ENTRIES_MAX or batch.size >= BYTES_MAX


def _is_light(entry: Entry, changed: Changed) -> bool:
    """Whether an entry only leads from one ephemeral call to the next."""
    closed = [intent.effect for intent in changed.closed]
    if type(entry.event) is not Received or len(closed) != 1 or len(changed.opened) != 1:
        return False
    decision = entry.decision
    said = decision.send or decision.announce or decision.publish or decision.respond
    return type(closed[0]) is Call and closed[0].ephemeral and not said


def _may_rule(taken: Taken) -> bool:
    """Whether an event may change what is in force."""
    return taken.instance.address == WORLD and taken.event.name.startswith(RULES)  # type: ignore[union-attr]


def _comes_again(instance: Instance, event: Event) -> bool:
    """Whether an event is offered anew after a crash, because a row of its own stands for it."""
    if type(event) is not Received or event.receipt.by is not None:
        return False
    return due_of(instance.open[event.intent].effect) is not None


def _size(event: Event) -> int:
    """The bytes that an event brings with it."""
    if type(event) is Received:
        return len(event.receipt.value or b"")
    if type(event) is Message:
        return len(event.body)
    if type(event) is Rewound:
        return len(event.past)
    if type(event) is Started:
        return len(event.input) + (0 if event.first is None else len(event.first.body))
    return 0


def _is_calling(instance: Instance) -> bool:
    return instance.calls > 0


def _by_arrival(offer: Offer) -> int:
    return offer.number


def _word(event: Event) -> str:
    return type(event).__name__.lower()
