"""What others hear of an entry that is written: executors after the commit, other instances in the same transaction.

All of it follows from the entry and from what `apply` changed; nothing is decided here, and no instance is changed. It
goes into the batch, or is caused: an event for another instance, which the kernel sees to (`cause`).
"""

from collections import Counter
from collections.abc import Callable

from perdure.codec import encode as encode_value

from .apply import Changed
from .batch import Batch, Publication, PublishedRow
from .decision import Decision
from .effects import OURS, Call, Child, is_queued
from .entry import Entry
from .events import Address, CancelAsked, Event, Message, Parent, ReceiptArrived, Ref, Started
from .instance import Instance, Intent
from .job import job_row
from .moment import Moment
from .receipt import Receipt
from .routing import Router
from .rows import has_row, receipt_of, response_name, work_row
from .rules import IN_FORCE, RULER, decode_rules
from .slots import Slots
from .task import TASK, task_rows

Cause = Callable[[Ref, Event], None]
"""Puts an event on its way to an instance, so that it is not lost if the entry that caused it is not."""


class Consequences:
    def __init__(self, slots: Slots, router: Router, counts: Counter[str]) -> None:
        self._slots = slots
        self._router = router
        self._counts = counts

    def tell(  # noqa: PLR0917  # called for every entry
        self, instance: Instance, entry: Entry, heard: Event, changed: Changed, batch: Batch, cause: Cause
    ) -> None:
        """`heard`: what the machine was told; `changed`: what is open since, and what no longer."""
        answered = heard.intent if type(heard) is ReceiptArrived else b""
        for intent in changed.closed:
            if intent.id == answered and type(intent.effect) is Call:
                self._answered(intent, heard.receipt, batch)  # type: ignore[union-attr]
            else:
                self._stop(instance, entry, heard, intent, batch, cause)
        for intent in changed.opened:
            effect = intent.effect
            if type(effect) is Call:
                if intent.held:
                    continue
                if effect.executor not in OURS:
                    self._hand_over(instance, intent, effect, entry.at, batch)
                elif effect.ephemeral:
                    batch.early.append(publication_of(instance, intent, effect))
                    batch.light += _is_light(entry, changed)
                else:
                    batch.publications[intent.id] = publication_of(instance, intent, effect)
            elif type(effect) is Child:
                cause(Address(effect.workflow, effect.key), start_of(effect, instance, intent.id, entry.at))
            elif (row := work_row(instance.id, intent)) is not None:
                batch.work_opened[intent.id] = row
        if changed.resumed is not None:
            resumed = changed.resumed
            assert type(resumed.effect) is Call
            if is_queued(resumed.effect):
                self._hand_over(instance, resumed, resumed.effect, entry.at, batch)
            else:
                batch.publications[resumed.id] = publication_of(instance, resumed, resumed.effect)
        decision = entry.decision
        if decision.send or decision.announce:
            self._send(instance, decision, cause)
        for message, value in decision.respond:
            name = response_name(message)
            batch.published[instance.id, name] = PublishedRow(instance.id, name, value)
        for name, value in decision.publish:
            if name == TASK:
                batch.tasks[instance.id] = task_rows(instance, value)
                continue
            batch.published[instance.id, name] = PublishedRow(instance.id, name, value)
            if name == IN_FORCE and instance.address == RULER:
                self._router.enforce(decode_rules(value))
        if decision.reports:
            batch.reports += decision.reports
        if instance.parent is not None:
            _tell_parent(instance, instance.parent, entry.event, cause)
        if instance.outcome is not None:
            batch.ended.append((instance.id, instance.address, instance.outcome))
            batch.done_with.append(instance.id)
        elif decision.stuck is not None:
            batch.stuck.append((instance.id, instance.address, decision.stuck))
            if decision.stuck.kept:
                batch.done_with.append(instance.id)

    # ---- what was closed, and what was opened ---------------------------------------------------------------------

    def _answered(self, intent: Intent, receipt: Receipt, batch: Batch) -> None:
        """A call was closed by its own receipt. It was freed when that was taken, unless it is an orphan."""
        if intent.id in self._slots.orphans:
            self._slots.stop(intent.id, intent.effect)
        if is_queued(intent.effect):
            _close_job(intent, batch, intent.effect.executor)
        if batch.publications.pop(intent.id, None) is None and receipt.status not in ("ok", "error"):
            batch.stops.append(intent.id)

    def _stop(  # noqa: PLR0917
        self, instance: Instance, entry: Entry, event: Event, intent: Intent, batch: Batch, cause: Cause
    ) -> None:
        """Any other intent was closed: by a receipt, or because its answer is not needed any more."""
        effect = intent.effect
        if type(effect) is Call:
            self._slots.stop(intent.id, effect)
            if is_queued(effect):
                _close_job(intent, batch)
            if batch.publications.pop(intent.id, None) is None:
                batch.stops.append(intent.id)
        elif type(effect) is Child:
            own = type(event) is ReceiptArrived and event.intent == intent.id
            if not own and not effect.detached:
                cancel = CancelAsked(f"{instance.address} no longer waits", intent.id, entry.decision.undo)
                cause(Address(effect.workflow, effect.key), cancel)
        elif has_row(effect) and batch.work_opened.pop(intent.id, None) is None:
            batch.work_closed.append(intent.id)

    def _hand_over(self, instance: Instance, intent: Intent, call: Call, at: int, batch: Batch) -> None:
        """A call of a queue becomes a job, for workers or for this engine itself."""
        batch.jobs_opened[intent.id] = job_row(instance, intent, call, at)
        if not self._slots.is_away(call):
            batch.publications[intent.id] = publication_of(instance, intent, call)

    # ---- other instances ------------------------------------------------------------------------------------------

    def _send(self, instance: Instance, decision: Decision, cause: Cause) -> None:
        sender = str(instance.address)
        for send in decision.send:
            cause(send.to, Message(send.name, send.body, send.id, sender))
        for fact in decision.announce:
            addresses = self._router.route(fact)
            self._counts["unrouted"] += not addresses
            for place, address in enumerate(addresses):
                id = fact.id
                if id and address in addresses[:place]:  # two subscriptions lead to it: it is no duplicate
                    id = f"{id}\x00{place}"
                cause(address, Message(fact.name, fact.body, id, sender, fact.correlation))


def publication_of(instance: Instance, intent: Intent, call: Call) -> Publication:
    """An open call as its executor takes it."""
    work = None
    if call.params is None and instance.machine is not None:
        work = instance.machine.work(intent.id)
    id, address = instance.id, instance.address
    return Publication(intent.id, id, address, call, intent.delivery, work, instance.identity)


def _is_light(entry: Entry, changed: Changed) -> bool:
    """Whether an entry only leads from one ephemeral call to the next."""
    closed = [intent.effect for intent in changed.closed]
    if type(entry.event) is not ReceiptArrived or len(closed) != 1 or len(changed.opened) != 1:
        return False
    decision = entry.decision
    said = decision.send or decision.announce or decision.publish or decision.respond or decision.tags
    return type(closed[0]) is Call and closed[0].ephemeral and not said


def _close_job(intent: Intent, batch: Batch, answered: str = "") -> None:
    """`answered`: the queue, if the job was done."""
    batch.jobs_opened.pop(intent.id, None)
    batch.jobs_closed[intent.id] = answered


def start_of(child: Child, instance: Instance, intent: bytes, at: int) -> Started:
    """The start of a child of this instance, whose last entry asked for it."""
    above = Parent(0, b"") if instance.parent is None else instance.parent
    depth = 0 if child.detached else above.depth + 1
    parent = Parent(instance.id, intent, child.detached, max(instance.generation, above.generation), depth)
    seed = Moment(at, instance.seed, instance.version).entropy()[:16] + intent
    reuse = "always" if instance.rewound else child.reuse  # the key may be that of a child that was dropped
    return Started(
        child.workflow,
        child.key,
        child.input,
        seed,
        child.version,
        parent,
        child.tags,
        reuse,
        due=child.due,
        root=instance.root_of_children,
    )


def _tell_parent(instance: Instance, parent: Parent, event: Event, cause: Cause) -> None:
    """A detached child answers when it has started, any other when it has ended."""
    if not parent.intent:
        return
    if parent.detached and type(event) is Started:
        value = encode_value(instance.address.key)
        cause(parent.instance, ReceiptArrived(parent.intent, Receipt("ok", value)))
    elif instance.outcome is not None and not parent.detached:
        cause(parent.instance, ReceiptArrived(parent.intent, receipt_of(instance.outcome)))
