"""`perdure tasks escalate`: more candidates for a task, more urgent."""

from __future__ import annotations

import click

from perdure.runtime.client import Client
from perdure.runtime.tasks import Acting
from perdure.tasks.row import TaskInfo

from ...console import Console
from ...console import command as define
from ...tasks import act, acts, needed


@define("tasks escalate")
@click.argument("id")
@click.option(
    "--add-role", "new_roles", multiple=True, metavar="ROLE", help="People of this role may do it from now on."
)
@click.option("--add-user", "users", multiple=True, metavar="ID", help="This person may do it from now on.")
@click.option("--release", is_flag=True, help="Take it away from its holder.")
@click.option("--priority", type=int, metavar="N", help="0 to 100; higher is more urgent.")
@acts
def command(  # noqa: PLR0917
    console: Console,
    id: str,
    new_roles: tuple[str, ...],
    users: tuple[str, ...],
    release: bool,
    priority: int | None,
    person: str | None,
    roles: tuple[str, ...],
    admin: bool,
) -> None:
    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.escalate(
            id, roles=new_roles, users=users, release=release, priority=priority, **acting
        )

    act(console, id, needed(person, roles, admin), "escalated", verb)
