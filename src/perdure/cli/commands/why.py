"""`perdure why`: what an instance waits for, in plain language."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from perdure.ports.seen import Advice, Reason
from perdure.runtime.client import Client
from perdure.views.find import find
from perdure.views.look import shown_wait
from perdure.views.reasons import RECORDED, reasons, see

from ..console import Console
from ..console import command as define
from ..text import joined, styled


@define("why")
@click.argument("id")
def command(console: Console, id: str) -> None:
    """Says since when it waits and what would move it, with the exact command where there is one."""

    async def read(client: Client) -> tuple[str, str, list[Reason]]:
        address, head = await find(client, id)
        if head is None:
            return str(address), "recorded", [RECORDED]
        seen, words = await see(client.queries, head, datetime.now(UTC), console.db)
        return seen.id, seen.state.status.value, reasons(seen, words)

    name, status, found = console.ask(read)
    document = {"id": name, "status": status, "reasons": [_document(console, reason) for reason in found]}
    lines = [joined([each.text, *(f"    {todo}" for todo in _todo(console, each))]) for each in found]
    console.answer(document, joined([f"{name} is {styled(status)}.", *lines]))


def _document(console: Console, reason: Reason) -> dict[str, Any]:
    about = {} if reason.waiting is None else msgspec.structs.asdict(shown_wait(reason.waiting))
    return {**about, "kind": reason.kind, "text": reason.text, "todo": "\n".join(_todo(console, reason)) or None}


def _todo(console: Console, reason: Reason) -> list[str]:
    return [_advice(console, each) for each in reason.todo]


def _advice(console: Console, advice: Advice) -> str:
    command = console.command(*advice.command) if advice.command else ""
    return ": ".join(filter(None, (advice.text, command)))
