"""`perdure tasks release`: a person gives a task back."""

from __future__ import annotations

import click

from perdure.runtime.client import Client
from perdure.runtime.tasks import Acting
from perdure.tasks.row import TaskInfo

from ...console import Console
from ...console import command as define
from ...tasks import act, acts, needed


@define("tasks release")
@click.argument("id")
@acts
def command(console: Console, id: str, person: str | None, roles: tuple[str, ...], admin: bool) -> None:
    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.release(id, **acting)

    act(console, id, needed(person, roles, admin), "released", verb)
