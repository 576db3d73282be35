"""`perdure manifest apply`: another manifest is in force from here on."""

from __future__ import annotations

from typing import Any

import click

from ...console import Console
from ...console import command as define
from ...rules import ask, mode, number_in
from ...world import manifest_of


@define("manifest apply")
@click.argument("target", metavar="TARGET")
@mode
def command(console: Console, target: str, mode: Any) -> None:
    """TARGET is the number of an approved proposal. A module or a manifest file is applied at once, without one: for
    development. The engine that runs must have the code.
    """
    number = number_in(target)
    wanted = manifest_of(target) if number is None else number
    hash = ask(console, lambda rules: rules.apply(wanted, mode))
    console.answer({"hash": hash, "mode": mode}, f"in force ({mode}): {hash}")
