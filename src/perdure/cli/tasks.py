"""What the verbs of tasks share: who acts, how a verb is sent, how a task is told."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final, TypeVar

import click
import msgspec

from perdure.errors import AskTimeout
from perdure.kernel.asked import Actor
from perdure.runtime.client import Client
from perdure.runtime.tasks import Acting
from perdure.tasks.row import TaskInfo

from .console import Console
from .exits import Stopped

F = TypeVar("F", bound=Callable[..., Any])

WAIT_SECONDS: Final = 30.0
"""So long a verb waits for its answer, where an engine runs."""

NOT_RUNNING_SECONDS: Final = 0.05
LATER: Final = "no engine runs now: the verb is recorded, and judged when one does"


def acts(function: F) -> F:
    """Who acts: on the command line, or by the environment."""
    options = (
        click.option("--as", "person", metavar="ID", envvar="PERDURE_ACTOR", show_envvar=True, help="Who acts."),
        click.option(
            "--role", "roles", multiple=True, metavar="ROLE", help="A role of that person.  [env var: PERDURE_ROLES]"
        ),
        click.option("--admin", is_flag=True, help="That person is an admin."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def actor_of(person: str | None, roles: tuple[str, ...], admin: bool) -> Actor | None:
    given = roles or tuple(os.environ.get("PERDURE_ROLES", "").replace(",", " ").split())
    if person is None and (roles or admin):
        raise Stopped("--role and --admin are of a person: add --as ID")
    return None if person is None else Actor(person, given, admin)


def needed(person: str | None, roles: tuple[str, ...], admin: bool) -> Actor:
    actor = actor_of(person, roles, admin)
    if actor is None:
        raise Stopped("who acts? add --as ID, and --role ROLE for each role, or set PERDURE_ACTOR and PERDURE_ROLES")
    return actor


Verb = Callable[[Client, Acting], Awaitable[TaskInfo]]


def act(console: Console, task: str, actor: Actor, done: str, verb: Verb) -> None:
    """Send a verb, and tell what became of the task."""

    async def ask(client: Client) -> TaskInfo | None:
        runs = await client.queries.owner() is not None
        try:
            return await verb(client, {"by": actor, "timeout": WAIT_SECONDS if runs else NOT_RUNNING_SECONDS})
        except AskTimeout:
            if runs:
                raise
            return None

    info = console.ask(ask)
    if info is None:
        console.note(LATER)
        console.answer({"task": task, "recorded": True}, "")
        return
    console.answer(document(info), f"{done} task {info.id} ({info.name}): {state(info)}")


def document(info: TaskInfo) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(info, builtin_types=(datetime,))
    return found


def state(info: TaskInfo) -> str:
    """What a task is now, in few words."""
    match info.status:
        case "open":
            return f"open, {info.votes} votes so far" if info.shared else "open"
        case "assigned":
            return f"held by {info.assignee}"
        case "completed":
            return f"completed, {info.outcome}"
        case ended:
            return ended
