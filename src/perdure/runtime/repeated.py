"""Whether an instance has recorded an event under an id. Asked when an event that comes again is refused."""

from __future__ import annotations

from perdure.kernel.entry import decode
from perdure.kernel.events import id_of
from perdure.kernel.location import Patterns
from perdure.ports.store import Queries


async def was_recorded(queries: Queries, instance: int, id: str) -> bool:
    """The kernel forgets the ids of an instance that has ended; its journal has them."""
    patterns, found = Patterns(), False
    for row in await queries.history(instance):
        found = found or id_of(decode(row.seq, row.instance, row.at, row.body, patterns).event) == id
    return found
