"""Commands about the journal: where it ends, and the last entries of all instances, in their one order."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from msgspec.structs import asdict

from perdure.kernel.moment import when
from perdure.runtime.client import Client
from perdure.views import journal
from perdure.views.look import shown_entry

from ..console import Console, define
from ..text import ago, local, table, told


@define("journal head")
def head(console: Console) -> None:
    """The number of the last entry: what is read `at` it, or at least at it, has seen all that is durable now."""

    async def read(client: Client) -> tuple[int, datetime | None]:
        height = await client.queries.height()
        rows = await client.queries.journal(height - 1, 1) if height else []
        return height, when(rows[0].at) if rows else None

    height, at = console.ask(read)
    text = f"{height}" if at is None else f"{height}  {local(at)} ({ago(at, datetime.now(UTC))})"
    console.answer({"entry": height, "at": at}, text)


@define("journal tail")
@click.option("-n", "--lines", type=click.IntRange(1), default=10, show_default=True, help="How many at most.")
def tail(console: Console, lines: int) -> None:
    async def read(client: Client) -> list[journal.JournalLine]:
        return await journal.tail(client.queries, lines)

    found = console.ask(read)
    document = [{"entry": each.line.seq, "id": each.id, **asdict(shown_entry(each.line))} for each in found]
    rows = [[str(each.line.seq), local(each.line.at), each.id, told(each.line)] for each in found]
    console.answer({"entries": document}, table(rows) if rows else "")
