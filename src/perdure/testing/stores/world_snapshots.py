"""World snapshots, and a journal that begins after one."""

from perdure.ports.store import WorldSnapshotRow

from .harness import Harness, OneStore, Waiting, ask, commit
from .rows import batch, entry, head


class WorldSnapshots(OneStore):
    def test_world_snapshots_are_listed_in_the_order_of_their_entries_and_given_up(self, store: Waiting) -> None:
        rows = [WorldSnapshotRow(seq, seq + 100, bytes([seq]) * 32, 7, b"i" * 32) for seq in (3, 1, 2)]
        for row in rows:
            ask(store.add_world_snapshot(row))

        assert ask(store.world_snapshots()) == sorted(rows, key=lambda row: row.seq)
        assert ask(store.forget_world_snapshots([1, 3, 9])) == 2
        assert ask(store.world_snapshots()) == [rows[2]]

    def test_there_is_one_world_snapshot_for_an_entry_and_a_base_stays_one(self, store: Waiting) -> None:
        first = WorldSnapshotRow(5, 105, b"a" * 32, 7, b"i" * 32, base=True)
        ask(store.add_world_snapshot(first))
        ask(store.add_world_snapshot(WorldSnapshotRow(5, 105, b"b" * 32, 8, b"j" * 32)))

        assert ask(store.world_snapshots()) == [WorldSnapshotRow(5, 105, b"b" * 32, 8, b"j" * 32, base=True)]
        assert ask(store.forget_world_snapshots([5])) == 0

    def test_the_journal_of_a_restored_database_begins_after_its_base(self, harness: Harness, store: Waiting) -> None:
        ask(store.add_world_snapshot(WorldSnapshotRow(2, 102, b"a" * 32, 7, b"i" * 32)))
        assert store.position().seq == 0 and ask(store.height()) == 0
        ask(store.add_world_snapshot(WorldSnapshotRow(5, 105, b"b" * 32, 7, b"i" * 32, base=True)))

        position = store.position()
        assert (position.seq, position.at) == (5, 105) and ask(store.height()) == 5
        commit(harness, store, batch(journal=[entry(6, 6)], heads=[head(6)]))
        assert store.position().seq == 6 and ask(store.height()) == 6
