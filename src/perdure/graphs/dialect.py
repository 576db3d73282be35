"""What `app` knows of graphs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perdure.ports.dialect import Gathered
from perdure.ports.seen import Words

from .author import POLICY, Graph
from .words import GraphWords


class GraphDialect:
    name = POLICY.noun
    catalog = None
    words: Final[Mapping[str, Words]] = {POLICY.noun: GraphWords()}

    def gather(self, given: Sequence[Any]) -> Gathered:
        graphs = [each for each in given if isinstance(each, Graph)]
        rest = [each for each in given if not isinstance(each, Graph)]
        for graph in graphs:
            graph.registered()
        return Gathered(graphs, rest)


DIALECT: Final = GraphDialect()
