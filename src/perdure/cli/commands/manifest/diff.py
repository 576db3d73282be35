"""`perdure manifest diff`: what leads from one manifest to another."""

from __future__ import annotations

import sys
from typing import Any

import click

from perdure.cells.compare import Contrast, contrasts

from ...console import Console
from ...console import command as define
from ...exits import Exit
from ...text import joined, short, style
from ...world import manifest_of

SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


@define("manifest diff", db="none")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
def command(console: Console, a: str, b: str) -> None:
    """A and B are manifest files, modules (MODULE[:NAME]) or databases, which means what is in force there. Exit code 1
    if they differ.
    """
    before, after = manifest_of(a), manifest_of(b)
    found = contrasts(before, after)
    document: dict[str, Any] = {
        "a": {"target": a, "hash": before.hash},
        "b": {"target": b, "hash": after.hash},
        "changes": [{"kind": c.kind, "path": c.path, "before": c.before, "after": c.after} for c in found],
    }
    same = f"{a} and {b} are the same: {after.hash}"
    console.answer(document, joined(map(_told, found)) if found else same)
    sys.exit(Exit.FAILED if found else Exit.OK)


def _told(contrast: Contrast) -> str:
    sign, colour = SIGNS[contrast.kind]
    values = [short(value, 80) for value in (contrast.before, contrast.after) if value is not None]
    return f"{style(sign, fg=colour)} {contrast.path}: {' → '.join(values)}"
