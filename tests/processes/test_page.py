"""The example of the page, in a world and crashed at every commit."""

from decimal import Decimal

import perdure
import perdure.testing
from tests.processes.shop import Purchase, erp, purchase

ORDER = Purchase("o-17", "acme", Decimal("900"), [{"sku": "a", "count": 2}])


def test_an_order_is_approved_and_delivered():
    with perdure.testing.World(purchase, handlers=[erp]) as world:
        world.script("budget", returns={"free": "5000"})
        handle = world.start(purchase, ORDER, key="o-17", by="bob")
        (task,) = world.tasks.list(reference="o-17")
        world.tasks.complete(task.id, {"outcome": "approve"}, by=perdure.Actor("ann", ["manager"]))
        world.send_to("delivered", reference="o-17")
        assert handle.result() == {"late": False, "order": "B-1"}


def test_the_example_survives_crashes_everywhere():
    perdure.testing.crash_test(
        purchase,
        ORDER,
        key="o-17",
        handlers=[erp],
        script={"budget": lambda *request: {"free": "5000"}},
        messages=[("delivered", None)],
        tasks=[("approve", {"outcome": "approve"}, perdure.Actor("ann", ["manager"]))],
        pairs=40,
        random=10,
    )


def test_a_refused_order_frees_its_lines_under_crashes_and_eviction():
    perdure.testing.crash_test(
        purchase,
        ORDER,
        key="o-17",
        handlers=[erp],
        script={"budget": lambda *request: {"free": "5000"}},
        tasks=[("approve", {"outcome": "reject"}, perdure.Actor("ann", ["manager"]))],
        pairs=20,
        random=5,
        cache=0,
    )
