"""Queues over HTTP: how many jobs are open, which worker has them since when, and the jobs themselves page by page."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import structs

from perdure.kernel.moment import when
from perdure.ports.store import ListedJob, QueueRow

from ..calling import Calling, id_of, unknown
from ..problems import HttpProblem
from .instances import Nothing

SHOWN: Final = 200
"""Jobs that stand beside a queue; `jobs` has them all."""

LIMIT_MAX: Final = 500
LOOKED_MAX: Final = 5000


class ShownJob(msgspec.Struct, frozen=True):
    instance: str
    function: str
    delivery: int
    since: datetime
    worker: str
    claimed_at: datetime | None
    note: str


class ShownQueue(msgspec.Struct, frozen=True):
    """`depth` counts open jobs, `taken` those that a worker has; `jobs` are the oldest of them. `per_minute`: how many
    jobs ended in the last minute; null for a login that does not see all workflows.
    """

    name: str
    depth: int
    taken: int
    oldest: datetime | None
    jobs: list[ShownJob]
    per_minute: float | None


class QueueList(msgspec.Struct, frozen=True):
    items: list[ShownQueue]


async def queues(calling: Calling, given: Nothing) -> QueueList:
    return QueueList([await _shown(calling, name, rows) for name, rows in (await _by_queue(calling)).items()])


class QueueName(msgspec.Struct, frozen=True):
    name: str


class QueueDetail(ShownQueue, frozen=True, kw_only=True):
    """`workers` are those that have jobs of this queue."""

    workers: list[ShownWorker]


async def queue(calling: Calling, given: QueueName) -> QueueDetail:
    rows = await _rows_of(calling, given.name)
    item = await _shown(calling, given.name, rows)
    return QueueDetail(**structs.asdict(item), workers=_workers(rows))


class JobsQuery(msgspec.Struct, frozen=True):
    name: str
    limit: int = 50
    cursor: str = ""


class JobList(msgspec.Struct, frozen=True):
    """The oldest first."""

    items: list[ShownJob]
    next: str | None


async def jobs(calling: Calling, given: JobsQuery) -> JobList:
    if not 1 <= given.limit <= LIMIT_MAX:
        raise HttpProblem(422, "bad-request", f"limit is 1 to {LIMIT_MAX}, found {given.limit}", where="/limit")
    after = _place(calling, given)
    if not given.cursor:
        await _rows_of(calling, given.name)
    items: list[ShownJob] = []
    looked, more = 0, True
    while more and len(items) < given.limit and looked < LOOKED_MAX:
        found = await calling.client.queries.jobs(LIMIT_MAX, given.name, after)
        more = len(found) == LIMIT_MAX
        for number, job in enumerate(found, 1):
            after = job.at, job.intent
            looked += 1
            items += await _listed(calling, [job])
            if len(items) == given.limit:
                more = more or number < len(found)
                break
    next = calling.accesses.signer.sign("jobs", msgspec.msgpack.encode((given.name, *after))) if more else None
    return JobList(items, next)


def _place(calling: Calling, given: JobsQuery) -> tuple[int, bytes]:
    if not given.cursor:
        return 0, b""
    body = calling.accesses.signer.read("jobs", given.cursor)
    name, at, intent = ("", 0, b"") if body is None else msgspec.msgpack.decode(body)
    if body is None or name != given.name:
        text = "this cursor is of another queue, or of another server; begin again without it"
        raise HttpProblem(422, "bad-cursor", text, where="/cursor")
    return at, intent


class ShownWorker(msgspec.Struct, frozen=True):
    """A worker that has jobs: how many of which queues, and since when it has the first of them."""

    name: str
    queues: dict[str, int]
    jobs: int
    since: datetime | None


class WorkerList(msgspec.Struct, frozen=True):
    items: list[ShownWorker]


async def workers(calling: Calling, given: Nothing) -> WorkerList:
    """A worker without a job is not known to the database."""
    return WorkerList(_workers([row for rows in (await _by_queue(calling)).values() for row in rows]))


def _workers(rows: list[QueueRow]) -> list[ShownWorker]:
    found: list[ShownWorker] = []
    for name in sorted({row.worker for row in rows if row.worker}):
        mine = [row for row in rows if row.worker == name]
        queues: dict[str, int] = {}
        for row in mine:
            queues[row.queue] = queues.get(row.queue, 0) + row.jobs
        since = min((row.claimed for row in mine if row.claimed), default=0)
        found.append(ShownWorker(name, queues, sum(queues.values()), when(since) if since else None))
    return found


async def _by_queue(calling: Calling) -> dict[str, list[QueueRow]]:
    """Of jobs for instances that the login sees."""
    found: dict[str, list[QueueRow]] = {}
    for row in await calling.client.queries.queues():
        if calling.sees(row.workflow):
            found.setdefault(row.queue, []).append(row)
    return found


async def _rows_of(calling: Calling, name: str) -> list[QueueRow]:
    rows = (await _by_queue(calling)).get(name)
    if rows is None:
        raise unknown(f"open job of a queue {name[:80]!r}")
    return rows


async def _shown(calling: Calling, name: str, rows: list[QueueRow]) -> ShownQueue:
    depth, taken = sum(row.jobs for row in rows), sum(row.jobs for row in rows if row.worker)
    oldest = await _listed(calling, await calling.client.queries.jobs(SHOWN, name))
    rate = await _per_minute(calling, name) if calling.sees_all else None
    return ShownQueue(name, depth, taken, when(min(row.at for row in rows)), oldest, rate)


async def _per_minute(calling: Calling, name: str) -> float:
    """Each engine counts for all its shards."""
    engines = {row.owner: row.figures for row in await calling.client.queries.shards() if row.owner is not None}
    return round(sum(figures.per_minute(name, time.time()) for figures in engines.values()), 1)


async def _listed(calling: Calling, rows: list[ListedJob]) -> list[ShownJob]:
    found: list[ShownJob] = []
    for job in rows:
        head: Any = await calling.client.queries.head(job.instance)
        if head is not None and calling.sees(head.workflow):
            claimed = when(job.claimed) if job.claimed else None
            found.append(ShownJob(id_of(head), job.function, job.delivery, when(job.at), job.worker, claimed, job.note))
    return found
