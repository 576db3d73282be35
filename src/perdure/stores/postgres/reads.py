"""What the rows of an answer mean, for the engine and for everybody else."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from perdure.codec import unseal
from perdure.kernel.batch import HeadRow, JournalRow, SnapshotRow
from perdure.kernel.events import Address, Ref
from perdure.kernel.rows import StoredInstance
from perdure.kernel.rules import IN_FORCE, RULER
from perdure.kernel.status import FINAL
from perdure.stores.statements import Statements

LARGEST: Final = 2**63 - 1

_FINAL: Final = [status.value for status in FINAL]


async def heads(connection: Any, sql: Any, refs: Sequence[Ref]) -> dict[Ref, HeadRow]:
    """The heads that there are of these instances."""
    ids = [ref for ref in refs if not isinstance(ref, Address)]
    names = [ref for ref in refs if isinstance(ref, Address) and storable(ref)]
    rows = await connection.fetch(sql.heads_of, ids, [name.workflow for name in names], [name.key for name in names])
    return {ids[n - 1] if n > 0 else names[-n - 1]: HeadRow(*row) for n, *row in rows}


async def records(connection: Any, sql: Statements, refs: Sequence[Ref]) -> dict[Ref, StoredInstance | None]:
    """Many instances in one round trip and one state of the database."""
    ids = [ref for ref in refs if not isinstance(ref, Address)]
    names = [ref for ref in refs if isinstance(ref, Address) and storable(ref)]
    workflows, keys = [name.workflow for name in names], [name.key for name in names]
    found: dict[Ref, StoredInstance | None] = dict.fromkeys(refs)
    for number, *row in await connection.fetch(sql.records, ids, workflows, keys, _FINAL):
        found[ids[number - 1] if number > 0 else names[-number - 1]] = _record(row)
    return found


def _record(row: list[Any]) -> StoredInstance:
    head = HeadRow(*row[:15])
    snapshot_seq, snapshot_body, seqs, ats, bodies = row[15:]
    snapshot = None if snapshot_seq is None else SnapshotRow(head.id, snapshot_seq, snapshot_body)
    if seqs is None:
        return StoredInstance(head, snapshot)
    entries = zip(seqs, ats, bodies, strict=True)
    return StoredInstance(head, snapshot, tuple(JournalRow(seq, head.id, at, body) for seq, at, body in entries))


async def head(connection: Any, sql: Statements, ref: Ref) -> HeadRow | None:
    """An instance by its id, or the last generation of a name."""
    if not isinstance(ref, Address):
        row = await connection.fetchrow(sql.head_by_id, ref)
    elif storable(ref):
        row = await connection.fetchrow(sql.head_by_name, ref.workflow, ref.key)
    else:
        row = None
    return None if row is None else HeadRow(*row)


async def published(connection: Any, sql: Statements, instance: int, name: str) -> bytes | None:
    value = await connection.fetchval(sql.published, instance, name.encode())
    return None if value is None else unseal(value)


async def rules(connection: Any, sql: Statements) -> bytes | None:
    """Those in force."""
    ruler = await head(connection, sql, RULER)
    return None if ruler is None else await published(connection, sql, ruler.id, IN_FORCE)


def storable(address: Address) -> bool:
    """A name with a NUL names nothing: no text of PostgreSQL may have one."""
    return "\x00" not in address.workflow and "\x00" not in address.key


def columns(rows: Iterable[tuple[Any, ...]], count: int) -> tuple[Any, ...]:
    """Rows as arrays, one for each column: NULL for those of no rows at all."""
    return tuple(zip(*rows, strict=True)) or (None,) * count
