"""Limits: beyond one of them the decision is refused whole, and nothing of it happens."""

import pytest

from perdure.kernel.events import ReceiptArrived
from perdure.kernel.gate import Executors
from perdure.kernel.limits import Limits
from perdure.kernel.receipt import Receipt
from tests.kernel.machines import Told, World

LIMITS = Limits(effects=3, messages=3, bytes=5_000)
WAIT = ("wait", "w", None)


@pytest.mark.parametrize(
    ("orders", "reason"),
    [
        ([("call", f"c{n}") for n in range(4)], "4 effects; the limit is 3"),
        ([("send", "told", "b", [("note",)]) for _ in range(4)], "4 messages; the limit is 3"),
        ([("announce", "f", 1), *[("send", "told", "b", [])] * 3], "4 messages; the limit is 3"),
        ([("publish", "p", "x" * 6_000)], "the limit is 5000"),
        ([("call", "big", {"params": b"x" * 6_000}), ("send", "told", "b", [])], "the limit is 5000"),
    ],
)
def test_a_decision_over_a_limit_is_refused_whole(orders, reason):
    world = World(Told(limits=LIMITS), gate=Executors({"inline": 2}))
    world.start("a", WAIT)
    world.start("b", WAIT)
    world.run()
    world.tell("a", *orders)
    world.run()

    stuck = world.instance("a").stuck

    assert stuck is not None and stuck.kept and reason in stuck.error.message
    assert world.open("a") == ["w"] and not world.started and not world.published
    assert world.heard("b") == ["Started"]
    assert world.kernel.slots.running["inline"] == 0 and not world.kernel.slots.held_ids


def test_a_decision_at_the_limit_is_fine():
    world = World(Told(limits=LIMITS))
    world.start("a", *[("call", f"c{n}") for n in range(3)], *[("send", "told", "a", [])] * 3)
    world.run()

    assert len(world.calls()) == 3 and world.heard("a") == ["Started"] + ["Message m"] * 3


def test_an_event_that_is_larger_than_the_limit_is_kept_all_the_same():
    world = World(Told(limits=LIMITS))
    world.start("a", WAIT)
    world.tell("a", ("publish", "p", "x" * 50_000))
    world.run()

    assert world.status("a") == "stuck" and world.instance("a").kept is not None


def test_what_an_event_brings_does_not_count_against_the_decision():
    world = World(Told(limits=LIMITS))
    world.start("a", ("call", "c"))
    world.run()

    world.offer(world.id("a"), ReceiptArrived(world.intent("a", "c"), Receipt("ok", b"x" * 6_000)))
    world.run()

    assert world.status("a") != "stuck"


def test_a_refused_decision_is_made_again_when_the_limit_is_raised():
    world = World(Told(limits=LIMITS))
    world.start("a", WAIT)
    world.tell("a", *[("call", f"c{n}") for n in range(4)])
    world.run()
    world.workflows[0].limits = Limits()
    world.retry("a")
    world.run()

    assert len(world.calls()) == 4
