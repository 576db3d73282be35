"""Snapshots of a whole world: take one, go on from one elsewhere, free what none needs, and replay to check.

    async with perdure.open("shop.db", workflows=[order]) as engine:
        snapshots = perdure.Snapshots(engine)
        taken = await snapshots.take()
        await snapshots.restore("copy.db", taken.hash)
        print(await snapshots.collect())

It works for `perdure.connect("shop.db", workflows=[order])` as well, beside the engine of another process. Nothing
has to stop: a snapshot is of one durable entry, and is computed from the journal up to there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta
from itertools import islice
from typing import Any, Final

import msgspec

from perdure.cells.index import CellIndex
from perdure.cells.replay import Parted, WorldReplay, value_workflows
from perdure.cells.snapshot import (
    GENESIS,
    WorldSnapshot,
    blobs_in_inbox,
    found,
    name_of,
    named_blobs,
    reached,
    read_inbox,
    read_snapshot,
    write_rows,
)
from perdure.errors import CallerError, Corrupt, NotEmpty, StoreFailed, UnknownSnapshot
from perdure.kernel.batch import InboxRow, JournalRow
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.location import NoLocations
from perdure.kernel.machine import Workflow
from perdure.kernel.workflows import Workflows
from perdure.ports.store import Filter, Queries, WorldSnapshotRow
from perdure.runtime.client import Client
from perdure.stores.answers import asked
from perdure.stores.journal import pages, refuse_many_journals, until_now

from .blobs import StoredBlobs, in_thread
from .restore import Restoring
from .verify import Check, Verified

FLUSH_BYTES: Final = 16 * 1024 * 1024
GRACE: Final = timedelta(hours=1)
GRACE_MAX: Final = 1_000_000_000  # seconds: some thirty years


class Taken(msgspec.Struct, frozen=True):
    """A world snapshot. `hash` names it, `entry` is the last entry in it; `base`: this database began with it."""

    hash: str
    entry: int
    taken_at: int
    base: bool = False
    cells: dict[str, int] = {}  # how many there are of each
    open: int = 0  # effects without an answer
    written: int = 0  # blobs that were put for it


class Restored(msgspec.Struct, frozen=True):
    hash: str
    entry: int  # of the snapshot
    instances: int
    tail: int  # entries after it
    inbox: int


class Collected(msgspec.Struct, frozen=True):
    """What was freed; of a dry run, what would be."""

    dry_run: bool
    snapshots: list[str]  # retained no longer
    blobs: int
    bytes: int
    kept: int  # blobs that are needed, or too young


class Snapshots:
    """See the module. To take a snapshot or to verify, the code of the cells is needed: that of the client."""

    def __init__(self, client: Client, workflows: Iterable[Any] = ()) -> None:
        self._queries = client.queries
        given = list(workflows)
        self._workflows: Workflows[Any] = Workflows(given) if given else client._workflows

    # ---- taking ------------------------------------------------------------------------------------------------

    async def take(self, *, full: bool = False) -> Taken:
        """A snapshot of what is durable now. It costs as much as has changed since the last one.

        full: from the first entry on, whatever snapshots there are. The result is the same.
        """
        await refuse_many_journals(self._queries, "a world snapshot")
        before = await self._begin(full)
        blobs = StoredBlobs(self._queries)
        base = await self._read(blobs, before.hash) if before is not None else GENESIS
        replay = await in_thread(WorldReplay, blobs, value_workflows(self._workflows), base)
        try:
            inbox = await self._until_now(replay, blobs)
            snapshot = await in_thread(replay.snapshot)
        except Parted as parted:
            raise parted.error from parted
        finally:
            await in_thread(replay.close)
        hash, waiting = blobs.put(snapshot.encode()), blobs.put(write_rows(inbox))
        await blobs.flush()
        if before is not None and before not in await self._queries.world_snapshots():
            raise StoreFailed("the snapshot that this one builds on was given up meanwhile; take it again")
        row = WorldSnapshotRow(snapshot.seq, snapshot.at, hash, time.time_ns(), waiting)
        await self._queries.add_world_snapshot(row)
        return await self._told(blobs, row, blobs.written)

    async def _begin(self, full: bool) -> WorldSnapshotRow | None:
        rows = await self._queries.world_snapshots()
        rows = [row for row in rows if row.base] if full else rows
        return rows[-1] if rows else None

    async def _until_now(self, replay: WorldReplay, blobs: StoredBlobs) -> list[InboxRow]:
        """Replay up to an entry that is the last one, and see what waits in the inbox then."""

        async def take(rows: list[JournalRow]) -> None:
            await in_thread(take_all, replay, rows)
            if blobs.fresh_bytes > FLUSH_BYTES:
                await blobs.flush()

        return await until_now(self._queries, replay.seq, take, self._queries.undelivered)

    # ---- what there is -----------------------------------------------------------------------------------------

    async def retained(self) -> list[Taken]:
        """The snapshots that are retained, the oldest first."""
        blobs = StoredBlobs(self._queries)
        return [await self._told(blobs, row) for row in await self._queries.world_snapshots()]

    async def _told(self, blobs: StoredBlobs, row: WorldSnapshotRow, written: int = 0) -> Taken:
        snapshot = await self._read(blobs, row.hash)

        def count() -> dict[str, int]:
            return {workflow: CellIndex(blobs, root).count() for workflow, root in snapshot.cells.items()}

        counts = await in_thread(count)
        return Taken(name_of(row.hash), row.seq, row.taken_at, row.base, counts, snapshot.open, written)

    async def _find(self, hash: str | None) -> WorldSnapshotRow:
        """The snapshot with this hash, or one that begins so; None: the newest."""
        rows = await self._queries.world_snapshots()
        digits = (hash or "").removeprefix("sha256:")
        fitting = [row for row in rows if row.hash.hex().startswith(digits)]
        if not fitting or (hash is not None and len(fitting) > 1):
            raise UnknownSnapshot(hash or "", [name_of(row.hash) for row in rows])
        return fitting[-1]

    async def _read(self, blobs: StoredBlobs, hash: bytes) -> WorldSnapshot:
        return await in_thread(read_snapshot, blobs, hash)

    # ---- going on elsewhere ------------------------------------------------------------------------------------

    async def restore(self, path: str | os.PathLike[str], hash: str | None = None, *, tail: bool = True) -> Restored:
        """A new database file from a snapshot and what came after it. Without the tail it is as it was then.

        It appears under its name when it is complete.
        """
        from perdure.stores.sqlite import SqliteStore
        from perdure.stores.sqlite.appearing import appearing

        with appearing(path) as part, closing(SqliteStore(part)) as store:
            return await self.restore_into(store, hash, tail=tail)

    async def restore_into(self, store: Any, hash: str | None = None, *, tail: bool = True) -> Restored:
        """The same into a store that holds nothing yet."""
        row = await self._find(hash)
        blobs = StoredBlobs(self._queries)
        await asked(store.acquire, "restore")
        try:
            snapshot = await self._read(blobs, row.hash)
            if (await asked(store.position)).seq or await store.heads(Filter(limit=1)) or await store.world_snapshots():
                raise NotEmpty("the database to restore to is not empty")
            restoring = Restoring(store, blobs, snapshot)
            await self._copy_blobs(store, blobs, row, snapshot)
            await restoring.base()
            inbox = read_inbox(await in_thread(found, blobs, row.inbox, "inbox"))
            if tail:
                inbox = await until_now(self._queries, snapshot.seq, restoring.tail, self._queries.undelivered)
            await restoring.fill_inbox(inbox)
            await store.add_world_snapshot(msgspec.structs.replace(row, base=True))
        finally:
            store.release()
        return Restored(name_of(row.hash), row.seq, restoring.instances, restoring.entries, len(inbox))

    async def _copy_blobs(
        self, store: Queries, blobs: StoredBlobs, row: WorldSnapshotRow, snapshot: WorldSnapshot
    ) -> None:
        """All that the snapshot needs. What entries only name may have been missing then, too."""
        named = await in_thread(lambda: {key.state for _, key in CellIndex(blobs, snapshot.blobs).walk()})
        digests = iter({*await in_thread(lambda: set(reached(blobs, [row.hash]))), row.inbox})
        while page := list(islice(digests, 500)):
            bodies = [(digest, await self._queries.blob(digest)) for digest in page]
            for digest, body in bodies:
                if body is None and digest not in named:
                    raise Corrupt(f"there is no blob {name_of(digest)}, which the snapshot {name_of(row.hash)} needs")
            await store.put_blobs([body for _, body in bodies if body is not None], time.time_ns())

    # ---- freeing -----------------------------------------------------------------------------------------------

    async def collect(
        self, *, keep: int | None = None, grace: timedelta | float = GRACE, dry_run: bool = True
    ) -> Collected:
        """Delete the blobs that no retained snapshot and no entry refers to. A dry run only says which.

        keep: retain so many of the newest snapshots; None: all. grace: what was put in so many last seconds stays,
        since something may be about to refer to it.
        """
        if keep is not None and keep < 1:
            raise CallerError(f"keep={keep}: the newest snapshot is always kept")
        seconds = grace.total_seconds() if isinstance(grace, timedelta) else grace
        if not 0 <= seconds <= GRACE_MAX:
            raise CallerError(f"a grace period is 0 to {GRACE_MAX:,} seconds, found {seconds}")
        before = time.time_ns() - round(seconds * 1e9)
        listed = [row async for row in self._blobs()]  # first: what is put from now on is not in it
        rows = await self._queries.world_snapshots()
        dropped = [row for row in (rows[:-keep] if keep is not None else []) if not row.base]
        retained = [row for row in rows if row not in dropped]
        needed = await self._needed(retained)
        garbage = [row for row in listed if row.digest not in needed and row.at < before]
        if not dry_run:
            await self._queries.forget_world_snapshots([row.seq for row in dropped])
            await self._queries.delete_blobs([row.digest for row in garbage], before)
        names = [name_of(row.hash) for row in dropped]
        size = sum(row.size for row in garbage)
        return Collected(dry_run, names, len(garbage), size, len(listed) - len(garbage))

    async def _blobs(self) -> Any:
        after = b""
        while page := await self._queries.blobs(after):
            for row in page:
                yield row
            after = page[-1].digest

    async def _needed(self, retained: list[WorldSnapshotRow]) -> set[bytes]:
        blobs = StoredBlobs(self._queries)
        needed = await in_thread(lambda: set(reached(blobs, [row.hash for row in retained])))
        needed |= {row.inbox for row in retained}
        needed |= set(
            blobs_in_inbox(await self._queries.undelivered())
        )  # before the journal, in which they may be next
        for inbox in {row.inbox for row in retained}:
            needed |= set(blobs_in_inbox(read_inbox(await in_thread(found, blobs, inbox, "inbox"))))
        seq = retained[-1].seq if retained else 0  # what earlier entries name is in the snapshot
        async for rows in pages(self._queries, seq):
            for row in rows:
                entry = decode_entry(row.seq, row.instance, row.at, row.body, NoLocations())
                needed |= set(named_blobs(entry))
        return needed

    # ---- checking ----------------------------------------------------------------------------------------------

    async def verify(self, since: str | None = None) -> Verified:
        """Replay the world from its first entry, or from a snapshot, and compare every decision and every root.

        Nothing is written. Every retained snapshot on the way must come out as it is recorded.
        """
        await refuse_many_journals(self._queries, "a replay of the whole world")
        rows = await self._queries.world_snapshots()
        begin = await self._find(since) if since is not None else await self._begin(full=True)
        blobs = StoredBlobs(self._queries)
        base = await self._read(blobs, begin.hash) if begin is not None else GENESIS
        replay = await in_thread(WorldReplay, blobs, self._with_world(), base)
        marks = {row.seq: row for row in rows if row.seq > base.seq}
        check = Check(replay, blobs, self._workflows, marks)
        try:
            async for page in pages(self._queries, base.seq):
                await in_thread(check.take_all, page)
                if check.difference is not None:
                    break
        finally:
            await in_thread(replay.close)
        return Verified(base.seq, replay.seq, replay.entries, check.compared, sorted(replay.unread), check.difference)

    def _with_world(self) -> Workflows[Workflow]:
        """All the code there is, that of the world's own instance included."""
        every: dict[tuple[str, str], Workflow] = {(each.name, each.version): each for each in self._workflows}
        every |= {(each.name, each.version): each for each in value_workflows(self._workflows)}
        return Workflows(every.values())


def take_all(replay: WorldReplay, rows: Iterable[JournalRow]) -> None:
    for row in rows:
        replay.take(row)
