"""`perdure processes functions`: what expressions can call."""

from __future__ import annotations

from perdure.expressions.functions import FUNCTIONS

from ...console import Console
from ...console import command as define
from ...text import style, table


@define("processes functions", db="none")
def command(console: Console) -> None:
    """Functions of users are not among them: they are given to perdure.open(functions=[...])."""
    found = {name: each for name, each in FUNCTIONS.items() if each.processes}
    rows = [[style(word, bold=True) for word in ("FUNCTION", "GIVES", "WHAT IT DOES")]]
    rows += [[name, each.gives, each.about] for name, each in found.items()]
    document = [{"name": name, "gives": each.gives, "text": each.about} for name, each in found.items()]
    console.answer({"functions": document}, table(rows))
