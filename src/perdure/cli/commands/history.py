"""`perdure history`: every entry of an instance, in words."""

from __future__ import annotations

import click

from perdure.kernel.events import Address
from perdure.ports.seen import Line
from perdure.runtime.client import Client
from perdure.runtime.history import read_history
from perdure.views.find import find_started
from perdure.views.look import shown_entry

from ..console import Console
from ..console import command as define
from ..text import local, table, told


@define("history")
@click.argument("id")
@click.option("--values/--no-values", default=None, help="Whole values, or none. Default: long ones are cut.")
def command(console: Console, id: str, values: bool | None) -> None:
    async def read(client: Client) -> tuple[Address, list[Line]]:
        address, head = await find_started(client, id)
        _, lines = await read_history(client.queries, head.id)
        return address, lines

    address, lines = console.ask(read)
    shown = values is not False
    document = {"id": str(address), "history": [shown_entry(line, shown) for line in lines]}
    width = None if values else 60
    rows = [[str(line.number), local(line.at), told(line, width, shown)] for line in lines]
    console.answer(document, table(rows))
