"""Making a database, bringing it up to date, and looking whether it is: with one connection, every failure in words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from perdure.errors import CallerError
from perdure.kernel.placement import SHARDS_MAX

from . import schema
from .connections import DatabasePlace, connect
from .failures import FAILURES, open_error
from .pooler import refuse_transaction_mode
from .statements import NAMESPACE, refuse_name, statements


class Upgraded(msgspec.Struct, frozen=True):
    """What was done: from which version (0: there was nothing) to which."""

    name: str  # of the database, without its password
    before: int
    version: int
    shards: int


async def upgrade(url: str, namespace: str | None = None, *, shards: int | None = None) -> Upgraded:
    """Make the schema, or bring it to the newest version: all of it, or nothing."""
    _check_shards(shards)
    place = DatabasePlace(url, namespace)
    async with _connected(place) as connection:
        before = await schema.upgrade(connection, place.name, place.namespace, shards)
        return Upgraded(place.name, before, schema.VERSION, await _shards(connection, place))


async def upgrade_script(url: str, namespace: str | None = None, *, shards: int | None = None) -> str:
    """The SQL that `upgrade` would execute; empty if there is nothing to do."""
    _check_shards(shards)
    place = DatabasePlace(url, namespace)
    async with _connected(place) as connection:
        before = await schema.version_of(connection, place.namespace)
    return schema.script(place.namespace, before, shards) if before < schema.VERSION else ""


def new_script(namespace: str | None = None, *, shards: int | None = None) -> str:
    """The SQL that makes a new database."""
    _check_shards(shards)
    refuse_name(namespace or NAMESPACE)
    return schema.script(namespace or NAMESPACE, 0, shards)


async def checked(place: DatabasePlace) -> int:
    """The number of shards of a database that has the schema it should have."""
    async with _connected(place) as connection:
        await schema.check(connection, place.name, place.namespace)
        return await _shards(connection, place)


async def _shards(connection: Any, place: DatabasePlace) -> int:
    return int(await connection.fetchval(statements(place.namespace).shard_count))


@asynccontextmanager
async def _connected(place: DatabasePlace) -> AsyncIterator[Any]:
    try:
        connection = await connect(place)
        try:
            await refuse_transaction_mode(place, connection)
            yield connection
        finally:
            connection.terminate()
    except (*FAILURES, ValueError) as error:
        raise open_error(place.name, error) from error


def _check_shards(shards: int | None) -> None:
    if shards is not None and not 0 < shards <= SHARDS_MAX:
        raise CallerError(f"a database has 1 to {SHARDS_MAX} shards, not {shards}")
