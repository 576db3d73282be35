"""`perdure tasks cancel`: a task ends without an answer."""

from __future__ import annotations

import click

from perdure.runtime.client import Client
from perdure.runtime.tasks import Acting
from perdure.tasks.row import TaskInfo

from ...console import Console
from ...console import command as define
from ...tasks import act, acts, needed


@define("tasks cancel")
@click.argument("id")
@click.option("--reason", default="", metavar="TEXT", help="Why. It is needed.")
@acts
def command(  # noqa: PLR0917
    console: Console, id: str, reason: str, person: str | None, roles: tuple[str, ...], admin: bool
) -> None:
    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.cancel(id, reason, **acting)

    act(console, id, needed(person, roles, admin), "cancelled", verb)
