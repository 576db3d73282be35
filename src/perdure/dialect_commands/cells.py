"""Commands about cells: which there are, what state they have, what happened to them, what an event led to."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import UNSET

from perdure.cli.commands.journal import document as document_of
from perdure.cli.commands.read import tell_page
from perdure.cli.console import Console, define
from perdure.cli.exits import Exit, Stopped
from perdure.cli.given import read_json
from perdure.cli.load import current_directory_first
from perdure.cli.text import ago, joined, local, short, shown, style, styled, table, to_json, told
from perdure.codec.record import Record, shape_of
from perdure.errors import BadManifest, UnknownInstance, UnknownVersion
from perdure.kernel.batch import HeadRow
from perdure.kernel.events import Address
from perdure.kernel.status import TERMINAL
from perdure.ports.seen import Line
from perdure.ports.store import Filter, Queries, place_of
from perdure.runtime.client import Client
from perdure.runtime.history import list_place, summary
from perdure.verbs.read import TraceAnswer, TraceParams
from perdure.views.journal import JournalEntry, JournalLine, entries, entry_of
from perdure.views.look import ListedInstance, listed_instance
from perdure.views.reasons import rules_in_force
from perdure.views.trace import TraceNode

from .world import (
    NO_CELLS,
    bound_of,
    cell_names,
    in_force,
    refuse_unknown_cell,
    refuse_unknown_of_server,
    without_version,
)

if TYPE_CHECKING:
    from perdure.cells.bound_manifest import BoundManifest

PAGE: Final = 500


@define("cells ls")
@click.argument("cell", required=False)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many at most.")
@click.option("--before", type=click.IntRange(1), default=None, metavar="N", help="Go on from a page before.")
def ls(console: Console, cell: str | None, limit: int, before: int | None) -> None:
    """CELL is the name of a cell, with its version or without; without it, all cells. What was deleted, has failed or
    was cancelled is no more: `perdure ls` lists that too.
    """

    async def read(client: Client) -> list[HeadRow]:
        names = await cell_names(client.queries)
        if cell is not None:
            wanted = without_version(cell)
            await refuse_unknown_cell(client.queries, wanted)
            names = [wanted]
        return await _living(client.queries, names, before or 0, limit + 1)

    if console.server is not None:
        tell_page(console, "cells", *_of_server(console, cell, before or 0, limit), _table)
        return
    found = console.ask(read)
    cells = [listed_instance(summary(head)) for head in found[:limit]]
    tell_page(console, "cells", cells, found[limit - 1].id if len(found) > limit else None, _table)


def _of_server(console: Console, cell: str | None, before: int, limit: int) -> tuple[list[ListedInstance], int | None]:
    """What is shown of the page of a server, which has more of each instance, and where the next page begins."""
    only: dict[str, str] = {}
    if cell is not None:
        only = {"workflow": without_version(cell)}
        refuse_unknown_of_server(console, only["workflow"])
    page = console.request("cells ls", before=before, limit=limit, **only)
    fields = ListedInstance.__struct_fields__
    cells = [ListedInstance(*(getattr(each, name) for name in fields)) for each in page.items]
    return cells, int(page.items[-1].instance) if page.next and page.items else None


async def _living(queries: Queries, names: list[str], before: int, limit: int) -> list[HeadRow]:
    """The newest first, page by page until there are enough."""
    found: list[HeadRow] = []
    only = names[0] if len(names) == 1 else ""
    place = await list_place(queries, before)
    while names and len(found) < limit:
        page = await queries.heads(Filter(workflow=only, before=place, limit=PAGE))
        found += [head for head in page if head.workflow in names and head.status not in TERMINAL]
        if len(page) < PAGE:
            break
        place = place_of(page[-1])
    return found[:limit]


def _table(found: list[ListedInstance]) -> str:
    now = datetime.now(UTC)
    rows = [[style(name, bold=True) for name in ("ID", "STATUS", "VERSION", "MADE", "CHANGED")]]
    for each in found:
        rows.append([each.id, styled(each.status), each.version, ago(each.started_at, now), ago(each.changed_at, now)])
    return table(rows)


@define("cells show")
@click.argument("cell")
@click.argument("key", required=False, default="")
@click.option("--at", type=click.IntRange(0), metavar="N", help="As it was at this entry of the journal.")
@click.option("--at-least", type=click.IntRange(0), metavar="N", help="Wait until the journal has this entry.")
@click.option("--against", metavar="MODULE|FILE", help="The code: a module with the cells, or a manifest file.")
def show(console: Console, cell: str, key: str, *, at: int | None, at_least: int | None, against: str | None) -> None:
    """The state is not stored but made by the reducer from its events, so the code is needed. Without --against it is
    what the manifest in force names, imported from the current directory. A cell without keys needs no KEY.
    """
    from perdure.app import connect, run_async

    name = without_version(cell)
    if console.server is not None:
        _show_of_server(console, name, key, at, given=against is not None or at_least is not None)
        return
    console.ask(lambda client: refuse_unknown_cell(client.queries, name))
    bound = bound_of(against) if against is not None else console.ask(_recorded)

    async def read() -> tuple[Any, int, str]:
        async with connect(console.db, workflows=[bound]) as client:
            height = await client.queries.height()
            if at_least is not None and at_least > height:
                if await client.queries.owner() is None:
                    console.note(
                        f"the journal ends with entry {height}, and no engine runs on {console.db} now: it waits"
                    )
                height = at_least
            behind = await _behind(console, client.queries, Address(name, key)) if at is None else ""
            try:
                state = await client.state(name, key, at=at, at_least=at_least)
                return state, height if at is None else at, behind
            except UnknownVersion as error:
                text = f"{behind}, and read" if behind else f"{name}/{key} is read"
                needed = f"{text} with the code of its own version: name it, --against MODULE"
                raise Stopped(f"{needed} ({error})", Exit.NOT_FOUND, kind="UnknownVersion") from error

    state, entry, behind = run_async(read)
    if behind:
        console.note(behind)
    if state is None:
        raise Stopped(f"there is no cell {name}/{key} at entry {entry}", Exit.NOT_FOUND, kind="UnknownInstance")
    form = _form(bound, name, state)
    value = form.to_json(form.plain(state))
    document = {"id": f"{name}/{key}", "entry": entry, "state": value}
    console.answer(document, to_json(value, indent=2))


def _show_of_server(console: Console, name: str, key: str, at: int | None, *, given: bool) -> None:
    if given or at == 0:
        raise Stopped("a server has the code, and tells what its database has: leave out --against, --at-least, --at 0")
    refuse_unknown_of_server(console, name)
    found = console.request("cells show", id=f"{name}/{key}", at=at or 0)
    if found.goes_to is not UNSET:
        console.note(_not_migrated(console, Address(name, key), found.version, found.goes_to))
    document = {"id": found.id, "entry": int(found.entry or found.head), "state": found.state}
    console.answer(document, to_json(found.state, indent=2))


async def _behind(console: Console, queries: Queries, address: Address) -> str:
    """Says that a cell is not migrated yet to the definition in force; empty: it is, or need not be."""
    head, force = await queries.head(address), await rules_in_force(queries)
    if head is None or head.status in TERMINAL or not force.outdated(head.workflow, head.version):
        return ""
    return _not_migrated(console, address, head.version, force.versions[head.workflow])


def _not_migrated(console: Console, address: Address, version: str, now: str) -> str:
    migrate = console.command("manifest", "migrate")
    text = f"{address} is still of version {version}: it goes over to {now}, which is in force"
    return f"{text}, with its next event, or with `{migrate}`; until then it is shown as it was"


def _form(bound: BoundManifest, name: str, state: Any) -> Any:
    """How a state is written: a record by its class, which may be that of an earlier definition."""
    return shape_of(type(state)) if isinstance(state, Record) else next(d.state for d in bound.cells if d.name == name)


async def _recorded(client: Client) -> BoundManifest:
    """The code that the manifest in force names, if it can be imported here."""
    from perdure.cells.bound_manifest import BoundManifest

    manifest = await in_force(client.queries)
    current_directory_first()
    try:
        return BoundManifest(manifest)
    except BadManifest as error:
        text = f"the code of the cells is needed, and cannot be had from here: {error}; go where it can be imported"
        raise Stopped(f"{text}, or name it: --against MODULE", kind="BadManifest") from error


@define("cells tail")
@click.argument("cell")
@click.argument("key", required=False, default="")
@click.option("-n", "--lines", type=click.IntRange(0), default=10, show_default=True, help="How many at most.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until interrupted.")
def tail(console: Console, cell: str, key: str, lines: int, follow: bool) -> None:
    """Numbers are those of the journal. With --follow, --json prints one document a line. A cell that was deleted and
    made again is followed too. A cell without keys needs no KEY.
    """
    address = Address(without_version(cell), key)

    async def read(client: Client) -> list[Line]:
        past = [line async for line in entries(client.queries, address, follow=False)]
        if not past:
            await refuse_unknown_cell(client.queries, address.workflow)
        if not past and not follow:
            raise UnknownInstance(f"there is no cell {address}; `perdure cells ls` lists what exists")
        return past

    async def watch(client: Client) -> None:
        last = (await read(client))[-lines:] if lines else []
        begin = last[0].seq if last else await client.queries.height() + 1
        async for line in entries(client.queries, address, follow=True):
            if line.seq >= begin:
                _say(console, address, line)

    if follow:
        console.ask(watch)
        return
    if console.server is not None:
        refuse_unknown_of_server(console, address.workflow)
        found = console.request("cells tail", id=str(address), lines=lines).entries if lines else []
    else:
        found = [entry_of(JournalLine(str(address), line)) for line in console.ask(read)[-lines:]] if lines else []
    documents = [*map(document_of, found)]
    console.answer({"id": str(address), "entries": documents}, table([_row(each) for each in found]) if found else "")


def _say(console: Console, address: Address, line: Line) -> None:
    entry = entry_of(JournalLine(str(address), line))
    click.echo(shown(to_json(document_of(entry)) if console.json else "  ".join(_row(entry))))
    sys.stdout.flush()


def _row(entry: JournalEntry) -> list[str]:
    return [entry.entry, local(entry.at), told(entry)]


@define("cells trace")
@click.argument("event")
def trace(console: Console, event: str) -> None:
    """EVENT is the id or the correlation that an event was sent with, or the number of an entry of the journal. Shown
    is each entry that followed from it: cells that took it, receipts of effects that they asked for, cells that took
    what they announced.
    """
    answer: TraceAnswer = console.call("trace", TraceParams(event))
    if answer.traces is None:
        raise Stopped(NO_CELLS, Exit.NOT_FOUND)
    if not answer.traces:
        text = f"no event from outside has the id or the correlation {event!r}, and no entry this number"
        raise Stopped(text, Exit.NOT_FOUND, kind="UnknownEvent")
    console.answer(answer, joined([line for node in answer.traces for line in _lines(node, 0)]))


def _lines(node: TraceNode, depth: int) -> list[str]:
    value = "" if node.value is None else f" {short(node.value)}"
    status = f" {node.status}" if node.status else ""
    outcome = f" → {node.outcome}" if node.outcome else ""
    margin = "  " * depth
    lines = [f"{node.entry:>6}  {local(node.at)}  {margin}{node.id}  {node.what}{status}{value}{outcome}"]
    lines += [f"{'':>6}  {'':>19}  {margin}  no receipt yet: {each}" for each in node.open]
    return [*lines, *(line for each in node.led_to for line in _lines(each, depth + 1))]


@define("cells send")
@click.argument("event")
@click.argument("body")
@click.option("--id", "id", metavar="TEXT", help="The event's own id: the same one twice is taken once.")
@click.option("--correlation", default="", metavar="TEXT", help="Passed on to all that the event leads to.")
def send(console: Console, event: str, body: str, id: str | None, correlation: str) -> None:
    """EVENT is the name of its schema, with the version; BODY is JSON, @file or - (stdin). It is checked by the
    manifest in force, and durable when this returns. Prints the id: `perdure cells trace` finds by it what it led to.
    """
    value = read_json(body, "BODY")
    given = id if id is not None else os.urandom(16).hex()

    async def post(client: Client) -> None:
        await client.send_json(event, value, id=given, correlation=correlation)
        await console.warn_if_nobody_runs(client)

    if console.server is not None:
        console.request("event", once=given, name=event, data=value, correlation=correlation)
    else:
        console.ask(post)
    console.answer({"sent": event, "id": given, "correlation": correlation}, given)
