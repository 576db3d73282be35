"""An instance that stops itself needs a person: retry, skip or cancel."""

from perdure.kernel.events import CancelAsked, ReceiptArrived, Redelivered
from perdure.kernel.mailbox import Accepted, Refused
from perdure.kernel.receipt import DONE
from tests.kernel.machines import World


def stuck_world() -> World:
    world = World()
    world.start(
        "a",
        ("call", "charge"),
        ("call", "beside"),
        ("then", "charge", [("stuck", "charge")]),
        ("then", "retry", [("call", "charge", {"attempt": 2})]),
        ("then", "settle", [("call", "next")]),
    )
    world.run()
    world.answer("a", "charge", "error")
    return world.run()


def test_a_machine_may_stop_itself_at_a_location():
    world = stuck_world()

    stuck = world.instance("a").stuck

    assert stuck is not None and (stuck.location, stuck.kept) == ("charge", False)
    assert world.open("a") == ["beside"]


def test_a_retry_is_told_to_the_machine():
    world = stuck_world()
    ticket = world.retry("a")
    world.run()

    assert isinstance(world.answers[ticket], Accepted)
    assert world.heard("a") == ["Started", "ReceiptArrived error", "Retried"]
    assert world.calls() == ["a charge 1", "a beside 1", "a charge 1"]
    assert world.status("a") == "running"


def test_a_skip_is_told_to_the_machine_if_it_names_the_location():
    world = stuck_world()
    wrong, right = world.settle("a", "beside"), world.settle("a", "charge")
    world.run()

    assert isinstance(world.answers[wrong], Refused) and isinstance(world.answers[right], Accepted)
    assert world.heard("a") == ["Started", "ReceiptArrived error", "Settled"]
    assert world.open("a") == ["beside", "next"]


def test_a_retry_and_a_skip_of_what_is_not_stuck_are_refused():
    world = World()
    world.start("a", ("wait", "w", None))
    tickets = [world.retry("a"), world.settle("a", "w")]
    world.run()

    answers = [world.answers[ticket] for ticket in tickets]

    assert [answer.code for answer in answers if isinstance(answer, Refused)] == ["not-stuck", "not-stuck"]


def test_a_stuck_instance_can_be_cancelled():
    world = stuck_world()
    world.cancel("a")
    world.run()

    assert world.status("a") == "cancelled"
    assert world.stopped == [world.intent("a", "beside")]


def test_the_receipts_of_its_other_calls_wait_until_it_goes_on():
    world = stuck_world()
    world.answer("a", "beside")
    world.run()
    assert world.heard("a") == ["Started", "ReceiptArrived error"] and len(world.inbox) == 1

    world.settle("a", "charge")
    world.run()

    assert world.heard("a") == ["Started", "ReceiptArrived error", "Settled", "ReceiptArrived ok"]
    assert not world.inbox


def test_a_decision_may_open_effects_and_be_stuck():
    world = World()
    world.start("a", ("call", "x"), ("publish", "p", 1), ("stuck", "y"))
    world.run()

    assert world.status("a") == "stuck"
    assert world.open("a") == ["x"] and world.calls() == ["a x 1"]
    assert (world.id("a"), "p") in world.published


def test_a_call_of_a_stuck_instance_is_handed_out_again_when_it_goes_on_after_a_crash():
    world = stuck_world().restart()
    world.run()
    assert world.calls() == ["a charge 1", "a beside 1"]

    world.settle("a", "charge")
    world.run()

    assert sorted(world.calls()) == ["a beside 1", "a beside 2", "a charge 1", "a next 1"]


def test_its_calls_are_handed_out_again_once_though_it_crashes_often():
    world = stuck_world()
    for _ in range(3):
        world.restart().run()
        world.tell("a", ("note",))
        world.run()

    world.settle("a", "charge")
    world.run()

    assert world.calls().count("a beside 2") == 1
    assert len(world.calls()) == 4


def test_its_calls_that_survived_a_failed_commit_are_not_handed_out_again():
    world = stuck_world()
    world.restart(alive=[world.intent("a", "beside")]).run()

    world.settle("a", "charge")
    world.run()

    assert world.calls() == ["a charge 1", "a beside 1", "a next 1"]


def test_a_receipt_that_waits_for_a_stuck_instance_wins_over_the_redelivery():
    world = stuck_world()
    world.answer("a", "beside")
    world.run().restart().run()

    world.settle("a", "charge")
    world.run()

    assert "a beside 2" not in world.calls()
    assert world.heard("a")[-1] == "ReceiptArrived ok"


def test_a_stale_receipt_of_a_stuck_instance_is_not_kept():
    world = stuck_world()
    world.offer(world.id("a"), ReceiptArrived(b"never opened....", DONE))
    world.run()

    assert not world.inbox and world.kernel.counts["stale"] == 1


def test_what_waited_longest_comes_first_when_it_goes_on():
    world = stuck_world()
    world.tell("a", ("note",), name="first")
    world.run()
    world.settle("a", "charge")
    world.tell("a", ("note",), name="second")
    world.run()

    assert world.heard("a")[2:] == ["Settled", "Message first", "Message second"]


def test_a_timer_of_a_stuck_instance_fires_when_it_goes_on():
    world = World()
    world.start("a", ("timer", "t", 2_000), ("stuck", "here"))
    world.run()
    world.now = 3_000
    world.fire().fire().run()
    world.restart().fire().run()
    assert world.heard("a") == ["Started"] and len(world.work) == 1

    world.settle("a", "here")
    world.run()

    assert world.heard("a") == ["Started", "Settled", "ReceiptArrived ok"]
    assert not world.work


def test_what_it_is_stuck_at_is_not_lost_with_a_snapshot(monkeypatch):
    monkeypatch.setattr("perdure.kernel.snapshot.SIZE_MIN", 0)
    world = World()
    world.start("a", ("wait", "w", None))
    for _ in range(5):
        world.tell("a", ("publish", "p", "x" * 500))
        world.run()
    world.tell("a", ("publish", "p", "x" * 5000), ("stuck", "here"))
    world.run().restart()
    assert world.snapshots

    ticket = world.retry("a")
    world.run()

    assert isinstance(world.answers[ticket], Accepted)


def test_a_redelivery_that_finds_the_instance_stuck_is_made_up_for_when_it_goes_on():
    world = World()
    world.start("a", ("call", "x"), ("then", "settle", [("note",)]))
    world.run().restart(recover=False)
    world.tell("a", ("stuck", "here"))
    world.load()
    for *_, instance, intent in world.kernel.recover(world.id("a"), ()):
        world.offer(instance, Redelivered(intent))
    world.run()
    assert world.status("a") == "stuck" and world.calls() == ["a x 1"]

    world.settle("a", "here")
    world.run()

    assert world.calls() == ["a x 1", "a x 2"]


# ---- stuck at one location, while the rest goes on -----------------------------------------------------------------


def open_world() -> World:
    world = World()
    stopped = ("stuck", "charge", "open")
    world.start(
        "a",
        ("call", "charge"),
        ("call", "beside"),
        ("then", "charge", [stopped]),
        ("then", "beside", [("call", "more"), stopped]),
        ("then", "settle", []),
    )
    world.run()
    world.answer("a", "charge", "error")
    return world.run()


def test_the_rest_goes_on_where_one_location_is_stuck():
    world = open_world()
    world.answer("a", "beside", "ok")
    world.run()

    assert world.status("a") == "stuck"
    assert world.open("a") == ["more"]
    assert world.heard("a") == ["Started", "ReceiptArrived error", "ReceiptArrived ok"]
    world.settle("a", "charge")
    world.run()
    assert world.status("a") == "running"


def test_calls_beside_a_stuck_location_are_recovered_after_a_crash():
    world = open_world()
    world.restart()
    world.run()

    assert world.calls() == ["a charge 1", "a beside 1", "a beside 2"]
    assert world.status("a") == "stuck"


def test_a_decision_may_ask_that_the_children_it_cancels_undo_what_they_did():
    world = World()
    world.start(
        "a", ("child", "c", "told", "kid", [("call", "x"), ("then", "cancel", [("call", "undo")])]), ("wait", "w", None)
    )
    world.run()
    world.tell("a", ("withdraw", "c"), ("undo",))
    world.run()

    cancel = next(each.event for each in world.entries("kid") if type(each.event) is CancelAsked)
    assert cancel.undo
