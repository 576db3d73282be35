"""`perdure send`: a message for an instance."""

from __future__ import annotations

import click

from perdure.kernel.events import Address
from perdure.runtime.client import Client
from perdure.views.find import find

from ..console import Console
from ..console import command as define
from ..given import read_json


@define("send")
@click.argument("id")
@click.argument("name")
@click.argument("body", required=False)
@click.option("--id", "message", metavar="TEXT", help="The message's own id: the same one twice is delivered once.")
def command(console: Console, id: str, name: str, body: str | None, message: str | None) -> None:
    """BODY is JSON, @file or - (stdin); without it the message has none. It is durable when this returns."""
    value = None if body is None else read_json(body, "BODY")

    async def send(client: Client) -> Address:
        address = (await find(client, id)).address
        await client.handle(address.workflow, address.key).send(name, value, id=message)
        await console.warn_if_nobody_runs(client)
        return address

    address = console.ask(send)
    console.answer({"id": str(address), "sent": name}, f"sent {name} to {address}")
