"""Whether an event from outside can be taken: the one judgement behind `Queries.post` of every store.

A posted event waits in the inbox until an engine delivers it, and only the kernel has the last word. What is
judged here is what a caller should hear at once instead of never. Nothing here does I/O: the store passes
what it knows, inside the transaction in which it would write the row.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import msgspec

from perdure.kernel.apply import input_hash
from perdure.kernel.batch import HeadRow, InboxRow, WorkflowRow
from perdure.kernel.events import Address, CancelAsked, Event, ReceiptArrived, Retried, Rewound, Settled, Started
from perdure.kernel.policy import decode_policy
from perdure.kernel.rows import offer_of
from perdure.kernel.status import FINAL, TERMINAL, Status, ended
from perdure.kernel.workflows import Workflows
from perdure.ports.store import Posted

TAKEN = Posted()


def judge(
    row: InboxRow,
    *,
    start: bytes | None,
    reuse: str,
    head: HeadRow | None,
    pending: Callable[[], Iterable[InboxRow]],
    workflows: Callable[[], Iterable[WorkflowRow]],
) -> Posted | None:
    """The answer to give without writing anything, or None: write the row.

    `head` is the addressed instance (by name: its last generation); `pending` gives the undelivered events of
    the name; `workflows` what the last engine ran.
    """
    if start is not None:
        refused = _judge_start(row, start, reuse, head, pending)
        return refused or _judge_workflow(row, workflows())
    if head is None:
        if row.instance or _pending_start(head, pending()) is None:
            return Posted("unknown-instance", f"there is no instance {_name(row)}")
        return None
    event = offer_of(row).event
    name = f"{head.workflow}/{head.key}"
    if isinstance(event, Retried | Settled):
        stuck = head.status == Status.STUCK
        return None if stuck else Posted("not-stuck", f"{name} is {head.status}, not stuck")
    if isinstance(event, Rewound):
        if head.status in FINAL:
            return Posted("ended", f"{name} {ended(head.status)}, and stays so: fork it")
        return _judge_rewind(event, name, pending())
    if head.status not in TERMINAL or (not row.instance and _pending_start(head, pending()) is not None):
        return None
    if isinstance(event, CancelAsked | ReceiptArrived):
        return TAKEN  # it has ended: there is nothing to cancel, and no intent to answer
    policies = [each.policy for each in workflows() if each.name == head.workflow]
    retried = head.status == Status.FAILED and bool(policies) and decode_policy(policies[-1]).retry
    before = " before a retry" if retried else ""
    return Posted("ended", f"{name} {ended(head.status)} and takes no more events{before}")


def _judge_start(
    row: InboxRow,
    start: bytes,
    reuse: str,
    head: HeadRow | None,
    pending: Callable[[], Iterable[InboxRow]],
) -> Posted | None:
    undelivered = _pending_start(head, pending())
    if undelivered is not None:
        return TAKEN if input_hash(undelivered.input) == start and not _forks(row) else _key_in_use(row)
    if head is not None and not _may_follow(head, reuse):
        return TAKEN if head.input_hash == start and not _forks(row) else _key_in_use(row)
    return None


def _judge_rewind(event: Rewound, name: str, pending: Iterable[InboxRow]) -> Posted | None:
    """One goes back after the other: an engine would refuse a second one that knows nothing of the first."""
    for before in _events(pending):
        if type(before) is Rewound and before.after == event.after:
            if (before.to, before.force) == (event.to, event.force):
                return TAKEN
            where = f" to {before.to!r}" if before.to else ""
            return Posted("refused", f"{name} was asked to go back{where} and has not done so yet; wait until it has")
    return None


def _forks(row: InboxRow) -> bool:
    """A fork has the input of its source: it may be another one all the same."""
    event = offer_of(row).event
    return type(event) is Started and event.forked is not None


def _judge_workflow(row: InboxRow, workflows: Iterable[WorkflowRow]) -> Posted | None:
    event = offer_of(row).event
    assert type(event) is Started, "only a start has the hash of an input"
    known = Workflows(workflows)
    refusal = known.refusal(row.workflow, event.version if event.forked is None else "")
    newest = known.newest(row.workflow)
    if refusal is not None and newest is not None and decode_policy(newest.policy).exact:
        return None  # it waits until an engine has that very version
    return None if refusal is None else Posted(refusal.code, refusal.reason)


def _pending_start(head: HeadRow | None, pending: Iterable[InboxRow]) -> Started | None:
    """The undelivered start that the kernel will accept: one that it will refuse makes no instance."""
    for event in _events(pending):
        if type(event) is Started and (head is None or _may_follow(head, event.reuse)):
            return event
    return None


def _events(pending: Iterable[InboxRow]) -> Iterator[Event]:
    for row in pending:
        with suppress(msgspec.ValidationError):  # no engine will be able to read it either
            yield offer_of(row).event


def _may_follow(head: HeadRow, reuse: str) -> bool:
    """Whether a start with this `reuse` makes a new generation: the kernel's rule, on a head."""
    if head.status not in TERMINAL:
        return False
    return reuse == "always" or (reuse == "failed" and head.status != Status.COMPLETED)


def _key_in_use(row: InboxRow) -> Posted:
    other = "; a fork needs a key of its own" if _forks(row) else ", with another input"
    return Posted("key-in-use", f"{_name(row)} exists already{other}")


def _name(row: InboxRow) -> str:
    return f"with the id {row.instance}" if row.instance else str(Address(row.workflow, row.key))
