"""`perdure cells ls`: the cells that there are."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from perdure.kernel.batch import HeadRow
from perdure.kernel.status import TERMINAL
from perdure.ports.seen import Summary
from perdure.ports.store import Filter, Queries, place_of
from perdure.runtime.client import Client
from perdure.runtime.history import list_place, summary

from ...console import Console
from ...console import command as define
from ...page import tell_page
from ...text import ago, style, styled, table
from ...world import cell_names, refuse_unknown_cell, without_version

PAGE = 500


@define("cells ls")
@click.argument("cell", required=False)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many at most.")
@click.option("--before", type=click.IntRange(1), default=None, metavar="N", help="Go on from a page before.")
def command(console: Console, cell: str | None, limit: int, before: int | None) -> None:
    """CELL is the name of a cell, with its version or without; without it, all cells. What was deleted, has failed or
    was cancelled is no more: `perdure ls` lists that too.
    """

    async def read(client: Client) -> list[Summary]:
        names = await cell_names(client.queries)
        if cell is not None:
            wanted = without_version(cell)
            await refuse_unknown_cell(client.queries, wanted)
            names = [wanted]
        return [summary(head) for head in await _living(client.queries, names, before or 0, limit + 1)]

    tell_page(console, "cells", console.ask(read), limit, _table)


async def _living(queries: Queries, names: list[str], before: int, limit: int) -> list[HeadRow]:
    """The newest first, page by page until there are enough."""
    found: list[HeadRow] = []
    only = names[0] if len(names) == 1 else ""
    place = await list_place(queries, before)
    while names and len(found) < limit:
        page = await queries.heads(Filter(workflow=only, before=place, limit=PAGE))
        found += [head for head in page if head.workflow in names and head.status not in TERMINAL]
        if len(page) < PAGE:
            break
        place = place_of(page[-1])
    return found[:limit]


def _table(found: list[Summary]) -> str:
    now = datetime.now(UTC)
    rows = [[style(name, bold=True) for name in ("ID", "STATUS", "VERSION", "MADE", "CHANGED")]]
    for each in found:
        name = f"{each.workflow}/{each.key}"
        rows.append([name, styled(each.status), each.version, ago(each.started_at, now), ago(each.changed_at, now)])
    return table(rows)
