"""What comes before an event that has its turn: a deadline that had passed, or a migration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .effects import due_of
from .events import Message, Migrated, ReceiptArrived
from .instance import Instance, Intent
from .mailbox import Offer
from .moment import TIME_MAX
from .refusals import refusal
from .rows import fired, work_row

if TYPE_CHECKING:
    from .kernel import Kernel


def in_time(kernel: Kernel, instance: Instance, offer: Offer) -> Offer:
    """What comes first: an event, or the deadline of its instance that had passed when the event became durable.

    Messages, answers of children and what came by the inbox have such a time. An event that waits in the mailbox
    and became durable before the deadline goes before both. The order of the entries keeps what was chosen here.
    """
    event = offer.event
    if instance.halted or (
        type(event) is not Message and (type(event) is not ReceiptArrived or not (offer.caused or offer.inbox))
    ):
        return offer
    timed = [(due, intent) for intent in instance.open.values() if (due := due_of(intent.effect)) is not None]
    due, intent = min(timed, key=_by_due, default=(TIME_MAX, None))
    instance.next_due = due
    if intent is None or _durable_at(kernel, offer) < due:
        return offer
    row = work_row(instance.id, intent)
    assert row is not None, "what is due has a row"
    passed = fired(row)
    if refusal(instance, passed, kernel.workflows, kernel.router.rules, heard=False) is not None:
        return offer
    instance.mailbox.appendleft(offer)
    for place, other in enumerate(instance.mailbox):
        if other.at and other.at < due:
            del instance.mailbox[place]
            return other
    return Offer(instance.id, passed)


def _durable_at(kernel: Kernel, offer: Offer) -> int:
    """When an event became durable; by its entry, if not before. The clock of a sender may be ahead of ours."""
    return min(offer.at, kernel.clock) if offer.at else kernel.clock


def migration_first(kernel: Kernel, instance: Instance, offer: Offer) -> Offer:
    """An instance of an outdated definition migrates to the current one before it takes another event."""
    if not outdated(kernel, instance) or instance.ended or instance.stuck is not None:
        return offer
    workflow = instance.address.workflow
    needed = (instance.definition, kernel.router.rules.versions[workflow])
    if any(kernel.workflows.exactly(workflow, version) is None for version in needed):
        return offer  # it is refused here: another engine may have the code
    instance.mailbox.appendleft(offer)
    return Offer(instance.id, Migrated())


def outdated(kernel: Kernel, instance: Instance) -> bool:
    return kernel.router.rules.outdated(instance.address.workflow, instance.definition)


def _by_due(timed: tuple[int, Intent]) -> tuple[int, bytes]:
    due, intent = timed
    return due, intent.id
