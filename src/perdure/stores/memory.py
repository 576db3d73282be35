"""A store without a disk, for tests, simulations and `memory:` engines: gone with its process.

`MemoryDatabase` is what a disk would hold. `MemoryStore` is one connection to it, with a lease of its own:
what a caller holds is never what is committed. The rows are the contract's, and so are the refusals: a batch
is checked whole before its first row is taken, with the constraints that the tables of the SQLite store have.

One difference is on purpose: `acquire` takes the lease over from a connection that has not released it, where
SQLite raises `EngineRunning`. That is how a simulation makes a zombie: the first owner goes on, and its
commits are `Fenced`.
"""

import asyncio
import heapq
import time
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

import msgspec

from perdure.codec import unseal
from perdure.errors import Fenced, PerdureError, StoreFailed
from perdure.kernel.batch import (
    Batch,
    HeadRow,
    InboxRow,
    JobRow,
    JournalRow,
    SnapshotRow,
    Standing,
    TagRow,
    WorkflowRow,
    WorkRow,
)
from perdure.kernel.events import Address, Ref
from perdure.kernel.outside import KIND
from perdure.kernel.retention import FORGOTTEN
from perdure.kernel.rows import Loaded, StoredInstance
from perdure.kernel.rules import IN_FORCE, RULER
from perdure.kernel.status import FINAL, TERMINAL, Status
from perdure.kernel.task import TaskRow, TaskRows
from perdure.ports.frame import Frame, FramedByWorker
from perdure.ports.jobs import CLAIM, Claim, OpenJob
from perdure.ports.shards import Figures
from perdure.ports.store import (
    MENTIONS_MAX,
    BlobRow,
    Census,
    Filter,
    JobState,
    Lease,
    ListedJob,
    ListPlace,
    Owner,
    Page,
    Place,
    Position,
    Posted,
    QueueRow,
    ShardRow,
    TaskFilter,
    WorldSnapshotRow,
    change_of,
    place_of,
)

from . import tasks
from .content import checked, digest_of, problem_of
from .lists import matches, place_in
from .posting import TAKEN, judge
from .rebuild import Indexes, differences, rebuild

_by_seq = attrgetter("seq")


class MemoryDatabase:
    """The committed rows. Only `MemoryStore` writes here, and only whole batches; and workers their claims.

    `workers`: jobs are for workers, by `MemoryJobs`; else the engine itself performs them. `now` is the clock of the
    database, in nanoseconds: that of claims.
    """

    def __init__(self, *, workers: bool = False, now: Callable[[], int] = time.monotonic_ns) -> None:
        self.workers = workers
        self.now = now
        self.owner = ""
        self.epoch = 0
        self.written = 0  # counts writes, as a file's change counter does
        self.journal: list[JournalRow] = []
        self.histories: dict[int, list[JournalRow]] = {}
        self.heads: dict[int, HeadRow] = {}
        self.names: dict[tuple[str, str], int] = {}  # the last generation
        self.tags: dict[TagRow, None] = {}
        self.counts: Counter[Standing] = Counter()
        self.work: dict[bytes, WorkRow] = {}
        self.work_order: list[tuple[int, bytes]] = []  # (due, intent), sorted
        self.jobs: dict[bytes, JobRow] = {}
        self.claims: dict[bytes, _Claimed] = {}  # of jobs that were claimed at least once
        self.unclaimed: dict[str, dict[bytes, None]] = {}  # by queue, oldest first
        self.notes: dict[bytes, str] = {}  # why no worker takes a job
        self.hints: list[Callable[[], None]] = []  # of workers
        self.listeners: list[FramedByWorker] = []  # of engines, to the frames of workers
        self.inbox: dict[bytes, tuple[int, InboxRow]] = {}  # with its place in the order of arrival
        self.inbox_places = 0
        self.snapshots: dict[int, SnapshotRow] = {}
        self.published: dict[tuple[int, str], bytes] = {}
        self.tasks: dict[int, TaskRows] = {}
        self.workflows: list[WorkflowRow] = []
        self.blobs: dict[bytes, tuple[int, bytes]] = {}  # when it was last put, and the body
        self.world_snapshots: dict[int, WorldSnapshotRow] = {}
        self.figures: Callable[[], Figures] = Figures

    def add_to_inbox(self, row: InboxRow) -> None:
        self.inbox_places += 1
        self.inbox[row.id] = (self.inbox_places, row)

    def open_job(self, job: JobRow) -> None:
        """A new one, or one that is there in its next delivery: from now on it can be claimed."""
        self.jobs[job.intent] = job
        self.unclaimed.setdefault(job.queue, {})[job.intent] = None
        if job.intent in self.claims:
            self.claims[job.intent].state = "open"

    def close_job(self, intent: bytes) -> None:
        job = self.jobs.pop(intent, None)
        if job is not None:
            self.unclaimed[job.queue].pop(intent, None)
            self.claims.pop(intent, None)
            self.notes.pop(intent, None)

    @property
    def base(self) -> WorldSnapshotRow | None:
        return next((row for row in self.world_snapshots.values() if row.base), None)


class _Claimed(msgspec.Struct):
    """`state` is open (given back), taken, answered or lost."""

    worker: str
    taken: int
    expires: int
    state: str
    answer: bytes = b""  # the event in the inbox
    claimed: int = 0  # when


class MemoryStore:
    def __init__(self, database: MemoryDatabase | None = None) -> None:
        self.database = database if database is not None else MemoryDatabase()
        self._lease: Lease | None = None
        self._inbox_seen = 0  # the last place handed out
        self._inbox_written = -1  # `database.written` at the last look
        self._closed = False

    # ---- the lease -----------------------------------------------------------------------------------------

    def acquire(self, owner: str, done: Callable[[Lease | Exception], None]) -> None:
        """Become the one writer; the writer before is fenced: see the module."""
        database = self.database
        database.owner = owner
        database.epoch += 1
        database.written += 1
        self._lease = Lease(owner, database.epoch)
        done(self._lease)

    def release(self) -> None:
        if self._lease is not None and self._lease.epoch == self.database.epoch:
            self.database.owner = ""
        self._lease = None

    def close(self) -> None:
        self._closed = True
        self._lease = None

    # ---- the shard's side ----------------------------------------------------------------------------------

    def position(self, done: Callable[[Position | Exception], None]) -> None:
        self._inbox_seen, self._inbox_written = 0, -1
        database = self.database
        open_calls = (Status.RUNNING, Status.STUCK)  # a stuck instance may have calls open too
        running = {id for id, head in database.heads.items() if head.status in open_calls}
        if not database.workers:
            running.update(job.instance for job in database.jobs.values())
        ruler = self._head(RULER)
        rules = None if ruler is None else database.published.get((ruler.id, IN_FORCE))
        done(Position(*self._last(), tuple(sorted(running)), rules))

    def _last(self) -> tuple[int, int]:
        """The last entry, or the base of a restored database that has none after it."""
        found = [(row.seq, row.at) for row in (*self.database.journal[-1:], self.database.base) if row is not None]
        return max(found, default=(0, 0))

    def register(self, workflows: Sequence[WorkflowRow], done: Callable[[Exception | None], None]) -> None:
        fenced = self._fenced()
        if fenced is None:
            self.database.workflows = sorted(workflows)
            self.database.written += 1
        done(fenced)

    def commit(self, batch: Batch, done: Callable[[Exception | None], None]) -> None:
        error = self._fenced() or self._violation(batch)
        if error is None:
            self._write(batch)
        done(error)

    def load(self, refs: Sequence[Ref], done: Callable[[Ref, Loaded | Exception | None], None]) -> None:
        for ref in refs:
            head = self._head(ref)
            done(ref, self._record(head).needed if head is not None else None)

    def census(self, done: Callable[[Census | Exception], None]) -> None:
        counts = self.database.counts.items()
        rows = sorted((*standing, count) for standing, count in counts if count and standing[2] not in TERMINAL)
        done(Census(tuple(rows), len(self.database.work), len(self.database.inbox)))

    def due(self, before: int, limit: int, after: Place, done: Callable[[list[WorkRow] | Exception], None]) -> None:
        database = self.database
        begin = bisect_right(database.work_order, after)
        end = bisect_left(database.work_order, (before + 1, b""))
        done([database.work[intent] for _, intent in database.work_order[begin : min(end, begin + limit)]])

    def inbox(self, limit: int, done: Callable[[list[InboxRow] | Exception], None]) -> None:
        database = self.database
        if self._inbox_written == database.written:
            done([])
            return
        fresh = (pair for pair in database.inbox.values() if pair[0] > self._inbox_seen)
        found = list(islice(fresh, limit))
        if found:
            self._inbox_seen = found[-1][0]
        if len(found) < limit:
            self._inbox_written = database.written
        done([row for _, row in found])

    @property
    def workers(self) -> bool:
        return self.database.workers

    def lost(self, limit: int, done: Callable[[list[tuple[int, bytes]] | Exception], None]) -> None:
        database, now = self.database, self.database.now()
        for claimed in database.claims.values():
            if claimed.state in ("open", "lost") or claimed.expires > now:
                continue
            if claimed.answer not in database.inbox:
                claimed.state = "lost"
        lost = (intent for intent, claimed in database.claims.items() if claimed.state == "lost")
        done([(database.jobs[intent].instance, intent) for intent in islice(lost, limit)])

    def measure(self, figures: Callable[[], Figures]) -> None:
        self.database.figures = figures

    def listen(self, framed: FramedByWorker) -> None:
        self.database.listeners.append(framed)

    # ---- one transaction -----------------------------------------------------------------------------------

    def _fenced(self) -> PerdureError | None:
        database, lease = self.database, self._lease
        if lease is None:
            return Fenced("this store holds no lease: it was never acquired, or released; nothing was written")
        if lease.epoch != database.epoch:
            return Fenced(
                f"{database.owner or 'another engine'} took over: epoch {database.epoch} follows "
                f"{lease.epoch} of {lease.owner}; nothing was written"
            )
        return None

    def _violation(self, batch: Batch) -> PerdureError | None:
        """What the constraints of a database would refuse: an error in the shard's bookkeeping."""
        database = self.database
        seq = database.journal[-1].seq if database.journal else 0
        for row in batch.journal:
            if row.seq <= seq:
                return StoreFailed(f"entry {row.seq} cannot follow entry {seq}; nothing was written")
            seq = row.seq
        closed = set(batch.work_closed)
        for intent in batch.work_opened:
            if intent in database.work and intent not in closed:
                return StoreFailed(f"the intent {intent.hex()} is open already; nothing was written")
        for revived in batch.revived:
            if database.heads[revived].reason == FORGOTTEN:
                return StoreFailed(f"instance {revived} was forgotten meanwhile; nothing was written")
        removed = set(batch.inbox_removed)
        for id in batch.inbox_added:
            if id in database.inbox and id not in removed:
                return StoreFailed(f"the event {id.hex()} is in the inbox already; nothing was written")
        return None

    def _write(self, batch: Batch) -> None:
        database = self.database
        database.journal.extend(batch.journal)
        for row in batch.journal:
            database.histories.setdefault(row.instance, []).append(row)
        for head in batch.heads.values():
            database.heads[head.id] = head
            current = database.heads.get(database.names.get((head.workflow, head.key), 0))
            if current is None or current.generation <= head.generation:
                database.names[head.workflow, head.key] = head.id
        for tag, there in batch.tags.items():
            if there:
                database.tags[tag] = None
            else:
                database.tags.pop(tag, None)
        database.counts.update(batch.counts)
        for intent in batch.work_closed:
            self._close_work(intent)
        for work in batch.work_opened.values():
            database.work[work.intent] = work
            insort(database.work_order, (work.due, work.intent))
        for intent in batch.jobs_closed:
            database.close_job(intent)
        for job in batch.jobs_opened.values():
            database.open_job(job)
        for id in batch.inbox_removed:
            database.inbox.pop(id, None)
        for event in (*batch.inbox_added.values(), *batch.outbox):
            database.add_to_inbox(event)
        database.snapshots.update(batch.snapshots)
        for published in batch.published.values():
            database.published[published.instance, published.name] = published.value
        database.tasks.update(batch.tasks)
        database.written += 1
        if batch.jobs_opened or batch.jobs_closed:
            for hint in list(database.hints):
                hint()

    def _close_work(self, intent: bytes) -> None:
        database = self.database
        row = database.work.pop(intent, None)
        if row is not None:
            del database.work_order[bisect_left(database.work_order, (row.due, intent))]

    # ---- reading -------------------------------------------------------------------------------------------

    def _head(self, ref: Ref) -> HeadRow | None:
        database = self.database
        id = database.names.get((ref.workflow, ref.key), 0) if isinstance(ref, Address) else ref
        return database.heads.get(id)

    def _record(self, head: HeadRow) -> StoredInstance:
        if head.status in FINAL:
            return StoredInstance(head)  # it takes no more events: its past is not needed to go on
        snapshot = self.database.snapshots.get(head.id)
        rows = self._after(self.database.histories.get(head.id, []), snapshot.seq if snapshot else 0)
        return StoredInstance(head, snapshot, tuple(rows))

    @staticmethod
    def _after(rows: list[JournalRow], seq: int) -> Iterator[JournalRow]:
        return islice(rows, bisect_left(rows, seq + 1, key=_by_seq), None)

    # ---- everybody else's side -----------------------------------------------------------------------------

    async def head(self, ref: Ref) -> HeadRow | None:
        return self._head(ref)

    async def heads_of(self, ids: Sequence[int]) -> dict[int, HeadRow]:
        return {id: head for id in ids if (head := self._head(id)) is not None}

    async def heads(self, filter: Filter) -> list[HeadRow]:
        place = change_of if filter.by_change else place_of
        ordered = sorted(self.database.heads.values(), key=place, reverse=not filter.oldest)
        return list(islice((head for head in ordered if matches(filter, head)), filter.limit))

    async def page(self, filter: Filter) -> Page:
        found = await self.heads(filter)
        return Page(found, place_in(filter, found[-1]) if len(found) == filter.limit and found else None)

    async def counts(self) -> dict[Standing, int]:
        return {standing: count for standing, count in self.database.counts.items() if count}

    async def history(self, instance: int, after: int = 0, limit: int | None = None) -> list[JournalRow]:
        return list(islice(self._after(self.database.histories.get(instance, []), after), limit))

    async def record(self, ref: Ref) -> StoredInstance | None:
        head = self._head(ref)
        return None if head is None else self._record(head)

    async def journal(self, after: int, limit: int) -> list[JournalRow]:
        return list(islice(self._after(self.database.journal, after), limit))

    async def published(self, instance: int, name: str) -> bytes | None:
        return self.database.published.get((instance, name))

    async def task(self, id: int) -> TaskRow | None:
        found = self.database.tasks.get(id)
        return None if found is None else found.row

    async def tasks(self, filter: TaskFilter) -> list[TaskRow]:
        return tasks.merged([each.row for each in self.database.tasks.values() if tasks.matches(filter, each)], filter)

    async def count_tasks(self, filter: TaskFilter) -> int:
        filter = msgspec.structs.replace(filter, after=None)
        return sum(tasks.matches(filter, each) for each in self.database.tasks.values())

    async def workflows(self) -> list[WorkflowRow]:
        return list(self.database.workflows)

    async def post(self, row: InboxRow, *, start: bytes | None = None, reuse: str = "") -> Posted:
        database = self.database
        if row.id in database.inbox:
            return TAKEN
        name = (row.workflow, row.key)
        answer = judge(
            row,
            start=start,
            reuse=reuse,
            head=self._head(row.instance or Address(*name)),
            pending=lambda: (other for _, other in database.inbox.values() if (other.workflow, other.key) == name),
            workflows=lambda: database.workflows,
        )
        if answer is not None:
            return answer
        database.add_to_inbox(row)
        database.written += 1
        return TAKEN

    async def undelivered(self, address: Address | None = None) -> list[InboxRow]:
        rows = [row for _, row in self.database.inbox.values()]
        return [row for row in rows if address is None or (row.workflow, row.key) == (address.workflow, address.key)]

    async def work(self, intent: bytes) -> WorkRow | None:
        return self.database.work.get(intent)

    async def job(self, intent: bytes) -> JobState | None:
        row, claimed = self.database.jobs.get(intent), self.database.claims.get(intent)
        if row is None:
            return None
        if claimed is not None and claimed.state in ("taken", "answered"):
            return JobState(row.queue, row.function, claimed.worker, claimed.claimed)
        return JobState(row.queue, row.function, note=self.database.notes.get(intent, ""))

    async def jobs(self, limit: int = 1000, queue: str = "", after: tuple[int, bytes] = (0, b"")) -> list[ListedJob]:
        rows = [row for row in self.database.jobs.values() if queue in ("", row.queue)]
        rows = [row for row in rows if (row.at, row.intent) > after]
        found = []
        for row in sorted(rows, key=lambda row: (row.queue, row.at, row.intent))[:limit]:
            state = await self.job(row.intent)
            assert state is not None, "it is open"
            job = (row.instance, row.queue, row.function, row.delivery, row.at)
            found.append(ListedJob(*job, state.worker, state.claimed, state.note, row.intent))
        return found

    async def queues(self) -> list[QueueRow]:
        parts: dict[tuple[str, str, str], list[ListedJob]] = {}
        for each in await self.jobs(len(self.database.jobs)):
            part = each.queue, self.database.heads[each.instance].workflow, each.worker
            parts.setdefault(part, []).append(each)
        return [
            QueueRow(*part, len(jobs), min(job.at for job in jobs), min(job.claimed for job in jobs))
            for part, jobs in sorted(parts.items())
        ]

    async def shards(self) -> list[ShardRow]:
        database, owner = self.database, await self.owner()
        times = [row.at for _, row in database.inbox.values()]
        figures = Figures() if owner is None else database.figures()
        return [ShardRow(0, database.epoch, owner, 0.0, figures, len(times), min(filter(None, times), default=0))]

    async def served(self) -> list[tuple[str, str, str]]:
        database = self.database
        return [(database.owner, row.name, row.version) for row in database.workflows if database.owner]

    async def outside(self, executor: str = "", after: bytes = b"", limit: int = 100) -> list[WorkRow]:
        wanted = (
            row
            for row in self.database.work.values()
            if row.intent > after and (row.kind == KIND + executor if executor else row.kind.startswith(KIND))
        )
        return heapq.nsmallest(limit, wanted)

    async def mentions(self, part: bytes) -> int:
        recent = self.database.journal[-MENTIONS_MAX:]
        return next((row.instance for row in reversed(recent) if part in row.body), 0)

    async def put_blobs(self, bodies: Sequence[bytes], at: int) -> list[bytes]:
        database = self.database
        digests = [digest_of(body) for body in bodies]
        for digest, body in zip(digests, bodies, strict=True):
            put_at, kept = database.blobs.get(digest, (at, body))
            database.blobs[digest] = (max(put_at, at), kept)
        database.written += 1
        return digests

    async def blob(self, digest: bytes) -> bytes | None:
        found = self.database.blobs.get(digest)
        return None if found is None else checked(digest, found[1])

    async def blobs(self, after: bytes = b"", limit: int = 1000) -> list[BlobRow]:
        blobs = self.database.blobs
        digests = heapq.nsmallest(limit, (digest for digest in blobs if digest > after))
        return [BlobRow(digest, blobs[digest][0], len(blobs[digest][1])) for digest in digests]

    async def delete_blobs(self, digests: Sequence[bytes], before: int) -> int:
        blobs = self.database.blobs
        old = {digest for digest in digests if digest in blobs and blobs[digest][0] < before}
        for digest in old:
            del blobs[digest]
        self.database.written += 1
        return len(old)

    async def world_snapshots(self) -> list[WorldSnapshotRow]:
        return [row for _, row in sorted(self.database.world_snapshots.items())]

    async def add_world_snapshot(self, row: WorldSnapshotRow) -> None:
        before = self.database.world_snapshots.get(row.seq)
        base = row.base or (before is not None and before.base)
        self.database.world_snapshots[row.seq] = msgspec.structs.replace(row, base=base)
        self.database.written += 1

    async def forget_world_snapshots(self, seqs: Sequence[int]) -> int:
        snapshots = self.database.world_snapshots
        gone = {seq for seq in seqs if seq in snapshots and not snapshots[seq].base}
        for seq in gone:
            del snapshots[seq]
        self.database.written += 1
        return len(gone)

    async def ended_roots(self, before: int, after: ListPlace = (0, 0), limit: int = 500) -> list[HeadRow]:
        found = [
            head
            for head in self.database.heads.values()
            if not head.parent and head.ended_at and head.reason != FORGOTTEN
            if head.ended_at < before and (head.ended_at, head.id) > after
        ]
        return sorted(found, key=lambda head: (head.ended_at, head.id))[:limit]

    async def forget(self, roots: Sequence[int]) -> int:
        database, forgotten = self.database, 0
        for root in roots:
            family = [head for head in database.heads.values() if head.root == root]
            last = self._last()[0]
            busy = {row.instance or (row.workflow, row.key) for _, row in database.inbox.values()}
            if any(
                not head.ended_at
                or head.reason == FORGOTTEN
                or busy & {head.id, (head.workflow, head.key)}
                or database.histories[head.id][-1].seq == last
                for head in family
            ):
                continue
            gone = {head.id for head in family}
            database.journal[:] = [row for row in database.journal if row.instance not in gone]
            for head in family:
                database.histories.pop(head.id, None)
                database.snapshots.pop(head.id, None)
                database.tasks.pop(head.id, None)
                database.counts[head.workflow, head.version, head.status] -= 1
                database.heads[head.id] = head._replace(tags="{}", outcome=None, reason=FORGOTTEN)
            for tag in [tag for tag in database.tags if tag.instance in gone]:
                del database.tags[tag]
            for place in [place for place in database.published if place[0] in gone]:
                del database.published[place]
            forgotten += len(gone)
        database.written += 1
        return forgotten

    async def height(self) -> int:
        return self._last()[0]

    async def heights(self) -> dict[int, int]:
        height = self._last()[0]
        return {0: height} if height else {}

    async def owner(self) -> Owner | None:
        return Owner(self.database.owner) if self.database.owner else None

    async def facts(self) -> dict[str, str]:
        return {"path": ":memory:"}

    async def changed(self) -> int:
        return self.database.written

    async def change(self, seen: int) -> None:
        await asyncio.sleep(0.02)

    async def check(self) -> list[str]:
        database = self.database
        bodies = [(f"the inbox event {id.hex()}", row.body) for id, (_, row) in database.inbox.items()]
        bodies += [(f"the job {intent.hex()}", job.body) for intent, job in database.jobs.items()]
        bodies += [(f"the snapshot of {id}", row.body) for id, row in database.snapshots.items()]
        problems = []
        for what, body in bodies:
            try:
                unseal(body)
            except PerdureError as error:
                problems.append(f"{what}: {error}")
        problems += [found for digest, (_, body) in database.blobs.items() if (found := problem_of(digest, body))]
        rebuilt = rebuild(database.journal, base=database.base.seq if database.base is not None else 0)
        inbox = [row for _, row in database.inbox.values()]
        stored = Indexes(
            database.heads,
            database.work,
            database.published,
            inbox,
            database.jobs,
            database.tags.keys(),
            database.counts,
            database.tasks,
        )
        return problems + rebuilt.problems + differences(rebuilt, stored)


class MemoryJobs:
    """The workers' side. Code without a loop, as a simulation, calls the methods in which nothing waits."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def claim(self, worker: str, queues: Sequence[str], functions: Sequence[str], limit: int) -> list[Claim]:
        return self.claim_now(worker, queues, functions, limit)

    async def take(self, worker: str, intents: Sequence[bytes]) -> list[Claim]:
        return self._taken(
            worker, [self._database.jobs[intent] for intent in intents if self._may_take(worker, intent)]
        )

    def _may_take(self, worker: str, intent: bytes) -> bool:
        had = self._database.claims.get(intent)
        return self._is_open(intent) or (had is not None and (had.worker, had.state) == (worker, "taken"))

    def _is_open(self, intent: bytes) -> bool:
        job = self._database.jobs.get(intent)
        return job is not None and intent in self._database.unclaimed[job.queue]

    async def open_jobs(
        self, queue: str, limit: int, without: Sequence[bytes], without_functions: Sequence[str]
    ) -> list[OpenJob]:
        database = self._database
        open = [database.jobs[intent] for intent in database.unclaimed.get(queue, ()) if intent not in without]
        wanted = [job for job in open if job.function not in without_functions]
        oldest = heapq.nsmallest(limit, wanted, key=lambda job: (job.at, job.intent))
        return [OpenJob(job, self._claims_of(job.intent)) for job in oldest]

    async def waiting(self, intents: Sequence[bytes]) -> dict[bytes, int | None]:
        known = [intent for intent in intents if intent in self._database.jobs]
        return {intent: self._claims_of(intent) if self._is_open(intent) else None for intent in known}

    def _claims_of(self, intent: bytes) -> int:
        had = self._database.claims.get(intent)
        return 0 if had is None else had.taken

    async def note(self, queue: str, function: str, text: str) -> None:
        for intent in self._database.unclaimed.get(queue, ()):
            if self._database.jobs[intent].function == function:
                self._database.notes[intent] = text

    async def beat(self, worker: str, claims: Sequence[Claim]) -> list[Claim]:
        return self.beat_now(claims)

    async def answer(self, answers: Sequence[tuple[Claim, InboxRow]]) -> list[Claim]:
        return self.answer_now(answers)

    async def give_back(self, claims: Sequence[Claim]) -> None:
        self.give_back_now(claims)

    async def tell(self, frames: Sequence[tuple[Claim, Frame]]) -> None:
        for claim, frame in frames:
            for framed in list(self._database.listeners):
                framed(claim.job.instance, claim.job.intent, claim.taken, frame)

    def listen(self, hint: Callable[[], None]) -> None:
        self._database.hints.append(hint)

    def claim_now(self, worker: str, queues: Sequence[str], functions: Sequence[str], limit: int) -> list[Claim]:
        database = self._database
        open = (database.jobs[intent] for queue in queues for intent in database.unclaimed.get(queue, ()))
        known = (job for job in open if job.function in functions)
        return self._taken(worker, heapq.nsmallest(limit, known, key=lambda job: (job.at, job.intent)))

    def _taken(self, worker: str, found: Iterable[JobRow]) -> list[Claim]:
        database, claims = self._database, []
        for job in found:
            database.unclaimed[job.queue].pop(job.intent, None)
            before = database.claims.get(job.intent)
            taken = 1 if before is None else before.taken + 1
            now = database.now()
            database.claims[job.intent] = _Claimed(worker, taken, now + CLAIM, "taken", claimed=now)
            database.notes.pop(job.intent, None)
            claims.append(Claim(job, worker, taken))
        return claims

    def beat_now(self, claims: Sequence[Claim]) -> list[Claim]:
        gone = []
        for claim in claims:
            own = self._own(claim)
            if own is None:
                gone.append(claim)
            else:
                own.expires = self._database.now() + CLAIM
        return gone

    def answer_now(self, answers: Sequence[tuple[Claim, InboxRow]]) -> list[Claim]:
        fenced = []
        for claim, row in answers:
            own = self._own(claim)
            if own is None:
                fenced.append(claim)
            else:
                own.state, own.answer, own.expires = "answered", row.id, self._database.now() + CLAIM
                self._database.add_to_inbox(row)
                self._database.written += 1
        return fenced

    def give_back_now(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            own = self._own(claim)
            if own is not None:
                self._database.open_job(claim.job)

    def _own(self, claim: Claim) -> _Claimed | None:
        own = self._database.claims.get(claim.job.intent)
        is_own = own is not None and own.state == "taken" and (own.worker, own.taken) == (claim.worker, claim.taken)
        return own if is_own else None
