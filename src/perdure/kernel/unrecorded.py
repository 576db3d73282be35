"""Events that leave no entry: refused, stale, kept for later, or left to another engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .batch import Batch
from .effects import due_of
from .events import Event, Message, ReceiptArrived, Redelivered, Released, Requested, Started, Streamed
from .instance import Instance
from .job import asked
from .mailbox import STALE, Accepted, Answer, Offer, Refused
from .outside import audit, objection
from .receipt import Failure, Receipt
from .rules import RULER

if TYPE_CHECKING:
    from .kernel import Kernel


def note(kernel: Kernel, instance: Instance, event: Event, answer: Answer) -> None:
    """Count what is answered without an entry, and do not keep a name that nothing bears."""
    if instance.id == 0:
        kernel.cache.let_go(instance)
    if answer is STALE:
        kernel.counts["frames_stale" if type(event) is Streamed else "stale"] += 1
    elif type(answer) is Accepted and type(event) is Message:
        kernel.counts["duplicate"] += 1


def not_admitted(kernel: Kernel, instance: Instance, event: ReceiptArrived, batch: Batch) -> Answer | None:
    """The refusal of a receipt from outside that is not what it should be. The ruler records it."""
    intent = instance.open[event.intent]
    job = None
    if kernel.slots.is_away(intent.effect) and not intent.held:  # what is held was answered by the gate
        job = asked(intent.effect, intent.delivery)  # type: ignore[arg-type]
    against = objection(instance.address, intent, event.receipt, kernel.verify, job)
    if against is None:
        return None
    kernel.counts["receipts_refused"] += 1
    kernel.cause(RULER, audit(instance.address, intent, against))
    batch.audits.append(f"a receipt for {instance.address} was refused ({against.code}): {against.text}")
    return Refused(against.code, against.text)  # type: ignore[arg-type]


def answer_caller(kernel: Kernel, offer: Offer, answer: Answer, batch: Batch) -> None:
    if type(offer.ticket) is bytes:
        batch.receipts.append(offer.ticket)
    elif offer.ticket is not None:
        batch.answers.append((offer.ticket, answer))
    elif isinstance(answer, Refused):
        kernel.counts["refused"] += 1
        event = offer.event
        if type(event) is Started and event.parent is not None:
            failure = Failure("ChildRefused", answer.reason, retry=False)
            kernel.cause(event.parent.instance, ReceiptArrived(event.parent.intent, Receipt("error", error=failure)))


def shelve(kernel: Kernel, instance: Instance, offer: Offer, batch: Batch) -> None:
    """A stuck instance takes no events. They are kept as inbox rows and delivered when it goes on."""
    event = offer.event
    if isinstance(event, Redelivered | Released):  # `recover` finds it again when the instance goes on
        effect = instance.open[event.intent].effect
        kernel.slots.stop(event.intent, effect)
        if type(event) is Redelivered and not kernel.slots.is_away(effect):
            kernel.slots.orphans.add(event.intent)
        answer_caller(kernel, offer, Accepted(instance.id, instance.address), batch)
        return
    again = _comes_again(instance, event)
    if again and any(other.event == offer.event for other in instance.shelf):
        answer_caller(kernel, offer, STALE, batch)
        return
    if offer.inbox is None:
        if not again:
            kernel.keep(offer, batch)
        answer_caller(kernel, offer, Accepted(instance.id, instance.address), batch)
        offer.ticket = None
    instance.shelf.append(offer)


def leave(kernel: Kernel, offer: Offer, answer: Refused, batch: Batch) -> bool:
    """An engine without the workflow must not use up what waits for it in the inbox: another may have it.

    A parent that asks for a child without code hears so, unless its own engine is another one with newer code, or the
    database defines the child: another engine may have put that there.
    """
    if offer.ticket is not None:
        return False
    child = type(offer.event) is Started and offer.event.parent is not None
    if child and (not kernel.seeks or offer.inbox in kernel.nowhere):
        kernel.nowhere.discard(offer.inbox or b"")
        return offer.inbox is not None and not offer.caused and answer.code == "unknown-version"
    if offer.inbox is None and offer.caused:
        kernel.keep(offer, batch)
    if child and offer.inbox is not None:
        kernel.sought[offer.inbox] = offer
    return offer.inbox is not None


def _comes_again(instance: Instance, event: Event) -> bool:
    """Whether an event is offered again after a crash: a row of its own stands for it, or the call that asks."""
    if type(event) is Requested:
        return True
    if type(event) is not ReceiptArrived or event.receipt.by is not None:
        return False
    return due_of(instance.open[event.intent].effect) is not None
