"""`perdure tasks complete`: the answer to a task, or a vote."""

from __future__ import annotations

import sys
from typing import Any

import click

from perdure.runtime.client import Client
from perdure.runtime.tasks import Acting, TaskDetail
from perdure.tasks.row import TaskInfo

from ...console import Console
from ...console import command as define
from ...exits import Stopped
from ...form import ask_form
from ...given import read_json
from ...tasks import act, acts, needed


@define("tasks complete")
@click.argument("id")
@click.argument("answer", required=False)
@click.option("--override", is_flag=True, help="As an admin: complete what another person has.")
@acts
def command(  # noqa: PLR0917
    console: Console,
    id: str,
    answer: str | None,
    override: bool,
    person: str | None,
    roles: tuple[str, ...],
    admin: bool,
) -> None:
    """ANSWER is JSON, @file or - (stdin). Without it, a terminal is asked for each field of the form."""
    actor = needed(person, roles, admin)
    if answer is not None:
        value = read_json(answer, "ANSWER")
    else:

        async def read(client: Client) -> TaskDetail:
            return await client.tasks.get(id, by=actor)

        value = _asked(console.ask(read))

    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.complete(id, value, override=override, **acting)

    act(console, id, actor, "completed", verb)


def _asked(task: TaskDetail) -> Any:
    if task.form is None or task.ended_at is not None:
        return None
    if not sys.stdin.isatty():
        raise Stopped(f"task {task.id} wants an answer: give it as JSON, @file or -; `perdure tasks show` has the form")
    return ask_form(task.title, task.form)
