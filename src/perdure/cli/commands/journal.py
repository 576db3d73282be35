"""Commands about the journal: where it ends, and the last entries of all instances, in their one order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
from msgspec import UNSET
from msgspec.structs import asdict

from perdure.kernel.moment import when
from perdure.runtime.client import Client
from perdure.views import journal
from perdure.views.journal import JournalEntry, entry_of

from ..console import Console, define
from ..text import ago, local, table, told


@define("journal head")
def head(console: Console) -> None:
    """The number of the last entry: what is read `at` it, or at least at it, has seen all that is durable now."""

    async def read(client: Client) -> tuple[int, datetime | None]:
        height = await client.queries.height()
        rows = await client.queries.journal(height - 1, 1) if height else []
        return height, when(rows[0].at) if rows else None

    if console.server is not None:
        answer = console.request("journal", last=1)
        height, at = int(answer.head), answer.items[-1].at if answer.items else None
    else:
        height, at = console.ask(read)
    text = f"{height}" if at is None else f"{height}  {local(at)} ({ago(at, datetime.now(UTC))})"
    console.answer({"entry": height, "at": at}, text)


@define("journal tail")
@click.option("-n", "--lines", type=click.IntRange(1), default=10, show_default=True, help="How many at most.")
def tail(console: Console, lines: int) -> None:
    async def read(client: Client) -> list[JournalEntry]:
        return [entry_of(each) for each in await journal.tail(client.queries, lines)]

    found = console.request("journal", last=lines).items if console.server is not None else console.ask(read)
    rows = [[each.entry, local(each.at), each.id, told(each)] for each in found]
    console.answer({"entries": [*map(document, found)]}, table(rows) if rows else "")


def document(entry: JournalEntry) -> dict[str, Any]:
    """An entry with its number in the journal, which is a text only in answers of a server."""
    known = {name: value for name, value in asdict(entry).items() if value is not UNSET}
    return {**known, "entry": int(entry.entry)}
