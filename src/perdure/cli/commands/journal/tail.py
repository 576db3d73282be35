"""`perdure journal tail`: the last entries of all instances, in their one order."""

from __future__ import annotations

from typing import NamedTuple

import click

from perdure.kernel.batch import JournalRow
from perdure.kernel.rules import RULER
from perdure.ports.store import Queries
from perdure.runtime.client import Client
from perdure.runtime.history import Line, alone, read_history

from ...console import Console
from ...console import command as define
from ...look import line_document
from ...text import local, table, told


class Told(NamedTuple):
    id: str
    line: Line


@define("journal tail")
@click.option("-n", "--lines", type=click.IntRange(1), default=10, show_default=True, help="How many at most.")
def command(console: Console, lines: int) -> None:
    async def read(client: Client) -> list[Told]:
        height = await client.queries.height()
        return await _told(client.queries, await client.queries.journal(max(height - lines, 0), lines))

    found = console.ask(read)
    document = [{"entry": each.line.seq, "id": each.id, **line_document(each.line, True)} for each in found]
    rows = [[str(each.line.seq), local(each.line.at), each.id, told(each.line)] for each in found]
    console.answer({"entries": document}, table(rows) if rows else "")


async def _told(queries: Queries, rows: list[JournalRow]) -> list[Told]:
    """An entry is told by its instance's history; the world's own, which has every event from outside, needs none."""
    lines: dict[int, Line] = {}
    names: dict[int, str] = {}
    for id in dict.fromkeys(row.instance for row in rows):
        head = await queries.head(id)
        names[id] = str(id) if head is None else f"{head.workflow}/{head.key}"
        if names[id] == str(RULER):
            lines |= {row.seq: alone(row) for row in rows if row.instance == id}
        else:
            _, history = await read_history(queries, id)
            lines |= {line.seq: line for line in history}
    return [Told(names[row.instance], lines[row.seq]) for row in rows if row.seq in lines]
