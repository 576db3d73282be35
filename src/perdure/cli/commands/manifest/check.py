"""`perdure manifest check`: whether a manifest holds together, and with its code."""

from __future__ import annotations

import sys
from typing import Any

import click

from perdure.errors import BadDefinition, BadManifest

from ...console import Console
from ...console import command as define
from ...exits import Exit
from ...text import joined
from ...world import bound_of


@define("manifest check", db="none")
@click.argument("target", metavar="MODULE[:NAME]|FILE")
def command(console: Console, target: str) -> None:
    """FILE ends in .json, .yaml or .yml; its reducers are imported from the current directory, and must agree with it.
    Exit code 1 if something is wrong, with the place.
    """
    try:
        manifest = bound_of(target).manifest
    except (BadDefinition, BadManifest) as error:
        problem = {"path": error.path, "where": error.where, "text": str(error)}
        problem["code"] = error.code if isinstance(error, BadManifest) else "bad-definition"
        console.answer({"ok": False, "hash": None, "problem": problem}, str(error))
        sys.exit(Exit.FAILED)
    parts = {name: len(getattr(manifest, name)) for name in ("cells", "schemas", "effects", "routing")}
    document: dict[str, Any] = {"ok": True, "hash": manifest.hash, **parts, "problem": None}
    counts = ", ".join(f"{name} {count}" for name, count in parts.items())
    console.answer(document, joined([f"{target} is good: {counts}", manifest.hash]))
