"""Offer and advance: what is recorded, what is answered without a record, and in which order."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import encode
from perdure.kernel.events import Address, Event, Message, Parked, ReceiptArrived, Redelivered, Released
from perdure.kernel.identity import Identity
from perdure.kernel.kernel import ENTRIES_MAX
from perdure.kernel.mailbox import Accepted, Refused, Stale
from perdure.kernel.moment import Moment
from perdure.kernel.receipt import DONE, Receipt
from perdure.kernel.replay import rebuild
from tests.kernel.machines import Told, ToldMachine, World


def test_a_message_with_an_id_that_was_seen_is_dropped_and_acknowledged():
    world = World()
    world.start("a", ("wait", "w", None))
    world.tell("a", ("note",), id="m1")
    again = world.tell("a", ("note",), id="m1")
    other = world.tell("a", ("call", "x"), id="m1")

    world.run()

    assert world.heard("a") == ["Started", "Message m"]
    assert world.answers[again] == Accepted(world.id("a"), Address("told", "a"), fresh=False)
    refused = world.answers[other]
    assert isinstance(refused, Refused) and "an id names one message" in refused.reason
    assert world.kernel.counts["duplicate"] == 1


def test_a_seen_id_is_remembered_after_a_restart():
    world = World()
    world.start("a", ("wait", "w", None))
    world.tell("a", ("note",), id="m1")
    world.run().restart()

    world.tell("a", ("note",), id="m1")
    world.run()

    assert world.heard("a") == ["Started", "Message m"]


def test_messages_without_an_id_are_never_dropped():
    world = World()
    world.start("a", ("wait", "w", None))
    world.tell("a", ("note",))
    world.tell("a", ("note",))

    assert world.run().heard("a") == ["Started", "Message m", "Message m"]


def test_a_receipt_for_an_intent_that_is_not_open_is_stale():
    world = World()
    world.start("a", ("call", "x"), ("wait", "w", None))
    world.run()
    before = world.folded(world.id("a")).state()
    ticket = world.offer(world.id("a"), ReceiptArrived(b"no such intent..", DONE))

    world.run()

    assert world.answers[ticket] == Stale()
    assert world.kernel.counts["stale"] == 1
    assert world.folded(world.id("a")).state() == before


def test_the_second_receipt_of_an_intent_is_stale():
    world = World()
    world.start("a", ("call", "x"), ("wait", "w", None))
    world.run()
    first = world.answer("a", "x")
    second = world.answer("a", "x", "error")

    world.run()

    assert isinstance(world.answers[first], Accepted)
    assert world.answers[second] == Stale()
    assert world.heard("a") == ["Started", "ReceiptArrived ok"]


def test_a_receipt_of_an_earlier_attempt_is_stale():
    world = World()
    world.start("a", ("call", "x"), ("then", "x", [("call", "x", {"attempt": 2})]))
    world.run()
    world.answer("a", "x", "error")
    world.run()

    late = world.answer("a", "x")
    world.run()

    assert world.answers[late] == Stale()
    assert world.open("a") == ["x"]


def test_a_receipt_for_another_generation_is_stale():
    world = World()
    world.start("a", ("call", "x"))
    world.run()
    old = world.intent("a", "x")
    world.tell("a", ("end", "failed"))
    world.start("a", ("call", "x"), reuse="always")
    world.run()

    ticket = world.offer(world.id("a"), ReceiptArrived(old, DONE))
    world.run()

    assert world.answers[ticket] == Stale()
    assert world.intent("a", "x") != old


def test_receipts_for_nobody_and_kernel_events_for_nobody_are_stale():
    world = World()
    events: list[Event] = [ReceiptArrived(b"i", DONE), Redelivered(b"i"), Parked(b"i"), Released(b"i")]
    tickets = [world.offer(99, event) for event in events]

    world.run()

    assert [world.answers[ticket] for ticket in tickets] == [Stale()] * 4
    assert not world.journal


def test_an_unknown_instance_an_unknown_workflow_and_an_ended_one_refuse():
    world = World()
    world.start("a", ("complete", 1))
    tickets = [
        world.tell("nobody", ("note",)),
        world.start("b", workflow="no such"),
        world.tell("a", ("note",)),
        world.retry("a"),
    ]

    world.run()

    answers = [world.answers[ticket] for ticket in tickets]
    assert [answer.code for answer in answers if isinstance(answer, Refused)] == [
        "unknown-instance",
        "unknown-workflow",
        "ended",
        "not-stuck",
    ]
    assert len(world.journal) == 1


def test_the_same_key_and_input_is_the_same_instance():
    world = World()
    first = world.start("a", ("wait", "w", None))
    again = world.start("a", ("wait", "w", None))
    world.run()
    later = world.start("a", ("wait", "w", None))
    other = world.start("a", ("call", "x"))
    world.run()

    id = world.id("a")
    assert world.answers[first] == Accepted(id, Address("told", "a"))
    assert world.answers[again] == world.answers[later] == Accepted(id, Address("told", "a"), fresh=False)
    refused = world.answers[other]
    assert isinstance(refused, Refused) and refused.code == "key-in-use"
    assert world.heard("a") == ["Started"]


def test_the_reply_of_the_machine_reaches_the_sender():
    world = World()
    world.start("a", ("wait", "w", None))
    ticket = world.tell("a", ("reply", "not today"))
    world.run()

    answer = world.answers[ticket]

    assert isinstance(answer, Accepted) and answer.reply is not None and answer.reply.refused == "not today"


def test_nothing_is_answered_or_published_before_the_commit():
    world = World()
    world.start("a", ("call", "x"))

    batch = world.build()

    assert not world.answers and not world.started
    world.commit(batch)
    assert world.calls() == ["a x 1"]
    assert world.started[0].work == f"work of {world.started[0].intent.hex()}"


# ---- order ----------------------------------------


def test_an_instance_with_a_thousand_events_delays_a_peer_by_one_delivery():
    world = World(checked=False)
    for key in ("busy", "peer"):
        world.start(key, ("wait", "w", None))
    world.run()
    for _ in range(1000):
        world.tell("busy", ("note",))
    world.tell("peer", ("note",))

    batch = world.build()

    assert [row.instance for row in batch.journal[:3]] == [
        world.id("busy"),
        world.id("peer"),
        world.id("busy"),
    ]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=40))
def test_round_robin_is_fair_whatever_is_offered(offers):
    world = World(checked=False)
    for key in "abcd":
        world.start(key, ("wait", "w", None))
    world.run()
    names = {world.id(key): key for key in "abcd"}
    left = {key: 0 for key in "abcd"}
    for key, count in offers:
        for _ in range(count):
            world.tell(key, ("note",))
            left[key] += 1

    order = [names[row.instance] for row in world.build().journal]

    waited: dict[str, set[str]] = {key: set() for key in "abcd"}
    for key in order:
        left[key] -= 1
        waited[key].clear()
        for other in "abcd":
            if other != key and left[other]:
                assert key not in waited[other], f"{key} twice before {other}: {order}"
                waited[other].add(key)


def test_a_full_batch_ends_and_the_next_goes_on_where_it_ended():
    world = World(checked=False)
    for n in range(ENTRIES_MAX + 500):
        world.start(f"k{n}", ("wait", "w", None))
    world.load()
    first, second = world.batch(), world.batch()
    world.kernel.advance(first, 1)

    assert len(first.journal) == ENTRIES_MAX and world.kernel.ready
    world.kernel.advance(second, 1)

    assert len(second.journal) == 500 and not world.kernel.ready
    assert [row.seq for row in first.journal + second.journal] == list(range(1, ENTRIES_MAX + 501))


def test_a_batch_is_full_by_bytes_too():
    world = World(checked=False)
    for n in range(8):
        world.start(f"k{n}", ("publish", "p", "x" * 1024 * 1024), ("wait", "w", None))
    world.load()
    batch = world.batch()

    world.kernel.advance(batch, 1)

    assert len(batch.journal) < 8 and batch.size >= 4 * 1024 * 1024
    assert world.kernel.ready


def a_busy_day() -> World:
    world = World(Told(), Told("other"))
    world.start("a", ("child", "c", "other", "kid", [("call", "k")]), ("send", "told", "b", [("call", "s")]))
    world.start("b", ("call", "x"), ("timer", "t", 5_000))
    world.start("c", ("raise", "no"))
    world.run()
    world.now = 2_000
    world.answer("b", "x")
    world.tell("a", ("publish", "p", 1), ("announce", "f", {"k": "b"}))
    world.retry("c")
    world.run().restart()
    world.now = 6_000
    world.fire().run()
    world.cancel("a")
    return world.run()


def test_the_same_offers_make_the_same_bytes():
    one, other = a_busy_day(), a_busy_day()

    assert one.journal == other.journal
    assert one.heads == other.heads and one.work == other.work and one.inbox == other.inbox
    assert len(one.journal) > 12


# ---- time and entropy ----------------------------------------


def test_time_never_goes_back_when_the_clock_does():
    world = World()
    world.start("a", ("wait", "w", None))
    for now in (5_000, 2_000, 4_000, 7_000):
        world.run()
        world.now = now
        world.tell("a", ("note",))
    world.run()

    assert [row.at for row in world.journal] == [1_000, 5_000, 5_000, 5_000, 7_000]


def test_time_does_not_go_back_at_a_restart():
    world = World()
    world.start("a", ("wait", "w", None))
    world.now = 9_000
    world.run().restart()
    world.now = 1
    world.tell("a", ("note",))
    world.run()

    assert [row.at for row in world.journal] == [9_000, 9_000]


def test_entropy_differs_between_entries_and_is_equal_in_a_replay():
    first, second = Moment(1, b"seed", 1), Moment(1, b"seed", 2)

    assert first.entropy() != second.entropy()
    assert first.entropy() == Moment(99, b"seed", 1).entropy()
    assert first.entropy() != Moment(1, b"another", 1).entropy()
    assert len(first.entropy()) == 64


def test_a_machine_hears_the_recorded_time_and_entropy_again():
    world = World()
    world.start("a", ("wait", "w", None))
    for now in (3_000, 4_000):
        world.now = now
        world.tell("a", ("note",))
        world.run()
    live = world.kernel.instances()[world.id("a")].machine

    again = rebuild(world.folded(world.id("a")), world.workflows[0])

    assert isinstance(live, ToldMachine) and isinstance(again, ToldMachine)
    assert again.state["heard"] == live.state["heard"]
    assert [at for _, _, at, _ in again.state["heard"]] == [3_000, 3_000, 4_000]
    assert len({entropy for *_, entropy in again.state["heard"]}) == 3


def test_intents_and_idempotency_keys_differ_where_they_must():
    one = Identity(Address("w", "k"), 1)
    other = [Identity(Address("w", "k"), 2), Identity(Address("w", "l"), 1), Identity(Address("v", "k"), 1)]
    ids = [one.intent("a", 1), one.intent("a", 2), one.intent("b", 1)] + [i.intent("a", 1) for i in other]
    keys = [one.idempotency_key("a"), one.idempotency_key("b")] + [i.idempotency_key("a") for i in other]

    assert len(set(ids)) == len(ids)
    assert len(set(keys)) == len(keys)


# ---- ends ----------------------------------------


def test_a_cancel_is_recorded_once_and_is_never_overwritten_by_a_run_in_flight():
    world = World()
    world.start("a", ("call", "x"), ("then", "x", [("complete", 1)]))
    world.run()
    intent = world.intent("a", "x")
    first, second = world.cancel("a"), world.cancel("a")
    receipt = world.answer("a", "x")
    world.run()

    assert world.status("a") == "cancelled"
    assert isinstance(world.answers[first], Accepted)
    assert world.answers[second] == Accepted(world.id("a"), Address("told", "a"), fresh=False)
    assert world.answers[receipt] == Stale()
    assert [outcome.status for _, _, outcome in world.ended] == ["cancelled"]
    assert intent not in world.running


def test_an_instance_that_cleans_up_is_cancelled_once():
    world = World()
    world.start("a", ("call", "x"), ("then", "cancel", [("withdraw", "x"), ("call", "undo")]))
    world.run()
    world.cancel("a")
    world.run()
    again = world.cancel("a")
    world.run()

    assert world.status("a") == "running" and world.open("a") == ["undo"]
    assert world.stopped == [world.intent("a", "x")]
    assert world.answers[again] == Accepted(world.id("a"), Address("told", "a"), fresh=False)


def test_a_message_whose_body_is_old_news_changes_nothing_after_the_end():
    world = World()
    world.start("a", ("complete", 1))
    world.run()
    rows = list(world.journal)
    world.offer(world.id("a"), Message("m", encode([]), "late"))
    world.offer(world.id("a"), ReceiptArrived(b"x" * 16, Receipt("ok")))
    world.cancel("a")
    world.settle("a", "x")
    world.run()

    assert world.journal == rows
