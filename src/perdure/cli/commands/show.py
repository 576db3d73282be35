"""`perdure show`: one instance, as it is now."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from perdure.runtime.client import Client
from perdure.views.find import find_started
from perdure.views.look import ShownInstance, look

from ..console import Console
from ..console import command as define
from ..live import open_line
from ..text import ago, joined, local, short, style, styled, table, to_json


@define("show")
@click.argument("id")
def command(console: Console, id: str) -> None:
    async def read(client: Client) -> ShownInstance:
        _, head = await find_started(client, id)
        return await look(client.queries, head)

    found = console.ask(read)
    console.answer(found, _text(found, datetime.now(UTC)))


def _text(shown: ShownInstance, now: datetime) -> str:
    rows = [
        ["instance", shown.id],
        ["status", styled(shown.status)],
        ["version", shown.version],
        ["started", f"{local(shown.started_at)} ({ago(shown.started_at, now)})"],
        ["changed", f"{local(shown.changed_at)} ({ago(shown.changed_at, now)})"],
        ["entries", str(shown.entries)],
    ]
    if shown.generation > 1:
        rows.insert(1, ["generation", str(shown.generation)])
    if shown.parent is not None:
        rows.append(["parent", shown.parent])
    rows += [["tag", f"{name}={value}"] for name, value in shown.tags.items()]
    rows += [["open", open_line(each, now)] for each in shown.waiting]
    rows += [["published", f"{name} = {short(value)}"] for name, value in shown.published.items()]
    if shown.stuck_at:
        rows.append(["stuck at", shown.stuck_at])
    if shown.error is not None:
        rows.append(["error", joined(str(shown.error).split("\n"))])
    if shown.status == "completed":
        rows.append(["result", to_json(shown.result)])
    return table([[style(name, bold=True), text] for name, text in rows])
