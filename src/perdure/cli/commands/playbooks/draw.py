"""`perdure playbooks draw`: the net, and the marking of an instance on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from perdure.app.playbooks import load_playbook
from perdure.drawing import draw
from perdure.playbooks.picture import graph_of

from ...console import Console
from ...console import command as define
from ...find import find_started
from ...text import joined


@define("playbooks draw", db="optional")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--instance", metavar="ID", help="Draw the tokens of this instance of --db, too.")
@click.option("--format", "form", type=click.Choice(["svg", "mermaid", "json"]), default="mermaid", show_default=True)
@click.option("--direction", type=click.Choice(["LR", "TB"]), default="LR", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write it there. Default: to stdout.")
def command(  # noqa: PLR0917
    console: Console,
    file: str,
    instance: str | None,
    form: Literal["svg", "mermaid", "json"],
    direction: Literal["LR", "TB"],
    output: str | None,
) -> None:
    playbook = load_playbook(file)
    seen = None if instance is None else _state(console, instance)
    if output is not None and form == "mermaid" and output.endswith(".svg"):
        form = "svg"
    text = draw(graph_of(playbook.definition.playbook, seen), form, direction, title=playbook.name)
    if output is not None:
        Path(output).write_text(text, encoding="utf-8")
    said = f"wrote {output}" if output is not None else joined(text.rstrip("\n").split("\n"))
    console.answer({"file": file, "text": text}, said)


def _state(console: Console, instance: str) -> Any:
    async def read(client: Any) -> Any:
        address, _ = await find_started(client, instance)
        return await client.state(address.workflow, address.key, at=await client.queries.height())

    return console.ask(read)
