"""Every read of the file, as a function of a connection. Client and engine differ in the connection only."""

from collections.abc import Callable, Iterable
from itertools import repeat, starmap
from typing import Final

import apsw

from perdure.codec import unseal
from perdure.errors import Corrupt
from perdure.kernel.batch import HeadRow, InboxRow, JournalRow, SnapshotRow, Standing, WorkflowRow, WorkRow
from perdure.kernel.events import Address, Ref
from perdure.kernel.outside import KIND
from perdure.kernel.rows import Loaded, StoredInstance
from perdure.kernel.rules import IN_FORCE, RULER
from perdure.kernel.status import FINAL
from perdure.kernel.task import TaskRow
from perdure.ports.shards import ShardRow, read_figures
from perdure.ports.store import (
    BEGINNING,
    MENTIONS_MAX,
    Census,
    Filter,
    JobState,
    ListedJob,
    Owner,
    Page,
    Place,
    Position,
    QueueRow,
    TaskFilter,
    WorldSnapshotRow,
)
from perdure.stores import tasks as lists_of_tasks
from perdure.stores.lists import listing, sql_of

from . import large_bodies, schema
from .statements import SQL

NO_LIMIT: Final = -1
LARGEST: Final = 2**63 - 1


def head(connection: apsw.Connection, ref: Ref) -> HeadRow | None:
    """An instance by its id, or the last generation of a name."""
    if isinstance(ref, Address):
        row = connection.execute(SQL.head_by_name, (ref.workflow, ref.key)).fetchone()
    else:
        row = connection.execute(SQL.head_by_id, (ref,)).fetchone()
    return None if row is None else HeadRow(*row)


def record(connection: apsw.Connection, ref: Ref) -> StoredInstance | None:
    """What is known of an instance: one that has ended for good needs no past."""
    found = _loaded(connection, ref)
    return _record(connection, found.instance, found) if isinstance(found, SnapshotRow) else found


def loaded(connection: apsw.Connection, refs: Iterable[Ref]) -> list[Loaded | Exception | None]:
    return [_loaded_or_damaged(connection, ref) for ref in refs]


def _loaded_or_damaged(connection: apsw.Connection, ref: Ref) -> Loaded | Exception | None:
    try:
        return _loaded(connection, ref)
    except Corrupt as error:  # rows of this instance: the others can be read
        return error
    except UnicodeDecodeError as error:
        return Corrupt(f"a text of {ref} is none ({error})")


def _loaded(connection: apsw.Connection, ref: Ref) -> Loaded | None:
    if isinstance(ref, Address):
        row = connection.execute(SQL.left_by_name, (ref.workflow, ref.key)).fetchone()
    else:
        row = connection.execute(SQL.left_by_id, (ref,)).fetchone()
    if row is None:
        return None
    id, last, beside, seq, body = row
    if beside is not None:
        return SnapshotRow(id, last, beside)
    apart = None if seq is None else SnapshotRow(id, seq, body)
    if apart is not None and (last is None or seq >= last):
        return apart
    return _record(connection, id, apart)


def _record(connection: apsw.Connection, id: int, snapshot: SnapshotRow | None) -> StoredInstance:
    found = head(connection, id)
    if found is None:
        raise Corrupt(f"an index names instance {id}, and there is no such row")
    if found.status in FINAL:
        return StoredInstance(found)
    rows = []
    for seq, instance, at, body, beside in connection.execute(
        SQL.history_backwards, (id, 0 if snapshot is None else snapshot.seq)
    ):
        if beside is not None:
            snapshot = SnapshotRow(id, seq, beside)
            break
        rows.append((seq, instance, at, body))
    rows.reverse()
    return StoredInstance(found, snapshot, tuple(_with_large_bodies(connection, rows)))


def page(connection: apsw.Connection, filter: Filter, *, bounded: bool) -> Page:
    questions = listing(filter, bounded=bounded)
    question = next(questions)
    while True:
        sql, values = sql_of(question, SQL, lambda number: "?")
        try:
            question = questions.send(connection.execute(sql, values).fetchall())
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def heads(connection: apsw.Connection, filter: Filter) -> list[HeadRow]:
    return page(connection, filter, bounded=False).heads


def counts(connection: apsw.Connection) -> dict[Standing, int]:
    return {(workflow, version, status): count for workflow, version, status, count in connection.execute(SQL.counts)}


def history(connection: apsw.Connection, instance: int, after: int = 0, limit: int | None = None) -> list[JournalRow]:
    rows = connection.execute(SQL.history, (instance, after, NO_LIMIT if limit is None else limit))
    return _with_large_bodies(connection, rows)


SHORT: Final = 16
"""So many small rows are read in less time than a thread takes to begin."""


def short_history(connection: apsw.Connection, instance: int, after: int, limit: int | None) -> list[JournalRow] | None:
    """None: it has more rows than a short one, or a large body."""
    most = SHORT + 1 if limit is None else min(limit, SHORT + 1)
    found = list(map(_row, repeat(JournalRow), connection.execute(SQL.history, (instance, after, most))))
    return None if len(found) > SHORT or any(large_bodies.is_reference(row.body) for row in found) else found


def journal(connection: apsw.Connection, after: int, limit: int) -> list[JournalRow]:
    return _with_large_bodies(connection, connection.execute(SQL.journal, (after, limit)))


def _with_large_bodies(connection: apsw.Connection, rows: Iterable[tuple[int, int, int, bytes]]) -> list[JournalRow]:
    found = list(map(_row, repeat(JournalRow), rows))
    references = [n for n, row in enumerate(found) if large_bodies.is_reference(row.body)]
    for n in references:
        found[n] = found[n]._replace(body=large_bodies.resolve(connection, found[n].body))
    return found


_row: Final[Callable[[type[JournalRow], tuple[int, int, int, bytes]], JournalRow]] = tuple.__new__
"""Makes a row without the Python function that named tuples are made by: a long history has many."""


def position(connection: apsw.Connection) -> Position:
    seq, at = connection.execute(SQL.last_entry).fetchone() or (0, 0)
    if type(seq) is not int or type(at) is not int:
        raise Corrupt(f"the last entry has the number {seq!r} and the time {at!r}")
    ruler = head(connection, RULER)
    rules = None if ruler is None else published(connection, ruler.id, IN_FORCE)
    return Position(seq, at, tuple(id for (id,) in connection.execute(SQL.running)), rules)


def world_snapshots(connection: apsw.Connection) -> list[WorldSnapshotRow]:
    rows = connection.execute(SQL.world_snapshots)
    return [
        WorldSnapshotRow(seq, at, hash, taken_at, inbox, bool(base)) for seq, at, hash, taken_at, inbox, base in rows
    ]


def census(connection: apsw.Connection) -> Census:
    ((work,),) = connection.execute(SQL.count_work)
    ((inbox,),) = connection.execute(SQL.count_inbox)
    return Census(tuple(connection.execute(SQL.live_instances)), work, inbox)


def height(connection: apsw.Connection) -> int:
    seq, _ = connection.execute(SQL.last_entry).fetchone() or (0, 0)
    return int(seq)


def due(connection: apsw.Connection, before: int, limit: int, after: Place = BEGINNING) -> list[WorkRow]:
    return list(starmap(WorkRow, connection.execute(SQL.due, (min(before, LARGEST), *after, limit))))


def job(connection: apsw.Connection, intent: bytes) -> JobState | None:
    row = connection.execute(SQL.job, (intent,)).fetchone()
    return None if row is None else JobState(*row)


def jobs(connection: apsw.Connection, limit: int, queue: str, after: tuple[int, bytes]) -> list[ListedJob]:
    rows = connection.execute(SQL.listed_jobs, (queue, queue, *after, limit))
    return list(starmap(ListedJob, rows))


def queues(connection: apsw.Connection) -> list[QueueRow]:
    return list(starmap(QueueRow, connection.execute(SQL.queues)))


def work(connection: apsw.Connection, intent: bytes) -> WorkRow | None:
    row = connection.execute(SQL.work, (intent,)).fetchone()
    return None if row is None else WorkRow(*row)


def outside(connection: apsw.Connection, executor: str, after: bytes, limit: int) -> list[WorkRow]:
    if executor:
        rows = connection.execute(SQL.outside_of, (KIND + executor, after, limit))
    else:
        rows = connection.execute(SQL.outside, (after, limit))
    return list(starmap(WorkRow, rows))


def mentions(connection: apsw.Connection, part: bytes) -> int:
    row = connection.execute(SQL.mentions, (MENTIONS_MAX, part, part)).fetchone()
    return 0 if row is None else int(row[0])


def published(connection: apsw.Connection, instance: int, name: str) -> bytes | None:
    row = connection.execute(SQL.published, (instance, name)).fetchone()
    return None if row is None else unseal(row[0])


def task(connection: apsw.Connection, id: int) -> TaskRow | None:
    row = connection.execute(SQL.task, (id,)).fetchone()
    return None if row is None else TaskRow(*row)


def tasks(connection: apsw.Connection, filter: TaskFilter) -> list[TaskRow]:
    sql, values = lists_of_tasks.page(filter, lambda number: "?")
    return lists_of_tasks.merged(starmap(TaskRow, connection.execute(sql, values)), filter)


def count_tasks(connection: apsw.Connection, filter: TaskFilter) -> int:
    sql, values = lists_of_tasks.count(filter, lambda number: "?")
    return int(connection.execute(sql, values).get)


def workflows(connection: apsw.Connection) -> list[WorkflowRow]:
    return [WorkflowRow(*row) for row in connection.execute(SQL.workflows)]


def undelivered(connection: apsw.Connection, address: Address | None) -> list[InboxRow]:
    if address is None:
        return [InboxRow(*row) for _, *row in connection.execute(SQL.inbox, (0, NO_LIMIT))]
    rows = connection.execute(SQL.inbox_by_name, (address.workflow, address.key))
    return list(starmap(InboxRow, rows))


def owner(connection: apsw.Connection) -> Owner:
    """The name that the last engine left. Whether it still runs is known by its lock only."""
    name, pid, host, since = connection.execute(SQL.owner).fetchone() or ("", 0, "", 0)
    return Owner(name or "an engine that has just started", pid, host, since)


def shard(connection: apsw.Connection, owner: Owner | None) -> ShardRow:
    epoch, figures, undelivered, oldest = connection.execute(SQL.shard).fetchone() or (0, "", 0, 0)
    return ShardRow(0, epoch, owner, 0.0, read_figures(figures if owner is not None else ""), undelivered, oldest)


def facts(connection: apsw.Connection) -> dict[str, str]:
    synchronous = {0: "off", 1: "normal", 2: "full", 3: "extra"}
    return {
        "journal_mode": str(connection.pragma("journal_mode")),
        "synchronous": synchronous[int(connection.pragma("synchronous"))],
        "schema": str(schema.version_of(connection)),
        "size_bytes": str(connection.pragma("page_count") * connection.pragma("page_size")),
        "last_entry_at": str(next((at for _, at in connection.execute(SQL.last_entry)), 0)),
    }


def data_version(connection: apsw.Connection) -> int:
    """Changes when another connection, of this or another process, has written."""
    return int(connection.pragma("data_version"))
