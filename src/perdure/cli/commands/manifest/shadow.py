"""`perdure manifest shadow`: what a manifest would do to the world as it is now."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from perdure.codec import to_plain
from perdure.errors import CallerError
from perdure.worlds.shadow import ShadowReport

from ...console import Console
from ...console import command as define
from ...exits import Exit
from ...given import read_json
from ...rules import ask, mode, number_in
from ...text import joined
from ...world import bound_of


@define("manifest shadow")
@click.argument("target", metavar="TARGET")
@click.option("--against", metavar="CODE", help="The module or manifest file to run it with; needed for a proposal.")
@click.option("--receipts", metavar="JSON", help='How effects are answered: {"payment/charge@1": {"auth": "x"}}.')
@click.option("--recorded", is_flag=True, help="Answer as was answered before, for the same parameters.")
@click.option("--horizon", type=float, default=3600, show_default=True, metavar="SECONDS", help="How far time goes on.")
@mode
def command(console: Console, target: str, against: str | None, mode: Any, **answers: Any) -> None:
    """TARGET is the number of a proposal, a module or a manifest file. On a copy, in virtual time; no effect is
    executed. A proposal keeps the report, and can then be approved; it is applied in the --mode of its shadow run. Exit
    code 1 if something failed.
    """
    number = number_in(target)
    if number is not None and against is None:
        raise CallerError("a proposal has no code of its own: name it with --against MODULE")
    code = bound_of(against or target)
    receipts = answers["receipts"]
    report = ask(
        console,
        lambda rules: rules.shadow(
            code if number is None else number,
            mode=mode,
            receipts=None if receipts is None else read_json(receipts, "--receipts"),
            recorded=answers["recorded"],
            horizon=answers["horizon"],
        ),
        [code],
    )
    console.answer(to_plain(report), joined(_told(report)))
    sys.exit(Exit.FAILED if report.failures else Exit.OK)


def _told(report: ShadowReport) -> Iterator[str]:
    for failure in report.failures:
        yield f"failed: {failure}"
    for cell, found in report.allowlists.items():
        if found["added"]:
            yield f"{cell}: may newly ask for {', '.join(found['added'])}"
    for name, count in report.effects.items():
        yield f"{name}: asked for {count} times"
    for name, count in report.open.items():
        yield f"{name}: {count} open at the end"
    yield f"{report.changed} cells have another state"
    for where, count in report.statuses.items():
        yield f"{where}: {count}"
    yield report.caveat
