"""Rows by hand, for stories that need no workflow."""

from collections.abc import Iterable
from typing import Any

from perdure.codec import seal
from perdure.kernel.batch import Batch, HeadRow, InboxRow, JournalRow, PublishedRow, SnapshotRow, WorkRow
from perdure.kernel.events import Address, Message, Ref, Started
from perdure.kernel.rows import add_heads, inbox_row


def entry(seq: int, instance: int, body: bytes = b"body") -> JournalRow:
    return JournalRow(seq, instance, 1000 + seq, seal(body))


def head(id: int, key: str = "", **fields: Any) -> HeadRow:
    plain = HeadRow(id, "puppet", key or f"key-{id}", 1, "1", "running", id, id, 0, b"hash", "{}", None, id, 0, "")
    return plain._replace(**fields)


def message(id: bytes, to: Ref, body: bytes = b"") -> InboxRow:
    return inbox_row(id, to, Message("note", body), 7)


def start(id: bytes, key: str, input: bytes = b"", reuse: str = "") -> InboxRow:
    event = Started("puppet", key, input, b"seed" * 4, reuse=reuse)
    return inbox_row(id, Address("puppet", key), event, 7)


def batch(
    *,
    journal: Iterable[JournalRow] = (),
    heads: Iterable[HeadRow] = (),
    opened: Iterable[WorkRow] = (),
    closed: Iterable[bytes] = (),
    added: Iterable[InboxRow] = (),
    removed: Iterable[bytes] = (),
    snapshots: Iterable[SnapshotRow] = (),
    published: Iterable[PublishedRow] = (),
) -> Batch:
    made = Batch()
    made.journal = list(journal)
    made.size = sum(len(row.body) for row in made.journal)
    add_heads(made, heads)
    made.work_opened = {row.intent: row for row in opened}
    made.work_closed = list(closed)
    made.inbox_added = {row.id: row for row in added}
    made.inbox_removed = list(removed)
    made.snapshots = {row.instance: row for row in snapshots}
    made.published = {(row.instance, row.name): row for row in published}
    return made
