"""The journal is the truth: every index table, computed from the journal alone.

`rebuild` reads all rows in their order and folds them with the kernel's own `apply`; `check` of each store
compares the result with what is stored. Heads, open work and published values come out exactly.

The inbox is the exception, because it is no index: it holds what was accepted and is not recorded yet.
- Events that came from outside are in no entry, so they cannot be rebuilt. A backup needs the inbox table
  too.
- Events that entries caused (`Kernel.close` keeps the undelivered ones) are found again as `Rebuilt.caused`,
  without the id and time of their rows. `certain` ones must be in the inbox, or an instance waits for ever.
  Of a message one can only say that no entry recorded it: it may be undelivered, or it was refused (its
  receiver had ended), which leaves no trace.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

from perdure.codec import encode as encode_value
from perdure.errors import PerdureError
from perdure.kernel.apply import Changed, apply
from perdure.kernel.batch import HeadRow, InboxRow, JobRow, JournalRow, Standing, TagRow, WorkRow
from perdure.kernel.consequences import start_of
from perdure.kernel.decision import Fact
from perdure.kernel.effects import Call, Child, is_queued
from perdure.kernel.entry import Entry, decode
from perdure.kernel.events import Address, CancelAsked, Event, Message, Parent, ReceiptArrived, Ref, Started
from perdure.kernel.instance import Instance, Intent
from perdure.kernel.job import job_row
from perdure.kernel.location import Patterns
from perdure.kernel.receipt import Receipt
from perdure.kernel.retention import FORGOTTEN
from perdure.kernel.rows import (
    Before,
    before,
    has_new_head,
    head_row,
    offer_of,
    receipt_of,
    response_name,
    tag_rows,
    work_row,
)
from perdure.kernel.status import FINAL, Status
from perdure.kernel.task import TASK, CandidateRow, TaskRow, TaskRows, task_rows

Route = Callable[[Fact], Iterable[Address]]
"""Who hears a fact: `Router.route` of the engine's workflows. Subscriptions are code and stand in no table.
"""

Waiting = tuple[int, bytes]
"""The instance and the intent that wait for a child."""


class Indexes(NamedTuple):
    """What a store holds besides its journal, as `differences` compares it."""

    heads: Mapping[int, HeadRow]
    work: Mapping[bytes, WorkRow]
    published: Mapping[tuple[int, str], bytes]
    inbox: Sequence[InboxRow]
    jobs: Mapping[bytes, JobRow]
    tags: Set[TagRow]
    counts: Mapping[Standing, int]
    tasks: Mapping[int, TaskRows]


class Caused(NamedTuple):
    to: Ref
    event: Event
    certain: bool


class Rebuilt(NamedTuple):
    heads: dict[int, HeadRow]
    work: dict[bytes, WorkRow]
    published: dict[tuple[int, str], bytes]
    jobs: dict[bytes, JobRow]
    tasks: dict[int, TaskRows]
    caused: list[Caused]
    problems: list[str]
    broken: set[int]  # instances whose rows cannot be read to the end; the tables above have them half
    base: int = 0  # instances that began up to here may have no rows: the database was restored from a world snapshot

    def sound(self, ids: Iterable[int]) -> bool:
        """Whether all that there is to know of these instances stands in the journal."""
        return all(id not in self.broken and (id > self.base or id in self.heads) for id in ids)


def rebuild(rows: Iterable[JournalRow], route: Route | None = None, base: int = 0) -> Rebuilt:
    """Fold the whole journal. Memory grows with the instances, not with the length of their histories.

    `base`: where the journal of a restored database begins. What it has of instances that began earlier is left out,
    unless it is all: `perdure replay --verify` checks those.
    """
    fold = _Fold(route)
    seq = 0
    for row in rows:
        if row.seq <= seq:
            fold.problems.append(f"entry {row.seq} stands after entry {seq}")
        seq = row.seq
        if row.instance not in fold.broken and not fold.is_part(row, base):
            fold.take(row)
    return fold.rebuilt(base)


def differences(rebuilt: Rebuilt, stored: Indexes) -> list[str]:
    """Where the stored tables do not say what the journal says; broken instances are left out."""
    sound = rebuilt.sound
    heads = {id for id in rebuilt.heads.keys() | stored.heads.keys() if sound((id,))}
    heads -= {id for id in heads - rebuilt.heads.keys() if stored.heads[id].reason == FORGOTTEN}
    problems = [
        f"instance {id}: the head is {stored.heads.get(id)}, the journal says {rebuilt.heads.get(id)}"
        for id in sorted(heads)
        if not _same_head(stored.heads.get(id), rebuilt.heads.get(id))
    ]
    for intent in sorted(rebuilt.work.keys() | stored.work.keys()):
        has, says = stored.work.get(intent), rebuilt.work.get(intent)
        if has != says and sound(row.instance for row in (has, says) if row is not None):
            problems.append(f"open work {intent.hex()}: the row is {has}, the journal says {says}")
    for intent in sorted(rebuilt.jobs.keys() | stored.jobs.keys()):
        job, told = stored.jobs.get(intent), rebuilt.jobs.get(intent)
        if job != told and sound(row.instance for row in (job, told) if row is not None):
            problems.append(f"job {intent.hex()}: the row is {job}, the journal says {told}")
    for key in sorted(rebuilt.published.keys() | stored.published.keys()):
        if stored.published.get(key) != rebuilt.published.get(key) and sound(key[:1]):
            problems.append(f"instance {key[0]}: the published value {key[1]!r} is not the journal's last")
    for id in sorted(rebuilt.tasks.keys() | stored.tasks.keys()):
        has_rows, say_rows = stored.tasks.get(id), rebuilt.tasks.get(id)
        if not same_task(has_rows, say_rows) and sound((id,)):
            problems.append(f"task {id}: the rows are {has_rows}, the journal says {say_rows}")
    return problems + _of_heads(stored) + _lost(rebuilt, stored.inbox)


def _same_head(has: HeadRow | None, says: HeadRow | None) -> bool:
    """A head from before there were reasons has none, and was not written again while its instance waited."""
    if has is not None and says is not None and not has.reason:
        since = has.changed_at if has.status == Status.WAITING else says.changed_at
        return has == says._replace(reason="", changed_at=since)
    return has == says


def same_task(has: TaskRows | None, says: TaskRows | None) -> bool:
    if has is None or says is None:
        return has is says
    return has.row == says.row and sorted(has.candidates) == sorted(says.candidates)


def tasks_of(rows: Iterable[TaskRow], candidates: Iterable[CandidateRow]) -> dict[int, TaskRows]:
    """What two tables have of tasks. Candidates of no task are reported as those of an unknown one."""
    named: dict[int, list[CandidateRow]] = {}
    for candidate in candidates:
        named.setdefault(candidate.task, []).append(candidate)
    found = {row.id: TaskRows(row, tuple(named.pop(row.id, ()))) for row in rows}
    return found | {id: TaskRows(NO_TASK._replace(id=id), tuple(left)) for id, left in named.items()}


NO_TASK: Final = TaskRow(0, 0, "", "", "", "", "", "", "", 0, 0, 0, 0, 0, "", "", "", "", b"")


def tags_of(heads: Iterable[HeadRow]) -> set[TagRow]:
    """The rows of all tags: they follow from the heads, and those from the journal."""
    return {row for head in heads for row in tag_rows(head)}


def counts_of(heads: Iterable[HeadRow]) -> Counter[Standing]:
    """What is forgotten does not count."""
    return Counter((head.workflow, head.version, head.status) for head in heads if head.reason != FORGOTTEN)


def _of_heads(stored: Indexes) -> list[str]:
    """Where tags and counts do not say what the heads say."""
    tags, counts = tags_of(stored.heads.values()), counts_of(stored.heads.values())
    problems = [f"instance {row.instance}: the tag {row.name!r} has no row" for row in sorted(tags - stored.tags)]
    problems += [
        f"instance {row.instance}: a row has the tag {row.name!r}, and the instance has not"
        for row in sorted(stored.tags - tags)
    ]
    return problems + [
        f"{workflow} {version} {status}: {stored.counts.get((workflow, version, status), 0)} are counted, and "
        f"{counts[workflow, version, status]} are there"
        for workflow, version, status in sorted(counts.keys() | stored.counts.keys())
        if stored.counts.get((workflow, version, status), 0) != counts[workflow, version, status]
    ]


def _lost(rebuilt: Rebuilt, inbox: Iterable[InboxRow]) -> list[str]:
    """Certain events that are in no inbox row: a child that never starts, a parent that is never told."""
    kept: set[Waiting] = set()
    for row in inbox:
        try:
            event = offer_of(row).event
        except PerdureError:
            continue  # reported where bodies are checked
        if type(event) is Started and event.parent is not None:
            kept.add((event.parent.instance, event.parent.intent))
        elif type(event) is ReceiptArrived:
            kept.add((row.instance, event.intent))
    lost = [caused for caused in rebuilt.caused if caused.certain and _waiting(caused) not in kept]
    return [
        f"{caused.to}: {type(caused.event).__name__} was caused, is not recorded, and is not in the inbox"
        for caused in lost
        if rebuilt.sound(_waiting(caused)[:1])
    ]


def _waiting(caused: Caused) -> Waiting:
    event = caused.event
    if type(event) is Started and event.parent is not None:
        return event.parent.instance, event.parent.intent
    assert type(event) is ReceiptArrived and isinstance(caused.to, int)
    return caused.to, event.intent


class _Fold:
    def __init__(self, route: Route | None) -> None:
        self._route = route
        self._live: dict[int, tuple[Instance, Patterns]] = {}
        self.heads: dict[int, HeadRow] = {}
        self.work: dict[bytes, WorkRow] = {}
        self.jobs: dict[bytes, JobRow] = {}
        self.tasks: dict[int, TaskRows] = {}
        self.published: dict[tuple[int, str], bytes] = {}
        self.problems: list[str] = []
        self.broken: set[int] = set()
        # what was caused and is not known to be recorded
        self._starts: dict[Waiting, tuple[Address, Started]] = {}
        self._receipts: dict[Waiting, Receipt] = {}
        self._cancels: dict[Waiting, tuple[Address, CancelAsked]] = {}
        self._messages: Counter[tuple[Address, Message]] = Counter()

    def rebuilt(self, base: int = 0) -> Rebuilt:
        caused = self.caused()
        return Rebuilt(
            self.heads, self.work, self.published, self.jobs, self.tasks, caused, self.problems, self.broken, base
        )

    def is_part(self, row: JournalRow, base: int) -> bool:
        """Whether the beginning of its instance is missing, as it may be: an id is the seq of the first entry."""
        return row.instance <= base and row.seq != row.instance and row.instance not in self.heads

    def take(self, row: JournalRow) -> None:
        try:
            instance, reader = self._live.get(row.instance) or (Instance(Address("", "")), Patterns())
            entry = decode(row.seq, row.instance, row.at, row.body, reader)
            if row.instance not in self._live:
                instance.address = _address(entry)
                self._live[row.instance] = instance, reader
            had = before(instance, entry)
            changed = apply(instance, entry)
        except (PerdureError, ValueError, KeyError, IndexError, TypeError) as error:
            self.broken.add(row.instance)
            self.problems.append(f"instance {row.instance}, journal row {row.seq}: {error}")
            return
        self._index(instance, entry, changed, had)
        self._cause(instance, entry, changed)
        if instance.status in FINAL:
            del self._live[row.instance]

    def _index(self, instance: Instance, entry: Entry, changed: Changed, had: Before) -> None:
        """What `Consequences.tell` writes, in the same order."""
        for intent in changed.closed:
            self.work.pop(intent.id, None)
            self.jobs.pop(intent.id, None)
        for intent in changed.opened:
            row = work_row(instance.id, intent)
            if row is not None and intent.id in instance.open:
                self.work[intent.id] = row
        for intent in (*changed.opened, *([changed.resumed] if changed.resumed is not None else [])):
            effect = intent.effect
            if type(effect) is Call and is_queued(effect) and not intent.held and intent.id in instance.open:
                self.jobs[intent.id] = job_row(instance, intent, effect, entry.at)
        for message, value in entry.decision.respond:
            self.published[instance.id, response_name(message)] = value
        for name, value in entry.decision.publish:
            if name == TASK:
                self.tasks[instance.id] = task_rows(instance, value)
            else:
                self.published[instance.id, name] = value
        if has_new_head(instance, entry, had):
            self.heads[instance.id] = head_row(instance, entry.at)

    # ---- what entries cause: the mirror of `Consequences.tell` ------------------------------------------------

    def _cause(self, instance: Instance, entry: Entry, changed: Changed) -> None:
        self._recorded(instance, entry.event)
        for intent in changed.closed:
            self._child_left(instance, entry, intent)
        for intent in changed.opened:
            if type(intent.effect) is Child and intent.id in instance.open:
                self._child_wanted(instance, entry, intent.id, intent.effect)
        sender = str(instance.address)
        for send in entry.decision.send:
            self._messages[send.to, Message(send.name, send.body, send.id, sender)] += 1
        for fact in entry.decision.announce if self._route is not None else ():
            for address in self._route(fact):  # type: ignore[misc]
                self._messages[address, Message(fact.name, fact.body, fact.id, sender, fact.correlation)] += 1
        self._tell_parent(instance, entry)

    def _recorded(self, instance: Instance, event: Event) -> None:
        """An entry has this event: it is no longer under way."""
        match event:
            case Started(parent=Parent(instance=parent, intent=intent)):
                self._starts.pop((parent, intent), None)
            case ReceiptArrived(intent=intent):
                self._receipts.pop((instance.id, intent), None)
            case Message() if self._messages[instance.address, event]:
                self._messages[instance.address, event] -= 1
            case Started(first=Message() as first) if self._messages[instance.address, first]:
                self._messages[instance.address, first] -= 1
            case _:
                pass
        if (instance.cancelled or instance.ended) and instance.parent is not None:
            self._cancels.pop((instance.parent.instance, instance.parent.intent), None)

    def _child_wanted(self, instance: Instance, entry: Entry, intent: bytes, effect: Child) -> None:
        start = start_of(effect, instance, intent, entry.at)
        self._starts[instance.id, intent] = Address(effect.workflow, effect.key), start

    def _child_left(self, instance: Instance, entry: Entry, intent: Intent) -> None:
        """The wait for the child is over: it was answered, or it is withdrawn and cancelled."""
        event, effect, waiting = entry.event, intent.effect, (instance.id, intent.id)
        self._receipts.pop(waiting, None)
        if type(event) is ReceiptArrived and event.intent == intent.id:
            self._starts.pop(waiting, None)
        elif type(effect) is Child and not effect.detached:
            cancel = CancelAsked(f"{instance.address} no longer waits", intent.id, entry.decision.undo)
            self._cancels[waiting] = Address(effect.workflow, effect.key), cancel

    def _tell_parent(self, instance: Instance, entry: Entry) -> None:
        parent = instance.parent
        if parent is None or not self._waits(parent.instance, parent.intent):
            return
        waiting = parent.instance, parent.intent
        if parent.detached and type(entry.event) is Started:
            self._receipts[waiting] = Receipt("ok", encode_value(instance.address.key))
        elif instance.outcome is not None and not parent.detached:
            self._receipts[waiting] = receipt_of(instance.outcome)

    def _waits(self, instance: int, intent: bytes) -> bool:
        return instance in self._live and intent in self._live[instance][0].open

    def caused(self) -> list[Caused]:
        """Starts first: what else is addressed by name can need them."""
        starts = [Caused(address, start, self._waits(*waiting)) for waiting, (address, start) in self._starts.items()]
        receipts = [
            Caused(instance, ReceiptArrived(intent, receipt), True)
            for (instance, intent), receipt in self._receipts.items()
        ]
        children = self._children_to_cancel()
        cancels = [
            Caused(address, cancel, False)
            for waiting, (address, cancel) in self._cancels.items()
            if waiting in self._starts or waiting in children
        ]
        messages = [Caused(to, message, False) for (to, message) in self._messages.elements()]
        return starts + receipts + cancels + messages

    def _children_to_cancel(self) -> set[Waiting]:
        parents = (instance.parent for instance, _ in self._live.values() if not instance.cancelled)
        return {(parent.instance, parent.intent) for parent in parents if parent is not None}


def _address(entry: Entry) -> Address:
    if type(entry.event) is not Started:
        raise ValueError(f"the first entry is {type(entry.event).__name__}, not Started")
    return Address(entry.event.workflow, entry.event.key)
