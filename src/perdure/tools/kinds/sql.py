"""What the SQL tools share: parameters, names of bound values, results, and `exactly_once`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec

from perdure.codec import to_plain

from ..tool import OneOf, ToolCall, ToolError

MAX_ROWS: Final = 10_000


def _about(text: str, **extra: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra=extra or None)


class SqlParams(msgspec.Struct):
    """Run SQL in one transaction. The result is that of the last statement: rows, row_count and columns."""

    dsn: Annotated[str | None, _about("the database; or `auth`, the name of a connection")] = None
    auth: Annotated[Any, _about("a connection of the engine")] = None
    query: Annotated[str | None, _about("one statement; values are bound as `:name`", sql=True)] = None
    commands: Annotated[str | list[str] | None, _about("statements, with the same values", sql=True)] = None
    script: Annotated[str | None, _about("statements without values", sql=True)] = None
    params: Annotated[dict[str, Any] | None, _about("the values that are bound")] = None
    max_rows: Annotated[int, _about("more rows are an error")] = MAX_ROWS
    exactly_once: Annotated[bool, _about("the key of the call and its result are kept in that transaction")] = False


TEXT: Final = OneOf(("query", "commands", "script"))
DATABASE: Final = OneOf(("dsn", "auth"))


class Found(msgspec.Struct):
    """Rows of the last statement that gave some."""

    columns: list[str] = []
    rows: list[list[Any]] = []
    row_count: int = 0


def dsn_of(params: SqlParams, call: ToolCall) -> str:
    given = params.dsn
    if given is None and isinstance(params.auth, str):
        given = call.connection(params.auth)
    if isinstance(given, dict):
        given = given.get("dsn")
    if not isinstance(given, str) or not given:
        raise ToolError("bad_parameters", "SQL needs dsn, or auth with the name of a connection")
    return given


def statements(params: SqlParams) -> list[str]:
    """The statements; a script is one text with several in it."""
    if params.query is not None:
        return [params.query]
    if params.commands is None:
        return [str(params.script)]
    return [params.commands] if isinstance(params.commands, str) else params.commands


_PART: Final = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\1\$
    | :: | :(?P<name>[A-Za-z_]\w*) | %""",
    re.VERBOSE | re.DOTALL,
)


def bound(text: str, write: Callable[[str], str], percent: str = "%") -> tuple[str, list[str]]:
    """The text with each `:name` as the database writes it, and the names. Quotes, comments and casts stay."""
    names: list[str] = []

    def replace(found: re.Match[str]) -> str:
        if found["name"] is not None:
            names.append(found["name"])
            return write(found["name"])
        return found[0].replace("%", percent) if "%" in found[0] else found[0]

    return _PART.sub(replace, text), names


def values(params: SqlParams, names: list[str]) -> dict[str, Any]:
    given: Mapping[str, Any] = params.params or {}
    missing = sorted(set(names) - set(given))
    if missing:
        raise ToolError("bad_parameters", f"the statement has :{missing[0]}, and params has not")
    return {name: given[name] for name in names}


def as_json(value: Any) -> Any:
    """Lists and maps as JSON text: for databases that bind scalars only."""
    return json.dumps(value, default=str) if isinstance(value, list | dict) else value


def result(found: Found, params: SqlParams) -> dict[str, Any]:
    if len(found.rows) > params.max_rows:
        raise ToolError(
            "too_large", f"the statement gives more than {params.max_rows:,} rows; raise max_rows, or limit it"
        )
    rows = [dict(zip(found.columns, map(_plain, row), strict=False)) for row in found.rows]
    return {"rows": rows, "row_count": found.row_count, "columns": found.columns}


def _plain(value: Any) -> Any:
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    try:
        return to_plain(value)
    except Exception:
        return str(value)
