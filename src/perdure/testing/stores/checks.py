"""Damage is found; what the journal can tell is told by it alone; and every story reads as in the model."""

import pytest
from hypothesis import HealthCheck, given, settings

from perdure.codec import seal
from perdure.errors import Corrupt
from perdure.kernel.batch import Batch, SnapshotRow
from perdure.kernel.events import Address, CancelAsked, Message, Started
from perdure.kernel.mailbox import Offer
from perdure.kernel.replay import fold
from perdure.kernel.rows import offer_of
from perdure.kernel.status import TERMINAL
from perdure.ports.store import Filter
from perdure.stores.rebuild import rebuild

from .harness import BIG, Harness, MemoryHarness, OneStore, Waiting, ask, commit, everything, flipped
from .rows import batch, entry, head
from .scripted import SmallShard
from .stories import STORIES, perform


class Checks(OneStore):
    @pytest.mark.parametrize("size", [10, BIG * 2])
    def test_a_flipped_bit_is_noticed(self, harness: Harness, size: int) -> None:
        player = SmallShard(harness)
        player.start("a")
        player.tell("a", "note", b"x" * size)

        harness.damage(2)

        assert any("2" in problem for problem in ask(player.store.check()))
        with pytest.raises(Corrupt):
            fold(Address("puppet", "a"), None, ask(player.store.history(1)))
        player.store.close()

    @pytest.mark.parametrize("size", [10, 2000])
    def test_a_damaged_snapshot_is_found_wherever_it_stands(self, harness: Harness, store: Waiting, size: int) -> None:
        whole, damaged = seal(b"x" * size), flipped(seal(b"x" * size))
        rows = [entry(1, 1), entry(2, 2)]
        snapshots = [SnapshotRow(1, 1, whole), SnapshotRow(2, 2, damaged)]
        commit(harness, store, batch(journal=rows, heads=[head(1), head(2)], snapshots=snapshots))

        (problem,) = [problem for problem in ask(store.check()) if "snapshot" in problem]
        assert "2" in problem

    def test_check_finds_an_index_that_lies(self, harness: Harness) -> None:
        player = SmallShard(harness)
        player.start("a")
        player.tell("a", "timer 5")
        assert ask(player.store.check()) == []
        (work,) = player.store.due(100, 1)

        commit(harness, player.store, batch(removed=[b"none"], closed=[work.intent]))

        (problem,) = ask(player.store.check())
        assert "open work" in problem
        player.store.close()

    def test_check_finds_a_gap_in_a_history(self, harness: Harness) -> None:
        player = SmallShard(harness)
        player.start("a")
        other = SmallShard(MemoryHarness())
        other.start("a")
        for _ in range(3):
            other.tell("a", "note")
        later = ask(other.store.journal(3, 1))

        commit(harness, player.store, batch(journal=later))

        (problem,) = ask(player.store.check())
        assert "entry 4 cannot follow entry 1" in problem
        player.store.close()

    def test_check_finds_a_lost_start(self, harness: Harness) -> None:
        player = SmallShard(harness)
        player.start("a")
        player.kernel.offer(Offer(Address("puppet", "a"), Message("child b", b"")))
        made = Batch()
        player.kernel.advance(made, 1)
        player.kernel.close(made)  # the child was caused and not delivered: it is in the inbox
        assert len(made.inbox_added) == 1
        commit(harness, player.store, made)
        assert ask(player.store.check()) == []

        commit(harness, player.store, batch(removed=list(made.inbox_added)))

        (problem,) = ask(player.store.check())
        assert "puppet/b: Started was caused" in problem
        player.store.close()

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(story=STORIES)
    def test_any_story_reads_as_in_the_model_and_is_rebuilt_from_its_journal(
        self, harness: Harness, story: list[tuple[str, str, str]]
    ) -> None:
        model = SmallShard(MemoryHarness())
        perform(model, story)
        with self.fresh(harness) as database:
            player = SmallShard(database)
            perform(player, story)

            assert everything(database, player.store) == everything(MemoryHarness(), model.store)
            assert ask(player.store.check()) == []
            self.compare_with_rebuilt(player.store)
            player.reopen()
            assert everything(database, player.store)["journal"] == ask(model.store.journal(0, 10_000))
            player.store.close()

    @staticmethod
    def compare_with_rebuilt(store: Waiting) -> None:
        rebuilt = rebuild(ask(store.journal(0, 10_000)))
        heads = {row.id: row for row in ask(store.heads(Filter(limit=1000)))}
        assert rebuilt.problems == []
        assert rebuilt.heads == heads
        assert rebuilt.work == {row.intent: row for row in store.due(2**62, 10_000)}
        for (instance, name), value in rebuilt.published.items():
            assert ask(store.published(instance, name)) == value
        store.position()
        caused = {(caused.to, caused.event) for caused in rebuilt.caused if type(caused.event) is not Message}
        ended = {id for id, row in heads.items() if row.status in TERMINAL}
        for row in store.inbox(10_000):
            offer = offer_of(row)
            if isinstance(offer.event, Started | CancelAsked) and offer.to not in ended:
                assert isinstance(offer.event, CancelAsked) or (offer.to, offer.event) in caused
