"""`perdure export`: one history as a file, that `perdure.testing.replay` replays."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from perdure.codec.visible import visible_json
from perdure.kernel.events import Address
from perdure.runtime.client import Client
from perdure.views.export import text_of
from perdure.views.find import find_started

from ..console import Console
from ..console import command as define
from ..exits import Stopped


@define("export")
@click.argument("id")
@click.option("-o", "--output", metavar="FILE", help="Write it there. Default: to stdout.")
def command(console: Console, id: str, output: str | None) -> None:
    """The file is JSON with a line for each entry: the recorded bytes, and what they say. It has every recorded
    value in it: look through it before you share it.
    """

    async def read(client: Client) -> tuple[Address, str]:
        address, head = await find_started(client, id)
        return address, text_of(head, await client.queries.history(head.id))

    address, text = console.ask(read)
    if output is None:
        click.echo(visible_json(text), nl=False)
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Stopped(f"{output} cannot be written: {error.strerror}") from error
    entries = len(msgspec.json.decode(text)["entries"])
    document = {"id": str(address), "file": output, "entries": entries}
    console.answer(document, f"wrote {entries} entries of {address} to {output}")
