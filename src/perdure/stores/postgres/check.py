"""Reading everything: are the bodies whole, and do the index tables say what the journal says?

The rebuild takes rows one after the other and never waits. So it runs in a thread, with a connection and a loop of
its own that is run whenever more rows are needed.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from perdure.codec import unseal
from perdure.errors import PerdureError
from perdure.kernel.batch import HeadRow, InboxRow, JobRow, JournalRow, TagRow, WorkRow
from perdure.kernel.task import CandidateRow, TaskRow
from perdure.stores.content import problem_of
from perdure.stores.rebuild import Indexes, differences, rebuild, tasks_of

from .connections import DatabasePlace, connect
from .failures import FAILURES, failure
from .statements import statements

PAGE: Final = 1000


async def check(place: DatabasePlace) -> list[str]:
    return await asyncio.to_thread(_check, place)


def _check(place: DatabasePlace) -> list[str]:
    with asyncio.Runner() as runner:
        try:
            return _Reading(place, runner).problems()
        except FAILURES as error:
            raise failure(place.name, error) from error


class _Reading:
    def __init__(self, place: DatabasePlace, runner: asyncio.Runner) -> None:
        self._run = runner.run
        self._sql = statements(place.namespace)
        self._connection = self._run(connect(place))

    def problems(self) -> list[str]:
        transaction = self._connection.transaction(isolation="repeatable_read", readonly=True)
        try:
            self._run(transaction.start())
            return self._check()
        finally:
            self._connection.terminate()

    def _check(self) -> list[str]:
        sql = self._sql
        problems = []
        for what, name, body in self._rows(sql.sealed_bodies):
            try:
                unseal(body)
            except PerdureError as error:
                problems.append(f"{what} {name}: {error}")
        base = next((row[0] for row in self._rows(sql.world_snapshots) if row[5]), 0)
        rebuilt = rebuild((JournalRow(*row) for row in self._rows(sql.all_journal)), base=base)
        problems += rebuilt.problems + differences(rebuilt, self._stored())
        return problems + [found for row in self._rows(sql.all_blobs) if (found := problem_of(*row))]

    def _stored(self) -> Indexes:
        sql = self._sql
        return Indexes(
            {row[0]: HeadRow(*row) for row in self._rows(sql.all_heads)},
            {row[0]: WorkRow(*row) for row in self._rows(sql.all_work)},
            {(instance, name.decode()): value[1:-4] for instance, name, value in self._rows(sql.all_published)},
            [InboxRow(*row) for row in self._rows(sql.undelivered)],
            {row[0]: JobRow(*row) for row in self._rows(sql.all_jobs)},
            {TagRow(*row) for row in self._rows(sql.all_tags)},
            {(workflow, version, status): count for workflow, version, status, count in self._rows(sql.counts)},
            tasks_of(
                (TaskRow(*row) for row in self._rows(sql.all_tasks)),
                (CandidateRow(*row) for row in self._rows(sql.all_candidates)),
            ),
        )

    def _rows(self, sql: str) -> Iterator[Any]:
        cursor = self._run(self._cursor(sql))
        while rows := self._run(self._page(cursor)):
            yield from rows

    async def _cursor(self, sql: str) -> Any:
        return await self._connection.cursor(sql)

    @staticmethod
    async def _page(cursor: Any) -> list[Any]:
        page: list[Any] = await cursor.fetch(PAGE)
        return page
