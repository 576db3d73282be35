"""One engine writes: epochs, fencing, the lease."""

import pytest

from perdure.errors import EngineRunning, Fenced
from perdure.kernel.batch import WorkflowRow

from .harness import Harness, OneStore, Waiting, ask, commit, everything
from .rows import batch, entry, head, message


class Leases(OneStore):
    def test_every_lease_has_a_later_epoch(self, harness: Harness) -> None:
        epochs = []
        for _ in range(3):
            store = Waiting(harness)
            epochs.append(store.acquire("one of three").epoch)
            store.release()
            store.close()

        assert epochs == sorted(set(epochs))

    def test_a_shard_tells_its_epoch_and_who_has_it(self, harness: Harness) -> None:
        store = Waiting(harness)
        epoch = store.acquire("the engine").epoch
        held = {row.shard: row for row in ask(store.shards())}
        store.release()
        left = {row.shard: row for row in ask(store.shards())}
        store.close()

        owners = [row.owner.name for row in held.values() if row.owner is not None]
        assert owners == ["the engine"] and epoch in {row.epoch for row in held.values()}
        assert [row.owner for row in left.values() if row.owner is not None] == []

    def test_what_the_engines_that_live_run_is_told(self, harness: Harness, store: Waiting) -> None:
        store.register([WorkflowRow("order", "1", b""), WorkflowRow("order", "2", b"")])
        living = ask(store.served())
        store.release()

        assert [each[1:] for each in living] == [("order", "1"), ("order", "2")]
        assert {each[0] for each in living} == {"first"}

    def test_a_shard_tells_how_much_is_in_its_inbox_since_when(self, harness: Harness, store: Waiting) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)]))
        ask(store.post(message(b"one", 1)))
        ask(store.post(message(b"other", 1)))

        (busy,) = [row for row in ask(store.shards()) if row.undelivered]
        assert (busy.undelivered, busy.oldest) == (2, 7)

    def test_a_fenced_owner_writes_nothing(self, harness: Harness, store: Waiting) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)]))
        harness.usurp()
        before = everything(harness, store)

        assert isinstance(commit(harness, store, batch(journal=[entry(2, 1)], heads=[head(2)])), Fenced)
        assert isinstance(commit(harness, store, batch(journal=[entry(2, 1)])), Fenced)
        assert isinstance(commit(harness, store, batch(removed=[b"m"])), Fenced)
        with pytest.raises(Fenced):
            store.register([WorkflowRow("other", "1", b"")])

        assert everything(harness, store) == before

    def test_without_a_lease_nothing_is_written(self, harness: Harness, store: Waiting) -> None:
        store.release()

        assert isinstance(commit(harness, store, batch(journal=[entry(1, 1)])), Fenced)
        assert ask(store.journal(0, 10)) == []

    def test_of_two_engines_only_one_can_write(self, harness: Harness, store: Waiting) -> None:
        second = Waiting(harness)
        try:
            second.acquire("second")
        except EngineRunning as error:
            assert "first" in str(error)  # the text names who runs
            assert commit(harness, store, batch(journal=[entry(1, 1)])) is None
        else:
            assert isinstance(commit(harness, store, batch(journal=[entry(1, 1)])), Fenced)
            assert commit(harness, second, batch(journal=[entry(1, 1)])) is None
        finally:
            second.close()

    def test_a_released_lease_is_free_at_once(self, harness: Harness, store: Waiting) -> None:
        store.release()
        second = Waiting(harness)

        second.acquire("second")

        assert commit(harness, second, batch(journal=[entry(1, 1)])) is None
        second.close()
