"""Workflows by name and version: which one is the newest, and which one an instance runs on."""

import random

import pytest

from perdure.codec import encode
from perdure.errors import CallerError
from perdure.kernel.batch import WorkflowRow
from perdure.kernel.events import Address, Message, Started
from perdure.kernel.mailbox import Accepted, Refused
from perdure.kernel.policy import Policy
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


# ---- older code ----------------------------------------


def test_an_instance_runs_on_its_version_or_on_the_newest_and_never_on_an_older_one():
    workflows = Workflows([WorkflowRow("a", version, b"") for version in ("2", "10")])

    found = {version: workflows.of("a", version) for version in ("", "1", "2", "9", "10", "11")}

    assert {version: row and row.version for version, row in found.items()} == {
        "": "10",
        "1": "10",
        "2": "2",
        "9": "10",
        "10": "10",
        "11": None,
    }


def test_an_engine_with_older_code_leaves_an_instance_alone():
    world = World(Told(version="2"))
    world.start("a", ("wait", "w", 2_000), ("call", "c"))
    world.run()
    row = world.inbox[b"row"] = inbox_row(b"row", Address("told", "a"), Message("m", encode([])), 1_500)

    world.workflows = (Told(version="1"),)
    world.now = 3_000
    told = world.restart().tell("a", ("note",))
    world.fire().run()

    assert len(world.journal) == 1 and list(world.inbox.values()) == [row]
    refused = world.answers[told]
    assert isinstance(refused, Refused) and "register that version, or a newer one" in refused.reason

    world.workflows = (Told(version="3"),)
    world.restart().fire().run()

    assert world.heard("a") == ["Started", "Message m", "ReceiptArrived timeout"]
    assert not world.inbox


def test_an_acknowledged_start_of_a_newer_version_waits_for_an_engine_that_has_it():
    world = World(Told(version="1"))
    start = Started("told", "a", encode([WAIT]), b"seed", "2")
    world.inbox[b"row"] = inbox_row(b"row", Address("told", "a"), start, 1)

    world.restart().run()
    assert not world.journal and world.inbox

    world.workflows = (Told(version="2"),)
    world.restart().run()
    assert world.instance("a").definition == "2" and not world.inbox


def test_an_instance_of_an_exact_workflow_waits_for_its_version_and_runs_on_no_newer_one():
    exact = Policy(exact=True)
    world = World(Told(version="2", policy=exact))
    world.start("a", WAIT)
    world.run()
    row = world.inbox[b"row"] = inbox_row(b"row", Address("told", "a"), Message("m", encode([])), 1_500)

    world.workflows = (Told(version="3", policy=exact),)
    world.restart().run()
    assert len(world.journal) == 1 and list(world.inbox.values()) == [row]
    assert world.kernel.left == {b"row": ("told", "2")}, "this version is asked for"

    world.workflows = (Told(version="2", policy=exact), Told(version="3", policy=exact))
    world.restart().run()
    assert world.heard("a") == ["Started", "Message m"] and not world.inbox
    assert world.instance("a").definition == "2"


def test_the_newest_version_is_active_unless_another_one_was_activated():
    workflows = Workflows([WorkflowRow("a", version, b"") for version in ("2", "10")])

    def active() -> str:
        found = workflows.active("a")
        return "" if found is None else found.version

    assert active() == "10"
    workflows.activate("a", "2")
    assert active() == "2" and Workflows(workflows).actives == {"a": "2"}
    workflows.replace(WorkflowRow("a", "11", b""))
    assert active() == "2"


def diverging(version: str) -> Told:
    told = Told(version=version)
    told.renamed["x"] = "y"
    return told


def test_what_a_divergence_left_stuck_is_retried_once_by_each_other_version():
    world = World(Told(version="1"), checked=False)
    world.start("a", ("timer", "x", 9_000))
    world.run()
    world.workflows = (diverging("2"),)
    world.restart().tell("a", ("note",))
    world.run()
    assert world.status("a") == "stuck"

    world.restart().run()
    assert world.status("a") == "stuck" and len(world.journal) == 2, "the same code would diverge again"

    world.workflows = (diverging("3"),)
    world.restart().run()
    world.restart().run()
    assert world.status("a") == "stuck" and len(world.journal) == 3

    world.workflows = (Told(version="4"),)
    world.restart().run()
    assert world.status("a") == "waiting"
    assert world.heard("a") == ["Started", "Message m"]


def test_a_machine_that_raised_is_not_retried_by_another_version():
    first = Told(version="1")
    first.broken.add("it")
    world = World(first, checked=False)
    world.start("a", WAIT)
    world.tell("a", ("break", "it"))
    world.run()

    world.workflows = (Told(version="2"),)
    world.restart().run()

    assert world.status("a") == "stuck" and len(world.journal) == 2
