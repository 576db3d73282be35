"""`perdure tasks assign`: a task for a person."""

from __future__ import annotations

import click

from perdure.kernel.asked import Actor
from perdure.runtime.client import Client
from perdure.runtime.tasks import Acting
from perdure.tasks.row import TaskInfo

from ...console import Console
from ...console import command as define
from ...tasks import act, acts, needed


@define("tasks assign")
@click.argument("id")
@click.argument("who")
@click.option("--who-role", "who_roles", multiple=True, metavar="ROLE", help="A role of WHO, if the task asks for one.")
@click.option("--override", is_flag=True, help="Take the task away from its holder.")
@acts
def command(  # noqa: PLR0917
    console: Console,
    id: str,
    who: str,
    who_roles: tuple[str, ...],
    override: bool,
    person: str | None,
    roles: tuple[str, ...],
    admin: bool,
) -> None:
    """A role that WHO has, and that the task asks for, is given with --who-role: perdure does not know who is who."""

    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.assign(id, Actor(who, who_roles), override=override, **acting)

    act(console, id, needed(person, roles, admin), "assigned", verb)
