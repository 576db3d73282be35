"""Deadlines: they count from the clock, and what became durable before one of them is delivered before it."""

from perdure.codec import encode
from perdure.kernel import snapshot
from perdure.kernel.events import Address, Message, ReceiptArrived
from perdure.kernel.gate import Executors
from perdure.kernel.rows import inbox_row, offer_of
from tests.kernel.machines import ToldMachine, World


def told(world: World, key: str) -> list[str]:
    """What an instance heard after its start: names of messages, locations of receipts."""
    locations = {world.intent(key, location): location for location in ("c", "t", "w")}
    events = [entry.event for entry in world.entries(key)[1:]]
    return [locations[event.intent] if isinstance(event, ReceiptArrived) else event.name for event in events]  # type: ignore[union-attr]


def test_a_machine_hears_the_clock_also_when_it_was_set_back():
    world = World()
    world.start("a", ("wait", "w", None))
    for now in (9_000, 2_000):
        world.run()
        world.now = now
        world.tell("a", ("note",))
    world.run()

    assert [(entry.at, entry.clock) for entry in world.entries("a")] == [(1_000, 1_000), (9_000, 9_000), (9_000, 2_000)]
    machine = world.kernel.instances()[world.id("a")].machine
    assert isinstance(machine, ToldMachine)
    assert [at for _, _, at, _ in machine.state["heard"]] == [1_000, 9_000, 2_000]


def test_a_message_after_a_deadline_is_late():
    world = World()
    world.start("a", ("wait", "w", 2_000))
    world.run()

    world.now = 3_000
    world.tell("a", ("note",), name="late")
    world.run().fire().run()

    assert told(world, "a") == ["w", "late"]
    assert not world.work


def test_deadlines_that_passed_are_delivered_in_their_order():
    world = World()
    world.start("a", ("timer", "t", 2_500), ("wait", "w", 2_000))
    world.run()

    world.now = 3_000
    world.tell("a", ("note",), name="late")
    world.run()

    assert told(world, "a") == ["w", "t", "late"]


def test_a_child_that_answers_after_a_deadline_of_its_parent_is_late():
    world = World()
    world.start("a", ("child", "c", "told", "b", [("wait", "w", None)]), ("timer", "t", 2_000))
    world.run()

    world.now = 3_000
    world.tell("b", ("complete", 1))
    world.run()

    assert told(world, "a") == ["t", "c"]


def test_a_child_that_answered_before_a_deadline_of_its_parent_wins_after_a_restart():
    world = World()
    world.start("a", ("child", "c", "told", "b", [("wait", "w", None)]), ("timer", "t", 2_000))
    world.run()
    world.now = 1_500
    world.kernel.closing = True  # the answer waits in the inbox
    world.tell("b", ("complete", 1))
    world.run()

    world.now = 3_000
    world.restart().fire().run()

    assert told(world, "a") == ["c", "t"]


def test_what_waits_in_the_mailbox_and_came_before_a_deadline_goes_before_it():
    world = World()
    world.start("a", ("wait", "w", 2_000))
    world.run()

    row = world.inbox[b"row"] = inbox_row(b"row", Address("told", "a"), Message("early", encode([])), 1_500)
    world.now = 3_000
    world.tell("a", ("note",), name="late")
    world.kernel.offer(offer_of(row))
    world.run()

    assert told(world, "a") == ["early", "w", "late"]


def test_a_sender_whose_clock_is_ahead_makes_no_deadline_pass():
    world = World()
    world.start("a", ("wait", "w", 2_000))
    world.run()

    row = world.inbox[b"row"] = inbox_row(b"row", Address("told", "a"), Message("m", encode([])), 5_000)
    world.kernel.offer(offer_of(row))
    world.run()

    assert told(world, "a") == ["m"]


def test_a_deadline_that_was_withdrawn_holds_nothing_up():
    world = World()
    world.start("a", ("timer", "t", 2_000), ("wait", "w", None))
    world.tell("a", ("withdraw", "t"))
    world.run()

    world.now = 3_000
    world.tell("a", ("note",))
    world.run()

    assert told(world, "a") == ["m", "m"]


def test_a_stuck_instance_hears_first_what_was_first_when_it_goes_on():
    world = World()
    world.workflows[0].broken.add("x")
    world.start("a", ("wait", "w", 2_000))
    world.tell("a", ("break", "x"), name="kept")
    world.run()
    world.now = 3_000
    world.tell("a", ("note",), name="late")
    world.run()

    world.workflows[0].broken.clear()
    world.retry("a")
    world.run()

    assert world.heard("a") == ["Started", "Message kept", "ReceiptArrived timeout", "Message late"]


def test_a_deadline_whose_code_is_not_here_holds_nothing_up():
    world = World()
    world.start("a", ("wait", "w", 2_000))
    world.run()
    world.workflows = ()
    world.restart()
    world.now = 3_000

    world.tell("a", ("note",))
    world.run()

    assert len(world.journal) == 1


def test_a_restored_instance_counts_what_is_open_as_entries_do():
    """Its call is with a worker, and so it waits."""
    world = World(gate=Executors({"inline": None}, workers=True))
    world.start("a", ("call", "q", {"executor": "work", "params": encode({"call": "m:f"})}), ("timer", "t", 9_000))
    world.run()
    live = world.instance("a")
    row = snapshot.take(live)
    assert row is not None

    again = snapshot.restore(row)

    assert again.state() == live.state()
    assert (again.calls, again.next_due) == (live.calls, live.next_due) == (0, 9_000)
