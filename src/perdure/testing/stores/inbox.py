"""Events on their way: their order, their removal, and what a post is refused for."""

import pytest

from perdure.kernel.apply import input_hash
from perdure.kernel.batch import InboxRow, WorkflowRow
from perdure.kernel.events import Address, CancelAsked, Retried, Started
from perdure.kernel.rows import inbox_row
from perdure.ports.store import Posted

from .harness import Harness, OneStore, Waiting, ask, commit
from .rows import batch, entry, head, message, start


class Inbox(OneStore):
    def test_the_inbox_keeps_the_order_of_arrival(self, harness: Harness, store: Waiting) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)]))
        rows = [message(id, 1) for id in (b"z", b"a", b"m")]
        for row in rows:
            assert ask(store.post(row)) == Posted()

        seen: set[bytes] = set()
        assert self.look(store, seen, 2) == rows[:2]
        assert self.look(store, seen, 2) == rows[2:]
        store.position()
        assert store.inbox(10) == rows

    def test_a_row_is_removed_by_the_commit_that_records_it(self, harness: Harness, store: Waiting) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)], added=[message(b"m", 1)]))

        commit(harness, store, batch(journal=[entry(2, 1)], removed=[b"m", b"never-there"]))

        store.position()
        assert store.inbox(10) == []

    def test_a_look_into_an_unchanged_inbox_finds_nothing_new(self, harness: Harness, store: Waiting) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)]))
        ask(store.post(message(b"m", 1)))

        seen: set[bytes] = set()
        assert self.look(store, seen) == [message(b"m", 1)]
        assert self.look(store, seen) == []
        ask(store.post(message(b"n", 1)))
        assert self.look(store, seen) == [message(b"n", 1)]

    def test_a_change_by_others_is_noticed(self, harness: Harness, store: Waiting) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)]))
        before = ask(store.changed())

        ask(store.post(message(b"m", 1)))

        assert ask(store.changed()) != before

    def test_the_same_event_is_taken_once(self, harness: Harness, store: Waiting) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)]))

        for _ in range(3):
            assert ask(store.post(message(b"m", 1))) == Posted()

        assert store.inbox(10) == [message(b"m", 1)]

    def test_a_start_is_taken_once_for_the_same_input(self, store: Waiting) -> None:
        assert self.post_start(store, b"1", "k", b"in") == ""
        assert self.post_start(store, b"2", "k", b"in") == ""
        assert self.post_start(store, b"3", "k", b"other") == "key-in-use"

        assert [row.id for row in store.inbox(10)] == [b"1"]

    def test_a_start_of_a_key_in_use_is_refused(self, harness: Harness, store: Waiting) -> None:
        there = head(1, "k", input_hash=input_hash(b"in"))
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[there]))

        assert self.post_start(store, b"1", "k", b"in") == ""
        assert self.post_start(store, b"2", "k", b"other") == "key-in-use"
        assert self.post_start(store, b"3", "k", b"other", "always") == "key-in-use"

        assert store.inbox(10) == []

    @pytest.mark.parametrize(
        ("status", "reuse", "refused"),
        [
            ("failed", "", "key-in-use"),
            ("failed", "failed", ""),
            ("cancelled", "failed", ""),
            ("completed", "failed", "key-in-use"),
            ("completed", "always", ""),
        ],
    )
    def test_a_key_can_be_used_again_after_its_end(
        self, harness: Harness, store: Waiting, status: str, reuse: str, refused: str
    ) -> None:
        there = head(1, "k", status=status, input_hash=input_hash(b"in"))
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[there]))

        assert self.post_start(store, b"1", "k", b"other", reuse) == refused

        assert len(store.inbox(10)) == (not refused)

    def test_a_start_of_an_unknown_workflow_is_refused_with_the_known_names(self, store: Waiting) -> None:
        row = inbox_row(b"1", Address("pupet", "k"), Started("pupet", "k", b"", b"s"), 7)

        answer = ask(store.post(row, start=input_hash(b"")))

        assert answer.refused == "unknown-workflow"
        assert "puppet" in answer.reason

    def test_a_start_of_an_unknown_version_is_refused_with_the_known_ones(self, store: Waiting) -> None:
        store.register([WorkflowRow("puppet", version, b"") for version in ("10", "9")])
        to = Address("puppet", "k")

        def post(id: bytes, version: str) -> Posted:
            row = inbox_row(id, to, Started("puppet", "k", b"", b"s", version), 7)
            posted: Posted = ask(store.post(row, start=input_hash(b"")))
            return posted

        refused = post(b"1", "1")
        assert refused.refused == "unknown-version" and refused.reason.endswith("registered: '9', '10'")
        assert store.inbox(10) == []

        assert not post(b"2", "9").refused
        assert not post(b"3", "1").refused, "the same start is on its way already"
        assert len(store.inbox(10)) == 1

    def test_a_message_to_nobody_is_refused(self, store: Waiting) -> None:
        answers = [ask(store.post(message(b"m", to))) for to in (Address("puppet", "nobody"), 77)]

        assert [answer.refused for answer in answers] == ["unknown-instance"] * 2
        assert store.inbox(10) == []

    def test_a_message_may_follow_an_undelivered_start(self, store: Waiting) -> None:
        self.post_start(store, b"1", "k", b"in")

        assert ask(store.post(message(b"m", Address("puppet", "k")))) == Posted()

        assert [row.id for row in store.inbox(10)] == [b"1", b"m"]

    def test_a_message_to_an_ended_instance_is_refused(self, harness: Harness, store: Waiting) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1, "k", status="completed")]))

        for to in (1, Address("puppet", "k")):
            assert ask(store.post(message(b"m", to))).refused == "ended"
            assert ask(store.post(inbox_row(b"c", to, CancelAsked(), 7))) == Posted()

        assert store.inbox(10) == []

    @pytest.mark.parametrize("status", ["running", "waiting", "completed", "stuck"])
    def test_only_a_stuck_instance_can_be_retried(self, harness: Harness, store: Waiting, status: str) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1, status=status)]))

        answer = ask(store.post(inbox_row(b"r", 1, Retried(), 7)))

        assert answer.refused == ("" if status == "stuck" else "not-stuck")
        assert len(store.inbox(10)) == (status == "stuck")

    @staticmethod
    def look(store: Waiting, seen: set[bytes], limit: int = 10) -> list[InboxRow]:
        """As a shard does: rows may come again, so it asks for as many more as it has, and knows them by their ids."""
        rows = [row for row in store.inbox(limit + len(seen)) if row.id not in seen]
        seen.update(row.id for row in rows)
        return rows

    @staticmethod
    def post_start(store: Waiting, id: bytes, key: str, input: bytes, reuse: str = "") -> str:
        posted: Posted = ask(store.post(start(id, key, input, reuse), start=input_hash(input), reuse=reuse))
        return posted.refused
