"""`perdure processes show`: what a definition is, and what it needs."""

from __future__ import annotations

from typing import Any

import click

from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define
from ...processes import kept
from ...text import joined, style, table


@define("processes show")
@click.argument("name")
@click.option("--version", default="", metavar="TEXT", help="Of this version, not of the active one.")
def command(console: Console, name: str, version: str) -> None:
    async def read(client: Client) -> Any:
        return await kept(client, name, version)

    process = console.ask(read)
    data = process.data
    needs = data.get("requires", {})
    rows = [["name", name], ["version", process.number], ["hash", process.hash], ["title", data.get("title", "")]]
    rows += [["tasks", ", ".join(data.get("tasks", {})) or "none"]]
    rows += [
        [word, ", ".join(needs[word])] for word in ("functions", "modules", "transports", "workflows") if word in needs
    ]
    problems = [f"{each.where}: {each.code}: {each.text}" for each in process.problems]
    document = {
        "name": name,
        "version": process.number,
        "hash": process.hash,
        "requires": needs,
        "definition": data,
        "problems": [each._asdict() for each in process.problems],
    }
    told = table([[style(word, bold=True), text] for word, text in rows])
    console.answer(document, joined([told, *problems, "", *process.source().rstrip().split("\n")]))
