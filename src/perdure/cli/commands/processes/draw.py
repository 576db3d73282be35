"""`perdure processes draw`: a definition, or an instance with what became of each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from perdure.kernel.rows import Record
from perdure.kernel.workflows import Workflows
from perdure.runtime.client import Client
from perdure.runtime.state import draw_instance
from perdure.views.find import find_started

from ...console import Console
from ...console import command as define
from ...processes import given, kept
from ...text import joined


@define("processes draw", db="optional")
@click.argument("target", metavar="NAME|ID|FILE|MODULE:PROCESS")
@click.option("--version", default="", metavar="TEXT", help="Of this version, not of the active one.")
@click.option("--format", "form", type=click.Choice(["svg", "mermaid", "json"]), default="svg", show_default=True)
@click.option("--direction", type=click.Choice(["LR", "TB"]), default="LR", show_default=True)
@click.option("--at", type=click.IntRange(1), metavar="N", help="An instance as it was at this entry of the journal.")
@click.option("--output", "-o", metavar="FILE", help="Write the picture there.")
def command(  # noqa: PLR0917
    console: Console, target: str, version: str, form: Any, direction: Any, at: int | None, output: str | None
) -> None:
    """NAME is a process that the database has, ID an instance of one (purchase/o-17)."""
    if ":" in target or target.endswith((".yaml", ".yml", ".json")):
        picture = given(target).draw(form, direction)
    else:

        async def read(client: Client) -> str:
            if "/" not in target:
                return str((await kept(client, target, version)).draw(form, direction))
            _, head = await find_started(client, target)
            process = await kept(client, head.workflow, head.version.partition("+")[0])
            rows = [row for row in await client.queries.history(head.id) if at is None or row.seq <= at]
            record = Record(head, None, tuple(rows)) if rows else None
            return draw_instance(Workflows([process]), record, form, direction)

        picture = console.ask(read)
    if output is not None:
        Path(output).write_text(picture, encoding="utf-8")
        console.answer({"target": target, "format": form, "file": output}, f"{output} has the picture of {target}")
    else:
        console.answer({"target": target, "format": form, "picture": picture}, joined(picture.rstrip("\n").split("\n")))
