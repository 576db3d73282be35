"""The event that an instance has recorded under an id. Asked when an event that comes again is refused."""

from __future__ import annotations

from perdure.kernel.entry import decode
from perdure.kernel.events import Event, id_of
from perdure.kernel.location import Patterns
from perdure.ports.store import Queries


async def recorded(queries: Queries, instance: int, id: str) -> Event | None:
    """The kernel forgets the ids of an instance that has ended; its journal has them."""
    patterns = Patterns()
    for row in await queries.history(instance):
        event = decode(row.seq, row.instance, row.at, row.body, patterns).event
        if id_of(event) == id:
            return event
    return None
