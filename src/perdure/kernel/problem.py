"""Problems: failures that an author wants to hear of. They are told live, once they are durable, and not recorded."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal

import msgspec

from .receipt import Failure

ProblemKind = Literal["step", "undo", "flow"]


class Problem(msgspec.Struct, frozen=True):
    """A failure, as a hook hears of it: of one attempt of a step or of an undo, or of a whole flow.

    `remaining` is how many attempts may still come, `when` the time of the next one: 0 and None if none will.
    `location` is that of the step in the history, and empty for a flow.
    """

    kind: ProblemKind
    instance: str
    location: str
    attempt: int
    remaining: int
    will_retry: bool
    when: datetime | None
    error: Failure

    def __str__(self) -> str:
        what = f"{self.kind} {self.location!r} of {self.instance}" if self.location else self.instance
        then = f"; attempt {self.attempt + 1} comes at {self.when:%H:%M:%S}" if self.when is not None else ""
        return f"{what} failed{then}: {self.error}"


Hook = Callable[[Problem], object]
"""Called with a problem; what it returns is awaited if that is possible, and else ignored."""


class Report(msgspec.Struct, frozen=True):
    """Which hook is to hear of which problem."""

    hook: Hook
    problem: Problem
