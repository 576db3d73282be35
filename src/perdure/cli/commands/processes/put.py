"""`perdure processes put`: keep a definition, and run it from now on."""

from __future__ import annotations

import click

from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define
from ...processes import acting, given
from ...tasks import actor_of


@define("processes put")
@click.argument("target", metavar="FILE|MODULE:PROCESS")
@click.option("--activate", is_flag=True, help="New instances run on it, whatever its version.")
@click.option("--as", "person", metavar="ID", envvar="PERDURE_ACTOR", show_envvar=True, help="Who acts.")
def command(console: Console, target: str, activate: bool, person: str | None) -> None:
    """The same bytes again write nothing. Other bytes under a version that is kept are refused."""
    process = given(target)
    process.require_valid()
    actor = actor_of(person, (), False)

    async def put(client: Client) -> str:
        return await client.processes.put(process, activate=activate, by=actor)

    version = acting(console, put)
    document = {"name": process.name, "version": version, "digest": process.hash}
    console.answer(document, f"{process.name} {version} is kept ({process.hash[7:19]})")
