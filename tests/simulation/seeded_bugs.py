"""Seeded bugs: mistakes that were made in some engine, put into the code on purpose. The simulation must find each.

A seeded bug patches the code under test for the time of a `with` block. `hunt` runs seeds in order until a world
fails. A bug that no seed finds is a hole in the auditor.

    python -m tests.simulation.seeded_bugs       every bug, with the number of schedules it took
"""

from __future__ import annotations

import gc
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from perdure.cells.machine import CellMachine
from perdure.errors import Fenced
from perdure.flows import messages
from perdure.flows.context import Context
from perdure.flows.machine import FlowMachine
from perdure.flows.mailbox import Mail, Mailbox
from perdure.flows.operation import Operation
from perdure.kernel import apply, creation, kernel, past, replay, snapshot, unrecorded
from perdure.kernel.batch import Batch
from perdure.kernel.cache import InstanceCache
from perdure.kernel.consequences import Consequences, publication_of
from perdure.kernel.effects import Call
from perdure.kernel.events import Address, CancelAsked, Event, Message, ReceiptArrived, Started
from perdure.kernel.identity import Identity
from perdure.kernel.instance import Instance
from perdure.kernel.kernel import Kernel
from perdure.kernel.mailbox import Accepted, Refused, Stale
from perdure.kernel.moment import Moment
from perdure.kernel.outside import Objection, objection
from perdure.kernel.past import Item
from perdure.kernel.refusals import refusal
from perdure.kernel.rules import NO_RULES, Rules
from perdure.kernel.slots import Slots
from perdure.ports.jobs import Claim
from perdure.ports.store import Position
from perdure.runtime import shard
from perdure.runtime.calls import Calls, RunningCall
from perdure.runtime.loading import Loading
from perdure.runtime.loop import Loop
from perdure.runtime.lost_jobs import LostJobs
from perdure.runtime.shard import Shard
from perdure.runtime.timers import Timers
from perdure.stores.memory import MemoryJobs, MemoryStore
from tests.simulation.sim import simulate

SCHEDULES_MAX = 10_000


class SeededBug(NamedTuple):
    """`first`: the seed that the hunt begins with. One that takes hundreds of worlds begins near its catch."""

    name: str
    patches: Callable[[], list[tuple[Any, str, Any]]]
    first: int = 0


class Catch(NamedTuple):
    """`schedules`: how many it took, or 0 when nothing was found; `error`: what the auditor said."""

    name: str
    schedules: int
    seed: int
    error: str


@contextmanager
def with_bug(bug: SeededBug) -> Iterator[None]:
    """The code with this bug in it."""
    with ExitStack() as stack:
        for target, name, replacement in bug.patches():
            stack.enter_context(patch.object(target, name, replacement))
        yield


def hunt(bug: SeededBug, schedules_max: int = SCHEDULES_MAX) -> Catch:
    """Run seeds until one of them notices."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with with_bug(bug):
            for number in range(schedules_max):
                found = simulate(bug.first + number)
                if found.error:
                    return Catch(bug.name, number + 1, bug.first + number, found.summary)
                if number % 200 == 199:
                    gc.collect()
    finally:
        if collecting:
            gc.enable()
    return Catch(bug.name, 0, -1, "")


# ---- the runtime ---------------------------------------------------------------------------------------


def _publish_early() -> list[tuple[Any, str, Any]]:
    commit = Loop._commit

    def mutant(self: Loop) -> None:
        for publication in self._core.building.publications.values():
            self._calls.start(publication)
        commit(self)

    return [(Loop, "_commit", mutant)]


def _acknowledge_early() -> list[tuple[Any, str, Any]]:
    commit = Loop._commit

    def mutant(self: Loop) -> None:
        self._acknowledge(self._core.building)
        commit(self)

    return [(Loop, "_commit", mutant)]


def _ignore_failed_commit() -> list[tuple[Any, str, Any]]:
    committed = Loop._committed

    def mutant(self: Loop, life: int, error: Exception | None) -> None:
        committed(self, life, error if isinstance(error, Fenced) else None)

    return [(Loop, "_committed", mutant)]


def _redeliver_unrecorded() -> list[tuple[Any, str, Any]]:
    def mutant(self: Calls, instance_id: int, intent: bytes, alone: bool) -> None:
        kernel = self._core.kernel
        instance = kernel.instances()[instance_id]
        if instance.machine is None:
            workflow = kernel.workflows.of(instance.address.workflow, instance.definition)
            assert workflow is not None
            instance.workflow, instance.machine = workflow, replay.rebuild(instance, workflow)
        found = instance.open[intent]
        assert type(found.effect) is Call
        self.start(publication_of(instance, found, found.effect))

    return [(Calls, "_deliver_again", mutant)]


def _forget_receipts() -> list[tuple[Any, str, Any]]:
    """A failed commit loses the receipts that were in memory, and nobody runs those calls again."""
    begin = Shard._begin

    def mutant(self: Shard, position: Position) -> None:
        executor = next(iter(self._executors.values()))
        calls = self._calls
        for intent, offer in calls.receipts.items():
            assert isinstance(offer.to, int)
            calls.running[intent] = RunningCall(offer.to, Address("", ""), executor, Call(""), 1, started=True)
        calls.receipts.clear()
        begin(self, position)

    return [(Shard, "_begin", mutant)]


def _believe_late_loads() -> list[tuple[Any, str, Any]]:
    loaded = Loading._loaded

    def mutant(self: Loading, life: int, asked: int, *rest: Any) -> None:
        loaded(self, life, 1 << 62, *rest)

    return [(Loading, "_loaded", mutant)]


def _timers_in_memory_only() -> list[tuple[Any, str, Any]]:
    fill = Timers.fill
    return [(Timers, "fill", lambda self, now, rows: fill(self, now, []))]


# ---- the store -----------------------------------------------------------------------------------------


def _no_epoch_check() -> list[tuple[Any, str, Any]]:
    return [(MemoryStore, "_fenced", lambda self: None)]


def _half_a_commit() -> list[tuple[Any, str, Any]]:
    """Heads and journal in two transactions: the process can die between them."""
    write = MemoryStore._write

    def mutant(self: MemoryStore, batch: Batch) -> None:
        heads, batch.heads = (
            batch.heads,
            {id: head for id, head in batch.heads.items() if head.outcome is None},
        )
        write(self, batch)
        batch.heads = heads

    return [(MemoryStore, "_write", mutant)]


# ---- the kernel ----------------------------------------------------------------------------------------


def _after_spread(change: Callable[[Batch], None]) -> Callable[[], list[tuple[Any, str, Any]]]:
    def patches() -> list[tuple[Any, str, Any]]:
        tell = Consequences.tell

        def mutant(self: Consequences, *arguments: Any) -> None:
            tell(self, *arguments)
            change(next(argument for argument in arguments if isinstance(argument, Batch)))

        return [(Consequences, "tell", mutant)]

    return patches


def _refuse_less(*answers: type) -> Callable[[], list[tuple[Any, str, Any]]]:
    """Events are recorded although there is an answer without that."""

    def patches() -> list[tuple[Any, str, Any]]:
        def mutant(instance: Any, event: Any, *others: Any, heard: bool) -> Any:
            answer = refusal(instance, event, *others, heard=heard)
            duplicate = isinstance(answer, Accepted) and isinstance(event, Message)
            stale = (
                isinstance(answer, Stale) and isinstance(event, ReceiptArrived) and instance.id and not instance.ended
            )
            return None if (duplicate and Message in answers) or (stale and ReceiptArrived in answers) else answer

        return [(kernel, "refusal", mutant)]

    return patches


def _attempts_uncounted() -> list[tuple[Any, str, Any]]:
    return [(Slots, "again_or_unknown", lambda self, instance, event: event)]


def _live_differs() -> list[tuple[Any, str, Any]]:
    def mutant(instance: Any, entry: Any) -> Any:
        changed = apply.apply(instance, entry)
        if isinstance(entry.event, CancelAsked):
            instance.cancelled = False
        return changed

    return [(kernel, "apply", mutant)]


def _caused_not_kept(*events: type) -> Callable[[], list[tuple[Any, str, Any]]]:
    def patches() -> list[tuple[Any, str, Any]]:
        close = Kernel.close

        def mutant(self: Kernel, batch: Batch) -> None:
            self._caused = [offer for offer in self._caused if not isinstance(offer.event, events)]
            close(self, batch)

        return [(Kernel, "close", mutant)]

    return patches


def _inbox_not_emptied() -> list[tuple[Any, str, Any]]:
    take = Kernel._take

    def mutant(self: Kernel, instance: Any, offer: Any, batch: Batch) -> Any:
        taken = take(self, instance, offer, batch)
        batch.inbox_removed.clear()
        return taken

    return [(Kernel, "_take", mutant)]


def _evict_uncommitted() -> list[tuple[Any, str, Any]]:
    evict = InstanceCache.evict
    return [(InstanceCache, "evict", lambda self, keep, durable_seq, batch: evict(self, keep, 1 << 62, batch))]


def _time_goes_back() -> list[tuple[Any, str, Any]]:
    advance = Kernel.advance

    def mutant(self: Kernel, batch: Batch, now: int) -> None:
        self.at = now
        advance(self, batch, now)

    return [(Kernel, "advance", mutant)]


def _kept_ids_repeat() -> list[tuple[Any, str, Any]]:
    begin = Kernel.__init__

    def mutant(self: Kernel, *args: Any, **options: Any) -> None:
        begin(self, *args, **{**options, "salt": b""})

    return [(Kernel, "__init__", mutant)]


def _slots_ignored() -> list[tuple[Any, str, Any]]:
    """A held call is handed out at once."""
    tell = Consequences.tell

    def mutant(  # noqa: PLR0917
        self: Consequences, instance: Any, entry: Any, heard: Any, changed: Any, batch: Batch, cause: Any
    ) -> None:
        tell(self, instance, entry, heard, changed, batch, cause)
        for intent in changed.opened:
            if intent.held:
                batch.publications[intent.id] = publication_of(instance, intent, intent.effect)

    return [(Consequences, "tell", mutant)]


def _dice_unrecorded() -> list[tuple[Any, str, Any]]:
    dice = random.Random(1)
    return [(Moment, "entropy", lambda self: dice.randbytes(64))]


def _snapshot_loses_intent() -> list[tuple[Any, str, Any]]:
    restore = snapshot.restore

    def mutant(row: Any) -> Any:
        instance = restore(row)
        if instance.open:
            instance.open.popitem()
        return instance

    return [(replay, "restore", mutant)]


# ---- flows ---------------------------------------------------------------------------------------------


def _clock_in_machine() -> list[tuple[Any, str, Any]]:
    ticks = itertools.count(1)
    return [(Context, "now", lambda self: datetime.fromtimestamp(next(ticks), UTC))]


def _mail_lost() -> list[tuple[Any, str, Any]]:
    """A receive that was cancelled goes on taking messages."""
    forget = Mailbox.forget

    def kept(self: Mailbox, operation: Operation, wait: Any) -> None:
        if operation.future is None or not operation.future.cancelled():
            forget(self, operation, wait)

    def mutant(machine: FlowMachine, mail: Mail) -> None:
        operation = machine.mailbox.waiting_for(mail.message)
        if operation is None:
            machine.mailbox.put(mail)
            return
        assert operation.future is not None
        machine.withdraw(operation)
        forget(machine.mailbox, operation, operation.effect)  # type: ignore[arg-type]
        if not operation.future.done():
            operation.future.set_result(mail)

    return [(Mailbox, "forget", kept), (messages, "hand_over", mutant)]


# ---- another past --------------------------------------------------------------------------------------


def _one_life() -> list[tuple[Any, str, Any]]:
    def mutant(self: Identity, location: str, attempt: int) -> bytes:
        state = self._begin()
        state.update(f"{location}\x00{attempt}".encode())
        return state.digest()

    return [(Identity, "intent", mutant)]


def _retry_keeps_what_was_undone() -> list[tuple[Any, str, Any]]:
    def mutant(self: FlowMachine, location: str) -> None:
        pass

    return [(FlowMachine, "undone", mutant)]


def _retry_forgets() -> list[tuple[Any, str, Any]]:
    def mutant(item: Item, locations: set[str]) -> bool:
        return bool(item.location)

    return [(past, "_answers", mutant)]


# ---- cells ---------------------------------------------------------------------------------------------


def _manifest_forgotten() -> list[tuple[Any, str, Any]]:
    def mutant(body: bytes | None) -> Rules:
        return NO_RULES

    return [(shard, "decode_rules", mutant)]


def _cell_forgets_what_is_open() -> list[tuple[Any, str, Any]]:
    def mutant(self: CellMachine) -> bytes:
        return msgspec.msgpack.encode((self.state, self._manifest, {}))

    return [(CellMachine, "snapshot", mutant)]


def _first_event_lost() -> list[tuple[Any, str, Any]]:
    made_by = creation.made_by

    def mutant(self: Kernel, instance: Instance, message: Message) -> Event:
        made = made_by(self, instance, message)
        return msgspec.structs.replace(made, first=None) if isinstance(made, Started) and instance.ended else made

    return [(creation, "made_by", mutant)]


def _objects_less(*codes: str) -> Callable[[], list[tuple[Any, str, Any]]]:
    """Receipts from outside are admitted although something stands against them."""

    def patches() -> list[tuple[Any, str, Any]]:
        def mutant(*arguments: Any) -> Objection | None:
            against = objection(*arguments)
            return None if against is not None and against.code in codes else against

        return [(unrecorded, "objection", mutant)]

    return patches


def _refused_in_silence() -> list[tuple[Any, str, Any]]:
    def mutant(self: Kernel, instance: Instance, event: ReceiptArrived, batch: Batch) -> Any:
        against = objection(instance.address, instance.open[event.intent], event.receipt, self.verify)
        return None if against is None else Refused(against.code, against.text)  # type: ignore[arg-type]

    return [(unrecorded, "not_admitted", mutant)]


# ---- workers -------------------------------------------------------------------------------------------


def _void_claims_answer() -> list[tuple[Any, str, Any]]:
    def mutant(self: MemoryJobs, claim: Claim) -> Any:
        return self._database.claims.get(claim.job.intent)

    return [(MemoryJobs, "_own", mutant)]


def _claimed_by_two() -> list[tuple[Any, str, Any]]:
    claim_now = MemoryJobs.claim_now

    def mutant(self: MemoryJobs, *arguments: Any) -> list[Claim]:
        claims = claim_now(self, *arguments)
        for claim in claims:
            self._database.unclaimed[claim.job.queue][claim.job.intent] = None
        return claims

    return [(MemoryJobs, "claim_now", mutant)]


def _nobody_misses_a_worker() -> list[tuple[Any, str, Any]]:
    def mutant(self: LostJobs, life: int) -> None:
        pass

    return [(LostJobs, "look", mutant)]


SEEDED_BUGS: tuple[SeededBug, ...] = (
    SeededBug("calls are published before the commit", _publish_early),
    SeededBug("callers are answered before the commit", _acknowledge_early),
    SeededBug("a failed commit is ignored", _ignore_failed_commit),
    SeededBug("the store does not check the epoch", _no_epoch_check),
    SeededBug("the last head of an instance is not written with its journal", _half_a_commit),
    SeededBug("a timer row is not written", _after_spread(lambda batch: batch.work_opened.clear())),
    SeededBug("a timer row is not deleted", _after_spread(lambda batch: batch.work_closed.clear())),
    SeededBug("timers of an earlier life are not read", _timers_in_memory_only),
    SeededBug("a stale receipt is applied", _refuse_less(ReceiptArrived)),
    SeededBug("message ids are not remembered", _refuse_less(Message)),
    SeededBug("a redelivery is not journaled", _redeliver_unrecorded),
    SeededBug("deliveries are not counted", _attempts_uncounted),
    SeededBug("receipts are lost with a failed commit", _forget_receipts),
    SeededBug("live state skips what the fold applies", _live_differs),
    SeededBug("what an entry caused is kept in memory only", _caused_not_kept(ReceiptArrived, Started), first=340),
    SeededBug("a delivered inbox row is not removed", _inbox_not_emptied),
    SeededBug("an instance is evicted before it is durable", _evict_uncommitted),
    SeededBug("a late answer of the store is believed", _believe_late_loads, first=410),
    SeededBug("ids of kept events repeat in the next life", _kept_ids_repeat, first=200),
    SeededBug("recorded time goes back with the wall clock", _time_goes_back),
    SeededBug("the gate holds a call and it runs all the same", _slots_ignored),
    SeededBug("dice are rolled anew in replay", _dice_unrecorded),
    SeededBug("a flow reads the clock", _clock_in_machine),
    SeededBug("a message is lost when its receive is cancelled", _mail_lost),
    SeededBug("a snapshot drops an open intent", _snapshot_loses_intent),
    SeededBug("ids of intents stay the same through a rewind", _one_life),
    SeededBug("a retry takes for done what was undone", _retry_keeps_what_was_undone),
    SeededBug("a retry does again what had not failed", _retry_forgets),
    SeededBug("the next process does not know the manifest in force", _manifest_forgotten),
    SeededBug("a snapshot of a cell forgets what it has open", _cell_forgets_what_is_open),
    SeededBug("a cell that is made anew does not hear its first event", _first_event_lost),
    SeededBug("a routed event is kept in memory only", _caused_not_kept(Message)),
    SeededBug("a receipt with a bad signature is admitted", _objects_less("bad-signature")),
    SeededBug("a receipt of another executor is admitted", _objects_less("wrong-executor")),
    SeededBug("a receipt from the inbox need not say who it is from", _objects_less("no-identity")),
    SeededBug("a receipt is refused, and the world is not told", _refused_in_silence),
    SeededBug("a claim that is void can be answered", _void_claims_answer),
    SeededBug("a job is claimed by two workers", _claimed_by_two),
    SeededBug("the job of a lost worker is not delivered again", _nobody_misses_a_worker),
    SeededBug("the row of a job is not deleted", _after_spread(lambda batch: batch.jobs_closed.clear())),
    SeededBug("the row of a job is not written", _after_spread(lambda batch: batch.jobs_opened.clear())),
)


def main(wanted: str = "") -> int:
    """Show every bug, or those whose name contains a word."""
    bugs = [bug for bug in SEEDED_BUGS if wanted in bug.name]
    width = max(len(bug.name) for bug in bugs)
    missed = 0
    for bug in bugs:
        catch = hunt(bug)
        missed += not catch.schedules
        print(f"{catch.name:{width}} {catch.schedules or 'NOT FOUND':>9}  {catch.error[:120]}", flush=True)
    print(f"{len(bugs) - missed} caught, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
