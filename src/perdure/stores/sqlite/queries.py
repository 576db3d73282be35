"""What everybody may do with a database file: read what is durable, and post events into its inbox.

A client of a live engine and the engine itself share this class. Reading never waits for the writer (WAL). Lists and
histories may be long: all but single rows are read in threads, each with a connection that no other thread has
meanwhile. What is written here (an event for the inbox, blobs) is written in short transactions in a thread, with its
own connection, and waits until the writer lets it in.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import Concatenate, Final, ParamSpec, TypeVar

import apsw

from perdure.kernel.batch import HeadRow, InboxRow, JournalRow, Standing, WorkflowRow, WorkRow
from perdure.kernel.events import Address, Ref
from perdure.kernel.status import Status
from perdure.kernel.task import TaskRow
from perdure.ports.store import (
    BlobRow,
    Filter,
    JobState,
    ListedJob,
    ListPlace,
    Owner,
    Page,
    Posted,
    QueueRow,
    ShardRow,
    StoredInstance,
    TaskFilter,
    WorldSnapshotRow,
)
from perdure.stores.content import GROUP_ROWS, grouped
from perdure.stores.posting import TAKEN, judge

from . import blobs, forgetting, reads
from .check import check_rows
from .connection import connect, read_header
from .files import OpenFiles
from .lease import is_locked, lease_path
from .readonly import form_of
from .statements import SQL
from .writes import read_error, roll_back, write_error

P = ParamSpec("P")
T = TypeVar("T")


POLL_SECONDS: Final = 0.02
WAL_HEADER: Final = b"\x02\x02"
"""How the header of a file says that the file has a write-ahead log."""


class SqliteQueries:
    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        self.path = os.path.realpath(path)  # two names of one file are one database
        form = form_of(self.path)
        self._connection, self._patience = connect(self.path, create=create)
        self._form = form if self._connection.readonly("main") else None
        self._files = OpenFiles(self.path)
        self._writing: apsw.Connection | None = None
        self._writing_lock = threading.Lock()
        self._idle: list[apsw.Connection] = []  # of threads that read
        self._idle_lock = threading.Lock()
        self._gone = False

    def close(self) -> None:
        with self._idle_lock:
            self._gone = True
            self._close(*self._idle)
        with self._writing_lock:
            self._close(self._writing, self._connection)

    def _close(self, *connections: apsw.Connection | None) -> None:
        """The last connection takes the log with it, by its name: after a replacement that is the log of another
        database, which stays."""
        leave_log = self._files.replaced() is not None
        for connection in connections:
            if connection is not None:
                if leave_log:
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close()

    def _reading(self) -> apsw.Connection:
        """The connection that sees all that is durable and nothing else."""
        if self._form is not None and (form := form_of(self.path)) != self._form:
            self._connection.close()
            self._connection, self._patience = connect(self.path, create=False)
            self._form = form
        return self._connection

    def _ask(self, query: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return query(self._reading(), *args, **kwargs)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise read_error(self.path, error) from error

    async def _read_beside(
        self, query: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """A read that may be long, of one state of the file: the loop goes on meanwhile."""

        def run() -> T:
            with self._idle_lock:
                connection = self._idle.pop() if self._idle else None
            try:
                if connection is None:
                    connection, _ = connect(self.path, create=False)
                connection.execute("BEGIN")
                try:
                    return query(connection, *args, **kwargs)
                finally:
                    roll_back(connection)
            except (apsw.Error, UnicodeDecodeError) as error:
                raise read_error(self.path, error) from error
            finally:
                self._give_back(connection)

        return await asyncio.to_thread(run)

    def _give_back(self, connection: apsw.Connection | None) -> None:
        with self._idle_lock:
            if connection is not None and not self._gone:
                self._idle.append(connection)
            else:
                self._close(connection)

    async def _write_beside(
        self, work: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Short transactions beside those of the engine, durable when they are awaited. A process may be stopped at any
        moment: what `work` prepares, it prepares before it has the write lock, which the engine waits for."""

        def run() -> T:
            with self._writing_lock:
                if self._writing is None:
                    self._files.check()  # else it would write into the new file
                    self._writing, _ = connect(self.path, create=False)
                try:
                    done = work(self._writing, *args, **kwargs)
                except apsw.Error as error:
                    raise write_error(self.path, error) from error
            self._files.check()
            return done

        return await asyncio.to_thread(run)

    # ---- heads, histories, values --------------------------------------------------------------------------

    async def head(self, ref: Ref) -> HeadRow | None:
        return self._ask(reads.head, ref)

    async def heads_of(self, ids: Sequence[int]) -> dict[int, HeadRow]:
        return {id: head for id in ids if (head := self._ask(reads.head, id)) is not None}

    async def heads(self, filter: Filter) -> list[HeadRow]:
        return await self._read_beside(reads.heads, filter)

    async def page(self, filter: Filter) -> Page:
        return await self._read_beside(reads.page, filter, bounded=True)

    async def counts(self) -> dict[Standing, int]:
        return self._ask(reads.counts)

    async def history(self, instance: int, after: int = 0, limit: int | None = None) -> list[JournalRow]:
        short = self._ask(reads.short_history, instance, after, limit)
        return short if short is not None else await self._read_beside(reads.history, instance, after, limit)

    async def record(self, ref: Ref) -> StoredInstance | None:
        return self._ask(reads.record, ref)

    async def journal(self, after: int, limit: int) -> list[JournalRow]:
        return await self._read_beside(reads.journal, after, limit)

    async def published(self, instance: int, name: str) -> bytes | None:
        return self._ask(reads.published, instance, name)

    async def task(self, id: int) -> TaskRow | None:
        return self._ask(reads.task, id)

    async def tasks(self, filter: TaskFilter) -> list[TaskRow]:
        return await self._read_beside(reads.tasks, filter)

    async def count_tasks(self, filter: TaskFilter) -> int:
        return await self._read_beside(reads.count_tasks, filter)

    async def workflows(self) -> list[WorkflowRow]:
        return self._ask(reads.workflows)

    async def undelivered(self, address: Address | None = None) -> list[InboxRow]:
        return self._ask(reads.undelivered, address)

    async def work(self, intent: bytes) -> WorkRow | None:
        return self._ask(reads.work, intent)

    async def job(self, intent: bytes) -> JobState | None:
        return self._ask(reads.job, intent)

    async def jobs(self, limit: int = 1000, queue: str = "", after: tuple[int, bytes] = (0, b"")) -> list[ListedJob]:
        return await self._read_beside(reads.jobs, limit, queue, after)

    async def queues(self) -> list[QueueRow]:
        return await self._read_beside(reads.queues)

    async def shards(self) -> list[ShardRow]:
        return [self._ask(reads.shard, await self.owner())]

    async def served(self) -> list[tuple[str, str, str]]:
        owner = await self.owner()
        return [] if owner is None else [(owner.name, row.name, row.version) for row in await self.workflows()]

    async def outside(self, executor: str = "", after: bytes = b"", limit: int = 100) -> list[WorkRow]:
        return self._ask(reads.outside, executor, after, limit)

    async def mentions(self, part: bytes) -> int:
        return await self._read_beside(reads.mentions, part)

    async def height(self) -> int:
        return self._ask(reads.height)

    async def heights(self) -> dict[int, int]:
        height = self._ask(reads.height)
        return {0: height} if height else {}

    async def owner(self) -> Owner | None:
        return self._ask(reads.owner) if is_locked(lease_path(self.path)) else None

    async def facts(self) -> dict[str, str]:
        found = self._ask(reads.facts)
        if self._form is not None and read_header(self.path)[18:20] == WAL_HEADER:
            found["journal_mode"] = "wal"  # SQLite says otherwise of a file that it has opened alone
        return {"path": self.path, **found}

    async def changed(self) -> int:
        self._files.check()
        return self._ask(reads.data_version)

    async def change(self, seen: int) -> None:
        await asyncio.sleep(POLL_SECONDS)  # nothing tells

    # ---- posting -------------------------------------------------------------------------------------------

    async def post(self, row: InboxRow, *, start: bytes | None = None, reuse: str = "") -> Posted:
        return await self._write_beside(self._post, row, start, reuse)

    def _post(self, connection: apsw.Connection, row: InboxRow, start: bytes | None, reuse: str) -> Posted:
        """Judge without a lock, then write if what was seen is still so; else judge again."""
        while connection.execute(SQL.inbox_by_id, (row.id,)).get is None:
            seen: int | None = None

            def pending() -> Iterator[InboxRow]:
                nonlocal seen
                seen = connection.execute(SQL.last_posted, (row.workflow, row.key)).get
                return starmap(InboxRow, connection.execute(SQL.inbox_by_name, (row.workflow, row.key)))

            head = reads.head(connection, row.instance or Address(row.workflow, row.key))
            workflows = partial(reads.workflows, connection)
            answer = judge(row, start=start, reuse=reuse, head=head, pending=pending, workflows=workflows)
            if answer is not None:
                return answer
            connection.execute(SQL.post, (*row, seen, _state(head)))
            if connection.changes():
                break
        return TAKEN

    # ---- blobs ---------------------------------------------------------------------------------------------

    async def put_blobs(self, bodies: Sequence[bytes], at: int) -> list[bytes]:
        digests: list[bytes] = []
        for group in grouped(bodies):
            digests += await self._write_beside(blobs.put, group, at)
        return digests

    async def blob(self, digest: bytes) -> bytes | None:
        return self._ask(blobs.find, digest)

    async def blobs(self, after: bytes = b"", limit: int = 1000) -> list[BlobRow]:
        return self._ask(blobs.page, after, limit)

    async def delete_blobs(self, digests: Sequence[bytes], before: int) -> int:
        deleted = 0
        for begin in range(0, len(digests), GROUP_ROWS):
            group = digests[begin : begin + GROUP_ROWS]
            deleted += await self._write_beside(blobs.delete, group, before)
        return deleted

    # ---- world snapshots -----------------------------------------------------------------------------------

    async def world_snapshots(self) -> list[WorldSnapshotRow]:
        return self._ask(reads.world_snapshots)

    async def add_world_snapshot(self, row: WorldSnapshotRow) -> None:
        values = (row.seq, row.at, row.hash, row.taken_at, row.inbox, int(row.base))
        await self._write_beside(apsw.Connection.execute, SQL.add_world_snapshot, values)

    async def forget_world_snapshots(self, seqs: Sequence[int]) -> int:
        return await self._write_beside(blobs.forget, seqs)

    # ---- retention -----------------------------------------------------------------------------------------

    async def ended_roots(self, before: int, after: ListPlace = (0, 0), limit: int = 500) -> list[HeadRow]:
        return self._ask(forgetting.ended_roots, before, after, limit)

    async def forget(self, roots: Sequence[int]) -> int:
        forgotten = 0
        for begin in range(0, len(roots), forgetting.GROUP):
            group = roots[begin : begin + forgetting.GROUP]
            forgotten += await self._write_beside(forgetting.forget, group)
        return forgotten

    # ---- reading everything --------------------------------------------------------------------------------

    async def check(self) -> list[str]:
        """All heads are held in memory meanwhile. Commits go on: one state of the file is read."""
        return await asyncio.to_thread(self._check)

    def _check(self) -> list[str]:
        connection, _ = connect(self.path, create=False)
        try:
            connection.execute("BEGIN")
            damage = [str(text) for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
            return damage or check_rows(connection)
        except (apsw.CorruptError, apsw.SQLError, UnicodeDecodeError) as error:
            return [f"{self.path} is damaged: {error}"]
        finally:
            connection.close()


def _state(head: HeadRow | None) -> str:
    """What a judgement depends on, as in the statement `post`: whether an instance runs or waits is the same to it."""
    if head is None:
        return ""
    return f"{head.id}{'' if head.status in (Status.RUNNING, Status.WAITING) else head.status}"
