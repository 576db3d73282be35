"""`perdure processes activate`: which version new instances run on."""

from __future__ import annotations

import click

from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define
from ...processes import acting
from ...tasks import actor_of


@define("processes activate")
@click.argument("name")
@click.argument("version")
@click.option("--as", "person", metavar="ID", envvar="PERDURE_ACTOR", show_envvar=True, help="Who acts.")
def command(console: Console, name: str, version: str, person: str | None) -> None:
    """Instances that run stay on the version that they started with."""
    actor = actor_of(person, (), False)

    async def activate(client: Client) -> None:
        await client.processes.activate(name, version, by=actor)

    acting(console, activate)
    console.answer({"name": name, "active": version}, f"new instances of {name} run on {version}")
