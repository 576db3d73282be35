"""`perdure cells trace`: what an event led to."""

from __future__ import annotations

import click

from perdure.runtime.client import Client
from perdure.views.trace import TraceNode, Tracer

from ...console import Console
from ...console import command as define
from ...exits import Exit, Stopped
from ...text import joined, local, short


@define("cells trace")
@click.argument("event")
def command(console: Console, event: str) -> None:
    """EVENT is the id or the correlation that an event was sent with, or the number of an entry of the journal. Shown
    is each entry that followed from it: cells that took it, receipts of effects that they asked for, cells that took
    what they announced.
    """

    async def read(client: Client) -> list[TraceNode]:
        tracer = await Tracer.of(client.queries)
        if tracer is None:
            raise Stopped("this database has no cells: no engine was opened on it with any", Exit.NOT_FOUND)
        found = await tracer.by_text(event)
        return found or (await tracer.by_entry(int(event)) if event.isdecimal() else [])

    found = console.ask(read)
    if not found:
        text = f"no event from outside has the id or the correlation {event!r}, and no entry this number"
        raise Stopped(text, Exit.NOT_FOUND, kind="UnknownEvent")
    lines = [line for node in found for line in _lines(node, 0)]
    console.answer({"traces": found}, joined(lines))


def _lines(node: TraceNode, depth: int) -> list[str]:
    value = "" if node.value is None else f" {short(node.value)}"
    status = f" {node.status}" if node.status else ""
    outcome = f" → {node.outcome}" if node.outcome else ""
    margin = "  " * depth
    lines = [f"{node.entry:>6}  {local(node.at)}  {margin}{node.id}  {node.what}{status}{value}{outcome}"]
    lines += [f"{'':>6}  {'':>19}  {margin}  no receipt yet: {each}" for each in node.open]
    return [*lines, *(line for each in node.led_to for line in _lines(each, depth + 1))]
