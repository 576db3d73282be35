"""`perdure tasks show`: one task with its data, form and history."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from perdure.runtime.client import Client
from perdure.runtime.tasks import TaskDetail
from perdure.tasks.history import TaskEvent
from perdure.tasks.row import overdue

from ...console import Console
from ...console import command as define
from ...tasks import actor_of, acts, document, state
from ...text import joined, local, short, style, table


@define("tasks show")
@click.argument("id")
@acts
def command(console: Console, id: str, person: str | None, roles: tuple[str, ...], admin: bool) -> None:
    """With --as, also what that person may do with it."""
    actor = actor_of(person, roles, admin)

    async def read(client: Client) -> TaskDetail:
        return await client.tasks.get(id, by=actor)

    task = console.ask(read)
    console.answer(document(task), _text(task, datetime.now(UTC)))


def _text(task: TaskDetail, now: datetime) -> str:
    people = [*task.users, *(f"role {role}" for role in task.roles)]
    rows = [
        ("task", f"{task.id} {task.name}"),
        ("title", task.title),
        ("status", state(task)),
        ("owner", task.owner),
        ("for", ", ".join(people)),
        ("not for", ", ".join(task.exclude)),
        ("due", "" if task.due is None else f"{local(task.due)} {overdue(task, now)}"),
        ("expires", "" if task.expires is None else local(task.expires)),
        ("about", task.description),
        ("data", "" if task.data is None else short(task.data, None)),
        ("answer", "" if task.form is None else short(task.form, None)),
        ("may", ", ".join(task.may)),
    ]
    parts = [table([[style(name, bold=True), value] for name, value in rows if value])]
    return joined([*parts, "", *(_line(event) for event in task.history)])


def _line(event: TaskEvent) -> str:
    words = [local(event.at), event.what, f"by {event.by}" if event.by else "", event.outcome, event.text]
    changes = [f"{name}: {short(_plain(old))} → {short(_plain(new))}" for name, (old, new) in event.changes.items()]
    return "  ".join([word for word in words if word] + changes)


def _plain(value: object) -> object:
    return msgspec.to_builtins(value)
