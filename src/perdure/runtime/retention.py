"""What is due is forgotten: whole families that have ended, each after the time that its workflow keeps them.

How long that is stands in the row of the workflow (`Policy.retention`), so that a client without code knows it too.
Nothing here is recorded: what is due follows from the heads, and what was forgotten stays forgotten.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

import msgspec

from perdure.errors import PerdureError
from perdure.kernel.batch import HeadRow, WorkflowRow
from perdure.kernel.policy import Policy, decode_policy
from perdure.kernel.retention import Retention
from perdure.kernel.workflows import Workflows
from perdure.ports.store import ListPlace, Queries

log = logging.getLogger("perdure")

EVERY: Final = timedelta(hours=1)
BATCH: Final = 500
"""Families that are looked at by one query."""


class Swept(msgspec.Struct, frozen=True):
    """How many families were due, and how many instances went with them; of a dry run only the first is known."""

    families: int
    instances: int


def kept(policy: Policy, retention: Retention | None) -> Policy:
    """The policy of a workflow in an engine that keeps ended instances so long, where the workflow says nothing."""
    if retention is None or policy.retention is not None or policy.created != "start":
        return policy
    return msgspec.structs.replace(policy, retention=retention)


class Keeping:
    """How long ended instances are kept, by what the database knows of their workflows."""

    def __init__(self, rows: Iterable[WorkflowRow]) -> None:
        self._rows = Workflows(row for row in rows if not row.name.startswith("perdure."))
        self.any = any(decode_policy(row.policy).retention is not None for row in self._rows)

    def until(self, head: HeadRow) -> int | None:
        """The time from which on an instance that has ended may go; None: it stays."""
        row = self._rows.exactly(head.workflow, head.version) or self._rows.newest(head.workflow)
        retention = None if row is None else decode_policy(row.policy).retention
        span = None if retention is None or not head.ended_at else retention.of(head.status)
        return None if span is None else head.ended_at + span // timedelta(microseconds=1) * 1000


async def sweep(queries: Queries, now: int, *, dry_run: bool = False) -> Swept:
    """Forget every family that is due, or only count them."""
    keeping = Keeping(await queries.workflows())
    families = instances = 0
    after: ListPlace = (0, 0)
    while keeping.any and (heads := await queries.ended_roots(now, after, BATCH)):
        after = heads[-1].ended_at, heads[-1].id
        due = [head.id for head in heads if (until := keeping.until(head)) is not None and until <= now]
        families += len(due)
        if due and not dry_run:
            instances += await queries.forget(due)
    return Swept(families, instances)


async def sweep_hourly(queries: Queries, now: Callable[[], int]) -> None:
    """For as long as an engine runs."""
    while True:
        try:
            swept = await sweep(queries, now())
            if swept.instances:
                log.info("retention removed %s instances of %s families", swept.instances, swept.families)
        except PerdureError as error:
            log.warning("retention could not remove what is due: %s", error)
        await asyncio.sleep(EVERY.total_seconds())
