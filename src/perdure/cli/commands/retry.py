"""`perdure retry`: an instance that is stuck or has failed tries again."""

from __future__ import annotations

import click

from perdure.kernel.events import Address
from perdure.runtime.client import Client
from perdure.views.find import find_started

from ..console import Console
from ..console import command as define


@define("retry")
@click.argument("id")
def command(console: Console, id: str) -> None:
    """After what was wrong has been put right. `perdure why ID` says what that is. An instance that has failed does
    again what failed, and what was undone; all else stays done.
    """

    async def retry(client: Client) -> Address:
        address, _ = await find_started(client, id)
        await client.handle(address.workflow, address.key).retry()
        await console.warn_if_nobody_runs(client)
        return address

    address = console.ask(retry)
    console.answer({"id": str(address), "retry": "asked"}, f"asked {address} to try again")
