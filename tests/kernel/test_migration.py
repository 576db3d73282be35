"""Migrations that a person asks for: one entry, after which another version goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from perdure.codec import encode
from perdure.kernel.asked import Asked
from perdure.kernel.decision import Decision
from perdure.kernel.events import Address, Event, Migrated, Started
from perdure.kernel.mailbox import Accepted, Refused
from perdure.kernel.moment import Moment
from perdure.kernel.policy import Policy
from perdure.kernel.rows import inbox_row
from perdure.kernel.status import Status
from tests.kernel.machines import Told, ToldMachine, World

WAIT = ("wait", "w", None)
EXACT = Policy(exact=True)
A = Address("told", "a")


class Heir(Told):
    """A version that takes instances over, unless it is broken. It calls their locations as it is told."""

    def locations(self) -> Sequence[str]:
        return ["w"]

    def take_over(
        self, address: str, machine: Any, renamed: Mapping[str, str], moment: Moment
    ) -> tuple[ToldMachine, Decision]:
        if "heir" in self.broken:
            raise RuntimeError("the heir is broken")
        made = ToldMachine(self, machine.snapshot())
        made.state["heard"].append(["took over", dict(renamed), moment.at, moment.entropy().hex()])
        return made, Decision(begin=made.snapshot() or b"")


def one(*orders: Any, version: str = "1", **more: Any) -> tuple[World, Heir]:
    """A world with an instance of one version, and a version that would take it over."""
    heir = Heir(version="2", policy=EXACT)
    world = World(Told(version="1", policy=EXACT), heir, **more)
    world.offer(A, Started("told", "a", encode(list(orders) or [WAIT]), b"seed", version))
    world.run()
    return world, heir


def asked(world: World, to: str = "2", **more: Any) -> Any:
    ticket = world.offer(A, Migrated(to, **more))
    world.run()
    return world.answers[ticket]


def heard(world: World) -> list[Any]:
    machine = world.instance("a").machine
    assert isinstance(machine, ToldMachine)
    return [each[0] for each in machine.state["heard"]]


@pytest.mark.parametrize("restarted", [False, True])
def test_the_machine_of_the_other_version_goes_on_live_and_rebuilt(restarted: bool):
    world, _ = one()
    world.tell("a", ("note",))
    world.run()

    answer = asked(world, renamed={"w": "v"}, asked=Asked("once", reason="better"))
    if restarted:
        world.restart()
    world.tell("a", ("call", "c"))
    world.run()

    assert isinstance(answer, Accepted) and answer.fresh
    assert heard(world) == ["Started", "Message", "took over", "Message"]
    assert (world.instance("a").definition, world.heads[world.id("a")].version) == ("2", "2")
    assert [type(entry.event).__name__ for entry in world.entries("a")] == ["Started", "Message", "Migrated", "Message"]
    assert sorted(intent.effect.location for intent in world.instance("a").open.values()) == ["c", "w"]


def test_the_same_request_again_and_one_that_is_done_write_nothing():
    world, _ = one()
    asked(world, asked=Asked("once"))
    number = len(world.journal)

    for again in (asked(world, asked=Asked("once")), asked(world)):
        assert isinstance(again, Accepted) and not again.fresh
    assert len(world.journal) == number


def test_a_migration_is_refused_that_has_no_heir_no_version_or_no_live_instance():
    world, _ = one(version="2")
    plain, unknown = asked(world, "1"), asked(world, "3")
    other = asked(world, "1", asked=Asked(if_entry=7))
    world.cancel("a")
    world.run()

    answers = [plain, unknown, other, asked(world, "1")]
    assert [each.code for each in answers] == ["refused", "unknown-version", "version-conflict", "ended"]
    assert plain.reason == "told is a workflow, which migrates to no version by name"


def test_an_instance_that_stopped_at_an_event_migrates_after_it():
    world, _ = one(("raise", "no"))

    answer = asked(world)

    assert isinstance(answer, Refused) and "stopped at an event" in answer.reason
    assert world.instance("a").definition == "1"


def test_a_migration_that_raises_is_kept_and_delivered_again_by_a_retry():
    world, heir = one()
    heir.broken.add("heir")
    asked(world, renamed={"w": "v"})
    assert world.instance("a").status is Status.STUCK

    heir.broken.clear()
    world.restart()
    world.retry("a")
    world.run()

    instance = world.instance("a")
    assert (instance.definition, instance.status, heard(world)) == ("2", Status.WAITING, ["Started", "took over"])


def test_a_migration_to_a_version_that_another_engine_has_waits_in_the_inbox():
    world, _ = one()
    row = inbox_row(b"row", A, Migrated("3"), 1)
    world.inbox[row.id] = row

    world.restart().run()

    assert world.kernel.left == {b"row": ("told", "3")} and row.id in world.inbox
    assert world.instance("a").definition == "1"


def test_a_migration_of_an_earlier_journal_is_read():
    old = msgspec.msgpack.encode(["g", "2", "hash"])

    assert msgspec.msgpack.decode(old, type=Event) == Migrated("2", "hash")
