"""Children, sends and facts: one transaction with their cause."""

from collections.abc import Sequence

from perdure.codec import decode
from perdure.kernel.decision import Decision, Fact
from perdure.kernel.events import Address, CancelAsked, Message, ReceiptArrived, Started
from perdure.kernel.gate import Executors
from perdure.kernel.mailbox import Offer
from perdure.kernel.routing import Subscription
from tests.kernel.machines import Told, World

WAIT = [("wait", "w", None)]


def child(location: str, key: str, orders: Sequence[object], *rest: object) -> tuple[object, ...]:
    return ("child", location, "told", key, orders, *rest)


def test_a_child_starts_in_the_batch_of_its_parent():
    world = World()
    world.start("p", child("c", "kid", WAIT))

    batch = world.commit(world.build())

    assert len(batch.journal) == 2 and not batch.inbox_added
    assert world.heads[world.id("kid")].parent == world.id("p")
    assert world.status("p") == "waiting"


def test_the_outcome_of_a_child_reaches_its_parent_in_the_batch_of_its_end():
    world = World()
    world.start("p", child("c", "kid", WAIT), ("then", "c", [("complete", "seen")]))
    world.run()
    world.tell("kid", ("complete", 7))

    batch = world.commit(world.build())

    assert len(batch.journal) == 2
    received = world.entries("p")[-1].event
    assert isinstance(received, ReceiptArrived) and received.receipt.status == "ok"
    assert received.receipt.value is not None and decode(received.receipt.value) == 7
    assert world.status("p") == "completed"


def test_a_child_that_never_waits_ends_in_the_batch_of_its_parent():
    world = World()
    world.start("p", child("c", "kid", [("complete", 1)]), ("then", "c", [("complete", 2)]))

    batch = world.build()

    assert len(batch.journal) == 3 and not batch.inbox_added and not batch.inbox_removed


def test_a_failed_and_a_cancelled_child_are_told_as_such():
    world = World()
    world.start("p", child("f", "bad", [("end", "failed")]), child("c", "gone", WAIT))
    world.run()
    world.cancel("gone")
    world.run()

    assert world.heard("p") == ["Started", "ReceiptArrived error", "ReceiptArrived cancelled"]


def test_a_detached_child_answers_when_it_has_started_and_outlives_its_parent():
    world = World()
    world.start("p", child("c", "kid", WAIT, "detached"), ("then", "c", [("complete", 1)]))
    world.run()

    received = world.entries("p")[-1].event

    assert isinstance(received, ReceiptArrived) and received.receipt.value is not None
    assert decode(received.receipt.value) == "kid"
    assert world.status("p") == "completed" and world.status("kid") == "waiting"


def test_the_end_of_a_detached_child_concerns_nobody():
    world = World()
    world.start("p", child("c", "kid", WAIT, "detached"), ("wait", "w", None))
    world.run()
    world.tell("kid", ("complete", 1))
    world.run()

    assert world.heard("p") == ["Started", "ReceiptArrived ok"] and not world.kernel.counts["stale"]


def test_a_detached_child_that_breaks_at_once_has_started_all_the_same():
    world = World()
    world.start("p", child("c", "kid", [("raise", "no")], "detached"), ("wait", "w", None))
    world.run()
    world.retry("kid")
    world.run()

    assert world.heard("p") == ["Started", "ReceiptArrived ok"]


def test_a_child_whose_key_is_in_use_is_an_error_receipt():
    world = World()
    world.start("kid", *WAIT)
    world.run()
    world.start("p", child("c", "kid", WAIT), ("wait", "w", None))
    world.run()

    received = world.entries("p")[-1].event

    assert isinstance(received, ReceiptArrived) and received.receipt.status == "error"
    assert received.receipt.error is not None and received.receipt.error.type == "ChildRefused"
    assert world.heard("kid") == ["Started"] and world.open("p") == ["w"]


def test_a_child_of_an_unknown_workflow_is_an_error_receipt():
    world = World()
    world.start("p", ("child", "c", "no such", "kid", []), ("wait", "w", None))
    world.run()

    assert world.heard("p") == ["Started", "ReceiptArrived error"]


def test_a_withdrawn_child_is_cancelled_in_the_same_batch():
    world = World()
    world.start("p", child("c", "kid", [("call", "k")]), ("wait", "w", None))
    world.run()
    world.tell("p", ("withdraw", "c"))

    batch = world.commit(world.build())

    assert len(batch.journal) == 2
    assert world.status("kid") == "cancelled" and world.stopped == [world.intent("kid", "k")]
    assert world.heard("p") == ["Started", "Message m"]


def test_the_end_of_a_parent_cancels_its_family_and_no_detached_child():
    world = World()
    world.start("p", child("c", "kid", [child("g", "grandkid", WAIT)]), child("d", "free", WAIT, "detached"))
    world.run()
    world.cancel("p")
    world.run()

    statuses = [world.status(key) for key in ("p", "kid", "grandkid", "free")]

    assert statuses == ["cancelled", "cancelled", "cancelled", "waiting"]


def test_a_child_may_clean_up_before_it_is_cancelled():
    world = World()
    world.start("p", child("c", "kid", [("call", "k"), ("then", "cancel", [("withdraw", "k"), ("call", "undo")])]))
    world.run()
    world.cancel("p")
    world.run()
    assert world.status("kid") == "running"
    world.tell("kid", ("complete", 1))
    world.run()

    assert world.status("kid") == "completed" and world.status("p") == "cancelled"


def test_a_child_started_and_withdrawn_in_one_batch_starts_and_is_cancelled():
    world = World()
    world.start("p", child("c", "kid", WAIT), ("wait", "w", None))
    world.tell("p", ("withdraw", "c"))

    world.run()

    assert world.heard("kid") == ["Started", "CancelAsked told/p no longer waits"]
    assert world.heard("p") == ["Started", "Message m"]


def test_a_parent_that_ends_as_it_opens_a_child_starts_nobody():
    world = World()
    world.start("p", child("c", "kid", WAIT), ("complete", 1))
    batch = world.build()

    assert len(batch.journal) == 1 and not batch.inbox_added and not world.kernel.cache.wanted


def test_a_parent_that_ends_cancels_its_own_child_and_no_namesake():
    world = World()
    world.start("kid", *WAIT)
    world.run()
    world.start("p", child("c", "kid", WAIT), ("complete", 1))
    world.start("q", child("c", "kid", WAIT), ("wait", "w", None))
    world.tell("q", ("withdraw", "c"))
    world.run()

    assert world.status("kid") == "waiting"


def test_a_cancel_that_was_kept_does_not_reach_the_next_generation():
    world = World()
    world.start("p", child("c", "kid", WAIT), ("wait", "w", None))
    world.run()
    cancel = CancelAsked("late", world.intent("p", "c"))
    world.tell("kid", ("complete", 1))
    world.run()
    world.start("kid", *WAIT, reuse="always")
    world.run()

    world.offer(Address("told", "kid"), cancel)
    world.run()

    assert world.status("kid") == "waiting" and world.kernel.counts["stale"] == 1


def test_the_start_of_a_child_that_comes_twice_is_the_same_child():
    world = World()
    world.start("p", child("c", "kid", WAIT), ("wait", "w", None))
    world.run()
    start = world.entries("kid")[0].event
    assert isinstance(start, Started)
    world.kernel.offer(Offer(Address("told", "kid"), start))
    world.run()

    assert world.heard("p") == ["Started"], "a parent was told that its own child is in its way"


def test_a_child_has_entropy_of_its_own_that_follows_from_its_parent():
    world = World()
    world.start("p", child("c", "kid", WAIT), child("d", "kid2", WAIT))
    world.run()
    again = World()
    again.start("p", child("c", "kid", WAIT), child("d", "kid2", WAIT))
    again.run()

    seeds = [world.instance(key).seed for key in ("p", "kid", "kid2")]

    assert len(set(seeds)) == 3
    assert seeds == [again.instance(key).seed for key in ("p", "kid", "kid2")]


# ---- messages ----------------------------------------


def test_a_message_to_another_instance_is_delivered_in_the_same_batch_with_its_sender():
    world = World()
    world.start("b", *WAIT)
    world.run()
    world.start("a", ("send", "told", "b", [("note",)], "id-1"), *WAIT)

    batch = world.commit(world.build())

    assert len(batch.journal) == 2 and not batch.inbox_added
    event = world.entries("b")[-1].event
    assert isinstance(event, Message) and (event.sender, event.id) == ("told/a", "id-1")


def test_a_message_to_a_child_that_starts_in_the_same_decision_finds_it():
    world = World()
    world.start("p", ("send", "told", "kid", [("note",)]), child("c", "kid", WAIT))
    world.run()

    assert world.heard("kid") == ["Started", "Message m"]


def test_a_message_to_nobody_is_counted():
    world = World()
    world.start("a", ("send", "told", "nobody", [("note",)]), *WAIT)
    world.run()

    assert world.kernel.counts["refused"] == 1 and not world.inbox


def test_a_message_to_oneself_comes_after_what_was_there_before():
    world = World()
    world.start("a", ("send", "told", "a", [("note",)]), *WAIT)
    world.tell("a", ("note",), name="first")
    world.run()

    assert world.heard("a") == ["Started", "Message first", "Message m"]


# ---- facts ----------------------------------------


def test_a_fact_goes_to_its_subscribers_in_the_order_of_the_subscriptions():
    subscribers = [
        Told("second", subscriptions=(Subscription("paid", "order.id"),)),
        Told("first", subscriptions=(Subscription("paid", "order.id"), Subscription("paid", "other"))),
    ]
    world = World(Told(), *subscribers)
    for workflow, key in (("first", "o1"), ("first", "o2"), ("second", "o1")):
        world.start(key, ("wait", "w", None), workflow=workflow)
    world.run()
    world.start("a", ("announce", "paid", {"order": {"id": "o1"}, "other": "o2"}), *WAIT)

    batch = world.build()

    order = [(world.kernel.instances()[row.instance].address.workflow, row.instance) for row in batch.journal]
    assert [name for name, _ in order] == ["told", "second", "first", "first"]
    assert order[2][1] == world.id("o1", "first") and order[3][1] == world.id("o2", "first")


def test_an_unrouted_fact_is_recorded_and_counted():
    world = World(Told(subscriptions=(Subscription("paid", "id"),)))
    world.start("a", ("announce", "unheard", 1), ("announce", "paid", {"id": [7]}), ("announce", "paid", 3), *WAIT)
    world.run()

    assert world.kernel.counts["unrouted"] == 3
    assert [fact.name for fact in world.entries("a")[0].decision.announce] == ["unheard", "paid", "paid"]


def test_a_fact_whose_body_cannot_be_read_is_for_nobody():
    class Odd(Told):
        def machine(self, address, snapshot):
            machine = super().machine(address, snapshot)
            machine.deliver = lambda event, moment: Decision(  # type: ignore[method-assign]
                announce=(Fact("paid", b"\xff"),)
            )
            return machine

    world = World(Odd(subscriptions=(Subscription("paid", "id"),)), checked=False)
    world.start("a")
    world.run()

    assert world.kernel.counts["unrouted"] == 1 and world.status("a") == "waiting"


def test_a_family_can_wait_for_slots():
    world = World(gate=Executors({"inline": 1}))
    world.start(
        "p",
        *[child(f"c#{n}", f"kid{n}", [("call", "k"), ("then", "k", [("complete", 1)])]) for n in range(4)],
    )
    world.run()
    for n in range(4):
        world.answer(f"kid{n}", "k")
        world.run()

    assert world.heard("p") == ["Started"] + ["ReceiptArrived ok"] * 4
    assert [call.split()[0] for call in world.calls()] == [f"kid{n}" for n in range(4)]
