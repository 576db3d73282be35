"""Entries as they stand in the journal: the last ones of all instances, and those of one instance as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

from msgspec.structs import asdict

from perdure.kernel.batch import JournalRow
from perdure.kernel.events import Address
from perdure.kernel.placement import NUMBERS
from perdure.kernel.rules import RULER
from perdure.ports.seen import Line
from perdure.ports.store import Filter, Queries
from perdure.runtime.history import Reader, alone, read_history

from .look import ShownEntry, shown_entry

GENERATIONS_MAX: Final = 1000
"""Of one name, between two looks."""


class JournalLine(NamedTuple):
    """An entry, and the instance that it is of."""

    id: str
    line: Line


class JournalEntry(ShownEntry, frozen=True, kw_only=True):
    """`entry` is the number in the journal, `number` that among the entries of the instance `id`."""

    entry: str
    id: str


def entry_of(found: JournalLine) -> JournalEntry:
    return JournalEntry(**asdict(shown_entry(found.line)), entry=str(found.line.seq), id=found.id)


class JournalPage(NamedTuple):
    """`next`: the number of the last entry that was looked at; 0: the journal ends here."""

    lines: list[JournalLine]
    next: int


async def page(queries: Queries, shard: int, after: int, count: int, visible: Callable[[str], bool]) -> JournalPage:
    """Entries of one shard after a number, of the workflows that a reader may see."""
    begin, end = shard * NUMBERS, (shard + 1) * NUMBERS
    rows = await queries.journal(max(after, begin - 1), count + 1)
    rows = [row for row in rows if begin <= row.seq < end]
    lines = await _lines(queries, rows[:count], visible)
    return JournalPage(lines, rows[count - 1].seq if len(rows) > count else 0)


async def tail(queries: Queries, count: int, visible: Callable[[str], bool] = lambda _: True) -> list[JournalLine]:
    """The last entries, of the workflows that a reader may see."""
    return await _lines(queries, await queries.journal(max(await queries.height() - count, 0), count), visible)


async def _lines(
    queries: Queries, rows: list[JournalRow], visible: Callable[[str], bool] = lambda _: True
) -> list[JournalLine]:
    """Each entry is read with its instance's history; those of the ruler need no other entries."""
    lines: dict[int, Line] = {}
    names: dict[int, str] = {}
    for id in dict.fromkeys(row.instance for row in rows):
        head = await queries.head(id)
        if not visible("" if head is None else head.workflow):
            continue
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
