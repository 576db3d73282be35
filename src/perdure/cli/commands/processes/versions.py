"""`perdure processes versions`: who registered which version when."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from perdure.kernel.moment import when
from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define
from ...text import ago, style, table


@define("processes versions")
@click.argument("name")
def command(console: Console, name: str) -> None:
    async def read(client: Client) -> tuple[list[dict[str, object]], str]:
        found = await client.processes.versions(name)
        active = (await client.processes.get(name)).version
        return [
            {
                "version": each.version,
                "digest": each.digest,
                "by": each.by,
                "at": when(each.at),
                "active": each.version == active,
            }
            for each in found
        ], active

    found, active = console.ask(read)
    now = datetime.now(UTC)
    rows = [[style(word, bold=True) for word in ("VERSION", "ACTIVE", "REGISTERED", "BY", "DIGEST")]]
    for each in found:
        at = each["at"]
        assert isinstance(at, datetime)
        is_active = "yes" if each["version"] == active else ""
        rows.append([str(each["version"]), is_active, ago(at, now), str(each["by"]), str(each["digest"])[7:19]])
    console.answer({"name": name, "active": active, "versions": found}, table(rows))
