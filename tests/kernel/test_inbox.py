"""What an entry caused is delivered in its batch or becomes an inbox row, and is consumed once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import encode
from perdure.kernel.batch import Batch
from perdure.kernel.events import Address, Message
from perdure.kernel.mailbox import Refused
from perdure.kernel.rows import inbox_row, offer_of
from tests.kernel.machines import Told, World

WAIT = ("wait", "w", None)


def one_entry(world: World) -> Batch:
    """A batch that is full after one entry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perdure.kernel.kernel.ENTRIES_MAX", 1)
        world.load()
        batch = world.batch()
        world.kernel.advance(batch, world.now)
        world.kernel.close(batch)
    return batch


def test_what_is_caused_and_not_delivered_is_written_beside_its_cause_and_consumed_once():
    world = World()
    world.start("p", ("child", "c", "told", "kid", [WAIT]), ("send", "told", "kid", [("note",)]))

    first = world.commit(one_entry(world))
    assert len(first.journal) == 1 and len(world.inbox) == 2

    second = world.commit(one_entry(world))
    assert len(second.inbox_removed) == 1 and len(world.inbox) == 1

    world.commit(one_entry(world))
    assert not world.inbox
    assert world.heard("kid") == ["Started", "Message m"]


def test_a_crash_between_cause_and_delivery_loses_nothing_and_doubles_nothing():
    world = World()
    world.start("p", ("child", "c", "told", "kid", [WAIT]), ("send", "told", "kid", [("note",)]))
    while True:
        batch = one_entry(world)
        if not batch:
            break
        world.commit(batch)
        world.restart()

    assert world.heard("kid") == ["Started", "Message m"] and not world.inbox


def test_a_crash_before_the_commit_undoes_cause_and_consequence():
    world = World()
    world.start("kid", WAIT)
    world.run()
    world.start("p", ("send", "told", "kid", [("note",)]), WAIT)
    world.build()  # and it is never committed
    world.restart().run()

    assert world.heard("kid") == ["Started"] and Address("told", "p") not in world.kernel.cache._by_address


@given(st.integers(1, 6), st.lists(st.booleans(), max_size=12))
def test_every_send_arrives_once_in_order_whatever_crashes(sends, crashes):
    world = World()
    world.start("to", WAIT)
    world.run()
    world.start("from", *[("send", "told", "to", [("publish", "p", n)]) for n in range(sends)], WAIT)
    plan = iter(crashes)
    while True:
        crash = next(plan, None)
        batch = one_entry(world)
        if not batch:
            break
        if crash and len(world.journal) > 1:
            world.restart()  # the batch is lost
        else:
            world.commit(batch)
            if crash is False:
                world.restart()
    published = [entry.decision.publish for entry in world.entries("to")[1:]]
    began = any(head.key == "from" for head in world.heads.values())

    # A start that was lost with its batch was never acknowledged: then nothing was sent either.
    assert published == [(("p", encode(n)),) for n in range(sends if began else 0)]
    assert not world.inbox


def test_a_message_that_came_through_the_inbox_is_removed_by_the_entry_that_records_it():
    world = World()
    world.start("a", WAIT)
    world.run()
    row = inbox_row(b"row", Address("told", "a"), Message("m", encode([])), 1)
    world.inbox[row.id] = row
    world.kernel.offer(offer_of(row))

    batch = world.commit(world.build())

    assert batch.inbox_removed == [b"row"] and len(batch.journal) == 1


def test_a_duplicate_and_a_refused_message_leave_the_inbox_too():
    world = World()
    world.start("a", WAIT)
    world.tell("a", ("note",), id="seen")
    world.run()
    for id, to, event in (
        (b"1", Address("told", "a"), Message("m", encode([]), "seen")),
        (b"2", Address("told", "nobody"), Message("m", encode([]))),
    ):
        row = inbox_row(id, to, event, 1)
        world.inbox[id] = row
        world.kernel.offer(offer_of(row))

    batch = world.commit(world.build())

    assert not world.inbox and not batch.journal and batch.writes


def test_the_ids_of_kept_events_differ_between_lives():
    world = World()
    world.start("a", ("raise", "no"))
    world.run()
    for _ in range(3):
        world.tell("a", ("note",))
        world.run().restart().run()

    assert len(world.inbox) == 3


def test_what_is_kept_and_delivered_in_one_batch_leaves_no_row():
    world = World()
    world.start("a", ("stuck", "here"), ("then", "settle", [WAIT]))
    world.tell("a", ("note",))
    world.settle("a", "here")

    batch = world.commit(world.build())

    assert not batch.inbox_added and not batch.inbox_removed
    assert world.heard("a") == ["Started", "Settled", "Message m"]


def test_an_engine_without_the_workflow_leaves_the_inbox_alone():
    world = World(Told(), Told("other"))
    world.start("kid", WAIT, workflow="other")
    world.start("p", WAIT)
    world.run()
    all_workflows, world.workflows = world.workflows, (world.workflows[0],)
    row = inbox_row(b"row", Address("other", "kid"), Message("m", encode([])), 1)
    world.inbox[row.id] = row
    world.restart()
    ticket = world.offer(Address("other", "kid"), Message("m", encode([])))
    world.tell("p", ("send", "other", "kid", [("note",)]))
    world.run()
    answer = world.answers[ticket]
    assert isinstance(answer, Refused) and answer.code == "unknown-workflow"
    assert len(world.inbox) == 2, "what was posted and what was sent waits for an engine that has the workflow"

    world.workflows = all_workflows
    world.restart().run()

    assert world.heard("kid", "other") == ["Started", "Message m", "Message m"] and not world.inbox
