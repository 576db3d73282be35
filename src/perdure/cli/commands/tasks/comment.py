"""`perdure tasks comment`: a text for the history of a task."""

from __future__ import annotations

import click

from perdure.runtime.client import Client
from perdure.runtime.tasks import Acting
from perdure.tasks.row import TaskInfo

from ...console import Console
from ...console import command as define
from ...tasks import act, acts, needed


@define("tasks comment")
@click.argument("id")
@click.argument("text")
@acts
def command(  # noqa: PLR0917
    console: Console, id: str, text: str, person: str | None, roles: tuple[str, ...], admin: bool
) -> None:
    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.comment(id, text, **acting)

    act(console, id, needed(person, roles, admin), "commented on", verb)
