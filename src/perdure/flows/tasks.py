"""Tasks in a flow: `await ctx.task(...)` asks a person, and waits for the answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from perdure.codec import decode, from_plain
from perdure.errors import ChildFailed, TaskCancelled, TaskExpired
from perdure.kernel.effects import Child
from perdure.kernel.moment import when
from perdure.kernel.receipt import Receipt
from perdure.tasks.model import WORKFLOW, TaskFields, key_of, question

from .author import limited
from .failures import at

if TYPE_CHECKING:
    from .machine import FlowMachine

T = TypeVar("T")

EXPIRED: Final = TaskExpired.__name__


class Voted(NamedTuple):
    """A vote on a task that several people decide."""

    by: str
    outcome: str
    answer: Any
    at: datetime


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """What became of a task. `answer` is of the type that was asked for; `by` gave it; `votes` has all of a quorum."""

    outcome: str
    answer: T
    by: str
    at: datetime
    votes: tuple[Voted, ...] = ()


async def ask(machine: FlowMachine, name: str, answer: Any, fields: TaskFields) -> Answered[Any]:
    """Open a task as a child, and wait for its end."""
    now, workflow = when(machine.moment.at), machine.flow.name
    location = machine.claim(name)
    asked = question(name, workflow=workflow, key=machine.key, location=location, now=now, answer=answer, **fields)
    key = key_of(machine.family, 1, workflow, location)
    child = Child(location, WORKFLOW, key, limited(asked.encode(), f"the task {name!r}"))
    receipt: Receipt = await machine.answer(machine.open(child))
    if receipt.status == "ok" and receipt.value is not None:
        return _answered(decode(receipt.value), answer)
    error = receipt.error
    if receipt.status == "cancelled" and error is not None:
        by = (error.data or {}).get("by", "")
        raise at(location, TaskCancelled(name, by, error.message))
    if error is not None and error.type == EXPIRED:
        raise at(location, TaskExpired(name, error.message))
    raise at(location, ChildFailed(WORKFLOW, key, "failed", error))


def _answered(found: dict[str, Any], answer: Any) -> Answered[Any]:
    kind = None if isinstance(answer, dict) else answer
    votes = tuple([Voted(by, outcome, _typed(value, kind), when) for by, outcome, value, when in found["votes"]])
    return Answered(found["outcome"], _typed(found["answer"], kind), found["by"], found["at"], votes)


def _typed(value: Any, kind: Any) -> Any:
    return value if kind is None or value is None else from_plain(value, kind)
