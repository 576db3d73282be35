"""A world snapshot, and the entries after it, into the tables of an empty store."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from perdure.cells.index import CellIndex
from perdure.cells.snapshot import Kept, WorldSnapshot, blobs_in_inbox, found, named_blobs, read_kept
from perdure.codec import decode
from perdure.errors import Corrupt
from perdure.kernel.apply import apply
from perdure.kernel.batch import Batch, InboxRow, JournalRow, PublishedRow, SnapshotRow
from perdure.kernel.entry import Entry
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import Address, Started
from perdure.kernel.instance import Instance
from perdure.kernel.location import Patterns
from perdure.kernel.replay import fold
from perdure.kernel.rows import add_heads, before, has_new_head, reason, response_name, work_row, write_head
from perdure.ports.store import Store
from perdure.stores.answers import asked

from .blobs import StoredBlobs, in_thread


class Restoring:
    """A snapshot on its way into the tables of an empty store."""

    def __init__(self, store: Any, blobs: StoredBlobs, snapshot: WorldSnapshot) -> None:
        self._store = store
        self._blobs = blobs
        self._snapshot = snapshot
        self.instances = 0
        self.entries = 0  # after the snapshot
        self._live: dict[int, tuple[Instance, Patterns]] = {}

    async def base(self) -> None:
        """What was at the snapshot's entry."""
        histories: list[JournalRow] = []
        entries = CellIndex(self._blobs, self._snapshot.instances).walk()
        while page := await in_thread(lambda: [entry.state for _, entry in islice(entries, 500)]):
            await self._blobs.fetch(page)
            kept = await in_thread(lambda page=page: [read_kept(self._blobs, digest) for digest in page])
            await self._blobs.fetch([each.state for each in kept if each.state])
            batch = Batch()
            for each, row, rows in await in_thread(self._with_rows, kept):
                self.instances += 1
                instance = each.instance() if each.body is not None else None
                add_heads(batch, [each.head if instance is None else each.head._replace(reason=reason(instance))])
                histories += rows
                if row is not None:
                    batch.snapshots[row.instance] = row
                for intent in instance.open.values() if instance is not None else ():
                    if (work := work_row(each.head.id, intent)) is not None:
                        batch.work_opened[intent.id] = work
            await self._commit(batch)
        values = self._all_published()
        while published := await in_thread(lambda: list(islice(values, 500))):
            batch = Batch()
            batch.published = {(row.instance, row.name): row for row in published}
            await self._commit(batch)
        batch = Batch()
        batch.journal = sorted(histories)
        batch.size = sum(len(row.body) for row in histories)
        await self._commit(batch)

    def _with_rows(self, kept: list[Kept]) -> list[tuple[Kept, SnapshotRow | None, list[JournalRow]]]:
        histories = CellIndex(self._blobs, self._snapshot.histories)
        return [(each, each.row(self._blobs), each.history(self._blobs, histories)) for each in kept]

    def _all_published(self) -> Iterator[PublishedRow]:
        for key, entry in CellIndex(self._blobs, self._snapshot.published).walk():
            id, name = decode(key)
            yield PublishedRow(id, name, found(self._blobs, entry.state, "published value"))

    async def tail(self, rows: Iterable[JournalRow]) -> None:
        """Rows that follow, with all that they change in other tables."""
        batch = Batch()
        named: set[bytes] = set()
        for row in rows:
            instance, reader = self._live.get(row.instance) or await self._load(row)
            entry = decode_entry(row.seq, row.instance, row.at, row.body, reader)
            self._index(instance, entry, batch)
            batch.journal.append(row)
            batch.size += len(row.body)
            named.update(named_blobs(entry))
        self.entries += len(batch.journal)
        await self._copy_blobs(named)
        await self._commit(batch)

    async def _load(self, row: JournalRow) -> tuple[Instance, Patterns]:
        record = await self._store.record(row.instance)
        if record is not None:
            address = Address(record.head.workflow, record.head.key)
            instance = fold(address, record.snapshot, record.rows)
        else:
            event = decode_entry(row.seq, row.instance, row.at, row.body, Patterns()).event
            if type(event) is not Started:
                raise Corrupt(f"instance {row.instance} of entry {row.seq} is not in the snapshot")
            instance = Instance(Address(event.workflow, event.key))
            self.instances += 1
        self._live[row.instance] = instance, Patterns(instance.patterns.texts())
        return self._live[row.instance]

    def _index(self, instance: Instance, entry: Entry, batch: Batch) -> None:
        """What `Consequences.tell` writes, in the same order."""
        had = before(instance, entry)
        changed = apply(instance, entry)
        for intent in changed.closed:
            if batch.work_opened.pop(intent.id, None) is None:
                batch.work_closed.append(intent.id)
        for intent in changed.opened:
            if (work := work_row(instance.id, intent)) is not None and intent.id in instance.open:
                batch.work_opened[intent.id] = work
        answers = [(response_name(message), value) for message, value in entry.decision.respond]
        for name, value in [*answers, *entry.decision.publish]:
            batch.published[instance.id, name] = PublishedRow(instance.id, name, value)
        if has_new_head(instance, entry, had):
            write_head(batch, instance, entry, had)

    async def fill_inbox(self, rows: Collection[InboxRow]) -> None:
        await self._copy_blobs(set(blobs_in_inbox(rows)))
        batch = Batch()
        batch.inbox_added = {row.id: row for row in rows}
        await self._commit(batch)

    async def _copy_blobs(self, named: set[bytes]) -> None:
        """Blobs that entries and events name. What is not there was not there before, either."""
        await self._store.put_blobs(await self._blobs.there(named), time.time_ns())

    async def _commit(self, batch: Batch) -> None:
        store: Store = self._store
        await asked(store.commit, batch)
