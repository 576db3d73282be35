"""`perdure ls`: what exists."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from perdure.kernel.status import Status
from perdure.ports.seen import Summary
from perdure.runtime.arguments import unknown
from perdure.runtime.client import Client
from perdure.views.find import find_started

from ..console import Console
from ..console import command as define
from ..given import read_tags
from ..page import tell_page
from ..text import ago, style, styled, table


@define("ls")
@click.option("--workflow", default="", metavar="NAME", help="Only instances of this workflow.")
@click.option("--status", type=click.Choice([status.value for status in Status]), help="Only those.")
@click.option(
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Only those with this tag, and each given one."
)
@click.option("--parent", metavar="ID", help="Only those that this instance started.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many at most.")
@click.option("--before", type=click.IntRange(1), default=None, metavar="N", help="Go on from a page before.")
def command(  # noqa: PLR0917
    console: Console,
    workflow: str,
    status: str | None,
    tags: tuple[str, ...],
    parent: str | None,
    limit: int,
    before: int | None,
) -> None:
    wanted = read_tags(tags)

    async def read(client: Client) -> list[Summary]:
        origin = 0 if parent is None else (await find_started(client, parent))[1].id
        found = await client.instances(
            workflow=workflow, status=status or "", tags=wanted, parent=origin, before=before or 0, limit=limit + 1
        )
        if not found and workflow:
            names = {name for name, *_ in await client.queries.workflows()}
            if workflow not in names:
                console.note(unknown("workflow", workflow, names, "names are exact"))
        return found

    tell_page(console, "instances", console.ask(read), limit, _table)


def _table(found: list[Summary]) -> str:
    now = datetime.now(UTC)
    rows = [[style(name, bold=True) for name in ("ID", "STATUS", "STARTED", "CHANGED")]]
    rows += [[_name(each), styled(each.status), ago(each.started_at, now), ago(each.changed_at, now)] for each in found]
    return table(rows)


def _name(each: Summary) -> str:
    generation = f" (generation {each.generation})" if each.generation > 1 else ""
    return f"{each.workflow}/{each.key}{generation}"
