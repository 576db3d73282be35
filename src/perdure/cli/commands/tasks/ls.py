"""`perdure tasks ls`: what people are asked for."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from perdure.runtime.client import Client
from perdure.tasks.life import TaskStatus
from perdure.tasks.row import TaskInfo, overdue

from ...console import Console
from ...console import command as define
from ...tasks import actor_of, acts, document, state
from ...text import ago, style, table


@define("tasks ls")
@click.option("--mine", is_flag=True, help="What that person has.")
@click.option("--candidate", is_flag=True, help="What that person may take, or has.")
@click.option("--overdue", "late", is_flag=True, help="Only what is overdue.")
@click.option("--status", "statuses", multiple=True, type=click.Choice(list(TaskStatus)), help="Only those.")
@click.option("--name", default="", metavar="NAME", help="Only tasks of this name.")
@click.option("--workflow", default="", metavar="NAME", help="Only tasks that this workflow asked for.")
@click.option("--reference", default="", metavar="TEXT", help="Only tasks with this reference.")
@click.option("--order", type=click.Choice(["created", "due", "priority"]), default="created", show_default=True)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many at most.")
@click.option("--after", metavar="ID", help="Go on from the last task of a page before.")
@acts
def command(  # noqa: PLR0917
    console: Console,
    mine: bool,
    candidate: bool,
    late: bool,
    statuses: tuple[str, ...],
    name: str,
    workflow: str,
    reference: str,
    order: str,
    limit: int,
    after: str | None,
    person: str | None,
    roles: tuple[str, ...],
    admin: bool,
) -> None:
    """With --as only what that person may see; without it, all tasks that have not ended."""
    now, actor = datetime.now(UTC), actor_of(person, roles, admin)

    async def read(client: Client) -> list[TaskInfo]:
        return await client.tasks.list(
            actor,
            mine=mine,
            candidate=candidate,
            status=statuses or ("open", "assigned"),
            name=name,
            workflow=workflow,
            reference=reference,
            due_before=now if late else None,
            order=order,  # type: ignore[arg-type]
            after=after,
            limit=limit + 1,
        )

    found = console.ask(read)
    shown, more = found[:limit], len(found) > limit
    console.answer(
        {"tasks": [document(each) for each in shown], "next_after": shown[-1].id if more else None},
        _table(shown, now) if shown else "",
    )
    if not console.json and not shown:
        console.note("no tasks")
    if not console.json and more:
        console.note(f"there are more: add --after {shown[-1].id}")


def _table(found: list[TaskInfo], now: datetime) -> str:
    rows = [[style(name, bold=True) for name in ("ID", "STATUS", "PRIORITY", "ASKED", "DUE", "OWNER", "TITLE")]]
    for each in found:
        late = overdue(each, now)
        asked = ago(each.created_at, now)
        due = style(late, fg="red") if late.endswith("overdue") else late
        rows.append([each.id, state(each), str(each.priority), asked, due, each.owner, each.title])
    return table(rows)
