"""A copy of a database in memory, made from its journal: what is tried there happens nowhere else."""

from bisect import insort
from typing import Final

from perdure.kernel.batch import InboxRow, JournalRow
from perdure.kernel.effects import Call, is_queued
from perdure.kernel.events import Address
from perdure.kernel.job import job_row
from perdure.kernel.replay import fold
from perdure.kernel.rows import StoredInstance, work_row
from perdure.ports.store import Filter, Queries, place_of

from .journal import until_now
from .memory import MemoryDatabase
from .rebuild import counts_of, rebuild, tags_of

PAGE: Final = 5000


async def copied(queries: Queries) -> MemoryDatabase:
    """Everything that is durable at one moment. Cost and memory are those of reading the whole journal."""
    database = MemoryDatabase()

    async def take(rows: list[JournalRow]) -> None:
        database.journal += rows

    async def beside() -> tuple[list[StoredInstance], list[InboxRow]]:
        return await _before(queries), await queries.undelivered()

    earlier, inbox = await until_now(queries, 0, take, beside)
    for row in database.journal:
        database.histories.setdefault(row.instance, []).append(row)
    base = next((row for row in await queries.world_snapshots() if row.base), None)
    rebuilt = rebuild(database.journal, base=base.seq if base is not None else 0)
    database.heads = {record.head.id: record.head for record in earlier} | rebuilt.heads
    database.tags = dict.fromkeys(tags_of(database.heads.values()))
    database.counts = counts_of(database.heads.values())
    for head in sorted(database.heads.values(), key=lambda head: head.generation):
        database.names[head.workflow, head.key] = head.id
    database.work = rebuilt.work
    for job in rebuilt.jobs.values():
        database.open_job(job)
    database.published = rebuilt.published
    database.tasks = rebuilt.tasks
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


async def _before(queries: Queries) -> list[StoredInstance]:
    """What a restored database has of instances that began before its journal."""
    base = next((row for row in await queries.world_snapshots() if row.base), None)
    records: list[StoredInstance] = []
    wanted = Filter(limit=PAGE)
    while base is not None and (heads := await queries.heads(wanted)):
        wanted = Filter(before=place_of(heads[-1]), limit=PAGE)
        earlier = [head.id for head in heads if head.id <= base.seq]
        records += [record for id in earlier if (record := await queries.record(id)) is not None]
    return records


def _add(database: MemoryDatabase, record: StoredInstance) -> None:
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
