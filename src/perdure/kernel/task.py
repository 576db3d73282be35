"""The row of a task: all that the kernel knows of tasks.

A machine publishes its row under the name `&task`, as canonical bytes. The kernel puts it into the tables of tasks and
not among the published values.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from perdure.codec import decode, encode

from .instance import Instance

TASK: Final = "&task"
"""No workflow of users can publish a name that begins with `&`."""

NO_TIME: Final = 2**63 - 1
"""The column of a time that a task does not have: such a task comes last in the order of that column."""


RANK_MAX: Final = 100

WHO_MAX: Final = 200
"""Of the names that follow from a row, so many characters are in the index. What is found by one is compared whole."""


class TaskRow(NamedTuple):
    """One row per task, open or ended. Times are nanoseconds, `NO_TIME` if there is none."""

    id: int
    owner: int  # the instance that asked; 0: none
    workflow: str  # of the owner, as is the key
    key: str
    location: str
    name: str
    title: str
    status: str
    assignee: str
    priority: int
    created_at: int
    due: int
    expires: int
    ended_at: int
    ended_by: str  # JSON: a list of ids
    outcome: str
    reference: str
    labels: str  # JSON: an object of texts
    body: bytes  # the rest, for `tasks/`


class CandidateRow(NamedTuple):
    """A name by which lists find a task. While the task has not ended:

    `r:` role, `u:` user who may do it; `m:` role that manages it; `a:` assignee; `x:` excluded person.

    Always: `f:` reference; `n:` name, `w:` workflow, `l:` label (as it stands in the column of labels); `*` every task.
    What lists are ordered by stands here too, so that a page reads no more rows than it has.
    """

    task: int
    who: str
    held: int  # 0: it is open, 1: a person has it, else how it ended: `HELD`
    created_at: int
    due: int
    rank: int  # the most urgent first: 100 less the priority


HELD: Final = {"completed": 2, "cancelled": 3, "expired": 4}
"""What stands in the column `held` of a task that has ended, by its status."""


class TaskRows(NamedTuple):
    """What one entry makes of a task. The candidates replace those of before."""

    row: TaskRow
    candidates: tuple[CandidateRow, ...]


def publication(row: TaskRow, who: tuple[str, ...]) -> tuple[str, bytes]:
    """What a machine publishes: the columns after the owner, and who is a candidate. The kernel adds the ids."""
    return TASK, encode([*row[2:], list(who)])


def columns(value: bytes) -> Iterator[tuple[Any, type]]:
    """What a machine has published, with the types that it must have."""
    given = decode(value)
    kinds = [*list(TaskRow.__annotations__.values())[2:], list]
    return zip(given, kinds, strict=True)


def task_rows(instance: Instance, value: bytes) -> TaskRows:
    """The rows of what the machine of a task has published."""
    *columns, who = decode(value)
    owner = 0 if instance.parent is None else instance.parent.instance
    row = TaskRow(instance.id, owner, *columns)
    return TaskRows(row, candidates(row, who))


def candidates(row: TaskRow, who: Iterable[str] = ()) -> tuple[CandidateRow, ...]:
    """The names that a machine has published, and those that follow from the row alone."""
    held = HELD.get(row.status, int(bool(row.assignee)))
    rest = held, row.created_at, row.due, RANK_MAX - row.priority
    labels = msgspec.json.decode(row.labels, type=dict[str, str]) if row.labels != "{}" else {}
    names = ["*", *who, by_name(row.name), by_workflow(row.workflow), *(by_label(*each) for each in labels.items())]
    if row.reference:
        names.append(by_reference(row.reference))
    return tuple([CandidateRow(row.id, name, *rest) for name in dict.fromkeys(names)])


def by_reference(reference: str) -> str:
    return f"f:{reference}"


def by_name(name: str) -> str:
    return f"n:{name}"[:WHO_MAX]


def by_workflow(workflow: str) -> str:
    return f"w:{workflow}"[:WHO_MAX]


def by_label(name: str, value: str) -> str:
    return f"l:{pair_of(name, value)}"[:WHO_MAX]


def pair_of(name: str, value: str) -> str:
    """A label as it stands in the column, which is JSON."""
    return msgspec.json.encode({name: value}).decode()[1:-1]
