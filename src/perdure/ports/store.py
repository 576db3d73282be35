"""Stores keep the journal and its indexes. Two faces: one for the shard that owns it, one for everybody else.

`Store` is what the shard loop calls: it hands over callbacks, so that a store may answer at once (memory, SQLite on a
fast disk) or later (a writer thread, a server), and so that a simulation can decide when. `Queries` is for people and
clients: read what is durable, post events into the inbox, and keep blobs.

Rules that every implementation keeps, and that the conformance suite checks:
- a commit is one transaction: all rows of the batch or none, and none unless the epoch is still the owner's;
- after a commit whose outcome is not known the store reports an error: the shard then loads everything again;
- callbacks run on the thread of the engine's loop, one at a time, and never after `close`.

A store that can answer at once does so before the call returns; others answer later, in any order.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol

import msgspec

from perdure.kernel.batch import Batch, HeadRow, InboxRow, JournalRow, Standing, WorkflowRow, WorkRow
from perdure.kernel.events import Address, Ref
from perdure.kernel.rows import Loaded, StoredInstance
from perdure.kernel.task import TaskRow

from .frame import FramedByWorker
from .queued import JobState, ListedJob, QueueRow
from .shards import Figures, Owner, ShardRow

Place = tuple[int, bytes]
"""Where work stands in the order in which it is due: its time, then its intent."""

BEGINNING: Final[Place] = (-(2**63), b"")


class Lease(msgspec.Struct, frozen=True):
    """The right to write. A commit with an older epoch is refused with `Fenced`."""

    owner: str
    epoch: int


class Position(msgspec.Struct, frozen=True):
    """Where a shard stands: the last entry, and which instances had calls open."""

    seq: int
    at: int
    running: tuple[int, ...]
    rules: bytes | None = None  # in force, as the ruler published them


ListPlace = tuple[int, int]
"""Where an instance stands in a list: when it started, and its id. The newest comes first."""

Span = tuple[int, int]
"""Times from the first on, and before the second, in nanoseconds."""


class Census(msgspec.Struct, frozen=True):
    """How much there is: instances that have not ended by workflow, version and status; open work; inbox rows."""

    instances: tuple[tuple[str, str, str, int], ...]
    work: int
    inbox: int


class Posted(msgspec.Struct, frozen=True):
    """The answer to `Queries.post`: written (or the same event was there already), or why not."""

    refused: str = ""  # "key-in-use", "ended", "not-stuck", "unknown-instance", "unknown-workflow"
    reason: str = ""


TextSpan = tuple[str, str]

ListOrder = Literal["-started", "started", "-changed"]
"""The newest first, the oldest first, the last changed first."""

CHANGE_ORDERED: Final = ("failed", "stuck", "waiting")
"""The statuses of instances that can be listed in the order of their last changes."""


class Filter(msgspec.Struct, frozen=True):
    """Which heads; empty fields do not count. Newest first by start; `before` is the place to go on from.

    `oldest`: the oldest first, and what comes after the place `before` in that order. `by_change`: in the order
    of the last changes; only instances whose status is in `CHANGE_ORDERED`. `ranges`: tags whose text, as it is kept,
    is in one of these spans: from the first text on, and before the second.
    `root` finds a whole family, its root included. `kept` leaves out what retention has removed.
    """

    workflow: str = ""
    status: str = ""
    parent: int = 0
    tags: dict[str, str] = {}
    before: ListPlace | None = None
    limit: int = 100
    key: str = ""
    version: str = ""
    key_prefix: str = ""
    root: int = 0
    started: Span | None = None
    ended: Span | None = None
    kept: bool = False
    oldest: bool = False
    by_change: bool = False
    ranges: dict[str, tuple[TextSpan, ...]] = {}


class Page(msgspec.Struct, frozen=True):
    """A part of a list. `next`: the place to go on from; None: this is the end.

    `partial`: nothing narrowed the list, and so much was read for it that the rest is left to the next page. A partial
    page may have no heads.
    """

    heads: list[HeadRow]
    next: ListPlace | None = None
    partial: bool = False


TaskOrder = Literal["created", "due", "priority"]


class TaskFilter(msgspec.Struct, frozen=True):
    """Which tasks; empty fields do not count. `after` is the place to go on from: the value of the order, and the id.

    `who`: tasks that have not ended and have a row of one of these names (`kernel/task.py`); with True only held ones,
    with False only open ones. `statuses`: ended tasks, by how they ended. A task is found by either.
    """

    who: tuple[tuple[str, bool | None], ...] = (("*", None),)
    statuses: tuple[str, ...] = ()
    without: str = ""  # tasks that have a row of this name are left out
    name: str = ""
    workflow: str = ""
    key: str = ""
    reference: str = ""
    label: tuple[str, str] | None = None
    due_before: int | None = None
    order: TaskOrder = "created"
    after: tuple[int, int] | None = None
    limit: int = 50


def place_of(head: HeadRow) -> ListPlace:
    return head.started_at, head.id


def change_of(head: HeadRow) -> ListPlace:
    """Where an instance stands in a list that is in the order of the last changes."""
    return head.changed_at, head.id


MENTIONS_MAX: Final = 100_000
"""So many entries of a shard are searched for bytes."""


class BlobRow(msgspec.Struct, frozen=True):
    """A blob without its body: the SHA-256 of the body, when it was last put, and how many bytes it has."""

    digest: bytes
    at: int
    size: int


class WorldSnapshotRow(msgspec.Struct, frozen=True):
    """A world snapshot that was taken, by its hash. `seq` and `at` are of the last entry in it.

    `inbox` is the digest of a blob: what waited in the inbox then, which no journal has. `base`: this database was
    restored from it, and its journal has nothing before.
    """

    seq: int
    at: int
    hash: bytes
    taken_at: int
    inbox: bytes
    base: bool = False


class Store(Protocol):
    """One shard of a database. Every question is answered by a callback, with what was found or with the error."""

    def acquire(self, owner: str, done: Callable[[Lease | Exception], None]) -> None:
        """Become the one writer: a new epoch, durable. `EngineRunning` when another engine lives.

        The name is that of one process and no other, not even an earlier one: by it one knows whether an owner lives.
        """
        ...

    def release(self) -> None:
        """Give the lease back, so that the next engine need not wait."""
        ...

    def position(self, done: Callable[[Position | Exception], None]) -> None:
        """Asked by a shard that begins with empty memory: from here on the inbox is given from its start.

        It waits until a commit of this store that is under way has come to its end, whatever that is.
        """
        ...

    def register(self, workflows: Sequence[WorkflowRow], done: Callable[[Exception | None], None]) -> None:
        """Note what this engine runs, so that clients can check names."""
        ...

    # An instance of `batch.revived` that is forgotten by now is refused with the whole batch.
    def commit(self, batch: Batch, done: Callable[[Exception | None], None]) -> None:
        """Write the batch, then call `done`: None when it is durable. At most one commit is under way."""
        ...

    def load(self, refs: Sequence[Ref], done: Callable[[Ref, Loaded | Exception | None], None]) -> None:
        """Find instances by id or by name (the last generation) as they are durable now; `done` for each.

        Of an instance that has ended for good the record is the head alone. One that failed may be retried. Where the
        snapshot is of the last entry, that is all. A plain `Corrupt` is of the rows of that instance; every other
        error is of the database.
        """
        ...

    def census(self, done: Callable[[Census | Exception], None]) -> None:
        """Count what is durable."""
        ...

    def due(self, before: int, limit: int, after: Place, done: Callable[[list[WorkRow] | Exception], None]) -> None:
        """Open work with `due` <= `before`, the earliest first: what comes after a place in that order."""
        ...

    def inbox(self, limit: int, done: Callable[[list[InboxRow] | Exception], None]) -> None:
        """Undelivered events in the order of their arrival, if anything may have arrived since the last call.

        Each row is given at least once after `position`, and stays until a batch removes it. A row may come again, and
        rows that the shard itself added may come too: the shard knows which ones it holds already, and asks for so many
        more.
        """
        ...

    @property
    def workers(self) -> bool:
        """Whether jobs are for workers to claim (`ports/jobs.py`), and not for the engine to perform."""
        ...

    def lost(self, limit: int, done: Callable[[list[tuple[int, bytes]] | Exception], None]) -> None:
        """Jobs whose worker is lost, as (instance, intent). Their claims are void from now on.

        Each is named again until a batch opens it once more, in its next delivery, or closes it.
        """
        ...

    def listen(self, framed: FramedByWorker) -> None:
        """Who hears the frames of workers. Some may be lost."""
        ...

    def measure(self, figures: Callable[[], Figures]) -> None:
        """What the engine tells of its work, for `Queries.shards`. It is written with what is written anyway, about
        once a second: no commit waits for it, and an idle engine writes nothing more.
        """
        ...

    def close(self) -> None:
        """No callback is called any more."""
        ...


class Queries(Protocol):
    """Reads see every acknowledged write. The methods are async because a store may be a server."""

    async def head(self, ref: Ref) -> HeadRow | None: ...

    async def heads_of(self, ids: Sequence[int]) -> dict[int, HeadRow]: ...

    async def heads(self, filter: Filter) -> list[HeadRow]:
        """Up to `limit` of the heads that a filter wants, however many others must be read for them."""
        ...

    async def page(self, filter: Filter) -> Page:
        """The same with a bound on what is read: see `stores/lists.py`."""
        ...

    async def counts(self) -> dict[Standing, int]:
        """How many instances there are by workflow, version and status, those that have ended included."""
        ...

    async def history(self, instance: int, after: int = 0, limit: int | None = None) -> list[JournalRow]:
        """The journal rows of one instance, in order, with seq > `after`."""
        ...

    async def record(self, ref: Ref) -> StoredInstance | None:
        """What `Store.load` finds of an instance: its past from its last snapshot on."""
        ...

    async def journal(self, after: int, limit: int) -> list[JournalRow]:
        """The shard's journal in total order, with seq > `after`."""
        ...

    async def height(self) -> int:
        """The seq of the journal's last entry; 0: there is none."""
        ...

    async def heights(self) -> dict[int, int]:
        """The same by shard; shards without an entry are left out."""
        ...

    async def published(self, instance: int, name: str) -> bytes | None: ...

    async def task(self, id: int) -> TaskRow | None: ...

    async def tasks(self, filter: TaskFilter) -> list[TaskRow]:
        """A page in the order of the filter; equal ones in the order of their ids."""
        ...

    async def count_tasks(self, filter: TaskFilter) -> int:
        """How many tasks a filter has, whatever its limit and place."""
        ...

    async def workflows(self) -> list[WorkflowRow]: ...

    async def post(self, row: InboxRow, *, start: bytes | None = None, reuse: str = "") -> Posted:
        """Put an event into the inbox of a live or future engine, durably, after checking that it can be taken.

        `start` is the hash of the input when the event starts an instance: an existing instance, or an undelivered
        start, with the same name and hash counts as posted; with another hash it is `key-in-use`, unless `reuse`
        allows it.
        """
        ...

    async def undelivered(self, address: Address | None = None) -> list[InboxRow]:
        """What was posted to a name (None: to any) and no engine has recorded yet, in the order of its arrival."""
        ...

    async def work(self, intent: bytes) -> WorkRow | None:
        """The open work of an intent, if it has any."""
        ...

    async def job(self, intent: bytes) -> JobState | None:
        """The job of an open call of a queue, if there is one."""
        ...

    async def jobs(self, limit: int = 1000, queue: str = "", after: tuple[int, bytes] = (0, b"")) -> list[ListedJob]:
        """Open jobs of all queues, or of one, the oldest of each queue first.

        `after` is the place to go on from: since when the last one is open, and its intent.
        """
        ...

    async def queues(self) -> list[QueueRow]:
        """All open jobs, counted by queue, workflow and worker, in that order."""
        ...

    async def shards(self) -> list[ShardRow]:
        """Each shard with its epoch and, where one lives, the engine that has it."""
        ...

    async def served(self) -> list[tuple[str, str, str]]:
        """What the engines that live run: the name of each, with a workflow and a version."""
        ...

    async def outside(self, executor: str = "", after: bytes = b"", limit: int = 100) -> list[WorkRow]:
        """What waits for executors outside (any, or this one), in the order of the intents, from `after` on."""
        ...

    async def mentions(self, part: bytes) -> int:
        """An instance that has these bytes in one of the newest `MENTIONS_MAX` entries of its shard; 0: none has.

        No index has them, so the entries are searched.
        """
        ...

    async def put_blobs(self, bodies: Sequence[bytes], at: int) -> list[bytes]:
        """Keep these bytes by content, durably: the answer is the SHA-256 of each. The same bytes are kept once.

        `at` is the time now, in nanoseconds. A blob that is there already gets it too: it is young again, and so safe
        from `delete_blobs`. When writing fails, some may have been kept; nothing refers to them, and to put them again
        does no harm.
        """
        ...

    async def blob(self, digest: bytes) -> bytes | None:
        """The bytes of a blob, checked: raises `Corrupt` when they are not what was put."""
        ...

    async def blobs(self, after: bytes = b"", limit: int = 1000) -> list[BlobRow]:
        """What blobs there are, in the order of their digests, with digest > `after`."""
        ...

    async def delete_blobs(self, digests: Sequence[bytes], before: int) -> int:
        """Delete those of these blobs that were last put before a time; the answer is how many.

        A garbage collection first lists, then looks what is referred to, then deletes: what was put meanwhile
        stays. The journal's own bodies are no blobs, and cannot be deleted.
        """
        ...

    async def world_snapshots(self) -> list[WorldSnapshotRow]:
        """Those that are retained, in the order of their entries."""
        ...

    async def add_world_snapshot(self, row: WorldSnapshotRow) -> None:
        """Retain a world snapshot; its blobs have been put. There is one for an entry: the last one counts.

        A base is where the journal begins: `Store.position` is never before it.
        """
        ...

    async def forget_world_snapshots(self, seqs: Sequence[int]) -> int:
        """Retain these no longer; the answer is how many that were. The base stays. Blobs are left alone."""
        ...

    async def ended_roots(self, before: int, after: ListPlace = (0, 0), limit: int = 500) -> list[HeadRow]:
        """Heads without a parent that ended before a time and are not forgotten, the earliest first.

        `after` is the place to go on from: when the last one ended, and its id.
        """
        ...

    async def forget(self, roots: Sequence[int]) -> int:
        """Remove whole families, by the ids of their roots; the answer is how many instances were removed.

        Entries, snapshots, values, tags and tasks go; heads stay as tombstones (`kernel/retention.py`). A family stays
        whole while one of it has not ended, while an event for it is in the inbox, or while it has the last entry of
        its shard: that number must not be given again.
        """
        ...

    async def owner(self) -> Owner | None:
        """The engine that runs on this database now; None: there is none. The question disturbs no process."""
        ...

    async def facts(self) -> dict[str, str]:
        """What an operator may want to know of the database itself, by name; stores differ in what they tell."""
        ...

    async def changed(self) -> int:
        """A number that differs whenever something may have been written by another process."""
        ...

    async def change(self, seen: int) -> None:
        """Return when `changed` may give another number than this one; soon, where that is not told."""
        ...

    async def check(self) -> list[str]:
        """Problems found by reading everything: checksums, gaps, indexes that do not match the journal."""
        ...


__all__ = [
    "CHANGE_ORDERED",
    "MENTIONS_MAX",
    "Address",
    "BlobRow",
    "Census",
    "Filter",
    "JobState",
    "Lease",
    "ListOrder",
    "ListPlace",
    "ListedJob",
    "Owner",
    "Page",
    "Position",
    "Posted",
    "Queries",
    "QueueRow",
    "Ref",
    "ShardRow",
    "Span",
    "Store",
    "StoredInstance",
    "TaskFilter",
    "TextSpan",
    "WorldSnapshotRow",
    "change_of",
    "place_of",
]
