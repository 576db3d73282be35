"""`perdure playbooks simulate` and `perdure playbooks test`: playbooks on stubs, from the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from msgspec import convert, to_builtins

from perdure.app.ours import load_playbook
from perdure.cli.console import Console, define
from perdure.cli.exits import Exit, Stopped
from perdure.cli.given import read_json, with_sets
from perdure.cli.text import joined

from .playbooks import Simulated, cases_of
from .playbooks import simulate as simulated


@define("playbooks simulate", db="none")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--input", "given", metavar="JSON|@FILE|-", help="The input, over the workload.")
@click.option("--set", "sets", metavar="PATH=VALUE", multiple=True, help="One value of the input.")
@click.option("--stubs", metavar="JSON|@FILE", help="Location patterns to results. Others give null.")
@click.option("--runs", type=click.IntRange(min=1), default=20, show_default=True, help="How many, each by other dice.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--crash", is_flag=True, help="Add a crash at every commit.")
def simulate(  # noqa: PLR0917
    console: Console,
    file: str,
    given: str | None,
    sets: tuple[str, ...],
    stubs: str | None,
    runs: int,
    seed: int,
    crash: bool,
) -> None:
    """Actions without a stub give null or fail, by the dice of each run. Told are verdicts, and which steps, arcs
    and rules no run has come to. Exit code 1: a crash made a difference.
    """
    value = with_sets(None if given is None else read_json(given, "--input"), sets) or {}
    outcomes = {} if stubs is None else read_json(stubs, "--stubs")
    if console.server is None:
        told = simulated(load_playbook(file), value, outcomes, runs=runs, seed=seed, crash=crash)
    elif crash:
        raise Stopped("--crash takes longer than a server may take to answer: leave out --server")
    else:
        text = Path(file).read_text(encoding="utf-8")
        answer = console.request("simulate", text=text, input=value, stubs=outcomes, runs=runs, seed=seed)
        told = convert(to_builtins(answer), Simulated)
    console.answer(told.document(), joined(told.lines()))
    sys.exit(Exit.FAILED if told.finding else Exit.OK)


@define("playbooks test", db="none")
@click.argument("files", metavar="FILE|FOLDER...", nargs=-1, type=click.Path(exists=True))
def test(console: Console, files: tuple[str, ...]) -> None:
    """A FOLDER means all its files that end in .test.yaml; without any, the current one."""
    found = [each for given in files or (".",) for each in _files(Path(given))]
    if not found:
        raise Stopped("there is no file that ends in .test.yaml")
    results = [(case, case.run()) for file in found for case in cases_of(file)]
    bad = [(case, problems) for case, problems in results if problems]
    document = {
        "tests": [{"file": str(case.file), "name": case.name, "problems": problems} for case, problems in results],
        "ok": not bad,
    }
    lines = [f"{case.file}: {case.name}: {problem}" for case, problems in bad for problem in problems]
    lines.append(f"{len(results) - len(bad)} of {len(results)} tests passed")
    console.answer(document, joined(lines))
    sys.exit(Exit.FAILED if bad else Exit.OK)


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.test.yaml")) if path.is_dir() else [path]
