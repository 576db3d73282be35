"""The engine's side of one shard: the lease, the commits, and the reads of the shard loop.

A commit is one statement, and so one round trip and one transaction, with the fence in it. When its answer is lost it
is never guessed: the store first raises its own `turn`, from which on that commit is refused if it is still on its way,
then looks whether it is there, and sends it again if it is not. So a commit ends with "durable" or "fenced", whatever
happens to connections; while there is no server, it waits.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from perdure.codec import seal
from perdure.errors import EngineRunning, Fenced, LeaseLost, StoreFailed
from perdure.kernel.batch import Batch, InboxRow, WorkflowRow, WorkRow
from perdure.kernel.events import Address, Ref
from perdure.kernel.placement import first_seq
from perdure.kernel.rows import Loaded, StoredInstance
from perdure.kernel.task import TaskRows
from perdure.ports.frame import FramedByWorker
from perdure.ports.shards import Figures
from perdure.ports.store import Census, Lease, Place, Position
from perdure.stores.statements import Statements

from . import reads
from .connections import Pauses, log
from .failures import BUSY, FAILURES, failure, is_lost, may_pass
from .jobs import QUEUE

if TYPE_CHECKING:
    from .database import PostgresDatabase

T = TypeVar("T")
Done = Callable[[Exception | None], None]

NEVER: Final = -1, -1
"""No hints and no polls: the inbox was not read yet, or not to its end."""


class PostgresStore:
    """Made by `PostgresDatabase.store`."""

    def __init__(self, database: "PostgresDatabase", shard: int) -> None:
        self.shard = shard
        self._database = database
        self._sql = database.sql
        self._lease: Lease | None = None
        self._turn = 0
        self._number = 0  # of the last commit without entries
        self._committing: asyncio.Task[None] | None = None
        self._inbox_seen = NEVER
        self._closed = False

    @property
    def _range(self) -> tuple[int, int]:
        if self._database.shards == 1:  # it may hold what was on several shards elsewhere (`perdure copy`)
            return 0, 2**63 - 1
        return first_seq(self.shard), first_seq(self.shard + 1)

    def _ask(self, question: Coroutine[Any, Any, T], done: Callable[[T | Exception], None]) -> None:
        async def answer() -> None:
            found: T | Exception
            try:
                found = await question
            except Exception as error:  # whatever it is: the shard must hear of it
                found = error
            if not self._closed:
                done(found)

        self._database.spawn(answer())

    # ---- the lease -----------------------------------------------------------------------------------------

    def acquire(self, owner: str, done: Callable[[Lease | Exception], None]) -> None:
        self._ask(self._acquire(owner), done)

    async def _acquire(self, owner: str) -> Lease:
        database = self._database
        wanted = self.shard, owner, os.getpid(), database.host, float(database.lease)
        epoch = await database.engine.ask(lambda connection: connection.fetchval(self._sql.take_lease, *wanted))
        if epoch is None:
            raise EngineRunning(await self._running_text())
        self._lease, self._turn, self._number = Lease(owner, epoch), 0, 0
        return self._lease

    def release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            self._database.spawn(self._release(lease))

    async def _release(self, lease: Lease) -> None:
        if self._committing is not None:
            await asyncio.wait([self._committing])
        arguments = self.shard, lease.epoch
        with suppress(StoreFailed):  # the next renewal gives it back, or the lease of the engine ends
            await self._database.engine.ask(
                lambda connection: connection.execute(self._sql.release_lease, *arguments), 1
            )

    def close(self) -> None:
        self._closed = True

    async def _running_text(self) -> str:
        name, pid, host, since, _ = await self._holder()
        started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(since))
        return (
            f"another engine runs on shard {self.shard} of {self._database.place.name}: {name} (pid {pid} on {host}, "
            f"since {started}); talk to it with perdure.connect({self._database.place.name!r}), or stop it first"
        )

    async def _holder(self) -> tuple[str, int, str, int, int]:
        found: tuple[str, int, str, int, int] = await self._database.engine.ask(
            lambda connection: connection.fetchrow(self._sql.lease, self.shard)
        )
        return found

    async def _fenced(self, lease: Lease, *, written: bool | None = False) -> Fenced:
        """`written`: None when the new owner only knows whether the last commit was."""
        name, _, _, _, epoch = await self._holder()
        text = (
            f"shard {self.shard} of {self._database.place.name}: {name or 'another engine'} took over: epoch {epoch} "
            f"follows {lease.epoch} of {lease.owner}"
        )
        return LeaseLost(text) if written is None else Fenced(f"{text}; nothing was written")

    def _unleased(self) -> Fenced:
        where = f"shard {self.shard} of {self._database.place.name}"
        return Fenced(f"{where}: this store holds no lease; nothing was written")

    # ---- commits -------------------------------------------------------------------------------------------

    def commit(self, batch: Batch, done: Done) -> None:
        assert self._committing is None, "a commit is under way"
        self._committing = self._database.spawn(self._commit(batch, done))

    async def _commit(self, batch: Batch, done: Done) -> None:
        try:
            error = await self._attempts(batch)
        except Exception as failed:  # whatever it is: the shard must hear of it
            error = failed
        self._committing = None
        if error is None and batch.outbox:
            self._database.arrived({self._place(row) for row in batch.outbox})
        if error is None and batch.jobs_opened:
            self._database.hint(*{QUEUE + row.queue for row in batch.jobs_opened.values()})
        if not self._closed:
            done(error)

    async def _attempts(self, batch: Batch) -> Exception | None:
        """Send the batch until it is known to be durable, or refused."""
        lease = self._lease
        if lease is None:
            return self._unleased()
        arguments: tuple[Any, ...]
        if batch.lone:
            statement, arguments = self._sql.commit_lone, batch.journal[0]
        elif batch.headed:
            (head,) = batch.heads.values()
            counts = batch.counts
            counted = [standing[1] for standing in counts], [standing[2] for standing in counts], list(counts.values())
            statement, arguments = self._sql.commit_headed, (*batch.journal[0], *head, *counted)
        else:
            self._number += not batch.journal
            statement, arguments = self._sql.commit, (self._number, *self._arguments(batch))
        connections = self._database.engine
        pauses = Pauses()
        while True:
            try:
                async with connections.one() as connection, _held(connection, self._sql, batch):
                    rows = await connection.fetch(statement, self.shard, lease.epoch, self._turn, *arguments)
                if rows and rows[0][0]:
                    return None
                fenced = await self._fenced(lease)
                log.info("a commit was refused: %s", fenced)  # by the server: others know in time, and send nothing
                return fenced
            except FAILURES as error:
                if not may_pass(error) or connections.closed:
                    return _caused(failure(self._database.place.name, error), error)
                connections.tell_lost(error)
                if is_lost(error) and not isinstance(error, BUSY):
                    written = await self._look_up(batch, lease)
                    if written is None:
                        return await self._fenced(lease, written=None)
                    if written:
                        return None
            await pauses.next()

    async def _look_up(self, batch: Batch, lease: Lease) -> bool | None:
        """Whether a commit is there whose answer was lost; None: another engine took over.

        The commit may still be on its way. So it is shut out first.
        """

        async def look(connection: Any) -> bool | None:
            self._turn += 1  # by each attempt, because its answer may be lost, too
            noted = await connection.fetchval(self._sql.take_turn, self.shard, lease.epoch, self._turn)
            if noted is None:
                return None
            if not batch.journal:
                return bool(noted == self._number)
            return bool(await connection.fetchval(self._sql.has_entry, batch.journal[-1].seq))

        pauses = Pauses()
        while True:
            try:
                return await self._database.engine.ask(look)
            except StoreFailed:
                if self._closed or self._database.engine.closed:
                    raise
                await pauses.next()

    def _arguments(self, batch: Batch) -> tuple[Any, ...]:
        inbox = [(self.shard, *row) for row in batch.inbox_added.values()]
        inbox += [(self._place(row), *row) for row in batch.outbox]
        published = [(row.instance, row.name.encode(), seal(row.value)) for row in batch.published.values()]
        beside, apart = batch.divide_snapshots()
        return (
            *reads.columns(batch.journal, 4),
            [beside.get(row.seq) for row in batch.journal] if beside else None,
            *reads.columns(batch.heads.values(), 15),
            *reads.columns([tag for tag, there in batch.tags.items() if not there], 4),
            *reads.columns([tag for tag, there in batch.tags.items() if there], 4),
            *reads.columns([(*standing, by) for standing, by in batch.counts.items() if by], 4),
            batch.work_closed or None,
            *reads.columns(batch.work_opened.values(), 4),
            sorted(batch.jobs_closed) or None,
            *reads.columns((batch.jobs_opened[intent] for intent in sorted(batch.jobs_opened)), 7),
            batch.inbox_removed or None,
            *reads.columns(inbox, 7),
            *reads.columns(apart, 3),
            *reads.columns(published, 3),
            *_tasks(batch.tasks.values()),
        )

    def _place(self, row: InboxRow) -> int:
        return self._database.shard_of(row.instance or Address(row.workflow, row.key))

    # ---- reads of the shard --------------------------------------------------------------------------------

    def position(self, done: Callable[[Position | Exception], None]) -> None:
        self._inbox_seen = NEVER
        self._ask(self._position(), done)

    async def _position(self) -> Position:
        if self._committing is not None:
            await asyncio.wait([self._committing])

        async def read(connection: Any) -> Position:
            last = await connection.fetchrow(self._sql.last_entry, *self._range)
            running = await connection.fetch(self._sql.running, *self._range)
            rules = await reads.rules(connection, self._sql) if self.shard == 0 else None
            seq, at = last or (first_seq(self.shard), 0)
            return Position(seq, at, tuple(id for (id,) in running), rules)

        return await self._database.engine.ask(read)

    def register(self, workflows: Sequence[WorkflowRow], done: Done) -> None:
        self._ask(self._register(workflows), done)

    async def _register(self, workflows: Sequence[WorkflowRow]) -> Exception | None:
        lease = self._lease
        if lease is None:
            return self._unleased()
        self._database.learn(workflows)
        columns = map(list, zip(*workflows, strict=True) if workflows else [[]] * len(WorkflowRow._fields))
        arguments = self.shard, lease.epoch, self._turn, *columns
        if await self._database.engine.ask(lambda connection: connection.fetchval(self._sql.register, *arguments)):
            return None
        return await self._fenced(lease)

    def load(self, refs: Sequence[Ref], done: Callable[[Ref, Loaded | Exception | None], None]) -> None:
        refs = list(refs)

        def each(found: dict[Ref, StoredInstance | None] | Exception) -> None:
            for ref in refs:
                if not self._closed:
                    done(ref, found if isinstance(found, Exception) else (record := found[ref]) and record.needed)

        self._ask(self._database.engine.ask(lambda connection: reads.records(connection, self._sql, refs)), each)

    def census(self, done: Callable[[Census | Exception], None]) -> None:
        async def read(connection: Any) -> Census:
            live = await connection.fetch(self._sql.live_instances, self.shard)
            work = await connection.fetchval(self._sql.count_work, self.shard)
            inbox = await connection.fetchval(self._sql.count_inbox, self.shard)
            return Census(tuple(tuple(row) for row in live), work, inbox)

        self._ask(self._database.engine.ask(read), done)

    def due(self, before: int, limit: int, after: Place, done: Callable[[list[WorkRow] | Exception], None]) -> None:
        arguments = self.shard, min(before, reads.LARGEST), *after, limit

        async def read(connection: Any) -> list[WorkRow]:
            return [WorkRow(*row) for row in await connection.fetch(self._sql.due, *arguments)]

        self._ask(self._database.engine.ask(read), done)

    def inbox(self, limit: int, done: Callable[[list[InboxRow] | Exception], None]) -> None:
        """The first rows, whenever a hint came or the time for a poll: transactions become visible in any order, so
        there is no place up to which all has been seen."""
        database = self._database
        now = database.hints(self.shard), database.polls()
        if now == self._inbox_seen:
            done([])
            return

        async def look() -> list[InboxRow]:
            if now[0] == self._inbox_seen[0] and not await database.survey.inbox(self.shard):
                self._inbox_seen = now
                return []
            return await database.engine.ask(read)

        async def read(connection: Any) -> list[InboxRow]:
            rows = [InboxRow(*row) for row in await connection.fetch(self._sql.inbox, self.shard, limit)]
            self._inbox_seen = now if len(rows) < limit else NEVER
            return rows

        self._ask(look(), done)

    # ---- workers -------------------------------------------------------------------------------------------

    @property
    def workers(self) -> bool:
        return True

    def lost(self, limit: int, done: Callable[[list[tuple[int, bytes]] | Exception], None]) -> None:
        async def look() -> list[tuple[int, bytes]]:
            return await self._database.engine.ask(read) if await self._database.survey.lost(self.shard) else []

        async def read(connection: Any) -> list[tuple[int, bytes]]:
            rows = await connection.fetch(self._sql.lost, self.shard, limit)
            return [(instance, intent) for instance, intent in rows]

        self._ask(look(), done)

    def listen(self, framed: FramedByWorker) -> None:
        self._database.frames[self.shard] = framed

    def measure(self, figures: Callable[[], Figures]) -> None:
        self._database.figures = figures


def _caused(failure: StoreFailed, error: BaseException) -> StoreFailed:
    failure.__cause__ = error
    return failure


def _tasks(tasks: Collection[TaskRows]) -> tuple[str | None, str | None]:
    """The rows of tasks, and of who has to do with them, as JSON."""
    rows = [task.row._asdict() for task in tasks]
    if not rows:
        return None, None
    candidates = [row._asdict() for task in tasks for row in task.candidates]
    return msgspec.json.encode(rows).decode(), msgspec.json.encode(candidates).decode()


@asynccontextmanager
async def _held(connection: Any, sql: Statements, batch: Batch) -> AsyncIterator[None]:
    """Around a commit: instances that had failed and go on are not forgotten meanwhile. Most batches have none."""
    if not batch.revived:
        yield
        return
    async with connection.transaction():
        if await connection.fetchval(sql.hold_heads, batch.revived):
            raise StoreFailed(f"one of the instances {batch.revived} was forgotten meanwhile; nothing was written")
        yield
