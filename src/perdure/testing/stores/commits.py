"""A commit is whole or not at all, and all of it is found again."""

from perdure.codec import seal
from perdure.kernel.batch import PublishedRow, SnapshotRow, WorkRow
from perdure.kernel.events import Message
from perdure.kernel.rows import StoredInstance, offer_of
from perdure.ports.store import Filter

from .harness import Harness, OneStore, Waiting, ask, commit, everything, load
from .rows import batch, entry, head, message
from .scripted import SmallShard


class Commits(OneStore):
    def test_an_empty_database_stands_at_zero(self, store: Waiting) -> None:
        position = store.position()

        assert (position.seq, position.at, position.running) == (0, 0, ())
        assert store.due(2**62, 10) == []
        assert store.inbox(10) == []
        assert ask(store.heads(Filter())) == []
        assert ask(store.journal(0, 10)) == []
        assert ask(store.height()) == 0 and ask(store.heights()) == {}
        assert ask(store.check()) == []

    def test_a_commit_writes_every_kind_of_row(self, harness: Harness, store: Waiting) -> None:
        work = WorkRow(b"intent", 1, "timer", 50)
        written = batch(
            journal=[entry(1, 1), entry(2, 1)],
            heads=[head(1)],
            opened=[work],
            added=[message(b"m", 1)],
            snapshots=[SnapshotRow(1, 1, seal(b"state"))],
            published=[PublishedRow(1, "progress", b"half")],
        )

        assert commit(harness, store, written) is None

        assert ask(store.history(1)) == [entry(1, 1), entry(2, 1)]
        assert ask(store.head(1)) == head(1)
        assert ask(store.heads_of([1, 99])) == {1: head(1)}
        assert ask(store.heads_of([])) == {}
        assert store.due(50, 10) == [work]
        assert store.inbox(10) == [message(b"m", 1)]
        assert load(harness, store, [1])[1] == StoredInstance(
            head(1), SnapshotRow(1, 1, seal(b"state")), (entry(2, 1),)
        )
        assert ask(store.published(1, "progress")) == b"half"
        assert store.position().seq == 2

    def test_a_refused_commit_writes_nothing(self, harness: Harness, store: Waiting) -> None:
        assert commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)])) is None
        before = everything(harness, store)
        conflict = batch(
            heads=[head(2)],
            opened=[WorkRow(b"i", 2, "timer", 1)],
            added=[message(b"m", 2)],
            journal=[entry(2, 2), entry(1, 2)],
        )

        assert isinstance(commit(harness, store, conflict), Exception)

        assert everything(harness, store) == before
        assert commit(harness, store, batch(journal=[entry(2, 2)], heads=[head(2)])) is None

    def test_closing_comes_before_opening_in_one_commit(self, harness: Harness, store: Waiting) -> None:
        early, late = WorkRow(b"i", 1, "timer", 5), WorkRow(b"i", 1, "timer", 9)
        commit(harness, store, batch(journal=[entry(1, 1)], opened=[early]))

        assert commit(harness, store, batch(journal=[entry(2, 1)], closed=[b"i"], opened=[late])) is None

        assert store.due(9, 10) == [late]

    def test_reopening_finds_everything(self, harness: Harness) -> None:
        player = SmallShard(harness)
        player.start("a", tags={"team": "red"})
        for order in ("timer 5", "call", "publish value", "send b", "child c"):
            player.tell("a", order, b"x" * 100)
        before = everything(harness, player.store)

        player.store.release()
        player.store.close()
        player.open()

        assert everything(harness, player.store) == before

    def test_events_that_two_lives_kept_for_a_stuck_instance_are_both_there(self, harness: Harness) -> None:
        player = SmallShard(harness)
        player.start("a")
        player.tell("a", "raise")
        player.tell("a", "note", b"first")
        player.reopen()
        player.tell("a", "note", b"second")

        player.store.position()
        events = [offer_of(row).event for row in player.store.inbox(10)]

        assert events == [Message("note", b"first"), Message("note", b"second")]
        player.store.close()
