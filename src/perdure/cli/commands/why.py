"""`perdure why`: what an instance waits for, in plain language."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from perdure.kernel.rules import RULER
from perdure.runtime.client import Client

from ..cell_reasons import CellReasons
from ..console import Console
from ..console import command as define
from ..find import find
from ..look import Look
from ..reasons import Reason, Reasons
from ..text import joined, styled


@define("why")
@click.argument("id")
def command(console: Console, id: str) -> None:
    """Says since when it waits and what would move it, with the exact command where there is one."""

    async def read(client: Client) -> tuple[str, str, list[Reason]]:
        address, head = await find(client, id)
        if head is None:
            text = "It is recorded, and no engine has taken it up yet."
            todo = "perdure.open(...) in your program, or `perdure run`, runs one"
            return str(address), "recorded", [Reason("undelivered", text, todo)]
        look = await Look.at(client.queries, head)
        kind = CellReasons if look.is_cell or head.workflow == RULER.workflow else Reasons
        reasons = kind(console, client.queries, look, datetime.now(UTC))
        return look.id, look.state.status.value, await reasons.all()

    name, status, reasons = console.ask(read)
    document = {"id": name, "status": status, "reasons": [reason.document() for reason in reasons]}
    console.answer(document, joined([f"{name} is {styled(status)}.", *map(_text, reasons)]))


def _text(reason: Reason) -> str:
    return joined([reason.text, *(f"    {todo}" for todo in reason.todo.splitlines())])
