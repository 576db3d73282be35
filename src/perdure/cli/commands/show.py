"""`perdure show`: one instance, as it is now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from perdure.kernel.events import Address
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
    async def read(client: Client) -> tuple[Look, Any]:
        address, head = await find_started(client, id)
        look = await Look.at(client.queries, head)
        return look, await _state(client, look, address)

    look, state = console.ask(read)
    document = look.document() if state is None else {**look.document(), "state": state}
    text = _text(look, datetime.now(UTC))
    console.answer(document, text if state is None else joined([text, *_state_lines(state)]))


async def _state(client: Client, look: Look, address: Address) -> Any:
    """Tokens and ctx of a playbook, whose definition is in the database."""
    from perdure.definitions import load

    stored = await load.stored(client.queries, address.workflow, look.summary.version)
    if stored is None or stored.dialect != "playbook":
        return None
    return await client.state(address.workflow, address.key, at=await client.queries.height())


def _state_lines(state: dict[str, Any]) -> list[str]:
    rows = [["ctx", f"{name} = {short(value)}"] for name, value in state["ctx"].items()]
    rows += [["token", f"{each['id']} at {each['step']}: {each['state']}"] for each in state["tokens"]]
    return [table([[style(name, bold=True), text] for name, text in rows])] if rows else []


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
