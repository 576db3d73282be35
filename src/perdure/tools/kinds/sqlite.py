"""The tool `sqlite`: SQL in a file, in a thread. A withdrawn call is interrupted."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import apsw
import msgspec

from ..tool import Told, Tool, ToolCall, ToolError
from .sql import DATABASE, TEXT, Found, SqlParams, as_json, bound, dsn_of, result, statements, values

ONCE: Final = "create table if not exists perdure_once (key text primary key, result text not null)"


class SqliteParams(SqlParams):
    """Run SQL in a SQLite file, in one transaction."""


async def run(params: SqliteParams, call: ToolCall) -> Told:
    connection: list[apsw.Connection] = []
    loop = asyncio.get_running_loop()
    work = loop.run_in_executor(None, _perform, params, call, dsn_of(params, call), connection)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if connection:
            connection[0].interrupt()
        await asyncio.wait([work])
        raise


def _perform(params: SqliteParams, call: ToolCall, dsn: str, opened: list[apsw.Connection]) -> Told:
    path = dsn.removeprefix("sqlite:///").removeprefix("sqlite://")
    try:
        connection = apsw.Connection(path)
    except apsw.Error as error:
        raise ToolError("connect", f"the SQLite file cannot be opened: {error}", retryable=True) from None
    opened.append(connection)
    try:
        connection.set_busy_timeout(int(max(call.timeout, 0.1) * 1000))
        return Told(_transaction(connection, params, call), {"sql": {"sqlstate": None}})
    except apsw.BusyError as error:
        raise ToolError("connect", f"the SQLite file is locked: {error}", retryable=True) from None
    except apsw.Error as error:
        raise ToolError("sql_error", str(error), more={"sql": {"sqlstate": type(error).__name__}}) from None
    finally:
        connection.close()


def _transaction(connection: apsw.Connection, params: SqliteParams, call: ToolCall) -> Any:
    connection.execute("begin immediate")
    try:
        if params.exactly_once:
            connection.execute(ONCE)
            kept = connection.execute(
                "select result from perdure_once where key = ?", (call.idempotency_key,)
            ).fetchall()
            if kept:
                connection.execute("rollback")
                return json.loads(str(kept[0][0]))
        found = result(_statements(connection, params), params)
        if params.exactly_once:
            told = msgspec.json.encode(found).decode()
            connection.execute("insert into perdure_once values (?, ?)", (call.idempotency_key, told))
            found = json.loads(told)
        connection.execute("commit")
        return found
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _statements(connection: apsw.Connection, params: SqliteParams) -> Found:
    found = Found()
    before = connection.total_changes()
    for text in statements(params):
        _, names = bound(text, lambda name: f":{name}")
        given = {name: as_json(value) for name, value in values(params, names).items()}
        found = _rows(connection, text, given, params.max_rows)
    found.row_count = len(found.rows) if found.columns else connection.total_changes() - before
    return found


def _rows(connection: apsw.Connection, text: str, given: dict[str, Any], most: int) -> Found:
    """The rows of the last statement in a text."""
    found = Found()
    cursor = connection.cursor()

    def begun(cursor: apsw.Cursor, text: str, given: Any) -> bool:
        found.columns = [each[0] for each in cursor.get_description()]
        found.rows = []
        return True

    cursor.exec_trace = begun
    for row in cursor.execute(text, given):
        found.rows.append(list(row))
        if len(found.rows) > most:
            break
    cursor.close(True)
    return found


SQLITE: Final = Tool("sqlite", SqliteParams, run, one_of=(TEXT, DATABASE))
