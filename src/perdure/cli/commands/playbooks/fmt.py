"""`perdure playbooks fmt`: one spelling for everybody; v10 documents become v1."""

from __future__ import annotations

from pathlib import Path

import click

from perdure.app.playbooks import formatted, load_playbook

from ...console import Console
from ...console import command as define
from ...text import joined


@define("playbooks fmt", db="none")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--write", is_flag=True, help="Write it to the file. Comments are lost.")
def command(console: Console, file: str, write: bool) -> None:
    """A document of NoETL becomes one of perdure/v1, as far as it uses kinds that are known here."""
    text = formatted(load_playbook(file))
    if write:
        Path(file).write_text(text, encoding="utf-8")
    console.answer({"file": file, "text": text}, f"wrote {file}" if write else joined(text.rstrip("\n").split("\n")))
