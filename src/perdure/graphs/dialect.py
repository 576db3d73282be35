"""What `app` knows of graphs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perdure.errors import BadGraph
from perdure.ports.dialect import Gathered, Opening
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
        return Gathered(graphs, rest, check=Checking(graphs))


class Checking:
    """The children of graphs name workflows that this engine knows."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self._graphs = graphs

    def __call__(self, opening: Opening) -> None:
        for graph in self._graphs:
            graph.find = opening.find
            problems = graph.problems_among(opening.workflows)
            if problems and opening.strict:
                raise BadGraph(graph.name, problems)
            if problems:
                opening.unavailable(graph, BadGraph(graph.name, problems))


DIALECT: Final = GraphDialect()
