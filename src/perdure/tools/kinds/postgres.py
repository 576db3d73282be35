"""The tool `postgres`: SQL on a server, over psycopg. A withdrawn call cancels its statement."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from ..tool import Told, Tool, ToolCall, ToolError
from .sql import DATABASE, TEXT, Found, SqlParams, bound, dsn_of, result, statements, values

ONCE: Final = "create table if not exists perdure_once (key text primary key, result text)"


class PostgresParams(SqlParams):
    """Run SQL in PostgreSQL, in one transaction."""


async def run(params: PostgresParams, call: ToolCall) -> Told:
    POSTGRES.require()
    import psycopg

    dsn = dsn_of(params, call)
    try:
        connection = await psycopg.AsyncConnection.connect(dsn, connect_timeout=max(int(call.timeout), 1))
    except psycopg.Error as error:
        raise ToolError("connect", f"PostgreSQL does not answer: {_line(error)}", retryable=True) from None
    try:
        async with connection:
            return Told(await _transaction(connection, params, call), {"sql": {"sqlstate": None}})
    except psycopg.Error as error:
        lost = isinstance(error, psycopg.OperationalError)
        state = getattr(error, "sqlstate", None)
        retryable = lost or state in ("40001", "40P01")
        kind = "connect" if lost and state is None else "sql_error"
        raise ToolError(kind, _line(error), retryable=retryable, more={"sql": {"sqlstate": state}}) from None


async def _transaction(connection: Any, params: PostgresParams, call: ToolCall) -> Any:
    cursor = connection.cursor()
    if params.exactly_once:
        await cursor.execute("select to_regclass('perdure_once')")
        if (await cursor.fetchone())[0] is None:
            await cursor.execute("select pg_advisory_xact_lock(8246719305)")
            await cursor.execute(ONCE)
            await connection.commit()
        key = (call.idempotency_key,)
        await cursor.execute("insert into perdure_once (key) values (%s) on conflict do nothing returning key", key)
        if await cursor.fetchone() is None:  # another delivery of this call has committed
            await cursor.execute("select result from perdure_once where key = %s", key)
            return json.loads((await cursor.fetchone())[0])
    found = result(await _statements(cursor, params), params)
    if params.exactly_once:
        told = msgspec.json.encode(found).decode()
        await cursor.execute("update perdure_once set result = %s where key = %s", (told, call.idempotency_key))
        found = json.loads(told)
    return found


async def _statements(cursor: Any, params: PostgresParams) -> Found:
    found, texts = Found(), statements(params)
    if params.script is not None:
        await cursor.execute(params.script)
        while cursor.nextset():
            pass
        return await _found(cursor, params)
    for text in texts:
        written, names = bound(text, lambda name: f"%({name})s", "%%")
        given = {name: _adapted(value) for name, value in values(params, names).items()}
        await cursor.execute(written if given else text, given or None)
        while cursor.nextset():  # a text without values may have several statements
            pass
        found = await _found(cursor, params)
    return found


async def _found(cursor: Any, params: PostgresParams) -> Found:
    if cursor.description is None:
        return Found([], [], max(cursor.rowcount, 0))
    rows = [list(row) for row in await cursor.fetchmany(params.max_rows + 1)]
    return Found([each.name for each in cursor.description], rows, len(rows))


def _adapted(value: Any) -> Any:
    """Maps, and lists with maps or lists in them, are JSON; a list of scalars is an array."""
    from psycopg.types.json import Jsonb

    nested = isinstance(value, list) and any(isinstance(item, list | dict) for item in value)
    return Jsonb(value, dumps=msgspec.json.encode) if nested or isinstance(value, dict) else value


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:1000]


POSTGRES: Final = Tool("postgres", PostgresParams, run, ("psycopg", "sql"), (TEXT, DATABASE))
