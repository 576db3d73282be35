"""`perdure cells send`: a domain event for the cells that take it."""

from __future__ import annotations

import os

import click

from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define
from ...given import read_json


@define("cells send")
@click.argument("event")
@click.argument("body")
@click.option("--id", "id", metavar="TEXT", help="The event's own id: the same one twice is taken once.")
@click.option("--correlation", default="", metavar="TEXT", help="Passed on to all that the event leads to.")
def command(console: Console, event: str, body: str, id: str | None, correlation: str) -> None:
    """EVENT is the name of its schema, with the version; BODY is JSON, @file or - (stdin). It is checked by the
    manifest in force, and durable when this returns. Prints the id: `perdure cells trace` finds by it what it led to.
    """
    value = read_json(body, "BODY")
    given = id if id is not None else os.urandom(16).hex()

    async def send(client: Client) -> None:
        await client.send_json(event, value, id=given, correlation=correlation)
        await console.warn_if_nobody_runs(client)

    console.ask(send)
    console.answer({"sent": event, "id": given, "correlation": correlation}, given)
