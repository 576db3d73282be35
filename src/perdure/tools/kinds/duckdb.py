"""The tool `duckdb`: SQL over a file or over memory, in a thread. A withdrawn call is interrupted."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import msgspec

from ..tool import OneOf, Told, Tool, ToolCall, ToolError
from .sql import TEXT, Found, SqlParams, bound, dsn_of, result, statements, values

ONCE: Final = "create table if not exists perdure_once (key varchar primary key, result varchar not null)"


class DuckdbParams(SqlParams):
    """Run SQL in DuckDB, in one transaction. Without dsn the database is in memory."""


async def run(params: DuckdbParams, call: ToolCall) -> Told:
    dsn = ":memory:" if params.dsn is None and params.auth is None else dsn_of(params, call)
    opened: list[Any] = []
    loop = asyncio.get_running_loop()
    work = loop.run_in_executor(None, _perform, params, call, dsn, opened)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if opened:
            opened[0].interrupt()
        await asyncio.wait([work])
        raise


def _perform(params: DuckdbParams, call: ToolCall, dsn: str, opened: list[Any]) -> Told:
    DUCKDB.require()
    import duckdb

    try:
        connection = duckdb.connect(dsn.removeprefix("duckdb:///"))
    except duckdb.Error as error:
        raise ToolError("connect", f"the DuckDB file cannot be opened: {error}", retryable=True) from None
    opened.append(connection)
    try:
        return Told(_transaction(connection, params, call), {"sql": {"sqlstate": None}})
    except duckdb.Error as error:
        raise ToolError("sql_error", str(error), more={"sql": {"sqlstate": type(error).__name__}}) from None
    finally:
        connection.close()


def _transaction(connection: Any, params: DuckdbParams, call: ToolCall) -> Any:
    if params.exactly_once:
        connection.execute(ONCE)
    connection.execute("begin transaction")
    try:
        if params.exactly_once:
            kept = connection.execute(
                "select result from perdure_once where key = ?", [call.idempotency_key]
            ).fetchall()
            if kept:
                connection.execute("rollback")
                return json.loads(kept[0][0])
        found = result(_statements(connection, params), params)
        if params.exactly_once:
            told = msgspec.json.encode(found).decode()
            connection.execute("insert into perdure_once values (?, ?)", [call.idempotency_key, told])
            found = json.loads(told)
        connection.execute("commit")
        return found
    except BaseException:
        connection.execute("rollback")
        raise


def _statements(connection: Any, params: DuckdbParams) -> Found:
    found = Found()
    for text in statements(params):
        written, names = bound(text, lambda name: f"${name}")
        given = values(params, names)
        cursor = connection.execute(written, given or None)
        columns = [each[0] for each in cursor.description or ()]
        rows = [list(row) for row in cursor.fetchmany(params.max_rows + 1)] if columns else []
        changed = len(rows) == 1 and columns == ["Count"]
        found = Found([], [], rows[0][0]) if changed else Found(columns, rows, len(rows))
    return found


DUCKDB: Final = Tool("duckdb", DuckdbParams, run, ("duckdb", "duckdb"), (TEXT, OneOf(("dsn", "auth"), needed=False)))
