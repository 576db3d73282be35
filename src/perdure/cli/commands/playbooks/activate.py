"""`perdure playbooks activate`: which version new instances run on."""

from __future__ import annotations

import click

from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define


@define("playbooks activate")
@click.argument("name")
@click.argument("version")
@click.option("--by", metavar="NAME", help="Who says so.")
def command(console: Console, name: str, version: str, by: str | None) -> None:
    name = name.replace("/", ".")

    async def activate(client: Client) -> None:
        await client.playbooks.activate(name, version, by=by)

    console.ask(activate)
    console.answer({"name": name, "version": version}, f"new instances of {name} run on {version}")
