"""`perdure journal tail`: the last entries of all instances, in their one order."""

from __future__ import annotations

import click
from msgspec.structs import asdict

from perdure.runtime.client import Client
from perdure.views.journal import Placed, tail
from perdure.views.look import shown_entry

from ...console import Console
from ...console import command as define
from ...text import local, table, told


@define("journal tail")
@click.option("-n", "--lines", type=click.IntRange(1), default=10, show_default=True, help="How many at most.")
def command(console: Console, lines: int) -> None:
    async def read(client: Client) -> list[Placed]:
        return await tail(client.queries, lines)

    found = console.ask(read)
    document = [{"entry": each.line.seq, "id": each.id, **asdict(shown_entry(each.line))} for each in found]
    rows = [[str(each.line.seq), local(each.line.at), each.id, told(each.line)] for each in found]
    console.answer({"entries": document}, table(rows) if rows else "")
