"""`perdure manifest propose`: somebody wants another manifest."""

from __future__ import annotations

import click

from perdure.cells.patch import in_words

from ...console import Console
from ...console import command as define
from ...rules import ask, tell
from ...text import joined
from ...world import manifest_of


@define("manifest propose")
@click.argument("target", metavar="MODULE[:NAME]|FILE")
def command(console: Console, target: str) -> None:
    """Records the patch from the manifest in force to this one. Each change carries the hash of what it replaces."""
    wanted = manifest_of(target)
    proposal = ask(console, lambda rules: rules.propose(wanted))
    lines = [f"proposal {proposal.number}", *(f"  {line}" for line in in_words(proposal.changes))]
    tell(console, proposal, joined(lines))
