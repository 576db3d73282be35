"""`perdure cells tail`: the last entries of a cell, and those that come."""

from __future__ import annotations

import sys

import click
from msgspec.structs import asdict

from perdure.errors import UnknownInstance
from perdure.kernel.events import Address
from perdure.ports.seen import Line
from perdure.runtime.client import Client
from perdure.views.journal import entries
from perdure.views.look import shown_entry

from ...console import Console
from ...console import command as define
from ...text import local, shown, table, to_json, told
from ...world import refuse_unknown_cell, without_version


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
        past = [line async for line in entries(client.queries, address, follow=False)]
        if not past:
            await refuse_unknown_cell(client.queries, address.workflow)
        if not past and not follow:
            raise UnknownInstance(f"there is no cell {address}; `perdure cells ls` lists what exists")
        return past

    async def watch(client: Client) -> None:
        last = (await read(client))[-lines:] if lines else []
        begin = last[0].seq if last else await client.queries.height() + 1
        async for line in entries(client.queries, address, follow=True):
            if line.seq >= begin:
                _say(console, line)

    if follow:
        console.ask(watch)
        return
    found = console.ask(read)[-lines:] if lines else []
    document = {"id": str(address), "entries": [{"entry": line.seq, **asdict(shown_entry(line))} for line in found]}
    console.answer(document, table([_row(line) for line in found]) if found else "")


def _say(console: Console, line: Line) -> None:
    text = to_json({"entry": line.seq, **asdict(shown_entry(line))}) if console.json else "  ".join(_row(line))
    click.echo(shown(text))
    sys.stdout.flush()


def _row(line: Line) -> list[str]:
    return [str(line.seq), local(line.at), told(line)]
