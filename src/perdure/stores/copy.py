"""A copy of a database in memory, made from its journal: what is tried there happens nowhere else."""

from bisect import insort

from perdure.errors import StoreFailed
from perdure.ports.store import Queries

from .memory import MemoryDatabase
from .rebuild import rebuild

PAGE = 5000
TRIES = 20


async def copied(queries: Queries) -> MemoryDatabase:
    """Everything that is durable at one moment. Cost and memory are those of reading the whole journal."""
    database = MemoryDatabase()
    seq = 0
    for _ in range(TRIES):
        while rows := await queries.journal(seq, PAGE):
            database.journal += rows
            seq = rows[-1].seq
        inbox = await queries.undelivered()
        if not await queries.journal(seq, 1):  # else an event may be in both, or in neither
            break
    else:
        raise StoreFailed("the journal grows faster than it can be copied; try again when there is less to do")
    for row in database.journal:
        database.histories.setdefault(row.instance, []).append(row)
    rebuilt = rebuild(database.journal)
    database.heads = rebuilt.heads
    for head in sorted(rebuilt.heads.values(), key=lambda head: head.generation):
        database.names[head.workflow, head.key] = head.id
    database.work = rebuilt.work
    for work in rebuilt.work.values():
        insort(database.work_order, (work.due, work.intent))
    database.published = rebuilt.published
    for event in inbox:
        database.inbox_places += 1
        database.inbox[event.id] = (database.inbox_places, event)
    database.workflows = await queries.workflows()
    return database
