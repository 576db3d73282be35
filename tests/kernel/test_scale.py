"""Large decisions: work grows with their size, not with its square; entries are counted, not seconds."""

import pytest

from perdure.kernel.entry import pack
from perdure.kernel.gate import Executors
from perdure.kernel.location import Patterns
from tests.kernel.machines import World

MANY = 3_000


@pytest.mark.slow
def test_thousands_of_children_start_and_end_once_each():
    world = World(checked=False)
    kids = [("child", f"c#{n}", "told", f"kid{n}", [("wait", "w", None)]) for n in range(MANY)]
    world.start("p", *kids)
    world.run()
    for n in range(MANY):
        world.tell(f"kid{n}", ("complete", n))
    world.run()

    assert len(world.journal) == 1 + 3 * MANY
    assert world.heard("p") == ["Started"] + ["ReceiptArrived ok"] * MANY
    assert not world.inbox and not world.open("p")


@pytest.mark.slow
def test_thousands_of_held_calls_are_released_in_order():
    world = World(gate=Executors({"inline": 10}), checked=False)
    world.start("p", *[("call", f"c#{n}") for n in range(MANY)])
    world.run()
    assert len(world.running) == 10
    for n in range(MANY):
        world.answer("p", f"c#{n}")
        world.commit(world.build())

    assert world.calls() == [f"p c#{n} 1" for n in range(MANY)]
    assert not world.kernel.slots.held_ids and not world.kernel.slots.running["inline"]


def test_a_fan_out_is_one_pattern_and_few_bytes_per_child():
    world = World(checked=False)
    world.start("p", *[("call", f"part#{n}") for n in range(MANY)])
    world.run()

    entry = world.entries("p")[0]

    assert entry.patterns == ("part#",)
    assert len(pack(entry.decision.open, Patterns())[0]) == MANY
