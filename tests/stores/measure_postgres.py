"""How fast the PostgreSQL store is, against what it stands on: `python -m tests.stores.measure_postgres [off]`.

Read the ratio, not the numbers: both its sides are measured in turns, in the same run, on the same server. The raw side
is one connection of asyncpg, a prepared INSERT into the same table, and nothing else.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from statistics import median
from typing import Any

import asyncpg

from perdure.app import run_async
from perdure.codec import seal
from perdure.kernel.batch import Batch, JournalRow
from perdure.kernel.events import Ref
from perdure.stores.postgres import PostgresDatabase, PostgresStore
from perdure.testing.stores import head
from tests.postgres import server

BODY = seal(b"x" * 215)


async def raw_commits(url: str) -> Callable[[int], Awaitable[None]]:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "DROP TABLE IF EXISTS raw; CREATE TABLE raw (seq bigint PRIMARY KEY, instance bigint, at bigint, body bytea);"
        "CREATE INDEX raw_by_instance ON raw (instance, seq)"
    )
    insert = await connection.prepare("INSERT INTO raw VALUES ($1, $2, $3, $4)")
    numbers = count(1)

    async def run(times: int) -> None:
        for _ in range(times):
            seq = next(numbers)
            await insert.fetch(seq, seq % 50, seq, BODY)

    return run


def store_commits(
    store: PostgresStore, numbers: Any, size: int, heads: bool = False
) -> Callable[[int], Awaitable[None]]:
    def batch() -> Batch:
        made = Batch()
        made.journal = [JournalRow(seq, seq % 50, seq, BODY) for seq, _ in zip(numbers, range(size), strict=False)]
        if heads:
            made.heads = {row.seq: head(row.seq) for row in made.journal}
        return made

    async def run(times: int) -> None:
        """As a shard does it: the next commit is begun where the last one is heard of."""
        ended = asyncio.get_running_loop().create_future()
        left = times

        def done(error: Exception | None) -> None:
            nonlocal left
            left -= 1
            if error is not None or not left:
                ended.set_result(error)
            else:
                store.commit(batch(), done)

        store.commit(batch(), done)
        error = await ended
        assert error is None, error

    return run


async def answer(question: Callable[..., None], *arguments: Any) -> Any:
    found = asyncio.get_running_loop().create_future()
    question(*arguments, found.set_result)
    return await found


async def rate(run: Callable[[int], Awaitable[None]], times: int) -> float:
    began = time.perf_counter()
    await run(times)
    return times / (time.perf_counter() - began)


def main(disk: str = "on") -> None:
    """`off`: the disk is not waited for, so that only the CPU counts."""
    found = server()
    if found.data is not None:
        found.execute(f"ALTER SYSTEM SET fsync = {disk}", "SELECT pg_reload_conf()", "SELECT pg_sleep(0.5)")
    with found.schema(shards=1) as url:
        run_async(lambda: measure(found.url, url))


async def measure(plain: str, url: str) -> None:
    database = await PostgresDatabase.open(url, lease=3600)
    store = database.store(0)
    await answer(store.acquire, "measure")
    numbers = count(1)
    raw, ours, wide = (
        await raw_commits(plain),
        store_commits(store, numbers, 1),
        store_commits(store, numbers, 1, True),
    )
    for run in (raw, ours, wide):
        await run(100)
    rows = [[await rate(run, 50) for run in (raw, ours, wide)] for _ in range(40)]
    print(f"raw single-row commits/s        {median(row[0] for row in rows):10,.0f}")
    print(f"store, one entry a commit       {median(row[1] for row in rows):10,.0f}")
    print(f"ratio                           {median(row[1] / row[0] for row in rows):10.2f}")
    print(f"with a head (the function)      {median(row[2] for row in rows):10,.0f}")
    print(f"ratio                           {median(row[2] / row[0] for row in rows):10.2f}")
    for size in (50, 500):
        run = store_commits(store, numbers, size)
        print(f"rows/s in batches of {size:3}        {median([await rate(run, 20) * size for _ in range(5)]):10,.0f}")
    await loads(store, next(numbers))
    await database.close()


async def loads(store: PostgresStore, first: int) -> None:
    batch = Batch()
    for n in range(2000):
        id = first + 5 * n
        batch.journal += [JournalRow(id + k, id, id, BODY) for k in range(5)]
        batch.heads[id] = head(id)
    assert await answer(store.commit, batch) is None
    for size in (1, 100):
        refs: list[Ref] = [first + 5 * n for n in range(size)]

        async def load(times: int, refs: list[Ref] = refs) -> None:
            for _ in range(times):
                done: asyncio.Queue[object] = asyncio.Queue()
                store.load(refs, lambda ref, record, done=done: done.put_nowait(record))  # type: ignore[misc]
                for _ in refs:
                    await done.get()

        print(f"load of {size:3} with 5 entries, µs   {1e6 / median([await rate(load, 50) for _ in range(5)]):10,.0f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
