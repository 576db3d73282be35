"""Entries as they stand in the journal: the last ones of all instances, and those of one instance as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from perdure.kernel.events import Address
from perdure.kernel.rules import RULER
from perdure.ports.seen import Line
from perdure.ports.store import Filter, Queries
from perdure.runtime.history import Reader, alone, read_history

GENERATIONS_MAX: Final = 1000
"""Of one name, between two looks."""


class JournalLine(NamedTuple):
    """An entry, and the instance that it is of."""

    id: str
    line: Line


async def tail(queries: Queries, count: int) -> list[JournalLine]:
    """The last entries. Each is read with its instance's history; those of the ruler need no other entries."""
    rows = await queries.journal(max(await queries.height() - count, 0), count)
    lines: dict[int, Line] = {}
    names: dict[int, str] = {}
    for id in dict.fromkeys(row.instance for row in rows):
        head = await queries.head(id)
        names[id] = str(id) if head is None else f"{head.workflow}/{head.key}"
        if names[id] == str(RULER):
            lines |= {row.seq: alone(row) for row in rows if row.instance == id}
        else:
            _, history = await read_history(queries, id)
            lines |= {line.seq: line for line in history}
    return [JournalLine(names[row.instance], lines[row.seq]) for row in rows if row.seq in lines]


async def entries(queries: Queries, address: Address, follow: bool) -> AsyncIterator[Line]:
    """All entries of the last generation, and, if followed, those of the generations to come."""
    readers: dict[int, Reader] = {}
    seen = -1
    while True:
        changed = await queries.changed()
        if changed != seen:
            seen = changed
            for id in await _generations(queries, address, max(readers, default=0)):
                if id in readers:
                    found = readers[id].read(await queries.history(id, readers[id].seq))
                else:
                    readers[id], found = await read_history(queries, id)
                for line in found:
                    yield line
        if not follow:
            return
        await queries.change(seen)


async def _generations(queries: Queries, address: Address, since: int) -> list[int]:
    """From the one that was read last on, the oldest first; at first the last one alone."""
    limit = 1 if since == 0 else GENERATIONS_MAX
    heads = await queries.heads(Filter(address.workflow, key=address.key, limit=limit))
    return sorted(head.id for head in heads if head.id >= since)
