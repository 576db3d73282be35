"""A client that asks for an actor: every event that it sends carries who asked, and under which condition."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from perdure.kernel.asked import Asked
from perdure.kernel.events import Event, Message, Ref

from .client import Client
from .connection import Connection
from .definitions import Definitions


class AskingConnection:
    """Another connection, with `Asked` on each event that goes through it. What an event says itself stays."""

    def __init__(self, connection: Connection, asked: Asked) -> None:
        self._inner, self._asked = connection, asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, to: Ref, event: Event, *, new: bool = False) -> int:
        if hasattr(event, "asked"):
            event = cast(Any, msgspec.structs.replace)(event, asked=self._merged(event))
        return await self._inner.put(to, event, new=new)

    def _merged(self, event: Any) -> Asked:
        said, mine = event.asked or Asked(), self._asked
        named = isinstance(event, Message)  # its own id counts
        return Asked(
            id=said.id or ("" if named else mine.id),
            by=said.by or mine.by,
            via=said.via or mine.via,
            reason=said.reason or mine.reason,
            if_entry=mine.if_entry if said.if_entry is None else said.if_entry,
            trace=said.trace or mine.trace,
        )


def asking(client: Client, asked: Asked) -> Client:
    """A client of the same engine that asks for an actor."""
    connection = cast(Connection, AskingConnection(client._any_loop, asked))
    found = Client(connection, client._workflows, client.read_catalog, client._restore)
    found._refuse_start = client._refuse_start  # type: ignore[method-assign]  # an engine knows what would be missing
    for name, each in vars(client).items():
        if isinstance(each, Definitions):
            setattr(found, name, each.through(connection))
    return found
