"""`perdure start`: an instance for the engine of another process."""

from __future__ import annotations

import click

from perdure.runtime.client import Client, Reuse
from perdure.runtime.handle import Handle

from ..console import Console
from ..console import command as define
from ..given import read_json, read_tags, read_time


@define("start")
@click.argument("workflow")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="An object: the arguments by name.")
@click.option("--key", help="Names the instance; the same key again starts nothing. Default: a new one.")
@click.option(
    "--reuse",
    type=click.Choice(["failed", "always"]),
    help="Start a used key again: after a failure, or always.",
)
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="A tag to find it by; any number.")
@click.option("--delay", type=click.FloatRange(0), metavar="SECONDS", help="It begins its work after so long.")
@click.option("--at", metavar="TIME", help="It begins its work then: 2026-11-16T09:00:00Z.")
def command(  # noqa: PLR0917
    console: Console,
    workflow: str,
    given: str | None,
    key: str | None,
    reuse: Reuse | None,
    tags: tuple[str, ...],
    delay: float | None,
    at: str | None,
) -> None:
    """WORKFLOW is the name of a workflow that the last engine on this database ran. Prints the key."""
    value = {} if given is None else read_json(given, "--input")
    when = None if at is None else read_time(at, "--at")
    named = read_tags(tags)

    async def start(client: Client) -> Handle[object]:
        handle = await client.start_plain(workflow, value, key=key, tags=named, reuse=reuse, at=when, delay=delay)
        await console.warn_if_nobody_runs(client)
        return handle

    handle = console.ask(start)
    console.answer({"id": str(handle.address), "workflow": handle.workflow, "key": handle.key}, handle.key)
