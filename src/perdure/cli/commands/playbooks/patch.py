"""`perdure playbooks patch`: keys of ctx, by hand."""

from __future__ import annotations

from typing import Any

import click

from perdure.kernel.events import Address
from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define
from ...exits import Exit, Stopped
from ...find import find_started
from ...given import json_or_text


@define("playbooks patch")
@click.argument("id")
@click.argument("sets", metavar="KEY=VALUE...", nargs=-1, required=True)
@click.option("--if-version", type=int, metavar="N", help="Only if ctx still has this version.")
@click.option("--by", metavar="NAME", help="Who says so.")
@click.option("--reason", metavar="TEXT", help="Why.")
@click.option(
    "--timeout", type=float, default=10.0, show_default=True, metavar="SECONDS", help="How long an engine may take."
)
def command(  # noqa: PLR0917
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
        address, _ = await find_started(client, id)
        handle = client.handle(address.workflow, address.key)
        if await client.queries.owner() is None:  # nobody could answer now
            await handle.send("ctx", body, **said)
            await console.warn_if_nobody_runs(client)
            return address, {"recorded": True}
        return address, await handle.ask("ctx", body, timeout=timeout, **said)

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
