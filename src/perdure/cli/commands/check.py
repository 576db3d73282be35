"""`perdure check`: the check of a flow's source that an engine does, for editors and CI."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import Any

import click

from perdure.flows.author import Flow

from ..console import Console
from ..console import command as define
from ..exits import Exit
from ..load import load_all
from ..text import joined, style

PROBLEM = ("workflow", "where", "text", "at", "hint", "severity")
"""The fields of a problem in the JSON document."""


@define("check", db="none")
@click.argument("targets", metavar="MODULE[:WORKFLOW]|FILE...", nargs=-1, required=True)
def command(console: Console, targets: tuple[str, ...]) -> None:
    """MODULE is importable from the current directory, or a path ending in .py. Without :WORKFLOW all that it has are
    checked. It is imported, and nothing is run; what it prints meanwhile goes to stderr. FILE is a process in YAML or
    JSON.

    Found are clocks, dice, files and settings in the body of a flow, operations that are not awaited, and the problems
    of a graph. Exit code 1 if there are any. Warnings are told and change nothing.
    """
    with redirect_stdout(sys.stderr):
        given = {id(each): each for target in targets for each in _given(target)}.values()
    flows = [each for each in given if isinstance(each, Flow)]
    others = sorted([each for each in given if hasattr(each, "problems")], key=lambda each: str(each.name))
    flows = sorted(flows, key=lambda flow: flow.name)
    below = os.getcwd() + os.sep
    found = sorted(
        (each._replace(file=each.file.removeprefix(below)), flow.name) for flow in flows for each in flow.findings
    )
    document: dict[str, Any] = {
        "flows": [flow.name for flow in flows],
        "findings": [{"flow": name, **each._asdict()} for each, name in found],
        "ok": not found,
    }
    lines = [f"{style(f'{each.file}:{each.line}:', bold=True)} {each.text}" for each, _ in found]
    number = f"{len(flows)} flow{'s' if len(flows) != 1 else ''} checked"
    if others:
        told = [(each.name, *problem) for each in others for problem in each.problems]
        problems = [each for each in told if each[-1] != "warning"]
        warnings = [each for each in told if each[-1] == "warning"]
        warnings += [(each.name, *warning) for each in others for warning in getattr(each, "warnings", ())]
        document["ok"] = not found and not problems
        document["workflows"] = [each.name for each in others]
        document["problems"] = [dict(zip(PROBLEM, each, strict=False)) for each in problems]
        document["warnings"] = [dict(zip(PROBLEM, each, strict=False)) for each in warnings]
        lines += [f"{style(f'{name}: {where}:', bold=True)} {text}" for name, where, text, *_ in problems]
        lines += [f"{style(f'{name}: {where}:', bold=True)} warning: {text}" for name, where, text, *_ in warnings]
        number = f"{len(flows) + len(others)} workflows checked"
    console.answer(document, joined(lines) if lines else f"{number}, nothing found")
    sys.exit(Exit.OK if document["ok"] else Exit.FAILED)


def _given(target: str) -> list[Any]:
    if target.endswith((".yaml", ".yml", ".json")):
        from perdure.app.definitions import load_process

        return [load_process(target)]
    return load_all(target)
