"""Commands that try code: the check of sources that an engine does, and replay of what was recorded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from typing import Any, Final, NoReturn

import click
import msgspec

from perdure.app.ours import FILES, FileKind, kind_of_file
from perdure.codec.visible import visible
from perdure.dialect_commands.snapshot import verify as verify_world
from perdure.errors import UnknownVersion
from perdure.kernel.workflows import Workflows
from perdure.runtime.client import Client
from perdure.views.survey import Preview, Replayed, left_alone, preview, survey

from ..console import Console, define
from ..exits import Exit, Stopped
from ..load import code_of, load_all, module_of
from ..text import counted, indented, joined, style

PROBLEM: Final = ("where", "text", "at", "hint", "severity")
"""The fields of a problem that has no names for them."""


@define("check", db="none")
@click.argument("targets", metavar="MODULE[:WORKFLOW]|FILE...", nargs=-1, required=True)
def check(console: Console, targets: tuple[str, ...]) -> None:
    """MODULE is importable from the current directory, or a path ending in .py. Without :WORKFLOW all that it has are
    checked. It is imported, and nothing is run; what it prints meanwhile goes to stderr. FILE is a playbook, or a
    process in YAML or JSON.

    Found are clocks, dice, files and settings in the body of a flow, operations that are not awaited, and the problems
    of a graph, a process or a playbook. A graph may have children of workflows in the MODULEs; name all that it
    needs. Exit code 1 if there are any. Warnings are told and change nothing.
    """
    kinds = {target: kind_of_file(target) for target in targets if target.endswith(FILES)}
    files = {target: kind for target, kind in kinds.items() if kind.problems is not None}
    if files:
        noun = next(iter(files.values())).noun
        if len(files) < len(set(targets)):
            raise Stopped(f"check {noun}s and other workflows with two commands")
        _check_files(console, list(targets), files, noun)
    with redirect_stdout(sys.stderr):
        given = {id(each): each for target in targets for each in _given(target)}.values()
    bodies = sorted([each for each in given if hasattr(each, "findings")], key=lambda each: str(each.name))
    others = sorted([each for each in given if hasattr(each, "problems")], key=lambda each: str(each.name))
    below = os.getcwd() + os.sep
    found = sorted(
        (each._replace(file=each.file.removeprefix(below)), body.name) for body in bodies for each in body.findings
    )
    document: dict[str, Any] = {
        "flows": [body.name for body in bodies],
        "findings": [{"flow": name, **each._asdict()} for each, name in found],
        "ok": not found,
    }
    lines = [f"{style(f'{each.file}:{each.line}:', bold=True)} {each.text}" for each, _ in found]
    number = f"{counted(len(bodies), 'flow')} checked"
    if others:
        known = _known(targets, given)
        values = [value for module in _modules(targets) for value in vars(module_of(module)).values()]
        told = [_problem(each.name, problem) for each in others for problem in _problems(each, known, values)]
        problems = [each for each in told if each.get("severity") != "warning"]
        warnings = [each for each in told if each.get("severity") == "warning"]
        warnings += [_problem(each.name, warning) for each in others for warning in getattr(each, "warnings", ())]
        document["ok"] = not found and not problems
        document["workflows"] = [each.name for each in others]
        document["problems"], document["warnings"] = problems, warnings
        lines += [_line(each, "") for each in problems] + [_line(each, "warning: ") for each in warnings]
        number = f"{counted(len(bodies) + len(others), 'workflow')} checked"
    console.answer(document, joined(lines) if lines else f"{number}, nothing found")
    sys.exit(Exit.OK if document["ok"] else Exit.FAILED)


def _problems(workflow: Any, known: set[str], values: list[Any]) -> Iterable[Any]:
    """The problems of a workflow. Without any, those of the names of other workflows that stand in it."""
    if hasattr(workflow, "problems_beside"):
        return workflow.problems_beside(values, known)  # type: ignore[no-any-return]
    among = getattr(workflow, "problems_among", None)
    return workflow.problems or (() if among is None else among(known | set(workflow.workflows)))


def _known(targets: tuple[str, ...], given: Iterable[Any]) -> set[str]:
    """The names of all workflows of the modules that are checked: a name may stand for one that is not checked."""
    found = [each for module in _modules(targets) for each in load_all(module)]
    return {str(each.name) for each in (*found, *given)}


def _modules(targets: tuple[str, ...]) -> set[str]:
    return {target.partition(":")[0] for target in targets if not target.endswith(FILES)}


def _problem(name: str, problem: tuple[str, ...]) -> dict[str, str]:
    """A problem as the JSON document has it."""
    named = getattr(problem, "_asdict", None)
    return {"workflow": name, **(dict(zip(PROBLEM, problem, strict=False)) if named is None else named())}


def _line(problem: dict[str, str], kind: str) -> str:
    code = f"{problem['code']}: " if problem.get("code") else ""
    hint = f"; {problem['hint']}" if problem.get("hint") and code else ""
    place = f"{problem['workflow']}: {problem['where']}:"
    return f"{style(place, bold=True)} {kind}{code}{problem['text']}{hint}"


def _given(target: str) -> list[Any]:
    return [kind_of_file(target).load(target)] if target.endswith(FILES) else load_all(target)


def _check_files(console: Console, targets: list[str], kinds: dict[str, FileKind], noun: str) -> NoReturn:
    """All problems of each file, and else its warnings. Warnings alone are no failure."""
    readers = [(target, kinds[target].problems) for target in targets]
    found = [each for target, problems in readers if problems is not None for each in problems(target)]
    bad = any(not each.warning for each in found)
    document = {"files": targets, "problems": [msgspec.to_builtins(each) for each in found], "ok": not bad}
    number = f"{counted(len(targets), noun)} checked"
    console.answer(document, joined([str(each) for each in found]) if found else f"{number}, nothing found")
    sys.exit(Exit.FAILED if bad else Exit.OK)


@define("replay")
@click.option("--against", "targets", multiple=True, required=True, metavar="MODULE[:FLOW]", help="The new code.")
@click.option("--verify", is_flag=True, help="Replay the whole world of cells, and compare every decision and root.")
@click.option("--from", "since", metavar="HASH", help="With --verify: begin with this world snapshot.")
def replay(console: Console, targets: tuple[str, ...], verify: bool, since: str | None) -> None:
    """The histories of all instances that have not ended are replayed on the code of MODULE, without side effects:
    no step runs, nothing is written. Exit code 1 if any of them would diverge.

    An instance is replayed on the version that it started with, if MODULE has that, else on the newest one. An instance
    of a definition that the database keeps stays on its version, and is safe.

    With --verify every entry of the journal is replayed, from the first one or from a world snapshot, each cell with
    the definition that it had then; every snapshot on the way must come out with its hash. Exit code 1 and the first
    difference, if there is one.
    """
    if verify:
        verify_world(console, targets, since)
    if since is not None:
        raise Stopped("--from is for --verify")
    with redirect_stdout(sys.stderr):
        workflows = Workflows(each for target in targets for each in code_of(target))

    async def read(client: Client) -> tuple[list[Replayed], dict[str, int]]:
        return await survey(client.queries, workflows), await left_alone(client.queries, workflows)

    with redirect_stdout(sys.stderr):  # what is replayed may print
        found, left = console.ask(read)
    unsafe = [each for each in found if each.divergence is not None]
    document = {"replayed": len(found), "safe": len(found) - len(unsafe), "unsafe": unsafe, "left": left}
    lines: list[str] = [
        indented(f"{style(visible(each.id), bold=True)}: {(each.divergence or '').removeprefix(f'{each.id}, ')}")
        for each in unsafe
    ]
    lines.append(f"{_instances(len(found))} replayed: {document['safe']} safe, {len(unsafe)} would be stuck")
    lines += [f"{visible(name)}: {_instances(count)} of which this code has nothing" for name, count in left.items()]
    console.answer(document, joined(lines))
    sys.exit(Exit.FAILED if unsafe else Exit.OK)


def _instances(count: int) -> str:
    return counted(count, "instance")


def tell_preview(console: Console, name: str, version: str) -> None:
    """The dry run of an activation: what the version would do with the live instances of its workflow."""

    async def read(client: Client) -> Preview:
        workflow = await client.code(name, version)
        if workflow is None:
            raise UnknownVersion(f"{name} has no version {version!r} that can run here")
        return await preview(client.queries, workflow)

    with redirect_stdout(sys.stderr):
        on_server = console.server is not None
        found = console.request("preview", name=name, version=version) if on_server else console.ask(read)
    lines = [f"{found.looked} of {found.live} live instances were looked at: {found.safe} would go on"]
    for each in found.unfit:
        lines.append(f"{each.count} diverge{f' at {visible(each.location)}' if each.location else ''}, such as")
        lines += [indented(f"  {visible(one.divergence or '')}") for one in each.sample[:1]]
    if found.stay:
        lines.append("live instances keep their version: only new ones run on this one")
    console.answer(msgspec.to_builtins(found), joined(lines))
