"""`perdure snapshot ls`: the world snapshots that are retained."""

from __future__ import annotations

from ...console import Console
from ...console import command as define
from ...snapshots import ask, document, told
from ...text import joined


@define("snapshot ls")
def command(console: Console) -> None:
    """The oldest first. `base` is the one that the database was restored from."""
    found = ask(console, lambda snapshots: snapshots.retained())
    console.answer({"snapshots": [document(each) for each in found]}, joined(map(told, found)))
    if not found and not console.json:
        console.note("no snapshot was taken yet")
