"""`perdure fork`: another instance goes on from what one has behind it."""

from __future__ import annotations

from typing import Any

import click

from perdure.runtime.client import Client
from perdure.runtime.handle import Handle
from perdure.views.find import find_started

from ..console import Console
from ..console import command as define
from ..exits import Stopped
from ..given import read_json


@define("fork")
@click.argument("id")
@click.argument("location")
@click.option("--edit", "edits", multiple=True, metavar="LOCATION=JSON", help="Another value for an earlier step.")
@click.option("--key", help="Names the new instance.")
def command(console: Console, id: str, location: str, edits: tuple[str, ...], key: str | None) -> None:
    """The new instance has behind it all that came before the operation at LOCATION, and goes on from there. The old
    one stays as it is. `perdure history ID` shows the locations.
    """
    edit: dict[str, Any] = {}
    for text in edits:
        place, value = _read_edit(text)
        if place in edit:
            raise Stopped(f"--edit {place} is given twice; give it once")
        edit[place] = value

    async def fork(client: Client) -> Handle[Any]:
        address, _ = await find_started(client, id)
        forked = await client.handle(address.workflow, address.key).fork(location, edit, key=key)
        await console.warn_if_nobody_runs(client)
        return forked

    forked = console.ask(fork)
    console.answer(
        {"id": str(forked.address), "workflow": forked.workflow, "key": forked.key, "forked": id},
        f"forked: {forked.address}",
    )


def _read_edit(text: str) -> tuple[str, Any]:
    location, sign, value = text.partition("=")
    if not location or not sign:
        raise Stopped(f"--edit {text!r} is no LOCATION=JSON; write it like this: --edit 'price=4200'")
    return location, read_json(value, f"--edit {location}")
