"""What callers read: histories, the journal, published values, workflows; bodies of any size."""

from perdure.kernel.batch import JournalRow, PublishedRow, WorkflowRow
from perdure.kernel.rows import StoredInstance

from .harness import BIG, Harness, OneStore, Waiting, ask, commit, load
from .rows import batch, entry, head


class Reads(OneStore):
    def test_histories_and_the_journal_are_read_in_parts(self, harness: Harness, store: Waiting) -> None:
        rows = [entry(n, 1 + n % 2) for n in range(1, 7)]
        commit(harness, store, batch(journal=rows))

        assert ask(store.journal(0, 100)) == rows
        assert ask(store.height()) == rows[-1].seq
        assert ask(store.heights()) == {0: rows[-1].seq}
        assert ask(store.journal(2, 3)) == rows[2:5]
        assert ask(store.history(1)) == rows[1::2]
        assert ask(store.history(1, after=2, limit=1)) == [rows[3]]
        assert ask(store.history(9)) == []

    def test_an_instance_is_found_by_bytes_of_its_entries(self, harness: Harness, store: Waiting) -> None:
        part = bytes(range(16))
        bodies = [b"before" + part, b"other", b"x" * BIG * 2 + part[::-1]]
        commit(harness, store, batch(journal=[entry(n, n, body) for n, body in enumerate(bodies, start=1)]))

        assert ask(store.mentions(part)) == 1
        assert ask(store.mentions(part[::-1])) == 3
        assert ask(store.mentions(b"never" * 3)) == 0

    def test_a_history_of_any_length_is_read_whole(self, harness: Harness, store: Waiting) -> None:
        """A store may read short ones by another way."""
        rows: list[JournalRow] = []
        for seq in range(1, 20):
            rows.append(entry(seq, 1))
            commit(harness, store, batch(journal=rows[-1:]))

            assert ask(store.history(1)) == rows
            assert ask(store.history(1, limit=seq - 1)) == rows[:-1]
            assert ask(store.history(1, after=1, limit=seq)) == rows[1:]

    def test_the_last_published_value_counts(self, harness: Harness, store: Waiting) -> None:
        for n, value in enumerate([b"one", b"", b"three"], start=1):
            commit(harness, store, batch(journal=[entry(n, 1)], published=[PublishedRow(1, "p", value)]))
            assert ask(store.published(1, "p")) == value

        assert ask(store.published(1, "other")) is None
        assert ask(store.published(2, "p")) is None

    def test_the_registered_workflows_are_those_of_the_last_engine(self, store: Waiting) -> None:
        a, b = WorkflowRow("a", "1", b"parameters of a"), WorkflowRow("b", "2", b"")
        newer = WorkflowRow("a", "2", b"other parameters")
        store.register([b, newer, a])
        assert ask(store.workflows()) == [a, newer, b]

        store.register([WorkflowRow("b", "3", b"")])
        assert ask(store.workflows()) == [WorkflowRow("b", "3", b"")]

    def test_workflows_are_registered_while_a_commit_is_under_way(self, harness: Harness, store: Waiting) -> None:
        """As when a definition is put while an engine works."""
        committed: list[Exception | None] = []
        store.commit(batch(journal=[entry(1, 1)], heads=[head(1)]), committed.append)

        store.register([WorkflowRow("a", "1", b"")])

        harness.settle()
        assert committed == [None]
        assert ask(store.workflows()) == [WorkflowRow("a", "1", b"")]
        assert ask(store.history(1)) == [entry(1, 1)]

    def test_large_bodies_come_back_as_they_were(self, harness: Harness, store: Waiting) -> None:
        rows = [
            entry(1, 1, b"x" * BIG * 3),
            entry(2, 1),
            entry(3, 2, b"x" * BIG * 3),
            entry(4, 1, b"y" * BIG),
        ]
        commit(harness, store, batch(journal=rows, heads=[head(1), head(2)]))

        record = load(harness, store, [1])[1]

        assert ask(store.journal(0, 10)) == rows
        assert ask(store.history(1)) == [rows[0], rows[1], rows[3]]
        assert ask(store.history(1, after=1, limit=1)) == [rows[1]]
        assert ask(store.history(2)) == [rows[2]]
        assert isinstance(record, StoredInstance)
        assert record.rows == (rows[0], rows[1], rows[3])
