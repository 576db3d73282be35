"""Reading everything: are the bodies whole, and do the index tables say what the journal says?"""

from collections.abc import Iterable, Iterator

import apsw

from perdure.codec import unseal
from perdure.errors import Corrupt, PerdureError
from perdure.kernel.batch import HeadRow, InboxRow, JobRow, JournalRow, TagRow, WorkRow
from perdure.kernel.task import CandidateRow, TaskRow
from perdure.ports.store import BEGINNING
from perdure.stores.rebuild import Indexes, differences, rebuild, tasks_of

from . import blobs, large_bodies
from .reads import NO_LIMIT, counts, world_snapshots
from .statements import SQL


def check_rows(connection: apsw.Connection) -> list[str]:
    problems = _check_bodies(connection)
    base = next((row.seq for row in world_snapshots(connection) if row.base), 0)
    rebuilt = rebuild(_readable(connection, connection.execute(SQL.journal, (0, NO_LIMIT)), problems), base=base)
    return problems + rebuilt.problems + differences(rebuilt, _stored(connection)) + blobs.problems(connection)


def _check_bodies(connection: apsw.Connection) -> list[str]:
    problems = []
    for what, name, body in connection.execute(SQL.sealed_bodies):
        try:
            unseal(body)
        except PerdureError as error:
            problems.append(f"{what} {name}: {error}")
    return problems


def _readable(
    connection: apsw.Connection, rows: Iterable[tuple[int, int, int, bytes]], problems: list[str]
) -> Iterator[JournalRow]:
    """The journal with its large bodies; a row whose body is gone is reported, and no row for the rebuild."""
    for seq, instance, at, body in rows:
        try:
            yield JournalRow(seq, instance, at, large_bodies.resolve(connection, body))
        except Corrupt as error:
            problems.append(f"instance {instance}, journal row {seq}: {error}")
            yield JournalRow(seq, instance, at, b"")


def _stored(connection: apsw.Connection) -> Indexes:
    heads = connection.execute(SQL.all_heads)
    work = connection.execute(SQL.due, (2**63 - 1, *BEGINNING, NO_LIMIT))
    published = connection.execute(SQL.all_published)
    return Indexes(
        {row[0]: HeadRow(*row) for row in heads},
        {row[0]: WorkRow(*row) for row in work},
        {(instance, name): value[1:-4] for instance, name, value in published},  # checked before
        [InboxRow(*row[1:]) for row in connection.execute(SQL.inbox, (0, NO_LIMIT))],
        {row[0]: JobRow(*row) for row in connection.execute(SQL.jobs)},
        {TagRow(*row) for row in connection.execute(SQL.all_tags)},
        counts(connection),
        tasks_of(
            (TaskRow(*row) for row in connection.execute(SQL.all_tasks)),
            (CandidateRow(*row) for row in connection.execute(SQL.all_candidates)),
        ),
    )
