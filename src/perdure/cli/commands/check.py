"""`perdure check`: the check of a flow's source that an engine does, for editors and CI."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.flows.author import Flow

from ..console import Console
from ..console import command as define
from ..exits import Exit, Stopped
from ..load import is_playbook, load_all
from ..text import joined, style


@define("check", db="none")
@click.argument("targets", metavar="MODULE[:FLOW]|FILE...", nargs=-1, required=True)
def command(console: Console, targets: tuple[str, ...]) -> None:
    """MODULE is importable from the current directory, or a path ending in .py. Without :FLOW all its flows are
    checked. It is imported, and nothing is run; what it prints meanwhile goes to stderr. FILE is a playbook.

    Found are clocks, dice, files and settings in the body of a flow, and operations that are not awaited. Exit code 1
    if there are any.
    """
    files = [target for target in targets if is_playbook(target)]
    if files:
        if len(files) < len(targets):
            raise Stopped("check playbooks and flows with two commands")
        _check_playbooks(console, files)
        return
    with redirect_stdout(sys.stderr):
        flows = [each for target in targets for each in load_all(target) if isinstance(each, Flow)]
    flows = sorted({id(flow): flow for flow in flows}.values(), key=lambda flow: flow.name)
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
    console.answer(document, joined(lines) if lines else f"{number}, nothing found")
    sys.exit(Exit.FAILED if found else Exit.OK)


def _check_playbooks(console: Console, files: list[str]) -> None:
    """All problems of each file, and else its warnings. Warnings alone are no failure."""
    from perdure.app.playbooks import installed
    from perdure.playbooks.check import problems_of

    found = [each for file in files for each in problems_of(_read(file), file, installed())]
    bad = any(not each.warning for each in found)
    document = {"files": files, "problems": [msgspec.to_builtins(each) for each in found], "ok": not bad}
    number = f"{len(files)} playbook{'s' if len(files) != 1 else ''} checked"
    console.answer(document, joined([str(each) for each in found]) if found else f"{number}, nothing found")
    sys.exit(Exit.FAILED if bad else Exit.OK)


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise Stopped(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Stopped(f"{file} is not UTF-8") from None
