"""`perdure cancel`: asks an instance to stop."""

from __future__ import annotations

import click

from perdure.errors import InstanceEnded
from perdure.kernel.events import Address
from perdure.kernel.status import TERMINAL, Status
from perdure.runtime.client import Client
from perdure.views.find import find

from ..console import Console
from ..console import command as define


@define("cancel")
@click.argument("id")
@click.option("--reason", default="", help="Recorded, and told to whoever waits for the result.")
@click.option("--undo", is_flag=True, help="Undo what its completed steps did, the last one first.")
def command(console: Console, id: str, reason: str, undo: bool) -> None:
    """It ends cancelled when its clean-up is done. Cancelling twice is harmless."""

    async def cancel(client: Client) -> Address:
        address, head = await find(client, id)
        if head is not None and head.status in TERMINAL:
            if head.status == Status.CANCELLED:
                console.note(f"{address} was cancelled before")
                return address
            raise InstanceEnded(f"{address} has {head.status} and cannot be cancelled any more")
        await client.handle(address.workflow, address.key).cancel(reason, undo)
        await console.warn_if_nobody_runs(client)
        return address

    address = console.ask(cancel)
    console.answer({"id": str(address), "cancel": "asked"}, f"asked {address} to cancel")
