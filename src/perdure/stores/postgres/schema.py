"""Which form a database has, and the way to the newest: made by `perdure db upgrade`, checked whenever it is opened.

The tables of a new database come from `schema.sql`, those of an older one by `migrations/`, one file for each
version. The functions are replaced as a whole. All of an upgrade is one transaction.
"""

import re
from typing import Any, Final

from perdure.errors import CallerError, CannotOpen, EngineRunning, NewerSchema

from .statements import quoted, text_of

VERSION: Final = 12
"""The number of the last file in `migrations/`."""

SHARDS: Final = 16
"""How many shards a new database gets, unless it is said otherwise."""

_FUNCTION = re.compile(r"^CREATE FUNCTION ([^\s(]+)", re.MULTILINE)


async def version_of(connection: Any, namespace: str) -> int:
    """0: there is nothing yet. Raises what PostgreSQL raises, when it may not be looked at."""
    if await connection.fetchval("SELECT to_regclass($1)", f"{quoted(namespace)}.migrations") is None:
        return 0
    return int(await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {quoted(namespace)}.migrations"))


UNFINISHED: Final = -1
"""A version that stands beside the others while `perdure copy` fills a database."""


async def mark_unfinished(connection: Any, namespace: str, unfinished: bool) -> None:
    table = f"{quoted(namespace)}.migrations"
    change = f"INSERT INTO {table} (version) VALUES ($1)" if unfinished else f"DELETE FROM {table} WHERE version = $1"
    await connection.execute(change, UNFINISHED)


async def check(connection: Any, where: str, namespace: str) -> None:
    """Raise unless the database has the form that this code knows."""
    version = await version_of(connection, namespace)
    if version and await connection.fetchval(
        f"SELECT EXISTS (SELECT FROM {quoted(namespace)}.migrations WHERE version = $1)", UNFINISHED
    ):
        raise CannotOpen(
            f"{where} is being filled by `perdure copy`, or that was cut: if none runs, drop the schema {namespace!r}, "
            "and copy again"
        )
    if version == 0:
        raise CannotOpen(f"{where} has no perdure schema {namespace!r} yet; make it: perdure db upgrade {where}")
    if version < VERSION:
        raise CannotOpen(
            f"{where} has schema {version}, this perdure {VERSION}; stop its engines, then: perdure db upgrade {where}"
        )
    if version > VERSION:
        raise NewerSchema(
            f"{where} has schema {version}, of a newer perdure (this one knows {VERSION}): upgrade; nothing was changed"
        )


async def upgrade(connection: Any, where: str, namespace: str, shards: int | None = None) -> int:
    """Bring a database to the newest schema, all steps or none; the answer is the version it had."""
    async with connection.transaction():
        # Two upgrades at once: the second waits, and finds nothing to do.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 48))", f"{namespace} upgrade")
        before = await version_of(connection, namespace)
        if before > VERSION:
            await check(connection, where, namespace)
        if before:
            await _check_shards(connection, where, namespace, shards)
        if before < VERSION:
            if before:
                await _check_idle(connection, where, namespace)
            exists = await connection.fetchval("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", namespace)
            await connection.execute(script(namespace, before, shards, create=not exists))
    return before


def script(namespace: str, before: int = 0, shards: int | None = None, *, create: bool = True) -> str:
    """The SQL that leads from a version to the newest."""
    parts = []
    if create and before == 0:  # a namespace that was made for us may be all that we may write to
        parts.append(f"CREATE SCHEMA {quoted(namespace)};\n")
    steps = [f"migrations/{number:04}.sql" for number in range(before + 1, VERSION + 1)] if before else ["schema.sql"]
    parts += [text_of(step, namespace) for step in steps]
    functions = text_of("functions.sql", namespace)
    if before:
        parts.append("".join(f"DROP FUNCTION IF EXISTS {name};\n" for name in _FUNCTION.findall(functions)))
    parts.append(functions)
    name = quoted(namespace)
    if before == 0:
        count = SHARDS if shards is None else shards
        parts.append(f"INSERT INTO {name}.shards (shard) SELECT generate_series(0, {count} - 1);\n")
    parts.append(f"INSERT INTO {name}.migrations (version) SELECT generate_series({before + 1}, {VERSION});\n")
    return "\n".join(parts)


async def _check_shards(connection: Any, where: str, namespace: str, shards: int | None) -> None:
    count = await connection.fetchval(f"SELECT count(*) FROM {quoted(namespace)}.shards")
    if shards is not None and shards != count:
        raise CallerError(
            f"{where} has {count} shards, and not {shards}: their number is given when a database is made, and stays; "
            "to have another, make a new database and move to it"
        )


async def _check_idle(connection: Any, where: str, namespace: str) -> None:
    """Asked of the old form: an engine has had its row in `engines` since the first."""
    engine = await connection.fetchval(f"SELECT name FROM {quoted(namespace)}.engines WHERE expires > now() LIMIT 1")
    if engine is not None:
        raise EngineRunning(f"{engine} runs on {where}; stop all engines first: nothing was changed")
