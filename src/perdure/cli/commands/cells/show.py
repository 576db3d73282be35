"""`perdure cells show`: the state of a cell, now or at an entry of the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perdure.codec.record import Record, shape_of
from perdure.errors import BadManifest, UnknownVersion
from perdure.kernel.events import Address
from perdure.kernel.status import TERMINAL
from perdure.ports.store import Queries
from perdure.runtime.client import Client
from perdure.views.reasons import rules_in_force

from ...console import Console
from ...console import command as define
from ...exits import Exit, Stopped
from ...text import to_json
from ...world import (
    bound_of,
    current_directory_first,
    in_force,
    refuse_unknown_cell,
    without_version,
)

if TYPE_CHECKING:
    from perdure.cells.bind import Bound


@define("cells show")
@click.argument("cell")
@click.argument("key", required=False, default="")
@click.option("--at", type=click.IntRange(0), metavar="N", help="As it was at this entry of the journal.")
@click.option("--at-least", type=click.IntRange(0), metavar="N", help="Wait until the journal has this entry.")
@click.option("--against", metavar="MODULE|FILE", help="The code: a module with the cells, or a manifest file.")
def command(
    console: Console, cell: str, key: str, *, at: int | None, at_least: int | None, against: str | None
) -> None:
    """The state is not stored but made by the reducer from its events, so the code is needed. Without --against it is
    what the manifest in force names, imported from the current directory. A cell without keys needs no KEY.
    """
    from perdure.app import connect, run_async

    name = without_version(cell)
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


async def _behind(console: Console, queries: Queries, address: Address) -> str:
    """Says that a cell has not gone over yet to the definition in force; empty: it has, or need not."""
    head, force = await queries.head(address), await rules_in_force(queries)
    if head is None or head.status in TERMINAL or not force.outdated(head.workflow, head.version):
        return ""
    now, migrate = force.versions[head.workflow], console.command("manifest", "migrate")
    text = f"{address} is still of version {head.version}: it goes over to {now}, which is in force"
    return f"{text}, with its next event, or with `{migrate}`; until then it is shown as it was"


def _form(bound: Bound, name: str, state: Any) -> Any:
    """How a state is written: a record by its class, which may be that of an earlier definition."""
    return shape_of(type(state)) if isinstance(state, Record) else next(d.state for d in bound.cells if d.name == name)


async def _recorded(client: Client) -> Bound:
    """The code that the manifest in force names, if it can be imported here."""
    from perdure.cells.bind import Bound

    manifest = await in_force(client.queries)
    current_directory_first()
    try:
        return Bound(manifest)
    except BadManifest as error:
        text = f"the code of the cells is needed, and cannot be had from here: {error}; go where it can be imported"
        raise Stopped(f"{text}, or name it: --against MODULE", kind="BadManifest") from error
