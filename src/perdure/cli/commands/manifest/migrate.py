"""`perdure manifest migrate`: every cell goes over that is to go over."""

from __future__ import annotations

from perdure.worlds.governance import Governance

from ...console import Console
from ...console import command as define
from ...rules import ask


@define("manifest migrate")
def command(console: Console) -> None:
    """After `perdure manifest apply --mode migrate`, which lets each cell go over when it is next used. Cells that
    could not go over, and are stuck at that, try again.
    """
    count = ask(console, Governance.migrate)
    console.answer({"migrated": count}, f"{count} cells were told to go over")
