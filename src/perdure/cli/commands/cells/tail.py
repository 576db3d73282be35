"""`perdure cells tail`: the last entries of a cell, and those that come."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import click

from perdure.errors import UnknownInstance
from perdure.kernel.events import Address
from perdure.ports.store import Filter, Queries
from perdure.runtime.client import Client
from perdure.runtime.history import Line, Reader, read_history

from ...console import Console
from ...console import command as define
from ...look import line_document
from ...text import local, shown, table, to_json, told
from ...world import refuse_unknown_cell, without_version

GENERATIONS_MAX = 1000  # of one cell, between two looks


@define("cells tail")
@click.argument("cell")
@click.argument("key", required=False, default="")
@click.option("-n", "--lines", type=click.IntRange(0), default=10, show_default=True, help="How many at most.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until interrupted.")
def command(console: Console, cell: str, key: str, lines: int, follow: bool) -> None:
    """Numbers are those of the journal. With --follow, --json prints one document a line. A cell that was deleted and
    made anew is followed too. A cell without keys needs no KEY.
    """
    address = Address(without_version(cell), key)

    async def read(client: Client) -> list[Line]:
        past = [line async for line in _entries(client.queries, address, follow=False)]
        if not past:
            await refuse_unknown_cell(client.queries, address.workflow)
        if not past and not follow:
            raise UnknownInstance(f"there is no cell {address}; `perdure cells ls` lists what exists")
        return past

    async def watch(client: Client) -> None:
        last = (await read(client))[-lines:] if lines else []
        begin = last[0].seq if last else await client.queries.height() + 1
        async for line in _entries(client.queries, address, follow=True):
            if line.seq >= begin:
                _say(console, line)

    if follow:
        console.ask(watch)
        return
    found = console.ask(read)[-lines:] if lines else []
    document = {"id": str(address), "entries": [{"entry": line.seq, **line_document(line, True)} for line in found]}
    console.answer(document, table([_row(line) for line in found]) if found else "")


async def _entries(queries: Queries, address: Address, follow: bool) -> AsyncIterator[Line]:
    """All entries of the last generation, and, if followed, those of the generations to come."""
    readers: dict[int, Reader] = {}
    seen = -1
    while True:
        changed = await queries.changed()
        if changed != seen:
            seen = changed
            for id in await _generations(queries, address, max(readers, default=0)):
                if id in readers:
                    found = readers[id].read(await queries.history(id, readers[id].seq))
                else:
                    readers[id], found = await read_history(queries, id)
                for line in found:
                    yield line
        if not follow:
            return
        await queries.change(seen)


async def _generations(queries: Queries, address: Address, since: int) -> list[int]:
    """From the one that was read last on, the oldest first; at first the last one alone."""
    limit = 1 if since == 0 else GENERATIONS_MAX
    heads = await queries.heads(Filter(address.workflow, key=address.key, limit=limit))
    return sorted(head.id for head in heads if head.id >= since)


def _say(console: Console, line: Line) -> None:
    text = to_json({"entry": line.seq, **line_document(line, True)}) if console.json else "  ".join(_row(line))
    click.echo(shown(text))
    sys.stdout.flush()


def _row(line: Line) -> list[str]:
    return [str(line.seq), local(line.at), told(line)]
