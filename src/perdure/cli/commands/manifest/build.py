"""`perdure manifest build`: the cells of a module as a manifest file."""

from __future__ import annotations

from pathlib import Path

import click

from perdure.cells import load

from ...console import Console
from ...console import command as define
from ...exits import Stopped
from ...text import joined
from ...world import bound_of

FORMS = {"json": load.to_json, "yaml": load.to_yaml}


@define("manifest build", db="none")
@click.argument("module", metavar="MODULE[:NAME]")
@click.option("-o", "--output", metavar="FILE", help="Write it there: .json, .yaml or .yml. Default: to stdout.")
@click.option("--format", "form", type=click.Choice(list(FORMS)), help="Default: by the name of the file, else json.")
def command(console: Console, module: str, output: str | None, form: str | None) -> None:
    """MODULE is importable from the current directory, or a path ending in .py. Its cells are taken in the order in
    which they are defined, or its only `perdure.manifest(...)`; NAME picks one.
    """
    manifest = bound_of(module).manifest
    if form is None:
        form = "yaml" if output is not None and Path(output).suffix.lower() in (".yaml", ".yml") else "json"
    text = FORMS[form](manifest)
    if output is None:
        console.answer(manifest.data(), joined(text.rstrip("\n").split("\n")))
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Stopped(f"{output} cannot be written: {error.strerror}") from error
    document = {"file": output, "hash": manifest.hash, "cells": list(manifest.cells)}
    console.answer(document, f"wrote {len(manifest.cells)} cells to {output}: {manifest.hash}")
