"""`perdure tasks change`: how urgent a task is, and its times."""

from __future__ import annotations

from datetime import datetime

import click

from perdure.runtime.client import Client
from perdure.runtime.tasks import UNSET, Acting, Unset
from perdure.tasks.row import TaskInfo

from ...console import Console
from ...console import command as define
from ...given import read_time
from ...tasks import act, acts, needed


@define("tasks change")
@click.argument("id")
@click.option("--priority", type=int, metavar="N", help="0 to 100; higher is more urgent.")
@click.option("--due", metavar="TIME", help="When it is due, like 2026-11-16T09:00:00Z; none removes it.")
@click.option("--expire", metavar="TIME", help="When it ends without an answer; none removes it.")
@acts
def command(  # noqa: PLR0917
    console: Console,
    id: str,
    priority: int | None,
    due: str | None,
    expire: str | None,
    person: str | None,
    roles: tuple[str, ...],
    admin: bool,
) -> None:
    due_at, expire_at = _time(due, "--due"), _time(expire, "--expire")

    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.change(id, priority=priority, due=due_at, expire=expire_at, **acting)

    act(console, id, needed(person, roles, admin), "changed", verb)


def _time(text: str | None, what: str) -> datetime | Unset | None:
    if text is None:
        return UNSET
    return None if text == "none" else read_time(text, what)
