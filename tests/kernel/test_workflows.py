"""Workflows by name and version: which one is the newest, and which one an instance runs on."""

import random

import pytest

from perdure.codec import encode
from perdure.errors import CallerError
from perdure.kernel.batch import WorkflowRow
from perdure.kernel.events import Address, Message, Started
from perdure.kernel.mailbox import Accepted, Refused
from perdure.kernel.routing import Subscription
from perdure.kernel.rows import inbox_row
from perdure.kernel.workflows import Workflows, in_order
from tests.kernel.machines import Told, World

WAIT = ("wait", "w", None)


def test_versions_are_in_their_natural_order():
    versions = ["", "0", "00", "01", "1", "1.0", "1.0.1", "1.9", "1.10", "2", "10", "2026-02-01", "a", "v2", "v10"]
    mixed = random.Random(7).sample(versions, len(versions))

    assert sorted(mixed, key=in_order) == versions


def test_a_number_of_any_length_counts_as_a_number():
    assert in_order("9" * 5000) < in_order("1" + "0" * 5000)


def test_the_newest_is_found_and_every_other_by_its_version():
    rows = [WorkflowRow(name, version, b"") for name, version in [("a", "2"), ("a", "10"), ("a", "9"), ("b", "1")]]

    workflows = Workflows(rows)

    assert workflows.newest("a") == rows[1] and workflows.newest("c") is None
    assert workflows.of("a", "9") == rows[2]
    assert workflows.of("a", "3") == workflows.of("a", "") == rows[1], "what is not registered runs on the newest"
    assert workflows.of("c", "1") is None
    assert workflows.versions("a") == ["2", "9", "10"] and workflows.names() == ["a", "b"]
    assert len(workflows) == 4 and list(workflows) == rows


def test_the_same_definition_may_come_twice_and_another_of_its_version_may_not():
    told = Told()
    assert len(Workflows([told, told])) == 1

    with pytest.raises(
        CallerError, match=r"named 'told' and have version '1': give the newer one another version=\.\.\."
    ):
        Workflows([told, Told()])


def start_of(world: World, key: str, version: str, reuse: str = "") -> object:
    start = Started("told", key, encode([WAIT]), b"seed", version, reuse=reuse)
    return world.offer(Address("told", key), start)


def test_a_start_of_a_version_that_is_not_registered_is_refused_and_nothing_is_recorded():
    world = World(Told(version="2"), Told(version="10"))

    ticket = start_of(world, "a", "1")
    world.run()

    assert world.answers[ticket] == Refused(
        "unknown-version", "workflow 'told' has no version '1' here; registered: '2', '10'"
    )
    assert not world.journal and not world.kernel.instances()


def test_the_same_start_again_is_accepted_although_its_version_is_gone():
    world = World(Told(version="1"))
    start_of(world, "a", "1")
    world.run()
    world.workflows = (Told(version="2"),)
    world.restart()

    again, anew = start_of(world, "a", "1"), start_of(world, "b", "1")
    world.run()

    answer = world.answers[again]
    assert isinstance(answer, Accepted) and not answer.fresh
    assert isinstance(world.answers[anew], Refused)


def test_a_new_generation_needs_a_version_that_is_registered_too():
    world = World(Told(version="2"))
    world.start("a", ("complete", 1))
    world.run()

    refused, taken = start_of(world, "a", "1", "always"), start_of(world, "a", "2", "always")
    world.run()

    assert isinstance(world.answers[refused], Refused) and isinstance(world.answers[taken], Accepted)
    assert world.instance("a").generation == 2


def test_a_start_that_was_acknowledged_before_its_version_went_gets_the_newest():
    world = World(Told(version="2"), Told(version="3"))
    start = Started("told", "a", encode([WAIT]), b"seed", "1")
    row = inbox_row(b"row", Address("told", "a"), start, 1)
    world.inbox[row.id] = row

    world.restart().run()

    assert world.instance("a").definition == "3" and not world.inbox


def test_a_fact_is_heard_once_however_many_versions_subscribe():
    subscriptions = (Subscription("fact", "to"),)
    world = World(Told(version="1", subscriptions=subscriptions), Told(version="2", subscriptions=subscriptions))
    world.start("a", WAIT)
    world.run()
    world.start("b", ("announce", "fact", {"to": "a"}))
    world.run()

    assert [type(entry.event) for entry in world.entries("a")] == [Started, Message]
