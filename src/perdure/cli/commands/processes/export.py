"""`perdure processes export`: a definition as text."""

from __future__ import annotations

import click

from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define
from ...processes import kept
from ...text import joined


@define("processes export")
@click.argument("name")
@click.option("--version", default="", metavar="TEXT", help="Of this version, not of the active one.")
@click.option("--format", "form", type=click.Choice(["json", "yaml", "python"]), default="yaml", show_default=True)
def command(console: Console, name: str, version: str, form: str) -> None:
    """Loading the text gives the same hash."""

    async def read(client: Client) -> tuple[str, str]:
        process = await kept(client, name, version)
        return process.export(form), process.hash

    text, digest = console.ask(read)
    console.answer({"name": name, "format": form, "hash": digest, "text": text}, joined(text.rstrip("\n").split("\n")))
