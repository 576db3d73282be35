"""Poolers between a process and its server: one that gives each transaction another session is found, and refused.

There listening, prepared statements and the settings of a session get lost, and with them the promise of a commit where
the server says `synchronous_commit = off`. A pooler in session mode is as good as a direct connection.
"""

import asyncio
import secrets
from typing import Any, Final

from perdure.errors import CannotOpen

from .connections import CONNECT_SECONDS, DatabasePlace, connect
from .failures import FAILURES

ROUNDS: Final = 3
"""How often it is looked. Once is enough, unless others use the pooler in the same moment."""


async def refuse_transaction_mode(place: DatabasePlace, connection: Any) -> None:
    """Raise `CannotOpen` if another connection can have the session of this one."""
    if await _is(connection, f"pg_backend_pid() = {connection.get_server_pid()}"):
        return  # a pooler answers for many servers, and names itself
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            shared = await _shares_sessions(place, connection)
    except FAILURES as error:  # there is no second session, or PgBouncer in statement mode lets no transaction begin
        shared = "statement pooling" in str(error)
    if shared:
        raise CannotOpen(
            f"{place.name} is a pooler in transaction or statement mode, where sessions are shared: set "
            "pool_mode = session, or connect to the server itself"
        )


async def _shares_sessions(place: DatabasePlace, connection: Any) -> bool:
    token = secrets.token_hex(16)
    marked = f"current_setting('perdure.session', true) = '{token}'"
    await connection.execute(f"SET perdure.session = '{token}'")
    other = await connect(place)
    try:
        for _ in range(ROUNDS):
            await other.execute("BEGIN")
            if await _is(other, marked) or not await _is(connection, marked):
                return True
            await other.execute("ROLLBACK")
    finally:
        other.terminate()
    return False


async def _is(connection: Any, condition: str) -> bool:
    """By the simple protocol: prepared statements get lost where sessions are shared."""
    return bool(await connection.execute(f"SELECT WHERE {condition}") == "SELECT 1")
