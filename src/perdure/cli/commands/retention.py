"""`perdure retention`: remove ended instances whose time is over."""

from __future__ import annotations

import time

import click

from perdure.runtime.client import Client
from perdure.runtime.retention import Swept, sweep

from ..console import Console, define


@define("retention run")
@click.option("--dry-run", is_flag=True, help="Only count what would go.")
def run(console: Console, dry_run: bool) -> None:
    """A family goes as a whole, when all of it has ended. Engines do the same every hour."""

    async def read(client: Client) -> Swept:
        return await sweep(client.queries, time.time_ns(), dry_run=dry_run)

    found = console.ask(read)
    document = {"families": found.families, "instances": found.instances, "dry_run": dry_run}
    if dry_run:
        text = f"{found.families} families are due; nothing was removed"
    else:
        text = f"{found.families} families were due; {found.instances} instances were removed"
    console.answer(document, text)
