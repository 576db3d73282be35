"""What `app` knows of flows."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perdure.kernel.policy import ANY
from perdure.ports.dialect import Gathered
from perdure.ports.seen import Words

from .author import STEPS, Flow
from .loop import Enclosure
from .words import FlowWords


class FlowDialect:
    name = "flow"
    catalog = None
    words: Final[Mapping[str, Words]] = dict.fromkeys(("flow", ANY.noun), FlowWords())
    """Flows of databases from before there were policies are known as workflows only."""
    steps = STEPS

    def gather(self, given: Sequence[Any]) -> Gathered:
        flows = [each for each in given if isinstance(each, Flow)]
        rest = [each for each in given if not isinstance(each, Flow)]

        def opened() -> None:
            for flow in flows:
                flow.registered()

        return Gathered(flows, rest, opened, Enclosure())


DIALECT: Final = FlowDialect()
