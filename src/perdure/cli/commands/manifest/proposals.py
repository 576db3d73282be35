"""`perdure manifest proposals`: what was proposed, and what became of it."""

from __future__ import annotations

from perdure.runtime.client import Client
from perdure.worlds.governance import Governance

from ...console import Console
from ...console import command as define
from ...rules import document
from ...text import joined


@define("manifest proposals")
def command(console: Console) -> None:
    """All that there ever were, in order. No engine is needed to read them."""

    async def read(client: Client) -> list[dict[str, object]]:
        return [document(found) for found in await Governance(client).proposals()]

    found = console.ask(read)
    lines = [f"{each['proposal']}  {each['status']}  {each['mode']}  {each['reason']}".rstrip() for each in found]
    console.answer({"proposals": found}, joined(lines) if lines else "nothing was proposed yet")
