"""Commands about manifests: build, check and compare them, and change the one in force by a proposal."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click
from msgspec import convert

from perdure.cells import load
from perdure.cells.compare import Contrast, contrasts
from perdure.cells.patch import in_words, read_patch
from perdure.cli.commands.read import write_file
from perdure.cli.console import Console, define
from perdure.cli.exits import Exit, Stopped
from perdure.cli.given import read_json
from perdure.cli.text import joined, short, style
from perdure.codec import to_plain
from perdure.errors import BadDefinition, BadManifest, CallerError
from perdure.runtime.client import Client

from .world import bound_of, manifest_of

if TYPE_CHECKING:
    from perdure.worlds.governance import Governance, Proposal
    from perdure.worlds.shadow import ShadowReport

T = TypeVar("T")
FORMS: Final = {"json": load.to_json, "yaml": load.to_yaml}
SIGNS: Final = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
MODES: Final = ("pinned", "migrate", "strict")

# ---- manifests as such: no database is needed --------------------------------------------------------------


@define("manifest build", db="none")
@click.argument("module", metavar="MODULE[:NAME]")
@click.option("-o", "--output", metavar="FILE", help="Write it there: .json, .yaml or .yml. Default: to stdout.")
@click.option("--format", "form", type=click.Choice(list(FORMS)), help="Default: by the name of the file, else json.")
def build(console: Console, module: str, output: str | None, form: str | None) -> None:
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
    write_file(output, text)
    document = {"file": output, "hash": manifest.hash, "cells": list(manifest.cells)}
    console.answer(document, f"wrote {len(manifest.cells)} cells to {output}: {manifest.hash}")


@define("manifest check", db="none")
@click.argument("target", metavar="MODULE[:NAME]|FILE")
def check(console: Console, target: str) -> None:
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


@define("manifest diff", db="none")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
def diff(console: Console, a: str, b: str) -> None:
    """A and B are manifest files, modules (MODULE[:NAME]), databases or servers, which means what is in force there.
    Exit code 1 if they differ.
    """
    before, after = manifest_of(a), manifest_of(b)
    found = contrasts(before, after)
    document: dict[str, Any] = {
        "a": {"target": a, "hash": before.hash},
        "b": {"target": b, "hash": after.hash},
        "changes": [{"kind": c.kind, "path": c.path, "before": c.before, "after": c.after} for c in found],
    }
    same = f"{a} and {b} are the same: {after.hash}"
    console.answer(document, joined(map(_contrast, found)) if found else same)
    sys.exit(Exit.FAILED if found else Exit.OK)


def _contrast(contrast: Contrast) -> str:
    sign, colour = SIGNS[contrast.kind]
    values = [short(value, 80) for value in (contrast.before, contrast.after) if value is not None]
    return f"{style(sign, fg=colour)} {contrast.path}: {' → '.join(values)}"


# ---- the manifest in force, and proposals for another one --------------------------------------------------


def _ask(console: Console, question: Callable[[Governance], Awaitable[T]], code: Iterable[Any] = ()) -> T:
    """Ask the world of a database. It answers when an engine runs: without one, nothing is asked."""
    from perdure.app import connect, run_async
    from perdure.worlds.governance import Governance

    async def main() -> T:
        async with connect(console.db, workflows=code) as client:
            if await client.queries.owner() is None:
                text = f"no engine runs on {console.db} now, and the rules of a world are its own: start one"
                raise Stopped(text, Exit.CONFLICT)
            return await question(Governance(client))

    answer: T = run_async(main)
    return answer


def _tell(console: Console, proposal: Proposal, text: str) -> None:
    console.answer(_proposal(proposal), text)


def _proposal(proposal: Proposal) -> dict[str, Any]:
    changes = [change.data() if hasattr(change, "data") else change for change in proposal.changes]
    report = proposal.report
    return {
        "proposal": proposal.number,
        "status": proposal.status,
        "base": proposal.base,
        "mode": proposal.mode,
        "reason": proposal.reason,
        "changes": changes,
        "report": report,
    }


def _number_in(target: str) -> int | None:
    """The number of a proposal, if that is what was typed; else it names a manifest."""
    return int(target) if target.isdigit() else None


def _mode(function: Callable[..., None]) -> Callable[..., None]:
    text = "What becomes of cells that live: pinned to their definition, migrated, or (strict) there must be none."
    choice = click.Choice(MODES)
    option: Callable[..., Any] = click.option("--mode", type=choice, default="pinned", show_default=True, help=text)
    return option(function)  # type: ignore[no-any-return]


@define("manifest propose")
@click.argument("target", metavar="MODULE[:NAME]|FILE")
def propose(console: Console, target: str) -> None:
    """Records the patch from the manifest in force to this one. Each change carries the hash of what it replaces."""
    wanted = manifest_of(target)
    proposal: Any
    if console.server is not None:
        proposal = console.request("manifest propose", manifest=wanted.data())
    else:
        proposal = _ask(console, lambda rules: rules.propose(wanted))
    changes = read_patch(_proposal(proposal)["changes"])
    lines = [f"proposal {proposal.number}", *(f"  {line}" for line in in_words(changes))]
    _tell(console, proposal, joined(lines))


@define("manifest proposals")
def proposals(console: Console) -> None:
    """All that there ever were, in order. No engine is needed to read them."""

    from perdure.worlds.governance import Governance

    async def read(client: Client) -> list[dict[str, object]]:
        return [_proposal(each) for each in await Governance(client).proposals()]

    if console.server is not None:
        found = [_proposal(each) for each in reversed(console.request("manifest proposals").items)]
    else:
        found = console.ask(read)
    lines = [f"{each['proposal']}  {each['status']}  {each['mode']}  {each['reason']}".rstrip() for each in found]
    console.answer({"proposals": found}, joined(lines) if lines else "nothing was proposed yet")


@define("manifest shadow")
@click.argument("target", metavar="TARGET")
@click.option("--against", metavar="CODE", help="The module or manifest file to run it with; needed for a proposal.")
@click.option("--receipts", metavar="JSON", help='How effects are answered: {"payment/charge@1": {"auth": "x"}}.')
@click.option("--recorded", is_flag=True, help="Answer as was answered before, for the same parameters.")
@click.option("--horizon", type=float, default=3600, show_default=True, metavar="SECONDS", help="How far time goes on.")
@_mode
def shadow(console: Console, target: str, against: str | None, mode: Any, **answers: Any) -> None:
    """TARGET is the number of a proposal, a module or a manifest file. On a copy, in virtual time; no effect is
    executed. A proposal keeps the report, and can then be approved; it is applied in the --mode of its shadow run. Exit
    code 1 if something failed.
    """
    number = _number_in(target)
    if console.server is not None and number is not None:
        _tell_report(console, _shadow_of_server(console, number, mode, against, answers))
    if number is not None and against is None:
        raise CallerError("a proposal has no code of its own: name it with --against MODULE")
    code = bound_of(against or target)
    receipts = answers["receipts"]
    report = _ask(
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
    _tell_report(console, report)


def _shadow_of_server(
    console: Console, number: int, mode: str, against: str | None, answers: dict[str, Any]
) -> ShadowReport:
    from perdure.worlds.shadow import ShadowReport

    if against is not None:
        raise Stopped("a server has the code of its own: leave out --against")
    receipts = {} if answers["receipts"] is None else read_json(answers["receipts"], "--receipts")
    said = {"receipts": receipts, "recorded": answers["recorded"], "horizon": answers["horizon"]}
    report = console.request("manifest shadow", number=number, mode=mode, **said).report
    if report is None:
        text = f"the run goes on: `{console.command('manifest', 'proposals')}` has its report when it is done"
        raise Stopped(text, Exit.TIMEOUT, kind="StillWorking")
    return convert(report, ShadowReport)


def _tell_report(console: Console, report: ShadowReport) -> NoReturn:
    console.answer(to_plain(report), joined(_report(report)))
    sys.exit(Exit.FAILED if report.failures else Exit.OK)


def _report(report: ShadowReport) -> Iterator[str]:
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


@define("manifest approve")
@click.argument("number", type=int)
def approve(console: Console, number: int) -> None:
    """A proposal that was shadowed without a failure. It is not in force by that: `perdure manifest apply`."""
    if console.server is not None:
        proposal = console.request("manifest approve", number=number)
    else:
        proposal = _ask(console, lambda rules: rules.approve(number))
    _tell(console, proposal, f"proposal {number} is approved")


@define("manifest reject")
@click.argument("number", type=int)
@click.option("--reason", default="", metavar="TEXT", help="Recorded with it.")
def reject(console: Console, number: int, reason: str) -> None:
    """A proposal that is not applied yet. It stays in the record."""
    if console.server is not None:
        proposal = console.request("manifest reject", number=number, reason=reason)
    else:
        proposal = _ask(console, lambda rules: rules.reject(number, reason))
    _tell(console, proposal, f"proposal {number} is rejected")


@define("manifest apply")
@click.argument("target", metavar="TARGET")
@_mode
def apply(console: Console, target: str, mode: Any) -> None:
    """TARGET is the number of an approved proposal. A module or a manifest file is applied at once, without one: for
    development. The engine that runs must have the code.
    """
    number = _number_in(target)
    wanted = manifest_of(target) if number is None else number
    if console.server is not None and number is not None:
        hash = console.request("manifest apply", number=number, mode=mode).hash
    else:
        hash = _ask(console, lambda rules: rules.apply(wanted, mode))
    console.answer({"hash": hash, "mode": mode}, f"in force ({mode}): {hash}")


@define("manifest migrate")
def migrate(console: Console) -> None:
    """After `perdure manifest apply --mode migrate`, which migrates each cell when it is next used. Cells that
    failed to migrate, and are stuck at that, try again.
    """
    if console.server is not None:
        count = console.request("manifest migrate").migrated
    else:
        count = _ask(console, lambda rules: rules.migrate())
    console.answer({"migrated": count}, f"{count} cells were told to go over")
