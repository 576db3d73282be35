"""What every store keeps, as tests: derive a class from `StoreConformance`, give it a harness, run pytest.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def harness(self, tmp_path):
            return MyHarness(tmp_path)

A harness stands for one empty database. The batches come from the real kernel wherever the story is about
workflows, driven by `Player`, the smallest shard there can be; the rest is rows by hand. The memory store is
the model: after the same random story, every read of the store under test must equal the memory store's.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Protocol, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.codec import seal
from perdure.errors import Corrupt, EngineRunning, Fenced
from perdure.kernel.apply import input_hash
from perdure.kernel.batch import (
    Batch,
    HeadRow,
    InboxRow,
    JournalRow,
    PublishedRow,
    SnapshotRow,
    WorkflowRow,
    WorkRow,
)
from perdure.kernel.decision import Decision, Outcome, Send
from perdure.kernel.difference import Difference, Explanation
from perdure.kernel.effects import Call, Child, Effect, Timer, Wait
from perdure.kernel.events import (
    Address,
    CancelAsked,
    Event,
    Message,
    Received,
    Ref,
    Retried,
    Started,
)
from perdure.kernel.gate import Executors
from perdure.kernel.identity import Identity
from perdure.kernel.kernel import Kernel
from perdure.kernel.limits import Limits
from perdure.kernel.machine import Machine, Workflow
from perdure.kernel.mailbox import Offer
from perdure.kernel.moment import Moment
from perdure.kernel.receipt import DONE, Failure
from perdure.kernel.replay import fold
from perdure.kernel.routing import Subscription
from perdure.kernel.rows import Record, inbox_row, offer_of
from perdure.kernel.status import TERMINAL, Status
from perdure.ports.store import BlobRow, Filter, Posted, Queries, Store, WorldSnapshotRow
from perdure.stores.memory import MemoryDatabase, MemoryStore
from perdure.stores.rebuild import rebuild

T = TypeVar("T")

BIG = 64 * 1024
"""Bodies beyond this size may be kept apart from their rows. Readers must not notice."""


class FullStore(Store, Queries, Protocol):
    """Both faces of a store."""


class Harness(Protocol):
    """One database, empty at first."""

    def open(self) -> FullStore:
        """A new connection to the same data."""
        ...

    def usurp(self) -> None:
        """Another engine takes over behind the back of the one that holds the lease: a new epoch."""
        ...

    def damage(self, seq: int) -> None:
        """Flip one bit in the stored body of a journal entry."""
        ...

    def damage_blob(self, digest: bytes) -> None:
        """Flip one bit in the stored body of a blob."""
        ...

    def settle(self) -> None:
        """Return when every callback that is due has been called."""
        ...


# ---- the smallest dialect and the smallest shard ---------------------------------------------------------


class Puppet:
    """A machine that does what the name of a message says, so that a story is a list of words."""

    def __init__(self, snapshot: bytes | None) -> None:
        self._opened: list[tuple[str, str]] = []  # kind and location of what is open
        self._count = 0
        self._name = Address("", "")
        self._generation = 1
        if snapshot is not None:
            self._opened, self._count, self._name, self._generation = _state.decode(snapshot)

    def deliver(self, event: Event, moment: Moment) -> Decision:
        match event:
            case Started(workflow=workflow, key=key, generation=generation):
                self._name, self._generation = Address(workflow, key), generation
                return Decision()
            case Received(intent=intent):
                self._opened = [pair for pair in self._opened if self._intent(pair[1]) != intent]
                return Decision()
            case CancelAsked(reason=reason):
                return Decision(outcome=Outcome(Status.CANCELLED, error=Failure("Cancelled", reason)))
            case Message(name=name, body=body):
                return self._obey(name, body, moment)
            case _:
                return Decision()

    def _obey(self, order: str, body: bytes, moment: Moment) -> Decision:
        word, _, argument = order.partition(" ")
        match word:
            case "call":
                return self._open(word, Call(self._location(word)))
            case "timer":
                return self._open(word, Timer(self._location(word), moment.at + int(argument)))
            case "wait":
                return self._open(word, Wait(self._location(word), ("go",), moment.at + 50))
            case "child" | "detach":
                place = self._location(word)
                return self._open(word, Child(place, "puppet", argument, b"", detached=word == "detach"))
            case "withdraw" if self._opened:
                _, location = self._opened.pop(0)
                return Decision(withdraw=(self._intent(location),))
            case "publish":
                return Decision(publish=((argument, body + moment.entropy()[:2]),))
            case "send":
                self._count += 1
                return Decision(send=(Send(Address("puppet", argument), "note", body, f"{self._name}-{self._count}"),))
            case "end":
                return Decision(outcome=Outcome(Status.COMPLETED, body))
            case "fail":
                return Decision(outcome=Outcome(Status.FAILED, error=Failure("Failed", "as it was told")))
            case "raise":
                raise RuntimeError("as it was told")
            case _:
                return Decision()

    def _open(self, kind: str, effect: Effect) -> Decision:
        self._opened.append((kind, effect.location))
        return Decision(open=(effect,))

    def _location(self, kind: str) -> str:
        self._count += 1
        return f"{kind}/~{self._count}"

    def _intent(self, location: str) -> bytes:
        return Identity(self._name, self._generation).intent(location, 1)

    def work(self, intent: bytes) -> object:
        return None

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self._opened, self._count, self._name, self._generation))

    def dispose(self) -> None:
        pass


_state = msgspec.msgpack.Decoder(tuple[list[tuple[str, str]], int, Address, int])


class PuppetShow:
    """The workflow of which every instance is a puppet."""

    name = "puppet"
    version = "1"
    defaults = b""
    limits = Limits()
    subscriptions: tuple[Subscription, ...] = ()

    def machine(self, address: str, snapshot: bytes | None) -> Machine:
        return Puppet(snapshot)

    def differs(self, recorded: Decision, current: Decision) -> bool:
        return recorded != current

    def explain(self, machine: Machine, difference: Difference) -> Explanation:
        return Explanation()


class Player:
    """A shard without a loop: what is offered is recorded and committed before the call returns."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.now = 0
        self.open()

    def open(self) -> None:
        self.store = self._harness.open()
        lease = self.store.acquire("player")
        self.store.register([WorkflowRow("puppet", "1", b"")])
        position = self.store.position()
        workflows: list[Workflow] = [PuppetShow()]
        gate, salt = Executors({"inline": None}), lease.epoch.to_bytes(8, "big")
        self.kernel = Kernel(workflows, gate, seq=position.seq, at=position.at, salt=salt)
        self._held: set[bytes] = set()

    def reopen(self) -> None:
        self.store.release()
        self.store.close()
        self.open()
        self.read_inbox()

    def start(self, key: str, **fields: Any) -> None:
        self.offer(Address("puppet", key), Started("puppet", key, b"", b"seed" * 4, **fields))

    def tell(self, key: str, order: str, body: bytes = b"") -> None:
        self.offer(Address("puppet", key), Message(order, body))

    def offer(self, to: Ref, event: Event) -> None:
        self.now += 1
        self.kernel.offer(Offer(to, event))
        self.play()

    def fire(self, before: int) -> None:
        self.now = max(self.now, before)
        for row in self.store.due(before, 100):
            self.kernel.offer(Offer(row.instance, Received(row.intent, DONE)))
        self.play()

    def read_inbox(self) -> None:
        for row in self.store.inbox(100):
            if row.id not in self._held:
                self._held.add(row.id)
                self.kernel.offer(offer_of(row))
        self.play()

    def play(self) -> None:
        """Two turns a batch: what is caused later is kept in the inbox, and must be found there."""
        while self.kernel.wanted or self.kernel.ready:
            batch = Batch()
            for _ in range(2):
                for ref, record in load(self._harness, self.store, list(self.kernel.wanted)).items():
                    self.kernel.adopt(ref, record)
                self.kernel.advance(batch, self.now)
            self.kernel.close(batch)
            if batch.writes:
                self._held.update(batch.inbox_added)
                assert commit(self._harness, self.store, batch) is None
            self.kernel.committed(batch)


def ask(question: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(question)


def load(harness: Harness, store: Store, refs: list[Ref]) -> dict[Ref, Record | None]:
    found: dict[Ref, Record | None] = {}
    store.load(refs, found.__setitem__)
    harness.settle()
    assert found.keys() == set(refs), "`done` is called once for each reference"
    return found


def commit(harness: Harness, store: Store, batch: Batch) -> Exception | None:
    answers: list[Exception | None] = []
    store.commit(batch, answers.append)
    harness.settle()
    assert len(answers) == 1, "`done` is called exactly once"
    return answers[0]


# ---- rows by hand ----------------------------------------------------------------------------------------


def entry(seq: int, instance: int, body: bytes = b"body") -> JournalRow:
    return JournalRow(seq, instance, 1000 + seq, seal(body))


def head(id: int, key: str = "", **fields: Any) -> HeadRow:
    plain = HeadRow(id, "puppet", key or f"key-{id}", 1, "1", "running", id, id, 0, b"hash", "{}", None)
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
    made.heads = {row.id: row for row in heads}
    made.work_opened = {row.intent: row for row in opened}
    made.work_closed = list(closed)
    made.inbox_added = {row.id: row for row in added}
    made.inbox_removed = list(removed)
    made.snapshots = {row.instance: row for row in snapshots}
    made.published = {(row.instance, row.name): row for row in published}
    return made


def everything(harness: Harness, store: FullStore) -> dict[str, object]:
    """All that readers can see, comparable between stores."""
    heads = ask(store.heads(Filter(limit=1000)))
    refs: list[Ref] = [row.id for row in heads]
    refs += [Address(row.workflow, row.key) for row in heads]
    position = store.position()
    return {
        "position": position,
        "journal": ask(store.journal(0, 10_000)),
        "heads": heads,
        "records": load(harness, store, refs),
        "histories": [ask(store.history(row.id)) for row in heads],
        "due": store.due(2**62, 10_000),
        "inbox": store.inbox(10_000),
        "published": [ask(store.published(row.id, "value")) for row in heads],
        "workflows": ask(store.workflows()),
    }


# ---- stories ---------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "c"])
ORDERS = st.one_of(
    st.sampled_from(["call", "wait", "withdraw", "end", "fail", "raise", "note", "publish value", "timer 5"]),
    st.builds("{} {}".format, st.sampled_from(["child", "detach", "send"]), st.sampled_from("abcd")),
)
LINES = st.one_of(
    st.tuples(st.just("start"), KEYS, st.sampled_from(["", "failed", "always"])),
    st.tuples(st.just("tell"), KEYS, ORDERS),
    st.tuples(st.just("tell"), KEYS, ORDERS),
    st.tuples(st.just("post"), KEYS, st.sampled_from(["note", "end", "call"])),
    st.tuples(st.just("retry"), KEYS, st.just("")),
    st.tuples(st.just("cancel"), KEYS, st.just("")),
    st.tuples(st.just("fire"), st.just(""), st.just("")),
    st.tuples(st.just("big"), KEYS, st.just("")),
    st.tuples(st.just("reopen"), st.just(""), st.just("")),
)
STORIES = st.lists(LINES, max_size=25)


def perform(player: Player, story: list[tuple[str, str, str]]) -> None:
    for n, (verb, key, argument) in enumerate(story):
        to = Address("puppet", key)
        match verb:
            case "start":
                player.start(key, reuse=argument)
            case "tell":
                player.tell(key, argument, b"%d" % n)
            case "big":
                player.tell(key, "note", b"x" * (BIG + n))
            case "post":
                row = inbox_row(b"post-%d" % n, to, Message(argument, b""), player.now)
                ask(player.store.post(row))
                player.read_inbox()
            case "retry":
                player.offer(to, Retried())
            case "cancel":
                player.offer(to, CancelAsked("as it was told"))
            case "fire":
                player.fire(player.now + 10)
            case "reopen":
                player.reopen()
            case _:
                raise AssertionError(f"no such verb: {verb}")


class MemoryHarness:
    def __init__(self) -> None:
        self.database = MemoryDatabase()

    def open(self) -> MemoryStore:
        return MemoryStore(self.database)

    def usurp(self) -> None:
        MemoryStore(self.database).acquire("usurper")

    def damage(self, seq: int) -> None:
        database = self.database
        place = next(n for n, row in enumerate(database.journal) if row.seq == seq)
        row = database.journal[place]
        broken = row._replace(body=flipped(row.body))
        database.journal[place] = broken
        history = database.histories[row.instance]
        history[history.index(row)] = broken

    def damage_blob(self, digest: bytes) -> None:
        at, body = self.database.blobs[digest]
        self.database.blobs[digest] = (at, flipped(body))

    def settle(self) -> None:
        pass


def flipped(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]


# ---- the suite -------------------------------------------------------------------------------------------


class StoreConformance:
    @pytest.fixture
    def harness(self) -> Harness:
        raise NotImplementedError("derive a class and give it a harness")

    @contextmanager
    def fresh(self, harness: Harness) -> Iterator[Harness]:
        """Another empty database of the same kind, for tests that need many; override this too."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, harness: Harness) -> Iterator[FullStore]:
        store = harness.open()
        store.acquire("first")
        store.register([WorkflowRow("puppet", "1", b"")])
        yield store
        store.close()

    # ---- commits ------------------------------------------------------------------------------------------

    def test_an_empty_database_stands_at_zero(self, store: FullStore) -> None:
        position = store.position()

        assert (position.seq, position.at, position.running) == (0, 0, ())
        assert store.due(2**62, 10) == []
        assert store.inbox(10) == []
        assert ask(store.heads(Filter())) == []
        assert ask(store.journal(0, 10)) == []
        assert ask(store.height()) == 0
        assert ask(store.check()) == []

    def test_a_commit_writes_every_kind_of_row(self, harness: Harness, store: FullStore) -> None:
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
        assert store.due(50, 10) == [work]
        assert store.inbox(10) == [message(b"m", 1)]
        assert load(harness, store, [1])[1] == Record(head(1), SnapshotRow(1, 1, seal(b"state")), (entry(2, 1),))
        assert ask(store.published(1, "progress")) == b"half"
        assert store.position().seq == 2

    def test_a_refused_commit_writes_nothing(self, harness: Harness, store: FullStore) -> None:
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

    def test_closing_comes_before_opening_in_one_commit(self, harness: Harness, store: FullStore) -> None:
        early, late = WorkRow(b"i", 1, "timer", 5), WorkRow(b"i", 1, "timer", 9)
        commit(harness, store, batch(journal=[entry(1, 1)], opened=[early]))

        assert commit(harness, store, batch(journal=[entry(2, 1)], closed=[b"i"], opened=[late])) is None

        assert store.due(9, 10) == [late]

    def test_reopening_finds_everything(self, harness: Harness) -> None:
        player = Player(harness)
        player.start("a", tags={"team": "red"})
        for order in ("timer 5", "call", "publish value", "send b", "child c"):
            player.tell("a", order, b"x" * 100)
        before = everything(harness, player.store)

        player.store.release()
        player.store.close()
        player.open()

        assert everything(harness, player.store) == before

    def test_events_that_two_lives_kept_for_a_stuck_instance_are_both_there(self, harness: Harness) -> None:
        player = Player(harness)
        player.start("a")
        player.tell("a", "raise")
        player.tell("a", "note", b"first")
        player.reopen()
        player.tell("a", "note", b"second")

        player.store.position()
        events = [offer_of(row).event for row in player.store.inbox(10)]

        assert events == [Message("note", b"first"), Message("note", b"second")]
        player.store.close()

    # ---- the lease ----------------------------------------------------------------------------------------

    def test_every_lease_has_a_later_epoch(self, harness: Harness) -> None:
        epochs = []
        for _ in range(3):
            store = harness.open()
            epochs.append(store.acquire("one of three").epoch)
            store.release()
            store.close()

        assert epochs == sorted(set(epochs))

    def test_a_fenced_owner_writes_nothing(self, harness: Harness, store: FullStore) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)]))
        harness.usurp()
        before = everything(harness, store)

        assert isinstance(commit(harness, store, batch(journal=[entry(2, 1)], heads=[head(2)])), Fenced)
        assert isinstance(commit(harness, store, batch(journal=[entry(2, 1)])), Fenced)
        assert isinstance(commit(harness, store, batch(removed=[b"m"])), Fenced)
        with pytest.raises(Fenced):
            store.register([WorkflowRow("other", "1", b"")])

        assert everything(harness, store) == before

    def test_without_a_lease_nothing_is_written(self, harness: Harness, store: FullStore) -> None:
        store.release()

        assert isinstance(commit(harness, store, batch(journal=[entry(1, 1)])), Fenced)
        assert ask(store.journal(0, 10)) == []

    def test_of_two_engines_only_one_can_write(self, harness: Harness, store: FullStore) -> None:
        second = harness.open()
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

    def test_a_released_lease_is_free_at_once(self, harness: Harness, store: FullStore) -> None:
        store.release()
        second = harness.open()

        second.acquire("second")

        assert commit(harness, second, batch(journal=[entry(1, 1)])) is None
        second.close()

    # ---- loading ------------------------------------------------------------------------------------------

    def test_an_instance_is_found_by_id_and_by_name(self, harness: Harness, store: FullStore) -> None:
        commit(harness, store, batch(journal=[entry(1, 1), entry(2, 2), entry(3, 1)], heads=[head(1), head(2)]))
        name, nobody = Address("puppet", "key-1"), Address("puppet", "nobody")

        found = load(harness, store, [1, name, nobody, 77])

        assert found[1] == found[name] == Record(head(1), None, (entry(1, 1), entry(3, 1)))
        assert found[nobody] is None
        assert found[77] is None

    def test_a_name_means_its_last_generation(self, harness: Harness, store: FullStore) -> None:
        first, second = head(1, "k", status="failed"), head(2, "k", generation=2)
        commit(harness, store, batch(journal=[entry(1, 1), entry(2, 2)], heads=[first, second]))
        commit(harness, store, batch(journal=[entry(3, 1)], heads=[first._replace(changed_at=9)]))

        assert ask(store.head(Address("puppet", "k"))) == second
        assert ask(store.head(1)) == first._replace(changed_at=9)

    def test_an_ended_instance_is_its_head(self, harness: Harness, store: FullStore) -> None:
        ended = head(1, status="completed", outcome=seal(b"outcome"))
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[ended]))

        assert load(harness, store, [1])[1] == Record(ended)
        assert ask(store.history(1)) == [entry(1, 1)]

    def test_only_the_newest_snapshot_is_kept_with_the_rows_after_it(self, harness: Harness, store: FullStore) -> None:
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

        assert record == Record(head(1), SnapshotRow(1, 4, seal(b"new")), (entry(5, 1), entry(6, 1)))

    def test_the_position_names_what_was_running(self, harness: Harness, store: FullStore) -> None:
        heads = [head(1), head(2, status="waiting"), head(3), head(4, status="completed")]
        commit(harness, store, batch(journal=[entry(n, n) for n in range(1, 5)], heads=heads))

        position = store.position()

        assert (position.seq, position.at, position.running) == (4, 1004, (1, 3))

    # ---- work that is due ---------------------------------------------------------------------------------

    def test_due_work_comes_earliest_first_within_limits(self, harness: Harness, store: FullStore) -> None:
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
        self, harness: Harness, store: FullStore
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

    # ---- the inbox ----------------------------------------------------------------------------------------

    def test_the_inbox_keeps_the_order_of_arrival(self, harness: Harness, store: FullStore) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)]))
        rows = [message(id, 1) for id in (b"z", b"a", b"m")]
        for row in rows:
            assert ask(store.post(row)) == Posted()

        assert store.inbox(2) == rows[:2]
        assert store.inbox(2) == rows[2:]
        store.position()
        assert store.inbox(10) == rows

    def test_a_row_is_removed_by_the_commit_that_records_it(self, harness: Harness, store: FullStore) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)], added=[message(b"m", 1)]))

        commit(harness, store, batch(journal=[entry(2, 1)], removed=[b"m", b"never-there"]))

        store.position()
        assert store.inbox(10) == []

    def test_a_look_into_an_unchanged_inbox_finds_nothing_new(self, harness: Harness, store: FullStore) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)]))
        ask(store.post(message(b"m", 1)))

        assert store.inbox(10) == [message(b"m", 1)]
        assert store.inbox(10) == []
        ask(store.post(message(b"n", 1)))
        assert store.inbox(10) == [message(b"n", 1)]

    def test_a_change_by_others_is_noticed(self, harness: Harness, store: FullStore) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)]))
        before = ask(store.changed())

        ask(store.post(message(b"m", 1)))

        assert ask(store.changed()) != before

    # ---- posting ------------------------------------------------------------------------------------------

    def test_the_same_event_is_taken_once(self, harness: Harness, store: FullStore) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)]))

        for _ in range(3):
            assert ask(store.post(message(b"m", 1))) == Posted()

        assert store.inbox(10) == [message(b"m", 1)]

    def test_a_start_is_taken_once_for_the_same_input(self, store: FullStore) -> None:
        assert self.post_start(store, b"1", "k", b"in") == ""
        assert self.post_start(store, b"2", "k", b"in") == ""
        assert self.post_start(store, b"3", "k", b"other") == "key-in-use"

        assert [row.id for row in store.inbox(10)] == [b"1"]

    def test_a_start_of_a_key_in_use_is_refused(self, harness: Harness, store: FullStore) -> None:
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
        self, harness: Harness, store: FullStore, status: str, reuse: str, refused: str
    ) -> None:
        there = head(1, "k", status=status, input_hash=input_hash(b"in"))
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[there]))

        assert self.post_start(store, b"1", "k", b"other", reuse) == refused

        assert len(store.inbox(10)) == (not refused)

    def test_a_start_of_an_unknown_workflow_is_refused_with_the_known_names(self, store: FullStore) -> None:
        row = inbox_row(b"1", Address("pupet", "k"), Started("pupet", "k", b"", b"s"), 7)

        answer = ask(store.post(row, start=input_hash(b"")))

        assert answer.refused == "unknown-workflow"
        assert "puppet" in answer.reason

    def test_a_start_of_an_unknown_version_is_refused_with_the_known_ones(self, store: FullStore) -> None:
        store.register([WorkflowRow("puppet", version, b"") for version in ("10", "9")])
        to = Address("puppet", "k")

        def post(id: bytes, version: str) -> Posted:
            return ask(
                store.post(inbox_row(id, to, Started("puppet", "k", b"", b"s", version), 7), start=input_hash(b""))
            )

        refused = post(b"1", "1")
        assert refused.refused == "unknown-version" and refused.reason.endswith("registered: '9', '10'")
        assert store.inbox(10) == []

        assert not post(b"2", "9").refused
        assert not post(b"3", "1").refused, "the same start is on its way already"
        assert len(store.inbox(10)) == 1

    def test_a_message_to_nobody_is_refused(self, store: FullStore) -> None:
        answers = [ask(store.post(message(b"m", to))) for to in (Address("puppet", "nobody"), 77)]

        assert [answer.refused for answer in answers] == ["unknown-instance"] * 2
        assert store.inbox(10) == []

    def test_a_message_may_follow_an_undelivered_start(self, store: FullStore) -> None:
        self.post_start(store, b"1", "k", b"in")

        assert ask(store.post(message(b"m", Address("puppet", "k")))) == Posted()

        assert [row.id for row in store.inbox(10)] == [b"1", b"m"]

    def test_a_message_to_an_ended_instance_is_refused(self, harness: Harness, store: FullStore) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1, "k", status="completed")]))

        for to in (1, Address("puppet", "k")):
            assert ask(store.post(message(b"m", to))).refused == "ended"
            assert ask(store.post(inbox_row(b"c", to, CancelAsked(), 7))) == Posted()

        assert store.inbox(10) == []

    @pytest.mark.parametrize("status", ["running", "waiting", "completed", "stuck"])
    def test_only_a_stuck_instance_can_be_retried(self, harness: Harness, store: FullStore, status: str) -> None:
        commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1, status=status)]))

        answer = ask(store.post(inbox_row(b"r", 1, Retried(), 7)))

        assert answer.refused == ("" if status == "stuck" else "not-stuck")
        assert len(store.inbox(10)) == (status == "stuck")

    @staticmethod
    def post_start(store: FullStore, id: bytes, key: str, input: bytes, reuse: str = "") -> str:
        return ask(store.post(start(id, key, input, reuse), start=input_hash(input), reuse=reuse)).refused

    # ---- queries ------------------------------------------------------------------------------------------

    def test_heads_are_filtered_and_paged_newest_first(self, harness: Harness, store: FullStore) -> None:
        rows = [
            head(1, tags='{"team":"red"}'),
            head(2, workflow="other", status="completed", tags='{"team":"red","x":"\\"1\\""}'),
            head(3, status="completed", parent=1),
            head(4, parent=1, tags='{"team":"blue"}'),
        ]
        commit(harness, store, batch(journal=[entry(n, n) for n in range(1, 5)], heads=rows))

        def ids(**fields: Any) -> list[int]:
            return [row.id for row in ask(store.heads(Filter(**fields)))]

        assert ids() == [4, 3, 2, 1]
        assert ids(workflow="puppet") == [4, 3, 1]
        assert ids(key="key-3") == [3]
        assert ids(workflow="other", key="key-3") == []
        assert ids(status="completed") == [3, 2]
        assert ids(parent=1) == [4, 3]
        assert ids(tags={"team": "red"}) == [2, 1]
        assert ids(tags={"team": "red", "x": '"1"'}) == [2]
        assert ids(tags={"x": "1"}) == []
        assert ids(limit=2) == [4, 3]
        assert ids(limit=2, before=3) == [2, 1]
        assert ids(workflow="puppet", status="completed", parent=1, before=4) == [3]

    def test_histories_and_the_journal_are_read_in_parts(self, harness: Harness, store: FullStore) -> None:
        rows = [entry(n, 1 + n % 2) for n in range(1, 7)]
        commit(harness, store, batch(journal=rows))

        assert ask(store.journal(0, 100)) == rows
        assert ask(store.height()) == rows[-1].seq
        assert ask(store.journal(2, 3)) == rows[2:5]
        assert ask(store.history(1)) == rows[1::2]
        assert ask(store.history(1, after=2, limit=1)) == [rows[3]]
        assert ask(store.history(9)) == []

    def test_the_last_published_value_counts(self, harness: Harness, store: FullStore) -> None:
        for n, value in enumerate([b"one", b"", b"three"], start=1):
            commit(harness, store, batch(journal=[entry(n, 1)], published=[PublishedRow(1, "p", value)]))
            assert ask(store.published(1, "p")) == value

        assert ask(store.published(1, "other")) is None
        assert ask(store.published(2, "p")) is None

    def test_the_registered_workflows_are_those_of_the_last_engine(self, store: FullStore) -> None:
        a, b = WorkflowRow("a", "1", b"defaults of a"), WorkflowRow("b", "2", b"")
        newer = WorkflowRow("a", "2", b"other defaults")
        store.register([b, newer, a])
        assert ask(store.workflows()) == [a, newer, b]

        store.register([WorkflowRow("b", "3", b"")])
        assert ask(store.workflows()) == [WorkflowRow("b", "3", b"")]

    # ---- bodies -------------------------------------------------------------------------------------------

    def test_large_bodies_come_back_as_they_were(self, harness: Harness, store: FullStore) -> None:
        rows = [
            entry(1, 1, b"x" * BIG * 3),
            entry(2, 1),
            entry(3, 2, b"x" * BIG * 3),
            entry(4, 1, b"y" * BIG),
        ]
        commit(harness, store, batch(journal=rows, heads=[head(1), head(2)]))

        record = load(harness, store, [1])[1]

        assert ask(store.journal(0, 10)) == rows
        assert ask(store.history(2)) == [rows[2]]
        assert record is not None
        assert record.rows == (rows[0], rows[1], rows[3])

    @pytest.mark.parametrize("size", [10, BIG * 2])
    def test_a_flipped_bit_is_noticed(self, harness: Harness, size: int) -> None:
        player = Player(harness)
        player.start("a")
        player.tell("a", "note", b"x" * size)

        harness.damage(2)

        assert any("2" in problem for problem in ask(player.store.check()))
        with pytest.raises(Corrupt):
            fold(Address("puppet", "a"), None, ask(player.store.history(1)))
        player.store.close()

    # ---- blobs --------------------------------------------------------------------------------------------

    def test_a_blob_is_found_by_the_hash_of_its_bytes(self, store: FullStore) -> None:
        bodies = [b"", b"small", b"x" * BIG * 3]

        digests = ask(store.put_blobs(bodies, at=7))

        assert digests == [sha256(body).digest() for body in bodies]
        assert [ask(store.blob(digest)) for digest in digests] == bodies
        assert ask(store.blob(sha256(b"never put").digest())) is None
        assert ask(store.check()) == []

    def test_a_blob_that_was_put_is_there_for_every_later_connection(self, harness: Harness, store: FullStore) -> None:
        (digest,) = ask(store.put_blobs([b"body"], at=7))
        store.release()
        store.close()

        again = harness.open()
        again.acquire("second")

        assert ask(again.blob(digest)) == b"body"
        again.close()

    def test_blobs_are_put_and_deleted_without_the_lease(self, harness: Harness, store: FullStore) -> None:
        other = harness.open()

        kept, gone = ask(other.put_blobs([b"kept", b"gone"], at=7))
        assert ask(other.delete_blobs([gone], before=8)) == 1

        assert (ask(store.blob(kept)), ask(store.blob(gone))) == (b"kept", None)
        assert commit(harness, store, batch(journal=[entry(1, 1)], heads=[head(1)])) is None
        other.close()

    def test_the_same_bytes_are_kept_once_with_the_time_they_were_last_put(self, store: FullStore) -> None:
        first = ask(store.put_blobs([b"body", b"body"], at=7))
        second = ask(store.put_blobs([b"body"], at=9))
        ask(store.put_blobs([b"body"], at=8))  # by somebody whose clock is behind

        assert first == [*second, *second]
        assert ask(store.blobs()) == [BlobRow(second[0], 9, 4)]

    def test_blobs_are_listed_in_pages_in_the_order_of_their_digests(self, store: FullStore) -> None:
        bodies = [b"%d" % n * n for n in range(1, 26)]
        ask(store.put_blobs(bodies, at=7))
        pages: list[list[BlobRow]] = []

        while page := ask(store.blobs(after=pages[-1][-1].digest if pages else b"", limit=10)):
            pages.append(page)

        assert [len(page) for page in pages] == [10, 10, 5]
        expected = sorted((sha256(body).digest(), 7, len(body)) for body in bodies)
        assert [(row.digest, row.at, row.size) for page in pages for row in page] == expected

    def test_many_blobs_are_put_and_deleted_in_order(self, store: FullStore) -> None:
        """More than one transaction takes: by number, and by size."""
        bodies = [b"%d" % n for n in range(1200)] + [b"%d" % n * BIG for n in range(40)]

        digests = ask(store.put_blobs(bodies, at=7))

        assert digests == [sha256(body).digest() for body in bodies]
        assert len(ask(store.blobs(limit=2000))) == 1240
        assert ask(store.delete_blobs(digests, before=8)) == 1240
        assert ask(store.blobs()) == []

    def test_only_what_was_last_put_before_a_time_is_deleted(self, store: FullStore) -> None:
        old, again, young = ask(store.put_blobs([b"old", b"again"], at=5)) + ask(store.put_blobs([b"young"], at=10))
        ask(store.put_blobs([b"again"], at=10))

        assert ask(store.delete_blobs([old, again, young, b"unknown", old], before=10)) == 1

        assert {row.digest for row in ask(store.blobs())} == {again, young}

    def test_deleting_blobs_leaves_the_large_bodies_of_the_journal_alone(
        self, harness: Harness, store: FullStore
    ) -> None:
        rows = [entry(1, 1, b"x" * BIG * 2)]
        commit(harness, store, batch(journal=rows, heads=[head(1)]))
        assert ask(store.blobs()) == []
        (digest,) = ask(store.put_blobs([rows[0].body], at=1))  # the very same bytes

        assert ask(store.delete_blobs([digest], before=2)) == 1

        assert ask(store.journal(0, 10)) == rows

    @pytest.mark.parametrize("size", [1, 100, BIG * 2])
    def test_a_flipped_bit_of_a_blob_is_noticed(self, harness: Harness, store: FullStore, size: int) -> None:
        digest, whole = ask(store.put_blobs([b"x" * size, b"whole"], at=7))

        harness.damage_blob(digest)

        with pytest.raises(Corrupt, match=digest.hex()):
            ask(store.blob(digest))
        assert ask(store.blob(whole)) == b"whole"
        (problem,) = ask(store.check())
        assert digest.hex() in problem

    # ---- world snapshots -----------------------------------------------------------------------------------

    def test_world_snapshots_are_listed_in_the_order_of_their_entries_and_given_up(self, store: FullStore) -> None:
        rows = [WorldSnapshotRow(seq, seq + 100, bytes([seq]) * 32, 7, b"i" * 32) for seq in (3, 1, 2)]
        for row in rows:
            ask(store.add_world_snapshot(row))

        assert ask(store.world_snapshots()) == sorted(rows, key=lambda row: row.seq)
        assert ask(store.forget_world_snapshots([1, 3, 9])) == 2
        assert ask(store.world_snapshots()) == [rows[2]]

    def test_there_is_one_world_snapshot_for_an_entry_and_a_base_stays_one(self, store: FullStore) -> None:
        first = WorldSnapshotRow(5, 105, b"a" * 32, 7, b"i" * 32, base=True)
        ask(store.add_world_snapshot(first))
        ask(store.add_world_snapshot(WorldSnapshotRow(5, 105, b"b" * 32, 8, b"j" * 32)))

        assert ask(store.world_snapshots()) == [WorldSnapshotRow(5, 105, b"b" * 32, 8, b"j" * 32, base=True)]
        assert ask(store.forget_world_snapshots([5])) == 0

    def test_the_journal_of_a_restored_database_begins_after_its_base(self, harness: Harness, store: FullStore) -> None:
        ask(store.add_world_snapshot(WorldSnapshotRow(2, 102, b"a" * 32, 7, b"i" * 32)))
        assert store.position().seq == 0 and ask(store.height()) == 0
        ask(store.add_world_snapshot(WorldSnapshotRow(5, 105, b"b" * 32, 7, b"i" * 32, base=True)))

        position = store.position()
        assert (position.seq, position.at) == (5, 105) and ask(store.height()) == 5
        commit(harness, store, batch(journal=[entry(6, 6)], heads=[head(6)]))
        assert store.position().seq == 6 and ask(store.height()) == 6

    # ---- check and rebuild --------------------------------------------------------------------------------

    def test_check_finds_an_index_that_lies(self, harness: Harness) -> None:
        player = Player(harness)
        player.start("a")
        player.tell("a", "timer 5")
        assert ask(player.store.check()) == []
        (work,) = player.store.due(100, 1)

        commit(harness, player.store, batch(removed=[b"none"], closed=[work.intent]))

        (problem,) = ask(player.store.check())
        assert "open work" in problem
        player.store.close()

    def test_check_finds_a_gap_in_a_history(self, harness: Harness) -> None:
        player = Player(harness)
        player.start("a")
        other = Player(MemoryHarness())
        other.start("a")
        for _ in range(3):
            other.tell("a", "note")
        later = ask(other.store.journal(3, 1))

        commit(harness, player.store, batch(journal=later))

        (problem,) = ask(player.store.check())
        assert "entry 4 cannot follow entry 1" in problem
        player.store.close()

    def test_check_finds_a_lost_start(self, harness: Harness) -> None:
        player = Player(harness)
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
        model = Player(MemoryHarness())
        perform(model, story)
        with self.fresh(harness) as database:
            player = Player(database)
            perform(player, story)

            assert everything(database, player.store) == everything(MemoryHarness(), model.store)
            assert ask(player.store.check()) == []
            self.compare_with_rebuilt(player.store)
            player.reopen()
            assert everything(database, player.store)["journal"] == ask(model.store.journal(0, 10_000))
            player.store.close()

    @staticmethod
    def compare_with_rebuilt(store: FullStore) -> None:
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
