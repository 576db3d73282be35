"""Commands about playbooks: write, draw and register them, and patch the ctx of an instance."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import click
from msgspec import to_builtins

from perdure.app.ours import PLAYBOOK, load_playbook
from perdure.cli.commands.code import tell_preview
from perdure.cli.console import Console, define
from perdure.cli.exits import Exit, Stopped
from perdure.cli.given import json_or_text, read_json, with_sets
from perdure.cli.text import joined, local, table, to_json
from perdure.drawing import draw as drawn
from perdure.kernel.events import Address
from perdure.kernel.moment import when
from perdure.playbooks.document import formatted
from perdure.playbooks.model import from_bytes
from perdure.playbooks.patch import refusal
from perdure.playbooks.picture import graph_of
from perdure.playbooks.render import rendered
from perdure.playbooks.scope import Compiler
from perdure.runtime.client import Client
from perdure.verbs.read import ShowParams
from perdure.views.find import find_started

from .kept import registers


@define("playbooks fmt", db="none")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--write", is_flag=True, help="Write it to the file. Comments are lost.")
def fmt(console: Console, file: str, write: bool) -> None:
    """A document of NoETL becomes one of perdure/v1, as far as it uses kinds that are known here."""
    text = formatted(load_playbook(file).definition.playbook)
    if write:
        Path(file).write_text(text, encoding="utf-8")
    console.answer({"file": file, "text": text}, f"wrote {file}" if write else joined(text.rstrip("\n").split("\n")))


@define("playbooks draw", db="optional")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--instance", metavar="ID", help="Draw the tokens of this instance of --db or --server, too.")
@click.option("--format", "form", type=click.Choice(["svg", "mermaid", "json"]), default="mermaid", show_default=True)
@click.option("--direction", type=click.Choice(["LR", "TB"]), default="LR", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write it there. Default: to stdout.")
def draw(  # noqa: PLR0917
    console: Console,
    file: str,
    instance: str | None,
    form: Literal["svg", "mermaid", "json"],
    direction: Literal["LR", "TB"],
    output: str | None,
) -> None:
    playbook = load_playbook(file)
    seen = None if instance is None else _state_of(console, instance)
    if output is not None and form == "mermaid" and output.endswith(".svg"):
        form = "svg"
    text = drawn(graph_of(playbook.definition.playbook, seen), form, direction, title=playbook.name)
    if output is not None:
        Path(output).write_text(text, encoding="utf-8")
    said = f"wrote {output}" if output is not None else joined(text.rstrip("\n").split("\n"))
    console.answer({"file": file, "text": text}, said)


def _state_of(console: Console, instance: str) -> Any:
    async def read(client: Any) -> Any:
        address, _ = await find_started(client, instance)
        return await client.state(address.workflow, address.key, at=await client.queries.height())

    if console.server is not None:
        return to_builtins(console.request("tokens", id=console.call("show", ShowParams(instance)).id))
    return console.ask(read)


@define("playbooks render", db="none")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.argument("action", metavar="STEP[/LABEL]")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="The input, over the workload.")
@click.option("--set", "sets", metavar="PATH=VALUE", multiple=True, help="One value of the input.")
@click.option(
    "--with", "more", metavar="PATH=VALUE", multiple=True, help="What else is seen: ctx.n=1, iter.shop=north."
)
def render(  # noqa: PLR0917
    console: Console, file: str, action: str, given: str | None, sets: tuple[str, ...], more: tuple[str, ...]
) -> None:
    """Nothing runs. Secrets are shown by their names."""
    value = with_sets(None if given is None else read_json(given, "--input"), sets)
    found = rendered(load_playbook(file), action, value or {}, with_sets(None, more) or {}, datetime.now(UTC))
    console.answer(found, to_json(found, indent=2))


@define("playbooks put")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--activate", is_flag=True, help="New instances run on it, whatever is put later.")
@click.option("--by", metavar="NAME", help="Who registers it.")
def put(console: Console, file: str, activate: bool, by: str | None) -> None:
    """The version registered last is the one that new instances run on, unless another was activated."""
    playbook = load_playbook(file)

    async def put(client: Client) -> str:
        return await client.playbooks.put(playbook, activate=activate, by=by)

    if console.server is not None:
        version = console.request("put", text=Path(file).read_text(encoding="utf-8"), activate=activate).version
    else:
        version = console.act(put)
    console.answer({"name": playbook.name, "version": version}, f"{playbook.name} {version} is registered")


@define("playbooks activate")
@click.argument("name")
@click.argument("version")
@click.option("--dry-run", is_flag=True, help="Only tell what it would do with live instances.")
@click.option("--by", metavar="NAME", help="Who says so.")
def activate(console: Console, name: str, version: str, dry_run: bool, by: str | None) -> None:
    name = name.replace("/", ".")
    if dry_run:
        tell_preview(console, name, version)
        return

    async def activate(client: Client) -> None:
        await client.playbooks.activate(name, version, by=by)

    if console.server is not None:
        console.request("activate", name=name, version=version)
    else:
        console.act(activate)
    console.answer({"name": name, "version": version}, f"new instances of {name} run on {version}")


@define("playbooks ls")
def ls(console: Console) -> None:
    found = registers(console, PLAYBOOK)
    rows = [
        [name, each.version, "active" if each.version == register.active else "", local(when(each.at)), each.by]
        for name, register in found
        for each in register.versions
    ]
    document = [
        {"name": name, "version": version, "active": bool(active), "at": at, "by": by}
        for name, version, active, at, by in rows
    ]
    console.answer(document, table(rows) if rows else "no playbook is registered")


@define("playbooks patch")
@click.argument("id")
@click.argument("sets", metavar="KEY=VALUE...", nargs=-1, required=True)
@click.option("--if-version", type=int, metavar="N", help="Only if ctx still has this version.")
@click.option("--by", metavar="NAME", help="Who says so.")
@click.option("--reason", metavar="TEXT", help="Why.")
@click.option(
    "--timeout", type=float, default=10.0, show_default=True, metavar="SECONDS", help="How long an engine may take."
)
def patch(  # noqa: PLR0917
    console: Console,
    id: str,
    sets: tuple[str, ...],
    if_version: int | None,
    by: str | None,
    reason: str | None,
    timeout: float,
) -> None:
    """A VALUE is JSON, or else a text. What the patch admits is in the same entry of the journal."""
    body: dict[str, Any] = {"set": dict(map(_pair, sets))}
    if if_version is not None:
        body["if_ctx_version"] = if_version
    said: dict[str, Any] = {key: value for key, value in (("by", by), ("reason", reason)) if value is not None}

    async def patch(client: Client) -> tuple[Address, Any]:
        address, head = await find_started(client, id)
        handle = client.handle(address.workflow, address.key)
        if await client.queries.owner() is None:  # no engine could answer now: what is known is said here
            seen = await client.state(address.workflow, address.key, at=await client.queries.height())
            stored = await client.playbooks.get(address.workflow, head.version)
            if refused := refusal(seen["ctx_version"], Compiler(from_bytes(stored.definition)), body):
                return address, {"refused": refused}
            await handle.send("ctx", body, **said)
            await console.warn_if_nobody_runs(client)
            return address, {"recorded": True}
        return address, await handle.ask("ctx", body, timeout=timeout, **said)

    if console.server is not None:
        address = console.call("show", ShowParams(id)).id
        asked = console.request("patch", id=address, set=body["set"], if_version=if_version, reason=reason or "")
        answer = {"ctx_version": asked.ctx_version}
    else:
        address, answer = console.ask(patch)
    if "refused" in answer:
        raise Stopped(f"{address}: {answer['refused']}", Exit.CONFLICT, kind="Refused")
    keys = ", ".join(body["set"])
    then = "is recorded" if "recorded" in answer else f"is set; ctx has version {answer['ctx_version']}"
    console.answer({"id": str(address), **answer}, f"{address}: {keys} {then}")


def _pair(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not key or not sign:
        raise Stopped(f"{text!r} is no KEY=VALUE")
    return key, json_or_text(value)
