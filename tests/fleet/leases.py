"""Who has which shards, as the database knows it."""

from collections import Counter

import asyncpg

from tests.fleet.processes import EngineProcess, until

SHARDS = 16


async def leases(url: str) -> list[tuple[int, float]]:
    """The process that has each shard (0: nobody), and the second of the database's clock when its lease expires."""
    base, _, schema = url.partition("schema=")
    connection = await asyncpg.connect(base.rstrip("?&"))
    try:
        rows = await connection.fetch(
            f"""SELECT CASE WHEN expires > now() THEN pid ELSE 0 END, coalesce(extract(epoch FROM expires)::float, 0)
            FROM {schema}.shards LEFT JOIN {schema}.engines ON name = owner"""
        )
    finally:
        await connection.close()
    return [(pid, expires) for pid, expires in rows]


async def owners(url: str) -> Counter[int]:
    """How many shards each process has; 0: nobody."""
    return Counter(pid for pid, _ in await leases(url))


async def renewed(url: str) -> None:
    """Wait until every lease that there is now has been renewed."""
    now = max(expires for _, expires in await leases(url))

    async def are_later() -> bool:
        return all(expires > now for _, expires in await leases(url))

    await until(are_later)


async def shared(url: str, *engines: EngineProcess) -> None:
    """Wait until each has its fair share."""
    fair = -(-SHARDS // len(engines))

    async def is_fair() -> bool:
        found = await owners(url)
        return set(found) == {engine.pid for engine in engines} and max(found.values()) <= fair

    await until(lambda: all(engine.is_ready for engine in engines))
    await until(is_fair)
