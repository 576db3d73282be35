"""`perdure show`: one instance, as it is now."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from perdure.runtime.client import Client

from ..console import Console
from ..console import command as define
from ..find import find_started
from ..live import open_line
from ..look import Look
from ..text import ago, joined, local, short, style, styled, table, to_json


@define("show")
@click.argument("id")
def command(console: Console, id: str) -> None:
    async def read(client: Client) -> Look:
        _, head = await find_started(client, id)
        return await Look.at(client.queries, head)

    look = console.ask(read)
    console.answer(look.document(), _text(look, datetime.now(UTC)))


def _text(look: Look, now: datetime) -> str:
    head = look.summary
    rows = [
        ["instance", look.id],
        ["status", styled(look.state.status)],
        ["version", head.version],
        ["started", f"{local(head.started_at)} ({ago(head.started_at, now)})"],
        ["changed", f"{local(head.changed_at)} ({ago(head.changed_at, now)})"],
        ["entries", str(look.state.version)],
    ]
    if head.generation > 1:
        rows.insert(1, ["generation", str(head.generation)])
    if look.parent is not None:
        rows.append(["parent", str(look.parent)])
    rows += [["tag", f"{name}={value}"] for name, value in head.tags.items()]
    rows += [["open", open_line(each, now)] for each in look.waiting]
    rows += [["published", f"{name} = {short(value)}"] for name, value in look.published.items()]
    if look.state.stuck is not None and look.state.stuck.location:
        rows.append(["stuck at", look.state.stuck.location])
    if look.error is not None:
        rows.append(["error", joined(str(look.error).split("\n"))])
    if look.state.status == "completed":
        rows.append(["result", to_json(look.result)])
    return table([[style(name, bold=True), text] for name, text in rows])
