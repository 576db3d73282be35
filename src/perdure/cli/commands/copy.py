"""`perdure copy`: a stopped world goes into another database."""

from __future__ import annotations

import click

from perdure import app
from perdure.codec import to_plain

from ..console import Console
from ..console import command as define


@define("copy", db="none")
@click.argument("source")
@click.argument("target")
def command(console: Console, source: str, target: str) -> None:
    """SOURCE and TARGET are paths of SQLite files, or postgresql://... with ?schema=NAME. TARGET is made: a file must
    not be there, a schema may be, if it is empty. No engine may run on either. The source stays as it is.

    The journal is copied as it is, and all tables are folded from it anew and compared. A PostgreSQL database that is
    made gets as many shards as the source has: one, if that is a file.
    """
    from perdure.app.copy import move

    last = 0

    def told(what: str, done: int, total: int) -> None:
        nonlocal last
        if done * 10 // max(1, total) != last:
            last = done * 10 // max(1, total)
            console.note(f"{what}: {done:,} of {total:,}")

    moved = app.run_async(lambda: move(source, target, told))
    text = (
        f"{moved.entries:,} entries of {moved.instances:,} instances, {moved.inbox} waiting events and {moved.blobs} "
        f"blobs were copied, and replay to the same state"
    )
    console.answer(to_plain(moved), text)
