"""`perdure snapshot restore`: a new database from a snapshot and what came after it."""

from __future__ import annotations

import click

from perdure.codec import to_plain

from ...console import Console
from ...console import command as define
from ...snapshots import ask


@define("snapshot restore")
@click.argument("path")
@click.option("--snapshot", "hash", metavar="HASH", help="Which one, or how its hash begins.  [default: the newest]")
@click.option("--no-tail", is_flag=True, help="Leave out what came after it.")
def command(console: Console, path: str, hash: str | None, no_tail: bool) -> None:
    """PATH is a file that does not exist yet; it appears when it is complete. Cells begin there with the state that
    they had at the snapshot, and go on with the entries after it. Nothing is taken over if any part of it is missing.
    """
    restored = ask(console, lambda snapshots: snapshots.restore(path, hash, tail=not no_tail))
    text = (
        f"{path}: {restored.instances} instances of {restored.hash[:19]} at entry {restored.entry}, "
        f"{restored.tail} entries after it, {restored.inbox} waiting events"
    )
    console.answer({"path": path, **to_plain(restored)}, text)
