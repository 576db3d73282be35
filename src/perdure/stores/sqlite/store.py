"""The engine's side of a database file: the lease, the commits, and the reads of the shard.

Rows are inserted on the thread of the loop, and only the COMMIT, where the disk is waited for, moves: on a
fast disk it stays on that thread too (a hop costs more than the disk), on a slow one it goes to the one
writer thread, and the loop builds the next batch meanwhile. Rows never cross threads one by one: each would
pass the GIL twice.

Checkpoints have a thread of their own (`checkpoints.py`), where there is a loop.

While the thread commits, the writing connection is not touched: reads then use a second one, which sees what
is durable. At all other times they use the writing connection, whose cache is warm and whose own commits do
not change `data_version`.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import apsw
from msgspec import structs

from perdure.codec import seal
from perdure.errors import EngineRunning, Fenced, PerdureError, StoreFailed
from perdure.kernel.batch import Batch, InboxRow, JournalRow, WorkflowRow, WorkRow
from perdure.kernel.events import Ref
from perdure.kernel.rows import Loaded
from perdure.ports.frame import FramedByWorker
from perdure.ports.shards import Figures, ShardRow, write_figures
from perdure.ports.store import Census, Lease, Place, Position
from perdure.stores.answers import at_once

from . import large_bodies, reads, schema
from .checkpoints import Checkpoints
from .connection import connect, enter_wal, open_error
from .files import open_in
from .lease import FileLock
from .pace import Pace
from .queries import SqliteQueries
from .statements import SQL
from .writer import Writer
from .writes import insert, read_error, roll_back, transaction, write_error

log = logging.getLogger("perdure")

FIGURES_SECONDS: Final = 1.0

Done = Callable[[Exception | None], None]
CallSoon = Callable[..., Any]


class SqliteStore(SqliteQueries):
    """`call_soon_threadsafe` is the loop's; None: everything stays on the caller's thread."""

    def __init__(self, path: str | os.PathLike[str], *, call_soon_threadsafe: CallSoon | None = None) -> None:
        super().__init__(path, create=True)
        self._call_soon = call_soon_threadsafe
        self._patience.tell = self._tell_who_writes
        self._lock = FileLock(self.path)
        self._lease: Lease | None = None
        self._pace = Pace()
        self._writer: Writer | None = None
        self._checkpoints: Checkpoints | None = None
        self._committing = False  # the writer thread has the connection
        self._after_commit: list[Callable[[], None]] = []  # what waits until it has given the connection back
        self._second: apsw.Connection | None = None
        self._inbox_seen = 0  # the last number handed out
        self._inbox_version = -1  # `data_version` at the last look that found all there was
        self._figures: Callable[[], Figures] = Figures
        self._figures_at = 0.0  # when they were last written
        self._closed = False

    @classmethod
    def open_client(cls, path: str | os.PathLike[str]) -> SqliteQueries:
        """For other processes: everything but the lease."""
        return SqliteQueries(path)

    def _tell_who_writes(self) -> None:
        log.warning(
            "%s: the engine has waited for %g s because another process is writing; it is open in %s. "
            "A process that was stopped (Ctrl-Z, a debugger) has to go on, or to end",
            self.path,
            self._patience.tell_seconds,
            open_in(self.path),
        )

    # ---- the lease -----------------------------------------------------------------------------------------

    def acquire(self, owner: str, done: Callable[[Lease | Exception], None]) -> None:
        at_once(done, self._acquire, owner)

    def _acquire(self, owner: str) -> Lease:
        """Take the lock, bring the schema up to date, begin a new epoch. Nothing can be read before."""
        try:
            if not self._lock.held and not self._lock.take():
                raise EngineRunning(self._running_text())
            if schema.version_of(self._connection) < schema.VERSION:
                schema.migrate(self._connection)
            enter_wal(self._connection, self.path)
            if self._call_soon is not None and self._checkpoints is None:
                self._checkpoints = Checkpoints(self.path, self._connection)
            with transaction(self._connection):
                pid, host = os.getpid(), socket.gethostname()
                epoch = self._connection.execute(SQL.take_lease, (owner, pid, host)).get
        except apsw.Error as error:
            self._lock.free()
            raise open_error(self.path, error) from error
        self._files.watch_beside()
        self._lease = Lease(owner, epoch)
        return self._lease

    def release(self) -> None:
        self._stop_writer()
        lease, self._lease = self._lease, None
        try:
            if lease is not None:
                with transaction(self._connection):
                    self._connection.execute(SQL.release_lease, (lease.epoch,))
        except apsw.Error:
            pass  # the name of the owner is a courtesy; the lock is what counts
        finally:
            self._lock.free()

    def close(self) -> None:
        """Wait for the commit that is under way; its callback is not called any more."""
        if self._closed:
            return
        self._closed = True
        self._stop_writer()
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._close(self._second)
        super().close()
        self._lock.free()

    def _stop_writer(self) -> None:
        if self._writer is not None:
            self._writer.stop()
            self._writer, self._committing, self._after_commit = None, False, []

    def _running_text(self) -> str:
        advice = f"talk to it with perdure.connect({self.path!r}), or stop it first"
        try:
            owner, pid, host, since = self._connection.execute(SQL.owner).fetchone() or ("", 0, "", 0)
        except apsw.Error:  # it has the lock and has not made its tables yet
            owner = ""
        if not owner:
            return f"another engine runs on {self.path} (it has just started); {advice}"
        started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(since))
        return f"another engine runs on {self.path}: {owner} (pid {pid} on {host}, since {started}); {advice}"

    # ---- commits -------------------------------------------------------------------------------------------

    def commit(self, batch: Batch, done: Done) -> None:
        assert not self._committing, "a commit is under way"
        if (
            batch.lone
            and not self._pace.slow
            and not self._figures_are_old
            and batch.size <= large_bodies.SIZE_MIN
            and self._commit_lone(batch.journal[0])
        ):
            done(self._files.replaced_by(time.perf_counter()))
            return
        if self._call_soon is None:
            done(self._attempt(batch))
            return
        if not self._begin_at_once():
            self._in_thread(lambda: self._attempt(batch), done)
            return
        error = self._rows(batch)
        if error is None and self._pace.slow:
            self._in_thread(self._finish, done)
        else:
            done(error or self._finish())

    def _commit_lone(self, row: JournalRow) -> bool:
        """One row and nothing else, as a single flow makes them: one statement is the whole transaction.

        False: it was not written. Whatever the reason is, the long way meets it again and tells it.
        """
        if self._lease is None:
            return False
        began = time.perf_counter()
        self._patience.waits = False
        try:
            self._connection.execute(SQL.insert_journal_alone, (*row, self._lease.epoch))
        except apsw.Error:
            return False
        finally:
            self._patience.waits = True
        if not self._connection.changes():
            return False
        self._pace.took(time.perf_counter() - began)
        return True

    def _attempt(self, batch: Batch) -> Exception | None:
        """The whole transaction on this thread, waiting for other writers."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            return self._failed(error)
        return self._rows(batch) or self._finish()

    def _begin_at_once(self) -> bool:
        """False: a client is writing just now. The loop must not wait; the thread does."""
        self._patience.waits = False
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error:  # any other error comes again in the thread, and is reported from there
            return False
        finally:
            self._patience.waits = True
        return True

    def _rows(self, batch: Batch) -> Exception | None:
        try:
            self._write(batch)
        except Exception as error:
            return self._failed(error)
        return None

    def _write(self, batch: Batch) -> None:
        """The rows, in an open transaction. Closing comes before opening: an intent's id can come again."""
        connection = self._connection
        executemany = connection.executemany
        self._check_epoch()
        for id in batch.revived:
            if connection.execute(SQL.is_forgotten, (id,)).get:
                raise StoreFailed(f"instance {id} was forgotten meanwhile; nothing was written")
        beside, apart = batch.divide_snapshots()
        if batch.journal:
            rows = batch.journal
            if batch.size > large_bodies.SIZE_MIN:
                rows = large_bodies.move_out(connection, rows)
            if beside:
                with_snapshots = [(*row, beside.get(row.seq)) for row in rows]
                insert(connection, SQL.insert_journal_with_snapshot, with_snapshots)
            else:
                insert(connection, SQL.insert_journal, rows)
        if batch.heads:
            insert(connection, SQL.write_head, list(batch.heads.values()))
        if batch.tags:
            executemany(SQL.delete_tag, [tag for tag, there in batch.tags.items() if not there])
            insert(connection, SQL.write_tag, [tag for tag, there in batch.tags.items() if there])
        if batch.counts:
            executemany(SQL.count, [(*standing, by) for standing, by in batch.counts.items() if by])
        if batch.work_closed:
            executemany(SQL.delete_work, [(intent,) for intent in batch.work_closed])
        if batch.work_opened:
            executemany(SQL.insert_work, batch.work_opened.values())
        if batch.jobs_closed:
            executemany(SQL.delete_job, [(intent,) for intent in batch.jobs_closed])
        if batch.jobs_opened:
            executemany(SQL.write_job, batch.jobs_opened.values())
        if batch.inbox_removed:
            executemany(SQL.delete_inbox, [(id,) for id in batch.inbox_removed])
        if batch.inbox_added or batch.outbox:
            executemany(SQL.insert_inbox, [*batch.inbox_added.values(), *batch.outbox])
        if apart:
            executemany(SQL.write_snapshot, apart)
        if batch.published:
            values = batch.published.values()
            executemany(SQL.write_published, [(row.instance, row.name, seal(row.value)) for row in values])
        if batch.tasks:
            executemany(SQL.delete_candidates, [(id,) for id in batch.tasks])
            executemany(SQL.write_task, [task.row for task in batch.tasks.values()])
            executemany(SQL.write_candidate, [row for task in batch.tasks.values() for row in task.candidates])

        if self._figures_are_old:
            self._figures_at = time.perf_counter()
            connection.execute(SQL.write_figures, (write_figures(self._figures()),))

    @property
    def _figures_are_old(self) -> bool:
        return time.perf_counter() - self._figures_at > FIGURES_SECONDS

    def _check_epoch(self) -> None:
        lease = self._lease
        if lease is None:
            raise Fenced(f"{self.path}: this store holds no lease; nothing was written")
        epoch = self._connection.execute(SQL.epoch).get
        if epoch != lease.epoch:
            raise Fenced(
                f"{self.path}: another engine took over: epoch {epoch} follows {lease.epoch} of "
                f"{lease.owner}; nothing was written"
            )

    def _finish(self) -> Exception | None:
        """Wait for the disk. Runs on either thread."""
        began = time.perf_counter()
        try:
            self._connection.execute("COMMIT")
        except Exception as error:
            return self._failed(error)
        ended = time.perf_counter()
        self._pace.took(ended - began)
        return self._files.replaced_by(ended)

    def _failed(self, error: Exception) -> Exception:
        """Leave the connection usable, and say what happened."""
        try:
            roll_back(self._connection)
        except apsw.Error as second:
            error.add_note(f"and the transaction could not be rolled back: {second}")
        if not isinstance(error, apsw.Error):
            return error
        failure = write_error(self.path, error)
        failure.__cause__ = error
        return failure

    def _in_thread(self, work: Callable[[], Exception | None], done: Done) -> None:
        assert self._call_soon is not None
        call_soon = self._call_soon
        if self._writer is None:
            self._writer = Writer(f"perdure writer of {os.path.basename(self.path)}")
        self._committing = True
        writer = self._writer

        def report(error: Exception | None) -> None:
            if writer is self._writer:  # else released or closed meanwhile: its caller must not hear of it any more
                self._committing = False
                waiting, self._after_commit = self._after_commit, []
                for each in waiting:
                    each()
                done(error)

        def run() -> None:
            error = work()
            with suppress(RuntimeError):  # the loop was closed before the store: no caller is left to hear it
                call_soon(report, error)

        self._writer.run(run)

    # ---- reads of the shard --------------------------------------------------------------------------------

    def _reading(self) -> apsw.Connection:
        if not self._committing:
            return self._connection
        if self._second is None:
            self._second, _ = connect(self.path, create=False)
        return self._second

    @contextmanager
    def _one_state(self) -> Iterator[None]:
        """Several reads that must fit together: no commit may become visible between head and history. And one
        transaction for all of them locks the file once, not once for each."""
        connection = self._reading()
        connection.execute("BEGIN")
        try:
            yield
        finally:
            if connection.in_transaction:  # SQLite ends it by itself after some failures
                connection.execute("COMMIT")

    def position(self, done: Callable[[Position | Exception], None]) -> None:
        """The shard begins: it holds no inbox rows yet, so the inbox is given from its start."""
        self._inbox_seen, self._inbox_version = 0, -1
        at_once(done, self._ask, reads.position)

    def register(self, workflows: Sequence[WorkflowRow], done: Done) -> None:
        if self._committing:
            self._after_commit.append(lambda: at_once(done, self._register, workflows))
        else:
            at_once(done, self._register, workflows)

    def _register(self, workflows: Sequence[WorkflowRow]) -> None:
        connection = self._connection
        try:
            with transaction(connection):
                self._check_epoch()
                if list(connection.execute(SQL.workflows)) != sorted(workflows):
                    connection.execute(SQL.delete_workflows)
                    connection.executemany(SQL.insert_workflow, workflows)
        except apsw.Error as error:
            raise write_error(self.path, error) from error

    def load(self, refs: Sequence[Ref], done: Callable[[Ref, Loaded | Exception | None], None]) -> None:
        found: Sequence[Loaded | Exception | None]
        try:
            with self._one_state():
                found = self._ask(reads.loaded, refs)
        except apsw.Error as error:
            found = [read_error(self.path, error)] * len(refs)
        except PerdureError as error:
            found = [error] * len(refs)
        for ref, record in zip(refs, found, strict=True):  # only now: `done` may commit, not within a read
            done(ref, record)

    def census(self, done: Callable[[Census | Exception], None]) -> None:
        at_once(done, self._ask, reads.census)

    def due(self, before: int, limit: int, after: Place, done: Callable[[list[WorkRow] | Exception], None]) -> None:
        at_once(done, self._ask, reads.due, before, limit, after)

    def inbox(self, limit: int, done: Callable[[list[InboxRow] | Exception], None]) -> None:
        """Each row once after `position`: a row that is handed out is in the hands of the shard."""
        at_once(done, self._ask, self._look_into_inbox, limit)

    @property
    def workers(self) -> bool:
        return False

    def lost(self, limit: int, done: Callable[[list[tuple[int, bytes]] | Exception], None]) -> None:
        done([])

    def listen(self, framed: FramedByWorker) -> None:
        pass  # there are no workers

    def measure(self, figures: Callable[[], Figures]) -> None:
        self._figures = figures

    async def shards(self) -> list[ShardRow]:
        """In the engine's own process the figures are those of now."""
        return [structs.replace(row, figures=self._figures()) for row in await super().shards()]

    def _look_into_inbox(self, connection: apsw.Connection, limit: int) -> list[InboxRow]:
        self._files.check()
        version = reads.data_version(connection)
        if connection is self._connection and version == self._inbox_version:
            return []
        rows: list[Any] = connection.execute(SQL.inbox, (self._inbox_seen, limit)).fetchall()
        if rows:
            self._inbox_seen = rows[-1][0]
        if connection is self._connection:
            self._inbox_version = version if len(rows) < limit else -1
        return [InboxRow(*row[1:]) for row in rows]
