"""Moving: a stopped world goes from one database into another, an empty one, and is compared there.

The journal goes as it is, byte for byte; every index is made from it again, so that a copy is a replay. Both databases
are leased when it begins: no engine may run on either. What is not complete cannot be opened: a file has its name only
then, and a server's database is marked until then. Memory is that of the journal.

A file has one shard, and so has a PostgreSQL database that it was copied into: the number of an entry names its shard.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from perdure.app.urls import is_server, path_of
from perdure.errors import CallerError, CannotOpen, EngineRunning, NotEmpty, StoreError, StoreFailed
from perdure.kernel.batch import Batch, PublishedRow
from perdure.kernel.placement import place
from perdure.kernel.rows import add_heads
from perdure.ports.store import Filter, Queries, Store
from perdure.stores.answers import asked
from perdure.stores.copy import copied
from perdure.stores.journal import pages
from perdure.stores.memory import MemoryDatabase

T = TypeVar("T")

PAGE: Final = 1000

Progress = Callable[[str, int, int], None]
"""What is being written, how much of it is, and how much there is."""


class MoveCounts(msgspec.Struct, frozen=True):
    """What was copied, and found to be the same there."""

    entries: int
    instances: int
    inbox: int
    blobs: int
    shards: int


class Side:
    """One of the two databases, with the leases of all its shards. `mark`: no engine opens a marked one."""

    def __init__(self, queries: Queries, stores: list[Store], mark: Callable[[bool], Awaitable[None]]) -> None:
        self.queries = queries
        self.stores = stores
        self.mark = mark

    def store_of(self, seq: int) -> Store:
        return self.stores[place(seq, len(self.stores))]


async def move(
    source: str | os.PathLike[str], target: str | os.PathLike[str], told: Progress | None = None
) -> MoveCounts:
    """Copy a stopped world into an empty database, which is made if it does not exist. The source stays as it is."""
    tell = told or (lambda what, done, total: None)
    if str(source) == str(target):
        raise CallerError(f"{_name(source)} is to be copied into itself: name another target")
    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(_leased(source, create=0))
        into = await stack.enter_async_context(_leased(target, create=len(origin.stores)))
        if await into.queries.journal(0, 1) or await into.queries.heads(Filter(limit=1)):
            raise NotEmpty(f"{_name(target)} is not empty: a copy needs a database without instances")
        database = await copied(origin.queries)
        await into.mark(True)
        await _write(database, into, tell)
        blobs = await _copy_blobs(origin.queries, into.queries)
        for row in database.world_snapshots.values():
            await into.queries.add_world_snapshot(row)
        await _compare(origin.queries, into.queries, len(database.journal), tell)
        await into.mark(False)
        return MoveCounts(len(database.journal), len(database.heads), len(database.inbox), blobs, len(into.stores))


async def _write(database: MemoryDatabase, into: Side, tell: Progress) -> None:
    for store in into.stores:
        await asked(store.register, list(database.workflows))
    total = len(database.journal)
    written = 0
    for store in into.stores:
        mine = [row for row in database.journal if into.store_of(row.seq) is store]
        for rows in _parts(mine):
            batch = Batch()
            batch.journal = rows
            batch.size = sum(len(row.body) for row in rows)
            await asked(store.commit, batch)
            written += len(rows)
            tell("entries", written, total)
        for batch in _indexes(database, lambda id, store=store: into.store_of(id) is store):  # type: ignore[misc]
            await asked(store.commit, batch)
        batch = Batch()
        batch.snapshots = {id: row for id, row in database.snapshots.items() if into.store_of(id) is store}
        if store is into.stores[0]:
            arrived = sorted(database.inbox.values(), key=lambda pair: pair[0])
            batch.outbox = [row for _, row in arrived]  # each goes to its own shard
        await asked(store.commit, batch)


def _indexes(database: MemoryDatabase, mine: Callable[[int], bool]) -> Iterator[Batch]:
    for heads in _parts([head for head in database.heads.values() if mine(head.id)]):
        batch = Batch()
        add_heads(batch, heads)
        yield batch
    for works in _parts([work for work in database.work.values() if mine(work.instance)]):
        batch = Batch()
        batch.work_opened = {work.intent: work for work in works}
        yield batch
    for jobs in _parts([job for job in database.jobs.values() if mine(job.instance)]):
        batch = Batch()
        batch.jobs_opened = {job.intent: job for job in jobs}
        yield batch
    for values in _parts([(key, value) for key, value in database.published.items() if mine(key[0])]):
        batch = Batch()
        batch.published = {key: PublishedRow(*key, value) for key, value in values}
        yield batch
    for tasks in _parts([task for task in database.tasks.values() if mine(task.row.id)]):
        batch = Batch()
        batch.tasks = {task.row.id: task for task in tasks}
        yield batch


def _parts(rows: list[T]) -> Iterator[list[T]]:
    rest = iter(rows)
    while part := list(islice(rest, PAGE)):
        yield part


async def _copy_blobs(origin: Queries, into: Queries) -> int:
    count, after = 0, b""
    while rows := await origin.blobs(after, 100):
        after = rows[-1].digest
        for row in rows:
            body = await origin.blob(row.digest)
            if body is not None:
                await into.put_blobs([body], row.at)
                count += 1
    return count


async def _compare(origin: Queries, into: Queries, total: int, tell: Progress) -> None:
    """The same journal, byte for byte; and indexes that a replay of it gives."""
    seen = 0
    async for rows in pages(origin, 0):
        if rows != await into.journal(rows[0].seq - 1, len(rows)):
            raise StoreFailed(f"the copy differs from the original near entry {rows[0].seq}; do not use it")
        seen += len(rows)
        tell("entries compared", seen, total)
    if await into.journal(rows[-1].seq if seen else 0, 1):
        raise StoreFailed("the copy has entries that the original has not; do not use it")
    problems = await into.check()
    if problems:
        raise StoreFailed(f"the copy does not replay: {problems[0]}; do not use it")


# ---- databases -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _leased(url: str | os.PathLike[str], *, create: int) -> AsyncIterator[Side]:
    """`create`: a target, which is made with so many shards if it is not there."""
    async with AsyncExitStack() as stack:
        owner = f"perdure copy {socket.gethostname()}:{os.getpid()}:{os.urandom(3).hex()}"
        open_side = _server(str(url), create, owner) if is_server(url) else _file(url, create)
        side = await stack.enter_async_context(open_side)
        for store in side.stores:
            try:
                await asked(store.acquire, owner)
            except EngineRunning as error:
                raise EngineRunning(f"{error}; a world is copied while no engine runs") from None
            stack.callback(store.release)
        yield side


@asynccontextmanager
async def _file(url: str | os.PathLike[str], create: int) -> AsyncIterator[Side]:
    from perdure.stores.sqlite import SqliteStore
    from perdure.stores.sqlite.appearing import appearing

    path = path_of(url)
    if path == ":memory:":
        raise CannotOpen("a :memory: database lives in one process; it cannot be copied")
    if not create and not Path(path).exists():  # noqa: ASYNC240
        raise CannotOpen(f"there is no database {path}")
    with appearing(path) if create else nullcontext(path) as name, closing(SqliteStore(name)) as store:
        yield Side(store, [store], _unmarked)


async def _unmarked(unfinished: bool) -> None:
    """A file has no name before it is complete."""


@asynccontextmanager
async def _server(url: str, create: int, owner: str) -> AsyncIterator[Side]:
    from perdure.stores.postgres import PostgresDatabase, upgrade

    if create:
        await upgrade(url, shards=create)
    database = await PostgresDatabase.open(url)
    try:
        stores: list[Store] = [database.store(number) for number in range(database.shards)]
        yield Side(database.queries, stores, database.mark_unfinished)
    finally:
        with suppress(StoreError):  # its lease expires by itself
            await database.leave(owner)
        await database.close()


def _name(url: Any) -> str:
    """Without a password."""
    text = str(url)
    scheme, found, rest = text.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if found else text
