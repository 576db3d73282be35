"""Replay: the journal alone rebuilds an instance, and a machine that changed its mind is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Divergence
from perdure.kernel.apply import SEEN_MAX, SEEN_MIN, apply, apply_run
from perdure.kernel.batch import JournalRow
from perdure.kernel.decision import NOTHING, Decision
from perdure.kernel.effects import Call
from perdure.kernel.entry import Entry, encode, pack
from perdure.kernel.events import Address, Message, ReceiptArrived, Retried, Started
from perdure.kernel.instance import Instance
from perdure.kernel.receipt import Receipt
from perdure.kernel.replay import fold, rebuild
from tests.kernel.machines import Told, World


def test_a_changed_mind_is_a_divergence_with_both_sides_and_the_location():
    world = World()
    world.start("a", ("call", "charge"), ("wait", "w", None))
    world.run()
    world.workflows[0].renamed["charge"] = "bill"

    with pytest.raises(Divergence) as caught:
        rebuild(world.folded(world.id("a")), world.workflows[0])

    error = caught.value
    assert (error.instance, error.entry, error.location) == ("told/a", 1, "charge")
    assert (error.recorded, error.current) == ("call charge", "call bill")
    assert (error.source, error.advice) == ("orders.txt:4", "follow the orders")


def test_a_divergence_names_what_is_missing_and_what_is_new():
    world = World()
    told = world.workflows[0]
    world.start("a", ("call", "x", {"attempt": 2}), ("break", "later"), ("call", "y"))
    world.run()
    instance = world.folded(world.id("a"))
    recorded = instance.tail[0].decision if instance.tail else NOTHING

    class Shorter(Told):
        def machine(self, address, snapshot):
            machine = super().machine(address, snapshot)
            orders = machine._orders
            machine._orders = lambda event: list(orders(event))[:1]  # type: ignore[method-assign]
            return machine

    with pytest.raises(Divergence) as caught:
        rebuild(instance, Shorter())

    assert len(recorded.open) == 2 and told.name == "told"
    assert (caught.value.recorded, caught.value.current) == ("call y", "nothing more")
    assert caught.value.location == "y"


def test_a_divergence_on_another_version_says_so_first():
    world = World(Told(version="1"))
    world.start("a", ("call", "charge"))
    world.run()
    newer = Told(version="2")
    newer.renamed["charge"] = "bill"

    with pytest.raises(Divergence) as caught:
        rebuild(world.folded(world.id("a")), newer)

    assert caught.value.advice.splitlines() == [
        "It started with version 1, which is not registered: it was replayed on version 2. "
        "Register version 1 too, and it goes on with that.",
        "follow the orders",
    ]


def test_a_divergence_makes_the_instance_stuck_and_runs_nothing():
    world = World()
    world.start("a", ("call", "charge"), ("wait", "w", None))
    world.run().restart(recover=False)
    world.workflows[0].renamed["charge"] = "bill"
    before = world.calls()
    world.tell("a", ("call", "next"))
    world.run()

    stuck = world.instance("a").stuck

    assert stuck is not None and stuck.error.type == "Divergence" and stuck.location == "charge"
    assert world.calls() == before


def test_an_instance_that_diverged_goes_on_when_the_old_code_is_back():
    world = World()
    world.start("a", ("call", "charge"), ("wait", "w", None))
    world.run().restart(recover=False)
    world.workflows[0].renamed["charge"] = "bill"
    world.tell("a", ("call", "next"))
    world.run()
    world.workflows[0].renamed.clear()
    world.retry("a")
    world.run()

    assert world.status("a") == "running"
    assert world.heard("a") == ["Started", "Message m"]
    assert "a next 1" in world.calls()


def test_the_machine_of_a_failed_rebuild_is_let_go():
    world = World()
    world.start("a", ("call", "charge"))
    world.run()
    told = world.workflows[0]
    told.renamed["charge"] = "bill"
    before = told.disposed

    with pytest.raises(Divergence):
        rebuild(world.folded(world.id("a")), told)

    assert told.disposed == before + 1


def test_a_replay_opens_nothing():
    world = World()
    world.start("a", ("call", "x"), ("child", "c", "told", "kid", [("wait", "w", None)]))
    world.run()
    world.restart(alive=list(world.running))
    world.tell("a", ("note",))

    batch = world.commit(world.build())

    assert not batch.publications and len(batch.journal) == 1


def test_an_entry_out_of_its_order_is_refused():
    instance = Instance(Address("w", "k"))

    with pytest.raises(ValueError, match="entry 3 cannot follow entry 0"):
        apply(instance, Entry(1, 1, 3, 0, Retried(), NOTHING))


def test_seen_ids_are_bounded_and_the_oldest_go_first():
    instance = Instance(Address("w", "k"))
    for n in range(1, 2 * SEEN_MAX):
        apply(instance, Entry(n, 1, n, 0, Message("m", b"", str(n)), NOTHING))
        assert min(n, SEEN_MIN) <= len(instance.seen) <= SEEN_MAX

    assert list(instance.seen)[-SEEN_MIN:] == [str(n - SEEN_MIN + k + 1) for k in range(SEEN_MIN)]


def test_the_version_is_the_number_of_entries_and_the_rows_rebuild_it():
    world = World()
    world.start("a", ("wait", "w", None))
    for _ in range(5):
        world.tell("a", ("note",))
    world.run()

    live = world.instance("a")

    assert live.version == 6 == len(world.histories[live.id])
    assert fold(live.address, None, world.histories[live.id]).state() == live.state()


@given(st.integers(1, 4), st.lists(st.integers(0, 9), max_size=30), st.integers(0, 30))
def test_runs_of_plain_entries_fold_to_the_state_that_they_make_one_by_one(calls, answered, noted):
    """Some calls are open at once; each entry answers any of them and opens the next. One entry is a message."""
    one_by_one, rows = Instance(Address("w", "k")), list[JournalRow]()

    def write(event, *locations):
        number = one_by_one.version + 1
        decision = Decision(tuple(Call(location) for location in locations))
        packed, fresh = pack(decision.open, one_by_one.patterns)
        entry = Entry(number, 1, number, number, event, decision, (), fresh)
        rows.append(JournalRow(number, 1, number, encode(entry, packed)))
        apply(one_by_one, entry)

    write(Started("w", "k", b"", b"seed"), *(f"add#{n}" for n in range(1, calls + 1)))
    for n, choice in enumerate(answered):
        if n == noted:
            write(Message("m", b""))
        open = list(one_by_one.open)
        write(ReceiptArrived(open[choice % len(open)], Receipt("ok")), f"add#{calls + n + 1}")

    folded = fold(one_by_one.address, None, rows)

    assert folded.patterns.texts() == ["add#"]
    assert folded.state() == one_by_one.state() and list(folded.open) == list(one_by_one.open)
    assert len(folded.tail or ()) == len(rows) and folded.tail_size == sum(len(row.body) for row in rows)


def test_a_plain_entry_out_of_its_order_is_refused():
    instance = Instance(Address("w", "k"))
    apply(instance, Entry(1, 1, 1, 1, Started("w", "k", b"", b"seed"), Decision((Call("add#1"),)), (), ("add#",)))
    receipt = ReceiptArrived(next(iter(instance.open)), Receipt("ok"))

    with pytest.raises(ValueError, match="entry 3 cannot follow entry 1"):
        apply_run(instance, [Entry(3, 1, 3, 3, receipt, Decision((Call("add#2"),)), plain=True)])
