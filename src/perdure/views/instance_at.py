"""One instance as it was at an entry of its history: a cut of the same fold that shows it now."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import UnknownLocation
from perdure.kernel.batch import HeadRow, JournalRow
from perdure.ports.seen import error_of, result_of
from perdure.ports.store import Queries
from perdure.runtime.history import Reader, value_of

from .look import ShownEntry, ShownError, ShownWait, shown_entry, shown_error, shown_wait
from .operations import Operation, Operations


class PastInstance(msgspec.Struct, frozen=True):
    """`entry` is the last one that counts, `seq` its place in the journal; `changed` has its words."""

    entry: int
    seq: str
    at: datetime
    status: str
    operations: list[Operation]
    waiting: list[ShownWait]
    published: dict[str, Any]
    result: Any
    error: ShownError | None
    changed: ShownEntry
    state: Any | UnsetType = UNSET  # of a cell, where its code is


async def instance_at(queries: Queries, head: HeadRow, entry: int) -> PastInstance:
    return cut(str(head.workflow), await queries.history(head.id), entry)


def cut(name: str, rows: list[JournalRow], entry: int) -> PastInstance:
    """A history up to an entry, by its number."""
    if not 1 <= entry <= len(rows):
        raise UnknownLocation(f"{name} has no entry {entry}: its entries are 1 to {len(rows)}")
    rows = rows[:entry]
    reader, operations = Reader(), Operations()
    lines = reader.read(rows)
    state = reader.state
    return PastInstance(
        entry,
        str(rows[-1].seq),
        lines[-1].at,
        state.status.value,
        operations.read(rows),
        [shown_wait(each) for each in reader.waiting()],
        {name: value_of(value) for name, value in state.published.items()},
        result_of(state),
        shown_error(error_of(state)),
        shown_entry(lines[-1]),
    )
