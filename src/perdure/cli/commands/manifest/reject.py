"""`perdure manifest reject`: a person says no."""

from __future__ import annotations

import click

from ...console import Console
from ...console import command as define
from ...rules import ask, tell


@define("manifest reject")
@click.argument("number", type=int)
@click.option("--reason", default="", metavar="TEXT", help="Recorded with it.")
def command(console: Console, number: int, reason: str) -> None:
    """A proposal that is not applied yet. It stays in the record."""
    proposal = ask(console, lambda rules: rules.reject(number, reason))
    tell(console, proposal, f"proposal {number} is rejected")
