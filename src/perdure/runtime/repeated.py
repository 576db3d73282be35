"""The event that an instance has recorded under an id. Asked when an event that comes again is refused."""

from __future__ import annotations

from typing import NamedTuple

from perdure.kernel.entry import event_of
from perdure.kernel.events import Event, id_of
from perdure.ports.store import Queries


class Recorded(NamedTuple):
    seq: int
    event: Event


async def recorded(
    queries: Queries, instance: int, id: str, *, after: int = 0, limit: int | None = None
) -> Recorded | None:
    """The kernel forgets the ids of an instance that has ended; its journal has them. `after`: in later entries."""
    for row in await queries.history(instance, after, limit):
        event = event_of(row.body)
        if id_of(event) == id:
            return Recorded(row.seq, event)
    return None
