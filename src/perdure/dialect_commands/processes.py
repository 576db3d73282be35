"""Commands about processes: definitions that are data, their versions and their pictures."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from perdure.app.definitions import restored_one
from perdure.app.ours import PROCESS, load_process
from perdure.cli.commands.code import tell_preview
from perdure.cli.console import Console, define
from perdure.cli.exits import Exit, Stopped
from perdure.cli.load import load
from perdure.cli.text import ago, joined, style, table
from perdure.codec.canonical import parse_json
from perdure.errors import CallerError, DoesNotFit
from perdure.expressions.functions import described
from perdure.kernel.asked import Actor
from perdure.kernel.moment import when
from perdure.kernel.rows import StoredInstance
from perdure.kernel.workflows import Workflows
from perdure.processes.model import json_schema
from perdure.processes.process import Process
from perdure.runtime.client import Client
from perdure.runtime.migration import Migration
from perdure.runtime.state import draw_instance, version_in
from perdure.views.find import find_started

from .kept import definition_of, register_of, registers

T = TypeVar("T")

TOLD: Final = 20
"""So many instances are named that migrate."""


def _given(target: str) -> Any:
    """A process from a file, or from a module."""
    if target.endswith((".yaml", ".yml", ".json")):
        process: Any = load_process(target)
    else:
        process, _ = load(target)
    if not hasattr(process, "stored"):
        raise Stopped(f"{target} is no process: its definition is code, not data")
    return process


async def _kept(client: Client, name: str, version: str) -> Any:
    """A process that the database has."""
    stored = await client.processes.get(name, version)
    process = restored_one(stored, [])
    if process is None:
        raise CallerError(f"{name} {stored.version} cannot be read here: functions of its expressions are missing")
    return process


def _asked(console: Console, name: str, version: str) -> Any:
    """A process that the database has, or a server."""
    if console.server is not None:
        number, text = definition_of(console, PROCESS, name, version)
        return Process.of(parse_json(text), f"{name} {number} in the database")
    return console.ask(lambda client: _kept(client, name, version))


@define("processes ls")
def ls(console: Console) -> None:
    found = registers(console, PROCESS)
    rows = [[style(name, bold=True) for name in ("NAME", "ACTIVE", "VERSIONS")]]
    rows += [[name, each.active, str(len(each.versions))] for name, each in found]
    document = [
        {"name": name, "active": each.active, "versions": [one.version for one in each.versions]}
        for name, each in found
    ]
    console.answer({"processes": document}, table(rows) if found else "")
    if not console.json and not found:
        console.note("no processes")


@define("processes versions")
@click.argument("name")
def versions(console: Console, name: str) -> None:
    register, now = register_of(console, PROCESS, name), datetime.now(UTC)
    found = [
        {
            "version": each.version,
            "digest": each.digest,
            "by": each.by,
            "at": when(each.at),
            "active": each.version == register.active,
        }
        for each in register.versions
    ]
    rows = [[style(word, bold=True) for word in ("VERSION", "ACTIVE", "REGISTERED", "BY", "DIGEST")]]
    for each in register.versions:
        is_active = "yes" if each.version == register.active else ""
        rows.append([each.version, is_active, ago(when(each.at), now), each.by, each.digest[7:19]])
    console.answer({"name": name, "active": register.active, "versions": found}, table(rows))


@define("processes show")
@click.argument("name")
@click.option("--version", default="", metavar="TEXT", help="Of this version, not of the active one.")
def show(console: Console, name: str, version: str) -> None:
    process = _asked(console, name, version)
    data = process.data
    needs = data.get("requires", {})
    rows = [["name", name], ["version", process.number], ["hash", process.hash], ["title", data.get("title", "")]]
    rows += [["tasks", ", ".join(data.get("tasks", {})) or "none"]]
    rows += [
        [word, ", ".join(needs[word])] for word in ("functions", "modules", "transports", "workflows") if word in needs
    ]
    problems = [f"{each.where}: {each.code}: {each.text}" for each in process.problems]
    document = {
        "name": name,
        "version": process.number,
        "hash": process.hash,
        "requires": needs,
        "definition": data,
        "problems": [each._asdict() for each in process.problems],
    }
    told = table([[style(word, bold=True), text] for word, text in rows])
    console.answer(document, joined([told, *problems, "", *process.source().rstrip().split("\n")]))


@define("processes put")
@click.argument("target", metavar="FILE|MODULE:PROCESS")
@click.option("--activate", is_flag=True, help="New instances run on it, whatever its version.")
@click.option("--as", "person", metavar="ID", envvar="PERDURE_ACTOR", show_envvar=True, help="Who acts.")
def put(console: Console, target: str, activate: bool, person: str | None) -> None:
    """The same bytes again write nothing. Other bytes under a version that is kept are refused."""
    process = _given(target)
    process.require_valid()
    actor = None if person is None else Actor(person)

    async def put(client: Client) -> str:
        return await client.processes.put(process, activate=activate, by=actor)

    if console.server is not None:
        version = console.request("put", text=process.export("json"), activate=activate).version
    else:
        version = console.act(put)
    document = {"name": process.name, "version": version, "digest": process.hash}
    console.answer(document, f"{process.name} {version} is kept ({process.hash[7:19]})")


@define("processes activate")
@click.argument("name")
@click.argument("version")
@click.option("--dry-run", is_flag=True, help="Only tell what it would do with live instances.")
@click.option("--as", "person", metavar="ID", envvar="PERDURE_ACTOR", show_envvar=True, help="Who acts.")
def activate(console: Console, name: str, version: str, dry_run: bool, person: str | None) -> None:
    """Instances that run stay on the version that they started with."""
    if dry_run:
        tell_preview(console, name, version)
        return
    actor = None if person is None else Actor(person)

    async def activate(client: Client) -> None:
        await client.processes.activate(name, version, by=actor)

    if console.server is not None:
        console.request("activate", name=name, version=version)
    else:
        console.act(activate)
    console.answer({"name": name, "active": version}, f"new instances of {name} run on {version}")


@define("processes migrate")
@click.argument("name")
@click.argument("version")
@click.option("--key", "keys", metavar="KEY", multiple=True, help="Only this instance; may be repeated.")
@click.option("--map", "renamed", metavar="OLD=NEW", multiple=True, help="The new location of a step, by the old one.")
@click.option("--dry-run", is_flag=True, help="Only tell what would happen.")
@click.option("--as", "person", metavar="ID", envvar="PERDURE_ACTOR", show_envvar=True, help="Who acts.")
@click.option("--reason", metavar="TEXT", default="", help="Why; it is recorded.")
def migrate(  # noqa: PLR0917
    console: Console,
    name: str,
    version: str,
    keys: tuple[str, ...],
    renamed: tuple[str, ...],
    dry_run: bool,
    person: str | None,
    reason: str,
) -> None:
    """All that an instance stands at must be in that version, of the same kind. What does not fit is left alone.

    --map decision=verdict is for a step that has another name there and asks for the same: the same message, task or
    workflow. A task stands under its own name, so it keeps that; a step around it may change (--map checks=review).

    Exit code 4 if instances are left and none fits, also with --dry-run; else 0.
    """
    wrong = [each for each in renamed if not all(each.partition("="))]
    if wrong:
        raise Stopped(f"{wrong[0]!r} is no OLD=NEW")
    names = dict([(old, new) for old, _, new in (each.partition("=") for each in renamed)])
    actor = None if person is None else Actor(person)

    async def migrate(client: Client) -> Migration:
        asked = client.processes.migrate
        return await asked(name, to=version, keys=keys or None, map=names, dry_run=dry_run, by=actor, reason=reason)

    if console.server is not None:
        said: dict[str, Any] = {"keys": keys, "map": names, "dry_run": dry_run, "reason": reason}
        answer = console.request("migrate", name=name, to=version, **said)
        found = Migration(answer.name, answer.code, answer.migrated, answer.left)
    else:
        found = console.ask(migrate) if dry_run else console.act(migrate)
    many = len(found.migrated)
    noun, verb = ("instance", "migrates") if many == 1 else ("instances", "migrate")
    told = [f"{many} {noun} of {name} {'would migrate' if dry_run else verb} to {found.version}"]
    told += [f"  {each}" for each in found.migrated[:TOLD]]
    told += [f"  and {many - TOLD} more"] if many > TOLD else []
    told += [f"{each.id} stays: {each.why}" for each in found.left]
    console.answer({"dry_run": dry_run, **msgspec.to_builtins(found)}, joined(told))
    if found.left and not found.migrated:
        raise Stopped(f"no instance of {name} fits {found.version}", Exit.CONFLICT, kind=DoesNotFit.__name__)


@define("processes export")
@click.argument("name")
@click.option("--version", default="", metavar="TEXT", help="Of this version, not of the active one.")
@click.option("--format", "form", type=click.Choice(["json", "yaml", "python"]), default="yaml", show_default=True)
def export(console: Console, name: str, version: str, form: str) -> None:
    """Loading the text gives the same hash."""

    process = _asked(console, name, version)
    text = process.export(form)
    document = {"name": name, "format": form, "hash": process.hash, "text": text}
    console.answer(document, joined(text.rstrip("\n").split("\n")))


@define("processes draw", db="optional")
@click.argument("target", metavar="NAME|ID|FILE|MODULE:PROCESS")
@click.option("--version", default="", metavar="TEXT", help="Of this version, not of the active one.")
@click.option("--format", "form", type=click.Choice(["svg", "mermaid", "json"]), default="svg", show_default=True)
@click.option("--direction", type=click.Choice(["LR", "TB"]), default="LR", show_default=True)
@click.option("--at", type=click.IntRange(1), metavar="N", help="An instance as it was at this entry of the journal.")
@click.option("--output", "-o", metavar="FILE", help="Write the picture there.")
def draw(  # noqa: PLR0917
    console: Console, target: str, version: str, form: Any, direction: Any, at: int | None, output: str | None
) -> None:
    """NAME is a process that the database has, ID an instance of one (purchase/o-17)."""
    if output is not None and output.lower().endswith((".png", ".jpg", ".jpeg", ".gif", ".pdf")):
        raise Stopped(f"-o {output}: a picture is svg, mermaid or json; a browser shows and prints svg")
    if ":" in target or target.endswith((".yaml", ".yml", ".json")):
        picture = _given(target).draw(form, direction)
    elif "/" not in target:
        picture = str(_asked(console, target, version).draw(form, direction))
    elif console.server is not None:
        picture = console.request("drawing", id=target, format=form, direction=direction, until=at or 0).text
    else:

        async def read(client: Client) -> str:
            _, head = await find_started(client, target)
            rows = [row for row in await client.queries.history(head.id) if at is None or row.seq <= at]
            record = StoredInstance(head, None, tuple(rows)) if rows else None
            process = await _kept(
                client, head.workflow, (version_in(record) if record else head.version).partition("+")[0]
            )
            return draw_instance(Workflows([process]), record, form, direction)

        picture = console.ask(read)
    if output is not None:
        Path(output).write_text(picture, encoding="utf-8")
        console.answer({"target": target, "format": form, "file": output}, f"{output} has the picture of {target}")
    else:
        console.answer({"target": target, "format": form, "picture": picture}, joined(picture.rstrip("\n").split("\n")))


@define("processes schema", db="none")
def schema(console: Console) -> None:
    found = json_schema() if console.server is None else console.request("workflow schema", dialect="process").schema
    console.answer(found, joined(json.dumps(found, indent=2).split("\n")))


@define("processes functions", db="none")
def functions(console: Console) -> None:
    """Functions of users are not among them: they are given to perdure.open(functions=[...])."""
    if console.server is not None:
        found = [(each.name, each.gives, each.text) for each in console.request("workflow functions").functions]
    else:
        found = [*described()]
    rows = [[style(word, bold=True) for word in ("FUNCTION", "GIVES", "WHAT IT DOES")]]
    rows += [list(each) for each in found]
    document = [{"name": name, "gives": gives, "text": about} for name, gives, about in found]
    console.answer({"functions": document}, table(rows))
