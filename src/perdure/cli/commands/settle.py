"""`perdure settle`: a person answers for a step whose outcome is unknown."""

from __future__ import annotations

import click

from perdure.kernel.events import Address
from perdure.runtime.client import Client
from perdure.views.find import find_started

from ..console import Console
from ..console import command as define
from ..given import read_json


@define("settle")
@click.argument("id")
@click.argument("location")
@click.argument("answer", type=click.Choice(["ok", "error"]))
@click.argument("value", required=False)
def command(console: Console, id: str, location: str, answer: str, value: str | None) -> None:
    """LOCATION is where it is stuck (`perdure why ID` names it). After ok, VALUE is the step's result as JSON, @file
    or - (stdin); after error it is a text. `perdure retry ID` instead runs the step again.
    """
    result = read_json(value, "VALUE") if value is not None and answer == "ok" else None
    error = (value or "a person says that it failed") if answer == "error" else None

    async def settle(client: Client) -> Address:
        address, _ = await find_started(client, id)
        await client.handle(address.workflow, address.key).settle(location, result, error=error)
        await console.warn_if_nobody_runs(client)
        return address

    address = console.ask(settle)
    console.answer(
        {"id": str(address), "settled": location, "as": answer}, f"settled {location} of {address}: {answer}"
    )
