"""`perdure playbooks render`: the fields of an action as they would be recorded."""

from __future__ import annotations

import click

from perdure.app.playbooks import load_playbook, rendered

from ...console import Console
from ...console import command as define
from ...given import read_json, with_sets
from ...text import to_json


@define("playbooks render", db="none")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.argument("action", metavar="STEP[/LABEL]")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="The input, over the workload.")
@click.option("--set", "sets", metavar="PATH=VALUE", multiple=True, help="One value of the input.")
@click.option(
    "--with", "more", metavar="PATH=VALUE", multiple=True, help="What else is seen: ctx.n=1, iter.shop=north."
)
def command(  # noqa: PLR0917
    console: Console, file: str, action: str, given: str | None, sets: tuple[str, ...], more: tuple[str, ...]
) -> None:
    """Nothing runs. Secrets are shown by their names."""
    value = with_sets(None if given is None else read_json(given, "--input"), sets)
    found = rendered(load_playbook(file), action, value or {}, with_sets(None, more) or {})
    console.answer(found, to_json(found, indent=2))
