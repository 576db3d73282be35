"""`perdure playbooks put`: a definition for engines that run already."""

from __future__ import annotations

import click

from perdure.app.playbooks import load_playbook
from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define


@define("playbooks put")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--activate", is_flag=True, help="New instances run on it, whatever is put later.")
@click.option("--by", metavar="NAME", help="Who registers it.")
def command(console: Console, file: str, activate: bool, by: str | None) -> None:
    """The version registered last is the one that new instances run on, unless another was activated."""
    playbook = load_playbook(file)

    async def put(client: Client) -> str:
        version = await client.playbooks.put(playbook, activate=activate, by=by)
        await console.warn_if_nobody_runs(client)
        return version

    version = console.ask(put)
    console.answer({"name": playbook.name, "version": version}, f"{playbook.name} {version} is registered")
