"""`perdure playbooks ls`: what is registered."""

from __future__ import annotations

from typing import Any

from perdure.kernel.moment import when
from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define
from ...text import local, table


@define("playbooks ls")
def command(console: Console) -> None:
    async def read(client: Client) -> list[tuple[str, Any]]:
        return await client.playbooks.list()

    found = console.ask(read)
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
