"""Batches: what one transaction writes, and what may happen once it is durable.

The rows are plain tuples in the order of the columns of the tables, so that a store can write them as they are.
Everything but the journal rows can be rebuilt from the journal (see `stores/rebuild.py`).
"""

from typing import Final, NamedTuple

import msgspec

from .decision import Outcome, Stuck
from .effects import Call
from .events import Address
from .identity import Identity
from .mailbox import Answer
from .problem import Report
from .task import TaskRows


class JournalRow(NamedTuple):
    seq: int
    instance: int
    at: int
    body: bytes


class HeadRow(NamedTuple):
    """One row per instance, written when it starts and when its status changes."""

    id: int
    workflow: str
    key: str
    generation: int
    version: str
    status: str
    started_at: int
    changed_at: int
    parent: int  # 0: none
    input_hash: bytes
    tags: str  # JSON
    outcome: bytes | None  # sealed
    root: int  # the first of its family: itself, if it has no parent
    ended_at: int  # 0: not yet
    reason: str  # what it waits for, or its error: see `kernel.rows.reason`


class TagRow(NamedTuple):
    """One tag of an instance. Rows of one tag are in the order of lists: by the start of the instance."""

    name: str
    value: str
    started_at: int
    instance: int


Standing = tuple[str, str, str]
"""Workflow, version and status of an instance: what instances are counted by."""


class WorkRow(NamedTuple):
    """Open work: a timer or deadline with its time, or an effect for an executor outside (`kernel/outside.py`)."""

    intent: bytes
    instance: int
    kind: str
    due: int


class JobRow(NamedTuple):
    """An open call of a queue, for its workers. `function` is a name; `body` has the rest (`kernel/job.py`)."""

    intent: bytes
    instance: int
    queue: str
    function: str
    delivery: int
    at: int
    body: bytes


class InboxRow(NamedTuple):
    """An event that is recorded as sent but not yet delivered. `instance` is 0 when the name is the address."""

    id: bytes
    workflow: str
    key: str
    instance: int
    at: int
    body: bytes


class SnapshotRow(NamedTuple):
    instance: int
    seq: int
    body: bytes


BESIDE_MAX: Final = 1024
"""A snapshot of no more bytes is kept beside its entry, if both are written at once. It stays there for ever, newest or
not: a larger one is better kept where the next one takes its place."""


class PublishedRow(NamedTuple):
    instance: int
    name: str
    value: bytes


class WorkflowRow(NamedTuple):
    """One version of a workflow that an engine runs, for clients that know workflows by name only."""

    name: str
    version: str
    parameters: bytes  # as canonical bytes, see `codec/parameters.py`; empty: not known
    policy: str = ""  # as JSON, see `policy.py`; empty: not known


class Publication(msgspec.Struct, frozen=True):
    """A call that an executor may start as soon as its entry is durable."""

    intent: bytes
    instance: int
    address: Address
    effect: Call
    delivery: int
    work: object
    identity: Identity


class Batch:
    """Rows for one commit and, below them, what waits for it."""

    __slots__ = (
        "answers",
        "audits",
        "counts",
        "done_with",
        "early",
        "ended",
        "heads",
        "heard",
        "inbox_added",
        "inbox_removed",
        "jobs_closed",
        "jobs_opened",
        "journal",
        "light",
        "outbox",
        "publications",
        "published",
        "receipts",
        "reports",
        "revived",
        "size",
        "snapshots",
        "stops",
        "stuck",
        "tags",
        "tasks",
        "work_closed",
        "work_opened",
    )

    def __init__(self) -> None:
        self.journal: list[JournalRow] = []
        self.heads: dict[int, HeadRow] = {}
        self.tags: dict[TagRow, bool] = {}  # False: the row goes
        self.counts: dict[Standing, int] = {}  # by how much they change
        self.work_opened: dict[bytes, WorkRow] = {}
        self.work_closed: list[bytes] = []
        self.jobs_opened: dict[bytes, JobRow] = {}  # new ones, or an open one in its next delivery
        self.jobs_closed: dict[bytes, str] = {}  # with the queue of each that was answered
        self.inbox_added: dict[bytes, InboxRow] = {}
        self.inbox_removed: list[bytes] = []
        self.outbox: list[InboxRow] = []  # for instances of other shards
        self.snapshots: dict[int, SnapshotRow] = {}
        self.published: dict[tuple[int, str], PublishedRow] = {}
        self.tasks: dict[int, TaskRows] = {}
        self.revived: list[int] = []  # had failed, and go on: the store looks whether they were forgotten meanwhile
        self.size = 0
        self.light = 0  # entries without a waiting caller: they may wait for entries with one
        self.early: list[Publication] = []  # before the commit: calls that need not be durable
        # after the commit
        self.publications: dict[bytes, Publication] = {}
        self.stops: list[bytes] = []
        self.answers: list[tuple[object, Answer]] = []
        self.heard: list[tuple[bytes, str, bytes]] = []  # answers to requests of running calls
        self.receipts: list[bytes] = []  # tickets of executors: they want to hear that it is over, and nothing else
        self.ended: list[tuple[int, Address, Outcome]] = []
        self.stuck: list[tuple[int, Address, Stuck]] = []
        self.reports: list[Report] = []
        self.audits: list[str] = []  # refusals that operators should look at
        self.done_with: list[int] = []

    @property
    def writes(self) -> bool:
        """Whether there is anything to make durable."""
        return bool(self.journal or self.inbox_added or self.inbox_removed or self.snapshots or self.outbox)

    def divide_snapshots(self) -> tuple[dict[int, bytes], list[SnapshotRow]]:
        """Those that are kept beside their entries, by the number of the entry; and the others."""
        beside: dict[int, bytes] = {}
        apart: list[SnapshotRow] = []
        written = {row.seq for row in self.journal} if self.snapshots else set()
        for row in self.snapshots.values():
            if row.seq in written and len(row.body) <= BESIDE_MAX:
                beside[row.seq] = row.body
            else:
                apart.append(row)
        return beside, apart

    @property
    def lone(self) -> bool:
        """Whether one journal row is all that there is to write."""
        return len(self.journal) == 1 and not self.heads and self._is_short

    @property
    def headed(self) -> bool:
        """Whether one journal row and one head, with its counts, are all."""
        return len(self.journal) == 1 and len(self.heads) == 1 and not self.tags and self._is_short

    @property
    def _is_short(self) -> bool:
        return not (
            self.work_opened
            or self.work_closed
            or self.jobs_opened
            or self.jobs_closed
            or self.inbox_added
            or self.inbox_removed
            or self.outbox
            or self.snapshots
            or self.published
            or self.tasks
            or self.revived
        )

    def __bool__(self) -> bool:
        return bool(self.writes or self.answers or self.receipts)
