"""What is in memory: loaded when wanted, dropped when idle, never ahead of or behind the journal."""

from perdure.codec import encode
from perdure.kernel.batch import Batch
from perdure.kernel.events import Address, CancelAsked, Message, ReceiptArrived, Ref
from perdure.kernel.mailbox import Accepted, Refused, Stale
from perdure.kernel.receipt import DONE
from tests.kernel.machines import World

WAIT = ("wait", "w", None)
A = Address("told", "a")


def test_an_instance_that_is_not_in_memory_is_wanted_once():
    world = World()
    world.tell("a", ("note",))
    world.tell("a", ("note",))

    assert list(world.kernel.cache.wanted) == [A]


def test_an_evicted_instance_comes_back_with_the_next_event():
    world = World()
    world.start("a", ("call", "x"), WAIT)
    world.run()
    before = world.instance("a").state()

    assert world.kernel.cache.evict(0, world.kernel.seq, Batch()) == 1
    assert not world.kernel.instances() and world.workflows[0].disposed == 1
    world.answer("a", "x")
    world.run()

    assert world.heard("a") == ["Started", "ReceiptArrived ok"]
    assert before["version"] == 1 and world.instance("a").version == 2


def test_an_instance_with_undurable_entries_is_not_evicted():
    world = World()
    world.start("a", WAIT)
    world.run()
    durable = world.kernel.seq
    world.tell("a", ("note",))
    batch = world.build()

    assert world.kernel.cache.evict(0, durable, Batch()) == 0
    world.commit(batch)
    assert world.kernel.cache.evict(0, world.kernel.seq, Batch()) == 1


def test_a_busy_instance_is_not_evicted():
    world = World()
    world.start("a", WAIT)
    world.run()
    world.tell("a", ("note",))

    assert world.kernel.cache.evict(0, world.kernel.seq, Batch()) == 0


def test_an_instance_that_keeps_events_on_its_shelf_is_not_evicted():
    world = World()
    world.start("a", ("stuck", "here"))
    world.tell("a", ("note",))
    world.run()

    assert world.kernel.cache.evict(0, world.kernel.seq, Batch()) == 0


def test_the_least_recently_used_go_first_and_the_cache_keeps_its_size():
    world = World()
    for key in "abcd":
        world.start(key, WAIT)
    world.run()
    world.offer(world.id("a"), Message("m", encode([])))
    world.run()

    world.kernel.cache.evict(2, world.kernel.seq, Batch())

    assert {instance.address.key for instance in world.kernel.instances().values()} == {"d", "a"}


def test_ended_and_spoiled_instances_are_let_go_when_they_are_durable():
    world = World()
    world.start("a", ("complete", 1))
    world.start("b", ("raise", "no"))
    batch = world.build()
    assert len(world.kernel.instances()) == 2

    world.commit(batch)

    assert not world.kernel.instances() and not world.kernel.cache._by_address


def test_offers_that_wait_in_the_mailbox_of_an_ended_instance_are_answered():
    world = World()
    world.start("a", WAIT)
    world.run()
    world.tell("a", ("complete", 1))
    committing = world.build()
    late = [world.tell("a", ("note",)), world.cancel("a"), world.offer(world.id("a"), ReceiptArrived(b"x", DONE))]
    world.commit(committing)
    world.run()

    refused, cancelled, stale = (world.answers[ticket] for ticket in late)
    assert isinstance(refused, Refused) and refused.code == "ended"
    assert isinstance(cancelled, Accepted) and not cancelled.fresh
    assert stale == Stale()


def test_the_next_batch_is_built_while_one_is_being_committed():
    world = World()
    world.start("a", ("call", "x"), WAIT)
    first = world.build()
    world.tell("a", ("withdraw", "x"))
    second = world.build()
    world.commit(first)
    assert world.calls() == ["a x 1"]

    world.commit(second)

    assert world.stopped == [world.intent("a", "x")]


# ---- names and ids ----------------------------------------


def three_generations() -> World:
    world = World()
    for n in range(3):
        world.start("a", WAIT, ("publish", "n", n), reuse="always")
        world.run()
        if n < 2:
            world.tell("a", ("complete", n))
            world.run()
    return world


def test_a_key_is_used_again_as_the_reuse_says():
    world = World()
    world.start("done", ("complete", 1))
    world.start("bad", ("end", "failed"))
    world.start("alive", WAIT)
    world.run()
    tickets = {
        (key, reuse): world.start(key, ("note",), reuse=reuse)
        for key in ("done", "bad", "alive")
        for reuse in ("", "failed")
    }
    always = {key: world.start(key, ("note",), reuse="always") for key in ("done", "alive")}
    world.run()

    fresh = {name for name, ticket in tickets.items() if isinstance(world.answers[ticket], Accepted)}
    assert fresh == {("bad", "failed")}
    assert isinstance(world.answers[always["done"]], Accepted)
    assert isinstance(world.answers[always["alive"]], Refused)
    assert (world.instance("done").generation, world.instance("bad").generation) == (2, 2)


def test_a_new_generation_starts_clean():
    world = three_generations()

    generations = [(head.id, head.generation, head.status) for head in world.heads.values()]

    assert [(number, status) for _, number, status in generations] == [
        (1, "completed"),
        (2, "completed"),
        (3, "waiting"),
    ]
    assert len({id for id, _, _ in generations}) == 3
    assert world.heard("a") == ["Started"]


def test_a_name_means_the_last_generation_though_an_earlier_one_is_in_memory():
    world = three_generations()
    world.kernel.cache.evict(0, world.kernel.seq, Batch())
    first = min(world.heads)
    stale = world.offer(first, ReceiptArrived(b"late", DONE))
    world.run()
    assert world.answers[stale] == Stale() and first in world.kernel.instances()

    ticket = world.tell("a", ("note",))
    world.run()

    assert isinstance(world.answers[ticket], Accepted) and world.heard("a") == ["Started", "Message m"]


def test_a_name_and_an_id_of_one_ended_instance_are_one_instance():
    world = World()
    world.start("a", ("complete", 1))
    world.run()
    id = world.id("a")
    world.cancel(id)
    world.run()
    world.start("a", WAIT, reuse="always")
    world.cancel(id)
    world.run()

    assert world.instance("a").generation == 2 and world.status("a") == "waiting"
    assert len(world.heads) == 2


def test_what_waits_behind_the_start_of_a_new_generation_is_delivered_to_it():
    world = World()
    world.start("a", ("complete", 1))
    world.run()
    world.start("a", WAIT, reuse="always")
    world.tell("a", ("note",))
    world.run()

    assert world.heard("a") == ["Started", "Message m"]


def test_what_is_meant_for_an_earlier_generation_does_not_reach_the_next():
    world = World()
    world.start("a", ("complete", 1))
    world.run()
    id = world.id("a")
    world.start("a", WAIT, reuse="always")
    ticket = world.offer(id, CancelAsked("the first one"))
    world.run()

    assert world.status("a") == "waiting" and world.answers[ticket] == Accepted(id, A, fresh=False)


def test_a_new_generation_may_start_while_the_end_of_the_last_is_being_committed():
    world = World()
    world.start("a", WAIT)
    world.run()
    world.tell("a", ("complete", 1))
    committing = world.build()
    world.start("a", WAIT, reuse="always")
    world.tell("a", ("note",))
    building = world.build()
    world.commit(committing)
    world.commit(building)
    world.run()

    assert world.instance("a").generation == 2 and world.heard("a") == ["Started", "Message m"]


def test_two_starts_behind_a_refused_message_make_one_instance(monkeypatch):
    monkeypatch.setattr("perdure.kernel.kernel.ENTRIES_MAX", 1)
    world = World()
    for key in ("a", "b"):
        world.tell(key, ("note",))
        world.start(key, WAIT)
    world.load()
    batch = world.batch()
    world.kernel.advance(batch, world.now)  # both messages are refused, one instance is started, one start waits
    again = [world.start(key, WAIT) for key in ("a", "b")]
    monkeypatch.undo()
    world.build(batch)
    world.commit(batch)
    world.run()

    assert len(world.heads) == 2
    assert [answer.fresh for t in again if isinstance(answer := world.answers[t], Accepted)] == [False, False]


def test_events_for_a_name_and_for_an_id_keep_their_order_while_the_instance_is_away():
    world = World()
    world.start("a", WAIT)
    world.run()
    id = world.id("a")
    world.kernel.cache.evict(0, world.kernel.seq, Batch())
    refs: list[Ref] = [A, id, A, id, id, A]
    for n, to in enumerate(refs):
        world.offer(to, Message(f"m{n}", encode([])))
    world.run()

    assert world.heard("a") == ["Started"] + [f"Message m{n}" for n in range(6)]


def test_events_keep_their_order_when_the_answers_of_the_store_come_one_by_one():
    world = World()
    world.start("a", WAIT)
    world.run()
    id = world.id("a")
    world.kernel.cache.evict(0, world.kernel.seq, Batch())
    refs: list[Ref] = [A, id, A]
    for n, to in enumerate(refs):
        world.offer(to, Message(f"m{n}", encode([])))
    world.kernel.adopt(id, world.record(id))
    world.offer(A, Message("m3", encode([])))
    world.commit(world.build())
    world.run()

    assert world.heard("a") == ["Started"] + [f"Message m{n}" for n in range(4)]


def test_a_late_answer_of_the_store_does_not_replace_what_is_in_memory():
    world = World()
    world.start("a", WAIT)
    world.run()
    id, old = world.id("a"), world.record(world.id("a"))
    world.kernel.cache.evict(0, world.kernel.seq, Batch())
    world.offer(id, Message("m1", encode([])))
    world.offer(A, Message("m2", encode([])))
    world.kernel.adopt(id, old)
    batch = world.batch()
    world.kernel.advance(batch, world.now)
    world.commit(batch)
    world.kernel.adopt(A, old)
    world.offer(A, Message("m3", encode([])))
    world.run()

    assert world.heard("a") == ["Started", "Message m1", "Message m2", "Message m3"]


def test_the_runtime_can_tell_that_an_answer_of_the_store_is_older_than_what_left_memory():
    world = World()
    world.start("a", WAIT)
    world.run()
    asked = world.kernel.cache.forgotten_seq
    world.tell("a", ("note",))
    world.run()
    world.kernel.cache.evict(0, world.kernel.seq, Batch())

    assert world.kernel.cache.forgotten_seq > asked


# ---- leaks ----------------------------------------


def test_memory_is_empty_again_when_nobody_is_left():
    world = World()
    for n in range(50):
        world.tell(f"nobody{n}", ("note",))
        world.start(f"odd{n}", workflow="no such")
        world.offer(1000 + n, ReceiptArrived(b"x", DONE))
        world.start(f"short{n}", ("call", "x"), ("then", "x", [("complete", 1)]))
    world.run()
    for n in range(50):
        world.answer(f"short{n}", "x")
        world.cancel(f"short{n}")
    world.run()
    kernel = world.kernel
    kernel.cache.evict(0, kernel.seq, Batch())

    leftovers = (
        kernel.cache._by_id,
        kernel.cache._by_address,
        kernel.cache._absent,
        kernel._ready,
        kernel._caused,
        kernel.cache.wanted,
    )
    assert not any(leftovers)
    assert not kernel.slots.running_ids and not kernel.slots.held_ids and not kernel.slots.orphans
    assert not any(kernel.slots.running.values()) and len(kernel.counts) < 10


def test_everybody_whose_offer_is_not_recorded_can_be_told():
    world = World()
    world.start("a", WAIT)
    world.run()
    tickets = {world.tell("a", ("note",)), world.tell("b", ("note",)), world.offer(99, ReceiptArrived(b"x", DONE))}
    world.kernel.adopt(99, None)

    assert {offer.ticket for offer in world.kernel.undelivered()} == tickets


def test_a_kernel_that_is_dropped_lets_go_of_its_machines():
    world = World()
    world.start("a", WAIT)
    world.run()

    world.kernel.cache.dispose()

    assert world.workflows[0].disposed == 1


def test_an_offer_is_acknowledged_only_once_though_it_is_shelved():
    world = World()
    world.start("a", ("stuck", "here"), ("then", "settle", [WAIT]))
    world.run()
    ticket = world.tell("a", ("note",))
    world.run()
    assert isinstance(world.answers[ticket], Accepted)

    world.settle("a", "here")
    world.run()  # the world refuses a second answer

    assert world.heard("a")[-1] == "Message m"
    assert not list(world.kernel.undelivered())
