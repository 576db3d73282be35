"""Lists as files: every row of a filter, as JSON lines or as CSV. Rows are sent page by page."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from typing import Any, Final, Literal

import msgspec

from perdure.views.lists import PAGE_MAX, check_order, page
from perdure.views.where import Where, to_text, with_statuses

from ..calling import Calling
from ..http import Answer
from ..problems import HttpProblem
from ..reading import no_such
from ..rendering import iso
from .instances import ListedHead, ListQuery, listed_page, shows, where_of

COLUMNS: Final = tuple(name for name in ListedHead.__struct_fields__ if name != "parent")
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a cell begins with that a spreadsheet would run."""

MEDIA: Final = {"jsonl": "application/jsonl", "csv": "text/csv; charset=utf-8"}


class ExportQuery(ListQuery, frozen=True):
    """`columns`: fields of a row, and `tag.NAME`; without it all fields. `limit` 0: all rows."""

    limit: int = 0
    format: Literal["jsonl", "csv"] = "jsonl"
    columns: tuple[str, ...] = ()


async def export(calling: Calling, given: ExportQuery) -> Answer:
    where = where_of(given)
    columns = [name for each in given.columns for name in each.split(",")]
    for name in columns:
        if name not in COLUMNS and not name.startswith("tag."):
            raise HttpProblem(422, "bad-request", no_such("column", name, [*COLUMNS, "tag.NAME"]), where="/columns")
    if given.limit < 0 or given.cursor:
        wrong = "cursor" if given.cursor else "limit"
        text = "a list is downloaded from its beginning, `limit` rows of it or, with 0, all"
        raise HttpProblem(422, "bad-request", text, where=f"/{wrong}")
    if given.order == "-changed":  # before anything is sent
        check_order(with_statuses(where))
    rows = _rows(calling, where, given)
    calling.accesses.note("export", calling.login.actor, q=to_text(where)[:500], format=given.format)
    made = _csv(rows, columns) if given.format == "csv" else _lines(rows, columns)
    headers = [("content-disposition", f'attachment; filename="instances.{given.format}"')]
    return Answer(200, b"", MEDIA[given.format], headers, made)


async def _rows(calling: Calling, where: Where, given: ExportQuery) -> AsyncIterator[list[ListedHead]]:
    left, before = given.limit or None, None
    oldest, by_change = given.order == "started", given.order == "-changed"
    visible = shows(calling, where)
    while True:
        size = PAGE_MAX if left is None else min(PAGE_MAX, left)
        found = await page(calling.client.queries, where, visible, size, before, oldest=oldest, by_change=by_change)
        yield await listed_page(calling, found.heads)
        before = found.next
        left = None if left is None else left - len(found.heads)
        if before is None or left == 0:
            return


async def _lines(rows: AsyncIterator[list[ListedHead]], columns: list[str]) -> AsyncIterator[bytes]:
    async for part in rows:
        documents = [each if not columns else {name: _value(each, name) for name in columns} for each in part]
        yield b"".join([msgspec.json.encode(each) + b"\n" for each in documents])


async def _csv(rows: AsyncIterator[list[ListedHead]], columns: list[str]) -> AsyncIterator[bytes]:
    names = columns or list(COLUMNS)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow([harmless(name) for name in names])
    async for part in rows:
        writer.writerows([[harmless(_text(_value(each, name))) for name in names] for each in part])
        yield file.getvalue().encode()
        file.seek(0)
        file.truncate()


def _value(row: ListedHead, column: str) -> Any:
    return row.tags.get(column.removeprefix("tag."), "") if column.startswith("tag.") else getattr(row, column)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return ""
    if isinstance(value, dict):
        return " ".join(f"{name}={_text(each)}" for name, each in sorted(value.items()))
    return iso(value) if hasattr(value, "astimezone") else str(value)


def harmless(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
