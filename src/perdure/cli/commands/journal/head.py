"""`perdure journal head`: where the journal ends."""

from __future__ import annotations

from datetime import UTC, datetime

from perdure.kernel.moment import when
from perdure.runtime.client import Client

from ...console import Console
from ...console import command as define
from ...text import ago, local


@define("journal head")
def command(console: Console) -> None:
    """The number of the last entry: what is read `at` it, or at least at it, has seen all that is durable now."""

    async def read(client: Client) -> tuple[int, datetime | None]:
        height = await client.queries.height()
        rows = await client.queries.journal(height - 1, 1) if height else []
        return height, when(rows[0].at) if rows else None

    height, at = console.ask(read)
    text = f"{height}" if at is None else f"{height}  {local(at)} ({ago(at, datetime.now(UTC))})"
    console.answer({"entry": height, "at": at}, text)
