"""What an engine loads: instances by id and by name, their last snapshot, what was running."""

from perdure.codec import seal
from perdure.kernel.batch import SnapshotRow
from perdure.kernel.events import Address
from perdure.kernel.rows import StoredInstance

from .harness import Harness, OneStore, Waiting, ask, commit, load
from .rows import batch, entry, head


class Loading(OneStore):
    def test_an_instance_is_found_by_id_and_by_name(self, harness: Harness, store: Waiting) -> None:
        commit(harness, store, batch(journal=[entry(1, 1), entry(2, 2), entry(3, 1)], heads=[head(1), head(2)]))
        name, nobody = Address("puppet", "key-1"), Address("puppet", "nobody")

        found = load(harness, store, [1, name, nobody, 77])

        assert found[1] == found[name] == StoredInstance(head(1), None, (entry(1, 1), entry(3, 1)))
        assert found[nobody] is None
        assert found[77] is None

    def test_a_name_means_its_last_generation(self, harness: Harness, store: Waiting) -> None:
        first, second = head(1, "k", status="failed"), head(2, "k", generation=2)
        commit(harness, store, batch(journal=[entry(1, 1), entry(2, 2)], heads=[first, second]))
        commit(harness, store, batch(journal=[entry(3, 1)], heads=[first._replace(changed_at=9)]))

        assert ask(store.head(Address("puppet", "k"))) == second
        assert ask(store.head(1)) == first._replace(changed_at=9)

    def test_an_ended_instance_is_its_head(self, harness: Harness, store: Waiting) -> None:
        ended = head(1, status="completed", outcome=seal(b"outcome"))
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[ended]))

        assert load(harness, store, [1])[1] == StoredInstance(ended)
        assert ask(store.history(1)) == [entry(1, 1)]

    def test_only_the_newest_snapshot_is_kept_with_the_rows_after_it(self, harness: Harness, store: Waiting) -> None:
        commit(
            harness,
            store,
            batch(
                journal=[entry(n, 1) for n in range(1, 6)],
                heads=[head(1)],
                snapshots=[SnapshotRow(1, 2, seal(b"old"))],
            ),
        )
        commit(harness, store, batch(journal=[entry(6, 1)], snapshots=[SnapshotRow(1, 4, seal(b"new"))]))

        record = load(harness, store, [1])[1]

        assert record == StoredInstance(head(1), SnapshotRow(1, 4, seal(b"new")), (entry(5, 1), entry(6, 1)))

    def test_a_snapshot_of_the_last_entry_is_all_that_is_loaded(self, harness: Harness, store: Waiting) -> None:
        left = SnapshotRow(1, 2, seal(b"state"))
        commit(harness, store, batch(journal=[entry(1, 1), entry(2, 1)], heads=[head(1)], snapshots=[left]))
        name = Address("puppet", "key-1")

        found = load(harness, store, [1, name])

        assert found == {1: left, name: left}
        assert ask(store.record(name)) == StoredInstance(head(1), left)

    def test_a_snapshot_counts_wherever_it_was_left(self, harness: Harness, store: Waiting) -> None:
        """Small ones stand beside entries that are written with them, others apart: the newest of both is loaded."""
        large = SnapshotRow(1, 1, seal(b"x" * 2000))
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)], snapshots=[large]))
        assert load(harness, store, [1])[1] == large

        small = SnapshotRow(1, 3, seal(b"small"))
        commit(
            harness, store, batch(journal=[entry(2, 1), entry(3, 1), entry(4, 2)], heads=[head(2)], snapshots=[small])
        )
        assert load(harness, store, [1, 2]) == {1: small, 2: StoredInstance(head(2), None, (entry(4, 2),))}

        commit(harness, store, batch(journal=[entry(5, 1), entry(6, 1, b"y" * 70_000)]))
        assert load(harness, store, [1])[1] == StoredInstance(head(1), small, (entry(5, 1), entry(6, 1, b"y" * 70_000)))

        late = SnapshotRow(1, 6, seal(b"late"))  # its entry is durable already
        commit(harness, store, batch(snapshots=[late]))
        assert load(harness, store, [1])[1] == late
        assert ask(store.record(1)) == StoredInstance(head(1), late)

        commit(harness, store, batch(journal=[entry(7, 1)]))
        assert load(harness, store, [1])[1] == StoredInstance(head(1), late, (entry(7, 1),))
        assert ask(store.history(1, 5)) == [entry(6, 1, b"y" * 70_000), entry(7, 1)]
        assert ask(store.journal(6, 10)) == [entry(7, 1)]

    def test_the_position_names_what_was_running(self, harness: Harness, store: Waiting) -> None:
        heads = [head(1), head(2, status="waiting"), head(3), head(4, status="completed")]
        commit(harness, store, batch(journal=[entry(n, n) for n in range(1, 5)], heads=heads))

        position = store.position()

        assert (position.seq, position.at, position.running) == (4, 1004, (1, 3))
