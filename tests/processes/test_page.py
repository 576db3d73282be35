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
