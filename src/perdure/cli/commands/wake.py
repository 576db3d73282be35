"""`perdure wake`: ends a sleep early."""

from __future__ import annotations

import click

from perdure.kernel.events import Address
from perdure.runtime.client import Client
from perdure.views.find import find

from ..console import Console
from ..console import command as define


@define("wake")
@click.argument("id")
@click.argument("location", default="")
def command(console: Console, id: str, location: str) -> None:
    """LOCATION is that of one sleep (`perdure why ID` names it); without it, all of them end. Recorded as such."""

    async def wake(client: Client) -> Address:
        address = (await find(client, id)).address
        await client.handle(address.workflow, address.key).wake(location)
        await console.warn_if_nobody_runs(client)
        return address

    address = console.ask(wake)
    console.answer({"id": str(address), "woken": location or None}, f"woke {address}")
