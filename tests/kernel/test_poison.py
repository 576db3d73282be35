"""Poison does not spread: a machine that raises stops its own instance, with its event kept."""

import pytest

from perdure.kernel.decision import Outcome
from perdure.kernel.effects import Call
from perdure.kernel.events import Message, Started
from perdure.kernel.mailbox import Accepted, Refused
from perdure.kernel.receipt import failure_of
from perdure.kernel.status import Status
from tests.kernel.machines import Told, World


def broken_world() -> World:
    """One instance that broke at its second event, and a healthy one."""
    world = World()
    world.workflows[0].broken.add("it")
    world.start("sick", ("call", "x"), ("wait", "w", None))
    world.start("well", ("wait", "w", None))
    world.run()
    world.tell("sick", ("break", "it"), ("call", "after"), id="first")
    world.tell("well", ("note",))
    return world.run()


def repair(world: World) -> None:
    world.workflows[0].broken.clear()


def test_a_machine_that_raises_is_stuck_with_its_event_kept_and_the_others_go_on():
    world = broken_world()

    sick = world.instance("sick")

    assert sick.status is Status.STUCK and sick.stuck is not None and sick.stuck.kept
    assert sick.stuck.error.type == "RuntimeError" and sick.stuck.error.message == "it is broken"
    assert "machines.py" in sick.stuck.error.traceback
    assert isinstance(sick.kept, Message)
    assert world.heard("well") == ["Started", "Message m"]


def test_the_sender_of_poison_hears_that_its_event_is_recorded():
    world = World()
    world.start("a", ("wait", "w", None))
    ticket = world.tell("a", ("raise", "no"))
    world.run()

    assert isinstance(world.answers[ticket], Accepted)


def test_a_poisoned_event_changes_nothing_but_the_status():
    world = broken_world()

    assert world.open("sick") == ["x", "w"]
    assert "first" not in world.instance("sick").seen
    assert world.calls() == ["sick x 1"]


def test_a_retry_delivers_the_same_event_again():
    world = broken_world()
    assert world.id("sick") not in world.kernel.instances(), "a spoiled machine was kept in memory"
    repair(world)

    world.retry("sick")
    world.run()

    assert world.heard("sick") == ["Started", "Message m"]
    assert world.open("sick") == ["x", "w", "after"]
    assert "first" in world.instance("sick").seen
    assert world.instance("sick").kept is None and world.status("sick") == "running"


def test_a_retry_works_after_a_restart():
    world = broken_world()
    repair(world)
    world.restart(alive=list(world.running))

    world.retry("sick")
    world.run()

    assert world.open("sick") == ["x", "w", "after"]


def test_a_retry_that_raises_again_keeps_the_first_event():
    world = broken_world()
    world.retry("sick")
    world.run()
    world.retry("sick")
    world.run()
    assert world.status("sick") == "stuck"
    repair(world)

    world.retry("sick")
    world.run()

    assert world.heard("sick") == ["Started", "Message m"]
    assert [type(entry.event).__name__ for entry in world.entries("sick")] == [
        "Started",
        "Message",
        "Retried",
        "Retried",
        "Retried",
    ]


def test_events_for_a_stuck_instance_are_inbox_rows_and_come_in_order_after_it_goes_on():
    world = broken_world()
    for n in range(3):
        world.tell("sick", ("note",), name=f"m{n}")
    receipt = world.answer("sick", "x")
    world.run()
    assert len(world.inbox) == 4 and isinstance(world.answers[receipt], Accepted)
    repair(world)

    world.retry("sick")
    world.run()

    assert world.heard("sick") == [
        "Started",
        "Message m",
        "Message m0",
        "Message m1",
        "Message m2",
        "ReceiptArrived ok",
    ]
    assert not world.inbox


def test_the_inbox_rows_of_a_stuck_instance_survive_a_restart_in_order():
    world = broken_world()
    for n in range(3):
        world.tell("sick", ("note",), name=f"m{n}")
        world.run().restart()
        world.run()
    assert len(world.inbox) == 3
    repair(world)

    world.retry("sick")
    world.run()

    assert world.heard("sick") == ["Started", "Message m", "Message m0", "Message m1", "Message m2"]
    assert not world.inbox


def test_events_that_wait_while_the_poison_is_being_committed_are_not_lost():
    world = World()
    world.workflows[0].broken.add("it")
    world.start("a", ("wait", "w", None))
    world.run()
    world.tell("a", ("break", "it"))
    world.tell("a", ("note",), name="behind")
    committing = world.build()
    world.tell("a", ("note",), name="later")
    world.retry("a")
    repair(world)
    building = world.build()
    assert not building.journal, "a spoiled machine was asked"

    world.commit(committing)
    world.commit(building)
    world.run()

    assert world.heard("a") == ["Started", "Message m", "Message behind", "Message later"]


def test_a_start_that_raises_is_kept_and_begins_when_it_came_first():
    world = World()
    world.workflows[0].broken.add("it")
    world.start("a", ("break", "it"), ("wait", "w", None))
    world.run()
    assert isinstance(world.instance("a").kept, Started)
    repair(world)
    world.now = 9_000

    world.retry("a")
    world.run()

    assert world.heard("a") == ["Started"]
    assert world.heads[world.id("a")].started_at == 1_000
    assert world.status("a") == "waiting"


def test_a_poisoned_receipt_of_a_child_cancels_nobody_when_it_is_delivered_again():
    world = World()
    world.workflows[0].broken.add("it")
    world.start("p", ("child", "c", "told", "kid", [("call", "k")]), ("then", "c", [("break", "it")]))
    world.run()
    world.answer("kid", "k")
    world.tell("kid", ("complete", 1))
    world.run()
    assert world.status("p") == "stuck"
    world.start("kid", ("wait", "w", None), reuse="always")
    repair(world)

    world.retry("p")
    world.run()

    assert world.heard("p") == ["Started", "ReceiptArrived ok"]
    assert world.status("kid") == "waiting", "the namesake of an ended child was cancelled"


def test_a_kept_event_cannot_be_skipped():
    world = broken_world()
    ticket = world.settle("sick", "")
    world.run()

    answer = world.answers[ticket]

    assert isinstance(answer, Refused) and answer.code == "refused"
    assert isinstance(world.instance("sick").kept, Message)


def test_a_cancel_ends_a_poisoned_instance_without_asking_its_machine():
    world = broken_world()
    world.tell("sick", ("note",))
    world.run()

    world.cancel("sick", "enough")
    world.run()

    assert world.status("sick") == "cancelled"
    assert not world.inbox and world.stopped == [world.intent("sick", "x")]
    _, _, outcome = world.ended[-1]
    assert outcome.error is not None and outcome.error.message == "enough"


def test_a_cancel_ends_an_instance_that_broke_while_it_was_being_cancelled():
    world = World()
    world.start("a", ("call", "x"), ("then", "cancel", [("withdraw", "x"), ("call", "undo")]))
    world.run()
    world.cancel("a")
    world.tell("a", ("raise", "the undo is broken"))
    world.run()
    assert world.status("a") == "stuck"

    world.cancel("a")
    world.run()

    assert world.status("a") == "cancelled"


def test_a_start_of_a_stuck_key_is_answered_at_once():
    world = World()
    world.start("a", ("raise", "no"))
    world.run()
    same, other = world.start("a", ("raise", "no")), world.start("a", ("note",))
    world.run()

    found, refused = world.answers[same], world.answers[other]

    assert isinstance(found, Accepted) and not found.fresh
    assert isinstance(refused, Refused) and refused.code == "key-in-use"
    assert not world.inbox


# ---- decisions that no journal may hold ----------------------------------------


@pytest.mark.parametrize(
    ("orders", "reason"),
    [
        ([("withdraw", "nothing")], "is not open"),
        ([("withdraw", "x"), ("withdraw", "x")], "is not open"),
        ([("call", "x")], "two effects cannot be open at 'x'"),
        ([("timer", "t", 1), ("timer", "t", 2)], "two effects cannot be open at 't'"),
        ([("call", "y"), ("timer", "x", 5)], "two effects cannot be open at 'x'"),
    ],
)
def test_an_impossible_decision_stops_its_instance_and_nobody_else(orders, reason):
    world = World()
    world.start("a", ("call", "x"))
    world.start("b", ("wait", "w", None))
    world.run()
    world.tell("a", *orders)
    world.tell("b", ("note",))
    world.run()

    stuck = world.instance("a").stuck

    assert stuck is not None and reason in stuck.error.message
    assert world.open("a") == ["x"] and world.calls() == ["a x 1"]
    assert world.heard("b") == ["Started", "Message m"]
    assert world.kernel.slots.running["inline"] == 1


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "done",
        Outcome(Status.WAITING),
        Call("a\udcff"),
        Call("fine", params=object()),  # type: ignore[arg-type]
        Call(7),  # type: ignore[arg-type]
        object(),
    ],
)
def test_what_is_no_decision_stops_its_instance_and_nobody_else(answer):
    class Odd(Told):
        def machine(self, address, snapshot):
            machine = super().machine(address, snapshot)
            deliver = machine.deliver

            def odd(event, moment):
                decision = deliver(event, moment)
                if not isinstance(event, Message):
                    return decision
                if isinstance(answer, Outcome):
                    return type(decision)(outcome=answer)
                is_effect = isinstance(answer, Call) or type(answer) is object
                return type(decision)(open=(answer,)) if is_effect else answer

            machine.deliver = odd  # type: ignore[method-assign]
            return machine

    world = World(Odd("odd"), Told())
    world.checked = False
    world.start("a", ("wait", "w", None), workflow="odd")
    world.start("b", ("wait", "w", None))
    world.run()
    world.offer(world.id("a", "odd"), Message("m", b"\xd9\xd9\xf7\x80"))
    world.tell("b", ("note",))
    world.run()

    assert world.status("a", "odd") == "stuck"
    assert world.heard("b") == ["Started", "Message m"]
    assert world.kernel.slots.running["inline"] == 0


def test_an_error_text_that_is_no_unicode_is_recorded_all_the_same():
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert failure_of(OSError("file \udcff")).message == "file \\udcff"
    assert failure_of(Mute()).message == "(its text cannot be shown: __str__ failed)"


def test_a_snapshot_that_raises_stops_nobody(monkeypatch):
    class Shy(Told):
        def machine(self, address, snapshot):
            machine = super().machine(address, snapshot)
            machine.snapshot = lambda: 1 / 0  # type: ignore[assignment, method-assign, return-value]
            return machine

    monkeypatch.setattr("perdure.kernel.snapshot.SIZE_MIN", 0)
    world = World(Shy(), checked=False)
    world.start("a", ("wait", "w", None))
    world.tell("a", ("note",))
    world.run()

    assert world.status("a") == "waiting" and world.kernel.counts["snapshots_failed"] > 0
