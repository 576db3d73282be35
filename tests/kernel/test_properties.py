"""Random lives: after every entry the world compares memory with the journal (see `World.look`)."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.kernel.batch import Batch
from perdure.kernel.effects import Call, due_of
from perdure.kernel.events import Parked, ReceiptArrived
from perdure.kernel.gate import Executors
from perdure.kernel.mailbox import Offer
from perdure.kernel.receipt import Receipt
from perdure.kernel.status import LEGAL, TERMINAL, Status
from tests.kernel.machines import World

KEYS = ["a", "b", "c"]
LOCATIONS = ["x", "y/~1", "y/~2", "z#3"]
keys, locations = st.sampled_from(KEYS), st.sampled_from(LOCATIONS)
dues = st.integers(0, 20_000)

simple = st.one_of(
    st.tuples(st.just("call"), locations, st.just({}) | st.just({"attempt": 2}) | st.just({"deliveries_max": 1})),
    st.tuples(st.just("timer"), locations, dues),
    st.tuples(st.just("wait"), locations, st.none() | dues),
    st.tuples(st.just("withdraw"), locations),
    st.tuples(st.just("publish"), st.sampled_from("pq"), st.integers(0, 9)),
    st.tuples(st.just("send"), st.just("told"), keys, st.just([("note",)]), st.sampled_from(["", "s1"])),
    st.tuples(st.just("announce"), st.just("f"), st.just({"id": "a"})),
    st.tuples(st.just("end"), st.sampled_from(["completed", "failed", "cancelled"])),
    st.tuples(st.just("stuck"), locations),
    st.tuples(st.just("raise"), st.just("poison")),
    st.just(("note",)),
)
nested = st.one_of(
    simple,
    st.tuples(st.just("call"), locations, st.just({"executor": "moon"})),
    st.tuples(st.just("child"), locations, st.just("told"), keys, st.lists(simple, max_size=2)),
    st.tuples(st.just("child"), locations, st.just("told"), keys, st.lists(simple, max_size=2), st.just("free")),
    st.tuples(
        st.just("then"),
        st.sampled_from([*LOCATIONS, "retry", "settle", "cancel"]),
        st.lists(simple, max_size=2),
    ),
)
orders = st.lists(nested, max_size=3)


class Lives(RuleBasedStateMachine):
    """Anything may happen to three keys; the process may die at any moment, with its last batch."""

    world: World

    @initialize(slots=st.sampled_from([None, 1, 2]))
    def begin(self, slots: int | None) -> None:
        self.world = World(gate=Executors({"inline": slots}))
        self.committing: Any = None

    @rule(key=keys, orders=orders, reuse=st.sampled_from(["", "failed", "always"]))
    def start(self, key: str, orders: list[Any], reuse: str) -> None:
        self.world.start(key, *orders, reuse=reuse)

    @rule(key=keys, orders=orders, id=st.sampled_from(["", "m1", "m2"]), by_id=st.booleans())
    def tell(self, key: str, orders: list[Any], id: str, by_id: bool) -> None:
        self.world.tell(self._id(key) if by_id else key, *orders, id=id)

    @rule(key=keys)
    def cancel(self, key: str) -> None:
        self.world.cancel(key)

    @rule(key=keys, location=locations)
    def help(self, key: str, location: str) -> None:
        self.world.retry(key)
        self.world.settle(key, location)

    @rule(status=st.sampled_from(["ok", "error", "timeout"]), n=st.integers(0, 5))
    def answer(self, status: Any, n: int) -> None:
        running = list(self.world.running.values())
        if running:
            call = running[n % len(running)]
            del self.world.running[call.intent]
            self.world.offer(call.instance, ReceiptArrived(call.intent, Receipt(status)))

    @rule(by=st.integers(-2_000, 8_000))
    def time_passes(self, by: int) -> None:
        self.world.now = max(0, self.world.now + by)
        self.world.fire()

    @rule()
    def work(self) -> None:
        self._finish()
        self.world.run()

    @rule()
    @precondition(lambda self: self.committing is None)
    def build(self) -> None:
        self.committing = self.world.build()

    @rule()
    def commit(self) -> None:
        self._finish()

    @rule(keep=st.integers(0, 2))
    def evict(self, keep: int) -> None:
        durable = self.world.journal[-1].seq if self.world.journal else 0
        self.world.kernel.cache.evict(keep, durable, Batch())

    @rule(survives=st.booleans(), alone=st.booleans())
    def crash(self, survives: bool, alone: bool) -> None:
        self.committing = None
        self.world.restart(alive=list(self.world.running) if survives else (), alone=alone)

    @rule()
    def stop_in_good_order(self) -> None:
        self._finish()
        self.world.run()
        for intent, call in list(self.world.running.items()):
            self.world.kernel.offer(Offer(call.instance, Parked(intent)))
            del self.world.running[intent]
        self.world.run()
        self.world.restart()

    def _finish(self) -> None:
        if self.committing is not None:
            batch, self.committing = self.committing, None
            self.world.commit(batch)

    def _id(self, key: str) -> int:
        return next((id for id, head in self.world.heads.items() if head.key == key), 1)

    @invariant()
    def only_legal_changes_happen(self) -> None:
        for statuses in self.world.statuses.values():
            for before, after in pairwise(statuses):
                assert after in LEGAL[before], (before, after)

    @invariant()
    def the_rows_say_what_the_journal_says(self) -> None:
        world = self.world
        for id, head in world.heads.items():
            folded = world.folded(id)
            assert (head.status, head.key) == (folded.status, folded.address.key)
            due = {i.id: due_of(i.effect) for i in folded.open.values()}
            rows = {intent: row.due for intent, row in world.work.items() if row.instance == id}
            assert rows == {intent: at for intent, at in due.items() if at is not None}

    @invariant()
    def a_name_has_at_most_one_live_instance(self) -> None:
        live = [head.key for head in self.world.heads.values() if Status(head.status) not in TERMINAL]
        assert len(live) == len(set(live))
        generations = [(head.key, head.generation) for head in self.world.heads.values()]
        assert len(generations) == len(set(generations))

    def teardown(self) -> None:
        """At rest nothing is lost: every open call runs or waits for a slot."""
        if not hasattr(self, "world"):
            return
        self._finish()
        world = self.world.run()
        stuck = {id for id, head in world.heads.items() if head.status == "stuck"}
        for id in world.heads.keys() - stuck:
            for intent in world.folded(id).open.values():
                if type(intent.effect) is Call:
                    assert intent.held == (intent.id not in world.running), (intent, world.heads[id])
        held = any(i.held for id in world.heads.keys() - stuck for i in world.folded(id).open.values())
        slots = world.gate._slots["inline"]  # type: ignore[attr-defined]
        occupied = sum(1 for call in world.running.values() if call.effect.executor == "inline")
        assert not held or (slots is not None and occupied >= slots)
        waiting_for_stuck = [row for row in world.inbox.values()]
        assert not waiting_for_stuck or stuck
        assert world.kernel.slots.running["inline"] == occupied, (world.kernel.slots.running, world.running)


TestLives = pytest.mark.slow(Lives.TestCase)
TestLives.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
