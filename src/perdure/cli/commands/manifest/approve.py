"""`perdure manifest approve`: a person says yes."""

from __future__ import annotations

import click

from ...console import Console
from ...console import command as define
from ...rules import ask, tell


@define("manifest approve")
@click.argument("number", type=int)
def command(console: Console, number: int) -> None:
    """A proposal that was shadowed without a failure. It is not in force by that: `perdure manifest apply`."""
    proposal = ask(console, lambda rules: rules.approve(number))
    tell(console, proposal, f"proposal {number} is approved")
