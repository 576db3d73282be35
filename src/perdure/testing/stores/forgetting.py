"""Families that have ended are forgotten: their rows go, their heads stay."""

from typing import Any

from perdure.kernel.batch import Batch, HeadRow, PublishedRow, SnapshotRow
from perdure.kernel.retention import FORGOTTEN
from perdure.ports.store import Filter

from .harness import Harness, OneStore, Waiting, ask, commit
from .rows import batch, entry, head, message


def ended(id: int, **fields: Any) -> HeadRow:
    return head(id, **{"status": "completed", "ended_at": 100 + id, "outcome": b"value", **fields})


def family(*, last: bool = False) -> Batch:
    """A root with a child, and, unless theirs is to be the last entry, another instance after them."""
    heads = [ended(1), ended(2, parent=1, root=1), *([] if last else [head(3)])]
    return batch(
        journal=[entry(row.id, row.id) for row in heads],
        heads=heads,
        snapshots=[SnapshotRow(1, 1, b"state")],
        published=[PublishedRow(2, "name", b"value")],
    )


class Forgetting(OneStore):
    def test_the_rows_of_a_family_go_and_its_heads_stay(self, harness: Harness, store: Waiting) -> None:
        assert commit(harness, store, family()) is None
        assert ask(store.forget([1])) == 2

        assert [row.instance for row in ask(store.journal(0, 10))] == [3]
        assert ask(store.published(2, "name")) is None
        gone = ask(store.head(1))
        assert (gone.status, gone.outcome, gone.reason) == ("completed", None, FORGOTTEN)
        assert ask(store.record(1)).rows == () and store.position().seq == 3
        assert ask(store.forget([1])) == 0

    def test_lists_of_what_is_kept_and_counts_leave_it_out(self, harness: Harness, store: Waiting) -> None:
        assert commit(harness, store, family()) is None
        assert sum(ask(store.counts()).values()) == 3
        ask(store.forget([1]))

        assert [row.id for row in ask(store.heads(Filter(kept=True)))] == [3]
        assert [row.id for row in ask(store.heads(Filter(status="completed", kept=True)))] == []
        assert sorted(row.id for row in ask(store.heads(Filter()))) == [1, 2, 3]
        assert sum(ask(store.counts()).values()) == 1
        assert all(count > 0 for count in ask(store.counts()).values())

    def test_a_family_stays_while_one_of_it_goes_on(self, harness: Harness, store: Waiting) -> None:
        heads = [ended(1), head(2, parent=1, root=1), head(3)]
        assert commit(harness, store, batch(journal=[entry(n, n) for n in (1, 2, 3)], heads=heads)) is None
        assert ask(store.forget([1])) == 0

    def test_a_family_stays_while_an_event_waits_for_it(self, harness: Harness, store: Waiting) -> None:
        assert commit(harness, store, family()) is None
        assert commit(harness, store, batch(added=[message(b"m" * 16, 2)])) is None
        assert ask(store.forget([1])) == 0

    def test_the_last_entry_of_a_shard_stays(self, harness: Harness, store: Waiting) -> None:
        """Its number would be given again."""
        assert commit(harness, store, family(last=True)) is None
        assert ask(store.forget([1])) == 0 and store.position().seq == 2

    def test_roots_that_have_ended_come_with_the_earliest_first(self, harness: Harness, store: Waiting) -> None:
        heads = [
            ended(1, ended_at=50),
            ended(2, ended_at=40),
            ended(3, parent=1, root=1),
            head(4),
            ended(5, ended_at=60),
        ]
        assert commit(harness, store, batch(journal=[entry(row.id, row.id) for row in heads], heads=heads)) is None

        assert [row.id for row in ask(store.ended_roots(60))] == [2, 1]
        assert [row.id for row in ask(store.ended_roots(99, (40, 2), 1))] == [1]
        ask(store.forget([1]))
        assert [row.id for row in ask(store.ended_roots(99))] == [2, 5]

    def test_what_goes_on_again_was_not_forgotten_meanwhile(self, harness: Harness, store: Waiting) -> None:
        heads = [ended(1, status="failed"), head(2)]
        assert commit(harness, store, batch(journal=[entry(1, 1), entry(2, 2)], heads=heads)) is None
        again = batch(journal=[entry(3, 1)], heads=[head(1)])
        again.counts.clear()
        again.revived = [1]
        assert ask(store.forget([1])) == 1
        assert commit(harness, store, again) is not None
        assert ask(store.head(1)).reason == FORGOTTEN and ask(store.height()) == 2
