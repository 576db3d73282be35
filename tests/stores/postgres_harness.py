"""The store suite on PostgreSQL: the database lives on a loop in a thread, as the suite's tests have none."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

from perdure.kernel.batch import Batch
from perdure.kernel.events import Ref
from perdure.stores.postgres import PostgresDatabase
from perdure.testing.stores import flipped

T = TypeVar("T")


class PostgresHarness:
    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.database = self.run(PostgresDatabase.open(url))
        self.answers: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.asked = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    def open(self) -> Any:
        return Face(self, shard=0)

    def settle(self) -> None:
        while self.asked:
            self.answers.get(timeout=30)()
            self.asked -= 1

    def usurp(self) -> None:
        self.execute("UPDATE perdure.shards SET epoch = epoch + 1, owner = 'usurper' WHERE shard = 0")

    def damage(self, seq: int) -> None:
        self._flip("journal", "seq", seq)

    def damage_blob(self, digest: bytes) -> None:
        self._flip("blobs", "digest", digest)

    def _flip(self, table: str, column: str, key: Any) -> None:
        (body,) = self.execute(f"SELECT body FROM perdure.{table} WHERE {column} = $1", key)[0]
        self.execute(f"UPDATE perdure.{table} SET body = $1 WHERE {column} = $2", flipped(body), key)

    def empty(self) -> None:
        tables = (
            "journal",
            "instances",
            "tags",
            "counts",
            "open_work",
            "jobs",
            "inbox",
            "snapshots",
            "published",
            "workflows",
        )
        parts = [f"DELETE FROM perdure.{table}" for table in tables]
        parts.append("UPDATE perdure.shards SET epoch = 0, turn = 0, noted = 0, owner = ''")
        for part in parts:
            self.execute(part)

    def execute(self, sql: str, *arguments: Any) -> list[Any]:
        found: list[Any] = self.run(
            self._execute(sql.replace("perdure.", f"{self.database.place.namespace}."), *arguments)
        )
        return found

    async def _execute(self, sql: str, *arguments: Any) -> Any:
        async with self.database.clients.one() as connection:
            return await connection.fetch(sql, *arguments)

    def close(self) -> None:
        self.run(self.database.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Face:
    """Both faces of one shard. Answers are put aside, and called by `settle` on the thread of the test."""

    def __init__(self, harness: PostgresHarness, shard: int) -> None:
        self._harness = harness
        self._store = harness.run(self._made(shard))

    async def _made(self, shard: int) -> Any:
        return self._harness.database.store(shard)

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._store, name, None)
        if asked is not None:
            return lambda *arguments: self._ask(asked, 1, *arguments)
        method = getattr(self._harness.database.queries, name)
        return lambda *arguments, **options: self._awaited(method(*arguments, **options))

    def load(self, refs: Sequence[Ref], done: Callable[..., None]) -> None:
        self._ask(self._store.load, len(refs), refs, done)

    def commit(self, batch: Batch, done: Callable[..., None]) -> None:
        self._ask(self._store.commit, 1, batch, done)

    def _ask(self, question: Callable[..., None], answers: int, *arguments: Any) -> None:
        *asked, done = arguments
        self._harness.asked += answers
        self._harness.on_loop(question, *asked, lambda *answer: self._harness.answers.put(lambda: done(*answer)))

    async def _awaited(self, question: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(question, self._harness._loop))

    def release(self) -> None:
        self._harness.run(self._release())

    async def _release(self) -> None:
        self._store.release()
        await self._harness.database.rest()

    def close(self) -> None:
        self._harness.on_loop(self._store.close)
