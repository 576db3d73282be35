"""Open work: timers and deadlines as they fall due, and what is asked of executors outside."""

from perdure.kernel.batch import JobRow, WorkRow
from perdure.ports.store import QueueRow

from .harness import Harness, OneStore, Waiting, ask, commit
from .rows import batch, entry, head


class Work(OneStore):
    def test_due_work_comes_earliest_first_within_limits(self, harness: Harness, store: Waiting) -> None:
        rows = [WorkRow(b"%d" % n, n, "timer", due) for n, due in enumerate([30, 10, 20, 10, 2**62])]
        commit(harness, store, batch(journal=[entry(1, 1)], opened=rows))

        assert store.due(9, 10) == []
        assert store.due(20, 10) == [rows[1], rows[3], rows[2]]
        assert store.due(30, 2) == [rows[1], rows[3]]
        assert store.due(2**63, 10)[-1] == rows[4]
        assert store.due(2**63, 2, (10, b"1")) == [rows[3], rows[2]]
        assert store.due(20, 10, (10, b"3")) == [rows[2]]
        assert store.due(20, 10, (20, b"2")) == []

        commit(harness, store, batch(journal=[entry(2, 1)], closed=[b"1", b"2", b"unknown"]))

        assert store.due(30, 10) == [rows[3], rows[0]]

    def test_work_for_somebody_outside_is_found_by_its_intent_and_by_who_is_asked(
        self, harness: Harness, store: Waiting
    ) -> None:
        kinds = ["timer", "outside/psp", "deadline", "outside/person", "outside/psp", "outside/psp2"]
        rows = [WorkRow(b"%d" % n, n, kind, 2**63 - 1 if n else 5) for n, kind in enumerate(kinds)]
        commit(harness, store, batch(journal=[entry(1, 1)], opened=reversed(rows)))

        assert ask(store.work(b"3")) == rows[3]
        assert ask(store.work(b"9")) is None
        assert ask(store.outside()) == [rows[1], rows[3], rows[4], rows[5]]
        assert ask(store.outside("psp")) == [rows[1], rows[4]]
        assert ask(store.outside("psp", after=b"1", limit=1)) == [rows[4]]
        assert ask(store.outside(after=b"1", limit=2)) == [rows[3], rows[4]]
        assert ask(store.outside("nobody")) == []
        assert [row.intent for row in store.due(2**63 - 2, 10)] == [b"0"]

    def test_jobs_are_listed_by_queue_page_by_page_and_counted(self, harness: Harness, store: Waiting) -> None:
        jobs = [JobRow(b"%d" % n, n % 2 + 1, "ab"[n % 2], "shrink", 1, 50 - n // 4, b"body") for n in range(6)]
        made = batch(journal=[entry(1, 1), entry(2, 2)], heads=[head(1), head(2, workflow="other")])
        made.jobs_opened = {row.intent: row for row in jobs}
        commit(harness, store, made)

        listed = ask(store.jobs())
        one = ask(store.jobs(2, "a"))
        rest = ask(store.jobs(2, "a", (one[-1].at, one[-1].intent)))

        assert [each.intent for each in listed] == [b"4", b"0", b"2", b"5", b"1", b"3"]
        assert [each.intent for each in (*one, *rest)] == [b"4", b"0", b"2"]
        assert ask(store.jobs(queue="none")) == []
        assert ask(store.queues()) == [QueueRow("a", "puppet", "", 3, 49), QueueRow("b", "other", "", 3, 49)]
