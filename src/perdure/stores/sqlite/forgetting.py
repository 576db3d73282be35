"""Removing families that have ended: their rows go, their heads stay as tombstones (`kernel/retention.py`)."""

from collections.abc import Sequence
from typing import Final

import apsw

from perdure.kernel.batch import HeadRow
from perdure.ports.store import ListPlace

from .statements import SQL
from .writes import transaction

GROUP: Final = 20
"""Families by one transaction: an engine waits for it."""


def ended_roots(connection: apsw.Connection, before: int, after: ListPlace, limit: int) -> list[HeadRow]:
    return [HeadRow(*row) for row in connection.execute(SQL.ended_roots, (before, *after, limit))]


def forget(connection: apsw.Connection, roots: Sequence[int]) -> int:
    forgotten = 0
    with transaction(connection):
        for root in roots:
            family = connection.execute(SQL.family, (root,)).fetchall()
            if any(stays for _, stays in family):
                continue
            for statement in (
                SQL.forget_entries,
                SQL.forget_snapshot,
                SQL.forget_published,
                SQL.forget_task,
                SQL.delete_candidates,
                SQL.forget_tag,
                SQL.forget_count,
                SQL.forget_head,
            ):
                connection.executemany(statement, [(id,) for id, _ in family])
            forgotten += len(family)
    return forgotten
