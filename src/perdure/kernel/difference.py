"""What replay finds when a machine has changed its mind: the recorded decision of an entry, and another one now.

The kernel's own words for it are those of effects. A dialect has better ones, and knows what would help: see
`Workflow.explain`.
"""

from itertools import zip_longest

import msgspec

from .decision import Decision, Send
from .effects import TASK_WORKFLOW, Child, Effect, attempt_of

Operation = Effect | Send | str
"""What a decision asks for, says, or notes."""


class Difference(msgspec.Struct, frozen=True):
    recorded: Decision
    current: Decision
    later: tuple[Decision, ...] = ()  # what was recorded after it, as far as that is known


class Explanation(msgspec.Struct, frozen=True):
    """A difference in words. What is left empty by a dialect is told in the words of the kernel."""

    recorded: str = ""
    current: str = ""
    location: str = ""
    source: str = ""  # the place in the author's source that asks for something else now, as `file:line`
    advice: str = ""  # what the author can do about it, in one or more lines


def plainly(difference: Difference) -> Explanation:
    then, now = _first_difference(difference.recorded, difference.current)
    return Explanation(
        recorded=_name(then) or ending(difference.recorded),
        current=_name(now) or ending(difference.current),
        location=_location(then or now),
    )


def _first_difference(recorded: Decision, current: Decision) -> tuple[Operation | None, Operation | None]:
    """The first operation that is not the same; None where there is no more."""
    for then, now in (
        *zip_longest(recorded.open, current.open),
        *zip_longest(recorded.noted, current.noted),
        *zip_longest(recorded.send, current.send),
    ):
        if _name(then) != _name(now):
            return then, now
    return None, None


def _location(operation: Operation | None) -> str:
    if isinstance(operation, str):
        return operation.partition(" ")[2]
    return operation.location if isinstance(operation, Effect) else ""


def _name(operation: Operation | None) -> str:
    if operation is None or isinstance(operation, str):
        return operation or ""
    if isinstance(operation, Send):
        return f"send {operation.name} to {operation.to}"
    attempt = attempt_of(operation)
    suffix = f" (attempt {attempt})" if attempt > 1 else ""
    is_task = isinstance(operation, Child) and operation.workflow == TASK_WORKFLOW
    return f"{'task' if is_task else type(operation).__name__.lower()} {operation.location}{suffix}"


def ending(decision: Decision) -> str:
    """How a decision goes on where it has no more operations."""
    if decision.outcome is not None:
        error = decision.outcome.error
        return f"the end ({decision.outcome.status}{f': {error}' if error is not None else ''})"
    if decision.withdraw:
        number = len(decision.withdraw)
        return f"{number} operation{'s' if number > 1 else ''} withdrawn"
    return "nothing more"
