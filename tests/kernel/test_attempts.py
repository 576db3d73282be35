"""Attempts and deliveries are recorded before they run: what kills its process is not tried for ever."""

from perdure.kernel.events import Parked, ReceiptArrived, Redelivered
from tests.kernel.machines import World


def test_a_call_is_durable_before_an_executor_sees_it():
    world = World()
    world.start("a", ("call", "x"))
    batch = world.build()

    assert [row.instance for row in batch.journal] == [1] and not world.started
    world.commit(batch)
    assert world.calls() == ["a x 1"]


def test_a_call_that_a_crash_cut_keeps_its_id_and_gets_the_next_delivery():
    world = World()
    world.start("a", ("call", "x"))
    world.run().restart().run()

    first, second = world.started

    assert first.intent == second.intent
    assert (first.delivery, second.delivery) == (1, 2)
    assert [type(entry.event) for entry in world.entries("a")][1:] == [Redelivered]


def test_the_next_delivery_is_recorded_before_it_runs():
    world = World()
    world.start("a", ("call", "x", {"deliveries_max": 2}))
    world.run().restart()
    world.commit(world.build())
    world.started.clear()  # the process dies before the executor has done anything

    world.restart().run()

    assert not world.started
    assert world.heard("a") == ["Started", "ReceiptArrived unknown"]


def test_a_call_that_kills_its_process_every_time_is_answered_unknown_in_the_end():
    world = World()
    world.start("a", ("call", "x", {"deliveries_max": 3}), ("then", "x", [("end", "failed")]))
    world.run()
    for _ in range(5):
        world.restart().run()

    assert world.calls() == ["a x 1", "a x 2", "a x 3"]
    assert world.status("a") == "failed"
    last = world.entries("a")[-1].event
    assert isinstance(last, ReceiptArrived) and last.receipt.status == "unknown"
    assert last.receipt.error is not None and not last.receipt.error.retry


def test_a_call_that_may_not_be_repeated_is_unknown_after_one_crash():
    world = World()
    world.start("a", ("call", "x", {"deliveries_max": 1}))
    world.run().restart().run()

    assert world.calls() == ["a x 1"] and world.heard("a") == ["Started", "ReceiptArrived unknown"]


def test_a_call_that_may_not_be_repeated_is_not_repeated_in_company_either():
    world = World()
    world.start("a", ("call", "x", {"deliveries_max": 1}), ("call", "y"))
    world.run().restart(alone=False).run()

    assert world.calls() == ["a x 1", "a y 1", "a y 2"]
    assert world.heard("a") == ["Started", "ReceiptArrived unknown"]


def test_a_call_that_may_not_be_repeated_and_was_parked_before_it_began_runs_once():
    """Found by a simulated world: its first real delivery, made in company, must count."""
    world = World()
    world.start("a", ("call", "x", {"deliveries_max": 1}), ("call", "y"))
    world.run()
    world.offer(world.id("a"), Parked(world.intent("a", "x")))
    world.run().restart(alone=False).run()
    world.restart(alone=False).run()

    assert [call for call in world.calls() if "x" in call] == ["a x 1", "a x 2"]
    assert world.heard("a") == ["Started", "ReceiptArrived unknown"]


def test_a_delivery_in_the_company_of_other_suspects_does_not_count():
    world = World()
    world.start("a", ("call", "x", {"deliveries_max": 2}))
    world.run()
    world.restart(alone=False).run()
    world.restart(alone=True).run()

    assert world.calls() == ["a x 1", "a x 2", "a x 3"]
    world.restart(alone=True).run()
    assert world.heard("a") == ["Started", "ReceiptArrived unknown"]


def test_a_parked_call_is_not_counted():
    world = World()
    world.start("a", ("call", "x", {"deliveries_max": 2}))
    world.run()
    for _ in range(4):
        world.offer(world.id("a"), Parked(world.intent("a", "x")))
        world.run().restart().run()

    assert world.calls()[-1] == "a x 5" and world.open("a") == ["x"]
    world.restart().run()
    world.restart().run()
    assert world.heard("a") == ["Started", "ReceiptArrived unknown"]


def test_a_call_that_survived_a_failed_commit_is_not_handed_out_again():
    world = World()
    world.start("a", ("call", "x"), ("call", "y"))
    world.run().restart(alive=[world.intent("a", "x")]).run()

    assert world.calls() == ["a x 1", "a y 1", "a y 2"]
    world.answer("a", "x")
    assert world.run().heard("a") == ["Started", "ReceiptArrived ok"]


def test_a_call_that_this_life_opened_is_not_recovered():
    """An instance may be loaded for a message, and open a call, before its turn in the recovery comes."""
    world = World()
    world.start("a", ("call", "old"))
    world.run().restart(recover=False)
    world.tell("a", ("call", "new"))
    first = world.build()

    lost = world.kernel.recover(world.id("a"), ())
    again = world.kernel.recover(world.id("a"), ())

    assert [intent for *_, intent in lost] == [world.intent("a", "old")] and not again
    world.commit(first)


def test_timers_waits_and_children_are_not_recovered():
    world = World()
    world.start("p", ("timer", "t", 9_000), ("wait", "w", 9_000), ("child", "c", "told", "kid", [("call", "k")]))
    world.run().restart()
    world.run()

    assert world.calls() == ["kid k 1", "kid k 2"]


def test_a_redelivery_for_a_closed_call_is_stale():
    world = World()
    world.start("a", ("call", "x"), ("wait", "w", None))
    world.run()
    world.answer("a", "x")
    world.offer(world.id("a"), Redelivered(world.intent("a", "x")))
    world.run()

    assert world.calls() == ["a x 1"] and world.kernel.counts["stale"] == 1
