"""What `app` knows of flows."""

from collections.abc import Sequence
from typing import Any, Final

from perdure.ports.dialect import Gathered

from .author import Flow
from .loop import Enclosure


class FlowDialect:
    name = "flow"
    catalog = None

    def gather(self, given: Sequence[Any]) -> Gathered:
        flows = [each for each in given if isinstance(each, Flow)]
        rest = [each for each in given if not isinstance(each, Flow)]

        def opened() -> None:
            for flow in flows:
                flow.registered()

        return Gathered(flows, rest, opened, Enclosure())


DIALECT: Final = FlowDialect()
