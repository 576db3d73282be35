"""`perdure playbooks simulate`: the real machine on stubs, in virtual time."""

from __future__ import annotations

import sys

import click

from perdure.app.playbooks import load_playbook
from perdure.testing.playbooks import simulate

from ...console import Console
from ...console import command as define
from ...exits import Exit
from ...given import read_json, with_sets
from ...text import joined


@define("playbooks simulate", db="none")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--input", "given", metavar="JSON|@FILE|-", help="The input, over the workload.")
@click.option("--set", "sets", metavar="PATH=VALUE", multiple=True, help="One value of the input.")
@click.option("--stubs", metavar="JSON|@FILE", help="Location patterns to results. Others give null.")
@click.option("--runs", type=click.IntRange(min=1), default=20, show_default=True, help="How many, each by other dice.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--crash", is_flag=True, help="Add a crash at every commit.")
def command(  # noqa: PLR0917
    console: Console,
    file: str,
    given: str | None,
    sets: tuple[str, ...],
    stubs: str | None,
    runs: int,
    seed: int,
    crash: bool,
) -> None:
    """Actions without a stub give null or fail, by the dice of each run. Told are verdicts, and which steps and arcs
    no run has come to. Exit code 1: a crash made a difference.
    """
    value = with_sets(None if given is None else read_json(given, "--input"), sets) or {}
    table = {} if stubs is None else read_json(stubs, "--stubs")
    told = simulate(load_playbook(file), value, table, runs=runs, seed=seed, crash=crash)
    console.answer(told.document(), joined(told.lines()))
    sys.exit(Exit.FAILED if told.finding else Exit.OK)
