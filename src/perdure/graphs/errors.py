"""What can go wrong with graphs."""

from __future__ import annotations

from typing import NamedTuple

from perdure.errors import AuthorError, OperationFailed


class GraphProblem(NamedTuple):
    """One thing that is wrong with a graph. `where` is a node or a part of the graph; `at` is line:column of a file."""

    where: str
    text: str
    at: str = ""

    def __str__(self) -> str:
        place = f"{self.at}: " if self.at else ""
        return f"{place}{self.where}: {self.text}"


class BadGraph(AuthorError):
    """A graph cannot run as it is written. `problems` has everything that is wrong, each with its place.

    Nothing was registered and nothing recorded. `perdure check` finds the same without an engine.
    """

    def __init__(self, graph: str, problems: tuple[GraphProblem, ...]) -> None:
        super().__init__(graph, problems)
        self.graph = graph
        self.problems = problems

    def __str__(self) -> str:
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        return "\n  ".join([f"graph {self.graph} has {count}:", *map(str, self.problems)])


class Denied(OperationFailed):
    """The gate of a graph, or a person, said no. The run goes on: it may do something else.

    `subject` is the tool or the node, `stage` the rule that said no, `reason` one sentence.
    """

    def __init__(self, subject: str, stage: str, reason: str) -> None:
        super().__init__(subject, stage, reason)
        self.subject = subject
        self.stage = stage
        self.reason = reason

    @property
    def note(self) -> str:
        """The same as one sentence for a model."""
        return note(self.subject, self.stage, self.reason)

    def __str__(self) -> str:
        return self.note


class NotInRun(AuthorError, LookupError):
    """A request was made where no run is open: outside of a runner, after its end, in a thread or on a queue.

    Requests are for `async def` runners that run inline, while they run.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} asks the instance of a running call, and here none is running: call it in an inline runner"


def note(subject: str, stage: str, reason: str) -> str:
    return f"{subject} was denied ({stage}): {reason}"
