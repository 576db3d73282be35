"""A simulated world on a real PostgreSQL: every question waits for its answer, and virtual time stands meanwhile.

The database lives on a loop in a thread. After each write its rows are read back, as those of a SQLite file are: the
auditor sees what stands on the server.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from perdure.codec import unseal
from perdure.kernel.batch import Batch, HeadRow, InboxRow, JobRow, JournalRow, SnapshotRow, TagRow, WorkRow
from perdure.kernel.events import Ref
from perdure.kernel.task import CandidateRow, TaskRow
from perdure.ports.store import Posted, Queries, Store
from perdure.runtime.virtual_clock import Life
from perdure.stores.memory import MemoryDatabase
from perdure.stores.postgres import PostgresDatabase
from perdure.stores.rebuild import tasks_of
from perdure.testing.disks import Disk

T = TypeVar("T")

TABLES = (
    "journal instances tags counts open_work jobs inbox snapshots published workflows tasks task_candidates blobs "
    "world_snapshots engines"
)

SNAPSHOTS = """
SELECT DISTINCT ON (instance) instance, seq, snapshot FROM (
    SELECT instance, seq, body AS snapshot FROM perdure.snapshots
    UNION ALL SELECT instance, seq, snapshot FROM perdure.journal WHERE snapshot IS NOT NULL
) AS either ORDER BY instance, seq DESC
"""
NEW_JOURNAL = "SELECT seq, instance, at, body FROM perdure.journal WHERE seq > $1 ORDER BY seq"


class PostgresDisk(Disk):
    """One schema with one shard, for one world after the other."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.database = self.run(PostgresDatabase.open(url))
        assert self.database.shards == 1

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    @contextmanager
    def emptied(self) -> Iterator[Disk]:
        """The next world begins with nothing."""
        self.rows = MemoryDatabase()
        self.execute(
            *(f"DELETE FROM perdure.{table}" for table in TABLES.split()),
            "UPDATE perdure.shards SET epoch = 0, turn = 0, noted = 0, owner = ''",
        )
        yield self

    def execute(self, *statements: str) -> None:
        async def execute() -> None:
            async with self.database.clients.one() as connection:
                await connection.execute(self._named("; ".join(statements)))

        self.run(execute())

    def _named(self, sql: str) -> str:
        return sql.replace("perdure.", f"{self.database.place.namespace}.")

    def connect(self, life: Life) -> Store:
        store: Any = AskedStore(self)
        return store  # type: ignore[no-any-return]

    def post(self, row: InboxRow, *, start: bytes | None = None, reuse: str = "") -> Posted:
        posted = self.run(self.database.queries.post(row, start=start, reuse=reuse))
        self.read_back()
        return posted

    @contextmanager
    def queries(self) -> Iterator[Queries]:
        queries: Any = AskedQueries(self)
        yield queries

    def close(self) -> None:
        self.run(self.database.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def read_back(self) -> None:
        """Make `rows` what the server holds. The journal only grows, so only its end is read."""
        self.run(self._read_back())

    async def _read_back(self) -> None:
        sql, rows = self.database.sql, self.rows
        async with self.database.clients.one() as connection:
            read = connection.fetch
            rows.epoch = await connection.fetchval(self._named("SELECT epoch FROM perdure.shards"))
            for row in await read(self._named(NEW_JOURNAL), rows.journal[-1].seq if rows.journal else 0):
                rows.journal.append(JournalRow(*row))
                rows.histories.setdefault(row[1], []).append(rows.journal[-1])
            rows.heads = {row[0]: HeadRow(*row) for row in await read(sql.all_heads)}
            rows.names = {(head.workflow, head.key): head.id for head in rows.heads.values()}
            rows.tags = {TagRow(*row): None for row in await read(sql.all_tags)}
            rows.counts = Counter({(row[0], row[1], row[2]): row[3] for row in await read(sql.counts)})
            rows.work = {row[0]: WorkRow(*row) for row in await read(sql.all_work)}
            rows.work_order = sorted((work.due, work.intent) for work in rows.work.values())
            inbox = [InboxRow(*row) for row in await read(sql.undelivered)]
            rows.inbox = {row.id: (place, row) for place, row in enumerate(inbox)}
            rows.jobs = {row[0]: JobRow(*row) for row in await read(sql.all_jobs)}
            rows.snapshots = {row[0]: SnapshotRow(*row) for row in await read(self._named(SNAPSHOTS))}
            published = await read(sql.all_published)
            rows.published = {(instance, name.decode()): unseal(value) for instance, name, value in published}
            tasks, candidates = await read(sql.all_tasks), await read(sql.all_candidates)
            rows.tasks = tasks_of((TaskRow(*row) for row in tasks), (CandidateRow(*row) for row in candidates))
        rows.workflows = await self.database.queries.workflows()


class AskedStore:
    """A store whose callers wait: it calls back on their thread, before it returns. No worker takes part."""

    workers = False

    def __init__(self, disk: PostgresDisk) -> None:
        self._disk = disk
        self._store = disk.run(self._made())

    async def _made(self) -> Any:
        return self._disk.database.store(0)

    def __getattr__(self, name: str) -> Any:
        question = getattr(self._store, name)
        return lambda *arguments: self._ask(question, 1, *arguments)

    def _ask(self, question: Callable[..., None], answers: int, *arguments: Any) -> None:
        *given, done = arguments
        heard: list[Any] = []
        all_heard: Future[None] = Future()

        def hear(*answer: Any) -> None:
            heard.append(answer)
            if len(heard) == answers:
                all_heard.set_result(None)

        if answers:
            self._disk._loop.call_soon_threadsafe(lambda: question(*given, hear))
            all_heard.result(60)
        for answer in heard:
            done(*answer)

    def acquire(self, owner: str, done: Callable[..., None]) -> None:
        """The lease of an owner ends at once: in virtual time it has died long ago, or it is to become a zombie."""
        self._disk.execute("UPDATE perdure.shards SET owner = ''")
        self._ask(self._store.acquire, 1, owner, self._after_reading(done))

    def commit(self, batch: Batch, done: Callable[..., None]) -> None:
        self._ask(self._store.commit, 1, batch, self._after_reading(done))

    def _after_reading(self, done: Callable[..., None]) -> Callable[..., None]:
        def heard(*answer: Any) -> None:
            self._disk.read_back()
            done(*answer)

        return heard

    def load(self, refs: Sequence[Ref], done: Callable[..., None]) -> None:
        self._ask(self._store.load, len(refs), refs, done)

    def measure(self, figures: Any) -> None:
        """What is measured in virtual time is not told."""

    def listen(self, framed: Any) -> None:
        self._store.listen(framed)

    def release(self) -> None:
        async def release() -> None:
            self._store.release()
            await self._disk.database.rest()

        self._disk.run(release())

    def close(self) -> None:
        self._disk._loop.call_soon_threadsafe(self._store.close)


class AskedQueries:
    """The queries of a database, for the loop of a caller."""

    def __init__(self, disk: PostgresDisk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._disk.database.queries, name)

        async def asked(*arguments: Any, **options: Any) -> Any:
            question = method(*arguments, **options)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(question, self._disk._loop))

        return asked
