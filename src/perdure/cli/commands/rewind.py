"""`perdure rewind`: an instance goes back to an earlier operation."""

from __future__ import annotations

import click

from perdure.kernel.events import Address
from perdure.runtime.client import Client
from perdure.views.find import find_started

from ..console import Console
from ..console import command as define


@define("rewind")
@click.argument("id")
@click.argument("location")
@click.option("--force", is_flag=True, help="Also while a step runs that is dropped: it is cancelled.")
def command(console: Console, id: str, location: str, force: bool) -> None:
    """The operation at LOCATION, and all that came after it, did not happen; it is done anew. What came before is
    kept. `perdure history ID` shows the locations.
    """

    async def rewind(client: Client) -> Address:
        address, _ = await find_started(client, id)
        await client.handle(address.workflow, address.key).rewind(location, force=force)
        await console.warn_if_nobody_runs(client)
        return address

    address = console.ask(rewind)
    console.answer({"id": str(address), "rewind": location}, f"asked {address} to go back to {location}")
