"""The gate: allow, defer, deny. What is deferred is held, not lost; the oldest goes first."""

from perdure.kernel.batch import Batch
from perdure.kernel.effects import Call, Timer
from perdure.kernel.events import ReceiptArrived, Released
from perdure.kernel.gate import ALLOW, SLOT, Deny, Executors
from tests.kernel.machines import Told, World


def narrow(slots: int = 1) -> World:
    return World(gate=Executors({"inline": slots}))


def holding(*keys: str, slots: int = 1) -> World:
    world = narrow(slots)
    for key in keys:
        world.start(key, ("call", "x"), ("then", "x", [("wait", "w", None)]))
    return world.run()


def test_the_gate_of_an_engine_allows_defers_and_denies():
    gate = Executors({"inline": 2, "free": None})

    assert gate.judge(Call("x"), {"inline": 1}) == ALLOW
    assert gate.judge(Call("x"), {"inline": 2}) == SLOT
    assert gate.judge(Call("x", executor="free"), {"free": 10_000}) == ALLOW
    assert gate.judge(Timer("t", 1), {"inline": 2}) == ALLOW
    denied = gate.judge(Call("x", executor="moon"), {})
    assert isinstance(denied, Deny) and "'moon'" in denied.reason and "free, inline" in denied.reason


def test_a_deferred_call_is_held_and_not_published():
    world = holding("a", "b")

    assert world.calls() == ["a x 1"]
    assert [intent.held for intent in world.instance("b").open.values()] == [True]
    assert world.status("b") == "running"


def test_held_calls_are_released_in_order_as_slots_become_free():
    world = holding("a", "b", "c", "d")
    for key in "abc":
        world.answer(key, "x")
        world.run()

    assert world.calls() == ["a x 1", "b x 1", "c x 1", "d x 1"]
    assert not any(intent.held for intent in world.instance("d").open.values())


def test_a_slot_that_becomes_free_belongs_to_the_oldest_and_not_to_who_asks_next():
    world = holding("a", "b")
    world.start("late", ("call", "x"))
    world.answer("a", "x")

    assert world.run().calls() == ["a x 1", "b x 1"]
    assert [intent.held for intent in world.instance("late").open.values()] == [True]


def test_a_withdrawn_held_call_is_never_published():
    world = holding("a", "b", "c")
    world.tell("b", ("withdraw", "x"), ("wait", "w", None))
    world.run()
    world.answer("a", "x")
    world.run()

    assert world.calls() == ["a x 1", "c x 1"]


def test_an_instance_that_ends_frees_its_slot_and_its_place_in_the_queue():
    world = holding("a", "b", "c")
    world.cancel("b")
    world.cancel("a")
    world.run()

    assert world.calls() == ["a x 1", "c x 1"]
    assert not world.kernel.slots.held_ids and world.kernel.slots.running["inline"] == 1


def test_held_calls_survive_a_restart():
    world = holding("a", "b", "c").restart()
    world.run()
    assert world.calls() == ["a x 1", "a x 2"]

    for key in "abc":
        world.answer(key, "x")
        world.run()

    assert world.calls() == ["a x 1", "a x 2", "b x 1", "c x 1"]


def test_held_calls_go_on_after_a_restart_though_nothing_else_happens(monkeypatch):
    world = holding("a", "b")
    world.answer("a", "x")
    monkeypatch.setattr("perdure.kernel.kernel.ENTRIES_MAX", 1)
    batch = world.batch()
    world.kernel.advance(batch, world.now)  # the receipt; there is no room for the release
    monkeypatch.undo()
    world.commit(batch)
    world.restart()

    world.run()

    assert world.calls() == ["a x 1", "b x 1"]


def test_slots_stay_counted_when_an_instance_is_evicted_and_comes_back():
    world = holding("a", "b", slots=1)
    world.kernel.cache.evict(0, world.kernel.seq, Batch())
    world.tell("a", ("note",))
    world.run()
    world.answer("a", "x")
    world.run()
    world.answer("b", "x")
    world.run()

    assert world.calls() == ["a x 1", "b x 1"]
    assert world.kernel.slots.running["inline"] == 0 and not world.kernel.slots.running_ids


def test_a_denied_call_is_answered_with_an_error_and_never_published():
    world = World(gate=Executors({"inline": None}))
    world.start("a", ("call", "x", {"executor": "moon"}), ("then", "x", [("end", "failed")]))
    batch = world.build()

    assert len(batch.journal) == 2, "the machine hears of it in the same batch"
    world.commit(batch)
    last = world.entries("a")[-1].event
    assert isinstance(last, ReceiptArrived) and last.receipt.status == "error"
    assert last.receipt.error is not None and last.receipt.error.type == "Denied"
    assert not last.receipt.error.retry
    assert not world.started and world.status("a") == "failed"


def test_a_denied_call_is_answered_once_though_the_process_dies(monkeypatch):
    monkeypatch.setattr("perdure.kernel.kernel.ENTRIES_MAX", 1)
    world = World()
    world.start("a", ("call", "x", {"executor": "moon"}), ("wait", "w", None))
    world.load()
    batch = world.batch()
    world.kernel.advance(batch, world.now)
    world.kernel.close(batch)
    world.commit(batch)
    assert len(world.inbox) == 1

    monkeypatch.undo()
    world.restart().run()

    assert world.heard("a") == ["Started", "ReceiptArrived error"] and not world.inbox


def test_a_call_is_released_once():
    world = holding("a", "b")
    world.answer("a", "x")
    world.run()
    world.offer(world.id("b"), Released(world.intent("b", "x")))
    world.run()

    assert world.calls() == ["a x 1", "b x 1"] and world.kernel.counts["stale"] == 1


def test_a_stuck_instance_holds_no_slot():
    world = holding("a", "b", "c")
    world.tell("b", ("stuck", "here"))
    world.run()
    world.answer("a", "x")
    world.run()
    assert world.calls() == ["a x 1", "c x 1"]

    world.settle("b", "here")
    world.answer("c", "x")
    world.run()

    assert world.calls() == ["a x 1", "c x 1", "b x 1"]
    assert world.kernel.slots.running["inline"] == 1


def test_a_call_of_a_stuck_instance_holds_no_slot_after_a_crash():
    world = holding("a", "b")
    world.tell("a", ("stuck", "here"))
    world.run().restart()
    world.run()
    assert world.calls() == ["a x 1", "b x 1"]

    world.settle("a", "here")
    world.run()

    assert world.calls() == ["a x 1", "b x 1", "a x 2"], "what ran before is not held: it ran already"


def test_executors_have_queues_of_their_own():
    world = World(Told(), gate=Executors({"inline": 1, "thread": 1}))
    for key in ("a", "b"):
        world.start(key, ("call", "x"), ("call", "y", {"executor": "thread"}))
    world.run()
    world.answer("a", "y")
    world.run()

    assert world.calls() == ["a x 1", "a y 1", "b y 1"]


def test_an_answered_call_holds_no_slot_though_its_instance_cannot_take_the_answer():
    world = narrow()
    world.workflows[0].broken.add("it")
    for key in ("a", "b", "c"):
        world.start(key, ("call", "x"), ("then", "x", [("break", "it")]))
    world.run()
    for key in ("a", "b"):
        world.answer(key, "x")
        world.run()

    assert [world.status(key) for key in "abc"] == ["stuck", "stuck", "running"]
    assert world.calls() == ["a x 1", "b x 1", "c x 1"], "poison spread through the slots"

    world.workflows[0].broken.clear()
    world.retry("a")
    world.run()
    assert world.status("a") == "waiting" and world.kernel.slots.running["inline"] == 1


def test_a_sequence_of_calls_keeps_its_slot_when_nobody_waits_for_it():
    world = narrow()
    world.start("a", ("call", "x"), ("then", "x", [("call", "y")]))
    world.run()
    world.answer("a", "x")
    world.run()

    assert world.calls() == ["a x 1", "a y 1"]
    assert len(world.journal) == 2, "a slot that is free needs no release"
