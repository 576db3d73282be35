"""What everybody may do with a database: read what is durable, and post events into its inboxes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.kernel.batch import HeadRow, InboxRow, JournalRow, Standing, WorkflowRow, WorkRow
from perdure.kernel.events import Address, Ref
from perdure.kernel.outside import KIND
from perdure.kernel.task import TaskRow
from perdure.ports.shards import read_figures
from perdure.ports.store import (
    MENTIONS_MAX,
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
from perdure.stores import tasks as lists_of_tasks
from perdure.stores.content import checked, digest_of, grouped
from perdure.stores.lists import listing, sql_of
from perdure.stores.posting import TAKEN, judge

from . import reads
from .check import check
from .statements import quoted

if TYPE_CHECKING:
    from .database import PostgresDatabase

T = TypeVar("T")


class PostgresQueries:
    """Made by `PostgresDatabase`, as its `queries`."""

    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._sql = database.sql
        self._wanted: dict[Ref, asyncio.Future[HeadRow | None]] = {}
        self._looking = False

    async def _ask(self, question: Callable[[Any], Awaitable[T]]) -> T:
        return await self._database.clients.ask(question)

    async def _rows(self, sql: str, *arguments: Any) -> list[Any]:
        found: list[Any] = await self._ask(lambda connection: connection.fetch(sql, *arguments))
        return found

    async def _value(self, sql: str, *arguments: Any) -> Any:
        return await self._ask(lambda connection: connection.fetchval(sql, *arguments))

    # ---- heads, histories, values --------------------------------------------------------------------------

    async def head(self, ref: Ref) -> HeadRow | None:
        """Those who ask while a question is on its way share the next one: many may wait for results at once."""
        found = self._wanted.get(ref)
        if found is None:
            found = self._wanted[ref] = asyncio.get_running_loop().create_future()
        if not self._looking:
            self._looking = True
            self._database.spawn(self._look())
        return await asyncio.shield(found)

    async def _look(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                try:
                    heads = await self._ask(lambda connection: reads.heads(connection, self._sql, list(wanted)))  # noqa: B023
                except Exception as error:
                    for future in wanted.values():
                        future.set_exception(error)
                        future.exception()  # a caller need not have waited for it
                    continue
                for ref, future in wanted.items():
                    future.set_result(heads.get(ref))
        finally:
            self._looking = False

    async def heads_of(self, ids: Sequence[int]) -> dict[int, HeadRow]:
        found = await self._ask(lambda connection: reads.heads(connection, self._sql, ids))
        return {head.id: head for head in found.values()}

    async def heads(self, filter: Filter) -> list[HeadRow]:
        return (await self._page(filter, bounded=False)).heads

    async def page(self, filter: Filter) -> Page:
        return await self._page(filter, bounded=True)

    async def _page(self, filter: Filter, *, bounded: bool) -> Page:
        if "\x00" in filter.workflow + filter.key + filter.key_prefix + filter.version:
            return Page([])  # no text of PostgreSQL has one
        table = f"{quoted(self._database.place.namespace)}.tags"
        questions = listing(filter, bounded=bounded)
        question = next(questions)
        while True:
            sql, values = sql_of(question, self._sql, lambda number: f"${number + 1}", table)
            rows = await self._rows(sql, *values)
            try:
                question = questions.send(rows)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    async def counts(self) -> dict[Standing, int]:
        rows = await self._rows(self._sql.counts)
        return {(workflow, version, status): count for workflow, version, status, count in rows}

    async def history(self, instance: int, after: int = 0, limit: int | None = None) -> list[JournalRow]:
        return [JournalRow(*row) for row in await self._rows(self._sql.history, instance, after, limit)]

    async def record(self, ref: Ref) -> StoredInstance | None:
        found = await self._ask(lambda connection: reads.records(connection, self._sql, [ref]))
        return found[ref]

    async def journal(self, after: int, limit: int) -> list[JournalRow]:
        """Of all shards, one shard after the other."""
        return [JournalRow(*row) for row in await self._rows(self._sql.journal, after, limit)]

    async def height(self) -> int:
        rows = await self._rows(self._sql.last_entry, 0, reads.LARGEST)
        return int(rows[0][0]) if rows else 0

    async def heights(self) -> dict[int, int]:
        rows = await self._rows(self._sql.heights, self._database.shards)
        return {shard: seq for shard, seq in rows if seq is not None}

    async def published(self, instance: int, name: str) -> bytes | None:
        return await self._ask(lambda connection: reads.published(connection, self._sql, instance, name))

    async def task(self, id: int) -> TaskRow | None:
        rows = await self._rows(self._sql.task, id) if id <= reads.LARGEST else []
        return TaskRow(*rows[0]) if rows else None

    async def tasks(self, filter: TaskFilter) -> list[TaskRow]:
        sql, values = lists_of_tasks.page(filter, _dollar, f"{quoted(self._database.place.namespace)}.", "strpos")
        return lists_of_tasks.merged([TaskRow(*row) for row in await self._rows(sql, *values)], filter)

    async def count_tasks(self, filter: TaskFilter) -> int:
        sql, values = lists_of_tasks.count(filter, _dollar, f"{quoted(self._database.place.namespace)}.", "strpos")
        return int(await self._value(sql, *values))

    async def workflows(self) -> list[WorkflowRow]:
        rows = [WorkflowRow(*row) for row in await self._rows(self._sql.workflows)]
        self._database.learn(rows)
        return rows

    async def undelivered(self, address: Address | None = None) -> list[InboxRow]:
        if address is None:
            rows = await self._rows(self._sql.undelivered)
        elif reads.storable(address):
            rows = await self._rows(self._sql.undelivered_to, address.workflow, address.key)
        else:
            rows = []
        return [InboxRow(*row) for row in rows]

    async def work(self, intent: bytes) -> WorkRow | None:
        rows = await self._rows(self._sql.work, intent)
        return WorkRow(*rows[0]) if rows else None

    async def job(self, intent: bytes) -> JobState | None:
        rows = await self._rows(self._sql.job, intent)
        return JobState(*rows[0]) if rows else None

    async def jobs(self, limit: int = 1000, queue: str = "", after: tuple[int, bytes] = (0, b"")) -> list[ListedJob]:
        return [ListedJob(*row) for row in await self._rows(self._sql.listed_jobs, limit, queue, *after)]

    async def queues(self) -> list[QueueRow]:
        return [QueueRow(*row) for row in await self._rows(self._sql.queues)]

    async def shards(self) -> list[ShardRow]:
        return [
            ShardRow(shard, epoch, Owner(*owner) if expires else None, expires, read_figures(figures), *waiting)
            for shard, epoch, *owner, expires, figures, waiting in await self._rows(self._sql.shards)
        ]

    async def served(self) -> list[tuple[str, str, str]]:
        return [tuple(row) for row in await self._rows(self._sql.served)]

    async def outside(self, executor: str = "", after: bytes = b"", limit: int = 100) -> list[WorkRow]:
        if executor:
            rows = await self._rows(self._sql.outside_of, after, limit, KIND + executor)
        else:
            rows = await self._rows(self._sql.outside, after, limit)
        return [WorkRow(*row) for row in rows]

    async def mentions(self, part: bytes) -> int:
        rows = await self._rows(self._sql.mentions, part, MENTIONS_MAX)
        return int(rows[0][0]) if rows else 0

    async def owner(self) -> Owner | None:
        rows = await self._rows(self._sql.owner)
        return Owner(*rows[0]) if rows else None

    async def facts(self) -> dict[str, str]:
        (row,) = await self._rows(self._sql.facts, quoted(self._database.place.namespace))
        return {"path": self._database.place.name, "namespace": self._database.place.namespace, **dict(row)}

    async def changed(self) -> int:
        """Hints tell of it at once; at the next poll it may have been anyway."""
        return self._database.changes()

    async def change(self, seen: int) -> None:
        await self._database.news(seen)

    # ---- posting -------------------------------------------------------------------------------------------

    async def post(self, row: InboxRow, *, start: bytes | None = None, reuse: str = "") -> Posted:
        if not reads.storable(Address(row.workflow, row.key)):
            return Posted("unknown-instance", f"there is no instance {Address(row.workflow, row.key)}")
        workflows = [] if start is None else await self.workflows()
        while True:
            answer, pending, head = await self._judge(row, start, reuse, workflows)
            if answer is not None:
                return answer
            seen = pending, *((head.id, head.status) if head is not None else (0, ""))
            last = row.instance if head is None else head.id  # where it is, if it is
            shard = self._database.shard_of(last or Address(row.workflow, row.key))
            if await self._value(self._sql.post, shard, *row, *seen):  # else something has changed meanwhile
                self._database.hint(f"shard {shard}")
                return TAKEN

    async def _judge(
        self, row: InboxRow, start: bytes | None, reuse: str, workflows: list[WorkflowRow]
    ) -> tuple[Posted | None, int, HeadRow | None]:
        (found,) = await self._rows(self._sql.judge, row.id, row.workflow, row.key, row.instance)
        posted, bodies, last, *columns = found
        if posted:
            return TAKEN, 0, None
        head = None if columns[0] is None else HeadRow(*columns)
        answer = judge(
            row,
            start=start,
            reuse=reuse,
            head=head,
            pending=lambda: [row._replace(id=b"", at=0, body=body) for body in bodies or ()],
            workflows=lambda: workflows,
        )
        return answer, last, head

    # ---- blobs ---------------------------------------------------------------------------------------------

    async def put_blobs(self, bodies: Sequence[bytes], at: int) -> list[bytes]:
        digests: list[bytes] = []
        for group in grouped(bodies):
            named = [digest_of(body) for body in group]
            await self._rows(self._sql.put_blobs, named, group, at)
            digests += named
        return digests

    async def blob(self, digest: bytes) -> bytes | None:
        body = await self._value(self._sql.blob, digest)
        return None if body is None else checked(digest, body)

    async def blobs(self, after: bytes = b"", limit: int = 1000) -> list[BlobRow]:
        return [BlobRow(*row) for row in await self._rows(self._sql.blobs, after, limit)]

    async def delete_blobs(self, digests: Sequence[bytes], before: int) -> int:
        return int(await self._value(self._sql.delete_blobs, list(digests), before))

    # ---- world snapshots -----------------------------------------------------------------------------------

    async def world_snapshots(self) -> list[WorldSnapshotRow]:
        return [WorldSnapshotRow(*row) for row in await self._rows(self._sql.world_snapshots)]

    async def add_world_snapshot(self, row: WorldSnapshotRow) -> None:
        await self._rows(self._sql.add_world_snapshot, row.seq, row.at, row.hash, row.taken_at, row.inbox, row.base)

    async def forget_world_snapshots(self, seqs: Sequence[int]) -> int:
        return int(await self._value(self._sql.forget_world_snapshots, list(seqs)))

    # ---- retention -----------------------------------------------------------------------------------------

    async def ended_roots(self, before: int, after: ListPlace = (0, 0), limit: int = 500) -> list[HeadRow]:
        return [HeadRow(*row) for row in await self._rows(self._sql.ended_roots, before, *after, limit)]

    async def forget(self, roots: Sequence[int]) -> int:
        return int(await self._value(self._sql.forget, list(roots)))

    # ---- reading everything --------------------------------------------------------------------------------

    async def check(self) -> list[str]:
        """All heads are held in memory meanwhile. Commits go on: one state of the database is read."""
        return await check(self._database.place)


def _dollar(number: int) -> str:
    return f"${number + 1}"
