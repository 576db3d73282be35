"""`perdure processes ls`: which processes a database has."""

from __future__ import annotations

from perdure.definitions.model import Register
from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define
from ...text import style, table


@define("processes ls")
def command(console: Console) -> None:
    async def read(client: Client) -> list[tuple[str, Register]]:
        return await client.processes.list()

    found = console.ask(read)
    rows = [[style(name, bold=True) for name in ("NAME", "ACTIVE", "VERSIONS")]]
    rows += [[name, each.active, str(len(each.versions))] for name, each in found]
    document = [
        {"name": name, "active": each.active, "versions": [one.version for one in each.versions]}
        for name, each in found
    ]
    console.answer({"processes": document}, table(rows) if found else "")
    if not console.json and not found:
        console.note("no processes")
