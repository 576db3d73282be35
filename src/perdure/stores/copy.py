"""A copy of a database in memory, made from its journal: what is tried there happens nowhere else."""

from bisect import insort
from typing import Final

from perdure.kernel.batch import InboxRow, JournalRow
from perdure.kernel.effects import Call, is_queued
from perdure.kernel.events import Address
from perdure.kernel.job import job_row
from perdure.kernel.replay import fold
from perdure.kernel.rows import Record, work_row
from perdure.ports.store import Filter, Queries

from .journal import until_now
from .memory import MemoryDatabase
from .rebuild import rebuild

PAGE: Final = 5000


async def copied(queries: Queries) -> MemoryDatabase:
    """Everything that is durable at one moment. Cost and memory are those of reading the whole journal."""
    database = MemoryDatabase()

    async def take(rows: list[JournalRow]) -> None:
        database.journal += rows

    async def beside() -> tuple[list[Record], list[InboxRow]]:
        return await _before(queries), await queries.undelivered()

    earlier, inbox = await until_now(queries, 0, take, beside)
    for row in database.journal:
        database.histories.setdefault(row.instance, []).append(row)
    base = next((row for row in await queries.world_snapshots() if row.base), None)
    rebuilt = rebuild(database.journal, base=base.seq if base is not None else 0)
    database.heads = {record.head.id: record.head for record in earlier} | rebuilt.heads
    for head in sorted(database.heads.values(), key=lambda head: head.generation):
        database.names[head.workflow, head.key] = head.id
    database.work = rebuilt.work
    for job in rebuilt.jobs.values():
        database.open_job(job)
    database.published = rebuilt.published
    for record in earlier:
        if record.head.id not in rebuilt.heads:
            _add(database, record)
    for work in database.work.values():
        insort(database.work_order, (work.due, work.intent))
    for event in inbox:
        database.inbox_places += 1
        database.inbox[event.id] = (database.inbox_places, event)
    database.workflows = await queries.workflows()
    if base is not None:
        database.world_snapshots[base.seq] = base
    return database


async def _before(queries: Queries) -> list[Record]:
    """What a restored database has of instances that began before its journal."""
    base = next((row for row in await queries.world_snapshots() if row.base), None)
    records: list[Record] = []
    before = base.seq + 1 if base is not None else 0
    while before and (heads := await queries.heads(Filter(before=before, limit=PAGE))):
        before = heads[-1].id
        records += [record for head in heads if (record := await queries.record(head.id)) is not None]
    return records


def _add(database: MemoryDatabase, record: Record) -> None:
    """An instance whose rows are not all there: it goes on from its snapshot."""
    if record.snapshot is None:
        return
    database.snapshots[record.head.id] = record.snapshot
    instance = fold(Address(record.head.workflow, record.head.key), record.snapshot, record.rows)
    for intent in instance.open.values():
        if (work := work_row(instance.id, intent)) is not None:
            database.work[intent.id] = work
        if type(intent.effect) is Call and is_queued(intent.effect) and not intent.held:
            database.open_job(job_row(instance, intent, intent.effect, record.head.changed_at))
    database.published |= {(instance.id, name): value for name, value in instance.published.items()}
