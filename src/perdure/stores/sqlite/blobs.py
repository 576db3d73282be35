"""Blobs in the file: bytes by their SHA-256: large or shared data beside the journal."""

from collections.abc import Sequence

import apsw

from perdure.ports.store import BlobRow
from perdure.stores.content import checked, digest_of, problem_of

from .statements import SQL
from .writes import transaction


def put(connection: apsw.Connection, bodies: Sequence[bytes], at: int) -> list[bytes]:
    digests = [digest_of(body) for body in bodies]
    rows = [(digest, at, body) for digest, body in zip(digests, bodies, strict=True)]
    with transaction(connection):
        connection.executemany(SQL.put_blob, rows)
    return digests


def find(connection: apsw.Connection, digest: bytes) -> bytes | None:
    row = connection.execute(SQL.blob, (digest,)).fetchone()
    return None if row is None else checked(digest, row[0])


def page(connection: apsw.Connection, after: bytes, limit: int) -> list[BlobRow]:
    return [BlobRow(*row) for row in connection.execute(SQL.blobs, (after, limit))]


def delete(connection: apsw.Connection, digests: Sequence[bytes], before: int) -> int:
    changed = connection.total_changes()
    with transaction(connection):
        connection.executemany(SQL.delete_blob, [(digest, before) for digest in digests])
    return connection.total_changes() - changed


def forget(connection: apsw.Connection, seqs: Sequence[int]) -> int:
    """World snapshots that are retained no longer."""
    changed = connection.total_changes()
    with transaction(connection):
        connection.executemany(SQL.forget_world_snapshot, [(seq,) for seq in seqs])
    return connection.total_changes() - changed


def problems(connection: apsw.Connection) -> list[str]:
    return [found for row in connection.execute(SQL.all_blobs) if (found := problem_of(*row))]
