"""`perdure snapshot take`: the whole world at its last entry, under one hash."""

from __future__ import annotations

import click

from ...console import Console
from ...console import command as define
from ...snapshots import against, ask, document, told


@define("snapshot take")
@against
@click.option("--full", is_flag=True, help="Begin with the first entry, whatever snapshots there are.")
def command(console: Console, targets: tuple[str, ...], full: bool) -> None:
    """The journal is replayed from the last snapshot on, with the code of MODULE; what changed is written as blobs. It
    does not matter whether an engine runs: the snapshot is of what is durable. The same entry has the same hash.
    """
    taken = ask(console, lambda snapshots: snapshots.take(full=full), targets)
    console.answer({**document(taken), "written": taken.written}, f"{told(taken)}; {taken.written} blobs written")
