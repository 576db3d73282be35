"""What a caller says beside an event: who asks, by which id, and under which condition."""

import msgspec
import pytest

from perdure.codec import encode
from perdure.errors import BadCall
from perdure.kernel.asked import Actor, Asked, actor_of
from perdure.kernel.events import Address, CancelAsked, Event, Message, Retried, Started
from perdure.kernel.mailbox import Accepted, Refused, Stale
from tests.kernel.machines import World

ANN = Actor("ann", roles=["manager"])


def waiting() -> World:
    world = World()
    world.start("a", ("wait", "w", None))
    return world.run()


def test_the_actor_is_recorded_with_the_event():
    world = waiting()
    world.offer(Address("told", "a"), Message("m", encode([]), asked=Asked(by=ANN, reason="it was late")))

    event = world.run().entries("a")[-1].event

    assert isinstance(event, Message)
    assert event.asked == Asked(by=Actor("ann", ("manager",)), reason="it was late")


def test_an_id_that_was_seen_is_dropped_for_every_event_from_outside():
    world = waiting()
    world.offer(Address("told", "a"), CancelAsked("enough", asked=Asked(id="click-1")))
    world.tell("a", ("note",))
    world.run()
    again = world.offer(Address("told", "a"), CancelAsked("enough", asked=Asked(id="click-1")))
    other = world.offer(Address("told", "a"), Retried(asked=Asked(id="click-1")))

    world.run()

    assert world.answers[again] == Accepted(world.id("a"), Address("told", "a"), fresh=False)
    assert isinstance(world.answers[other], Refused)


def test_an_id_is_remembered_after_a_restart():
    world = World()
    world.start("a", ("then", "cancel", [["note"]]), ("wait", "w", None))
    world.run()
    world.offer(Address("told", "a"), CancelAsked("enough", asked=Asked(id="click-1")))
    world.run().restart()

    again = world.offer(Address("told", "a"), CancelAsked("enough", asked=Asked(id="click-1")))
    world.run()

    assert world.answers[again] == Accepted(world.id("a"), Address("told", "a"), fresh=False)
    assert world.heard("a") == ["Started", "CancelAsked enough"]


def test_an_event_for_another_last_entry_is_refused_before_anything_happens():
    world = waiting()
    world.tell("a", ("note",))
    world.run()
    before = world.folded(world.id("a")).state()
    late = world.offer(Address("told", "a"), Message("m", encode([]), asked=Asked(if_entry=1)))
    world.run()

    refused = world.answers[late]
    assert isinstance(refused, Refused) and refused.code == "version-conflict"
    assert refused.reason == "the last entry of told/a is 2, not 1"
    assert world.folded(world.id("a")).state() == before


def test_an_event_for_the_last_entry_is_taken():
    world = waiting()
    ticket = world.offer(Address("told", "a"), Message("m", encode([]), asked=Asked(if_entry=1)))

    assert isinstance(world.run().answers[ticket], Accepted)


def test_a_repeated_id_gets_the_first_answer_though_the_instance_has_moved():
    world = waiting()
    event = Message("m", encode([]), "m1", asked=Asked(if_entry=1))
    first = world.offer(Address("told", "a"), event)
    second = world.offer(Address("told", "a"), event)
    world.run()

    assert isinstance(world.answers[first], Accepted)
    assert world.answers[second] == Accepted(world.id("a"), Address("told", "a"), fresh=False)


def test_a_message_that_answers_a_wait_is_stale_when_that_is_not_open():
    world = waiting()
    wait = world.intent("a", "w")
    bound = world.offer(Address("told", "a"), Message("m", encode([["withdraw", "w"]]), intent=wait))
    late = world.offer(Address("told", "a"), Message("m", encode([]), intent=wait))
    world.run()

    assert isinstance(world.answers[bound], Accepted)
    assert isinstance(world.answers[late], Stale)


def test_events_of_older_journals_are_read():
    decoder = msgspec.msgpack.Decoder(Event)
    message = msgspec.msgpack.encode(["m", "go", b"body", "id", "", ""])
    started = msgspec.msgpack.encode(["s", "w", "k", b"", b"seed"])

    assert decoder.decode(message) == Message("go", b"body", "id")
    assert decoder.decode(started) == Started("w", "k", b"", b"seed")


def test_an_actor_by_its_id_alone():
    assert actor_of("ann") == Actor("ann")
    assert actor_of(ANN) is ANN


@pytest.mark.parametrize("bad", ["", 7, None, "x" * 5000])
def test_an_actor_without_a_good_id_is_refused(bad: object):
    with pytest.raises(BadCall, match="an actor has an id"):
        Actor(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("roles", ["manager", [7], [""], 7])
def test_roles_that_are_no_texts_are_refused(roles: object):
    with pytest.raises(BadCall, match="role"):
        Actor("ann", roles=roles)  # type: ignore[arg-type]


def test_by_takes_an_actor_or_a_text():
    with pytest.raises(BadCall, match="by= takes"):
        actor_of(7)  # type: ignore[arg-type]
