"""The life of a task: one table of every change of status that exists."""

from enum import StrEnum
from typing import Final


class TaskStatus(StrEnum):
    OPEN = "open"
    ASSIGNED = "assigned"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


ENDED: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.CANCELLED, TaskStatus.EXPIRED})

CHANGES: Final = {
    TaskStatus.OPEN: {TaskStatus.ASSIGNED, *ENDED},
    TaskStatus.ASSIGNED: {TaskStatus.OPEN, *ENDED},
}
"""From a status to each status that may follow. An ended task does not change."""


def changed(before: TaskStatus, after: TaskStatus) -> TaskStatus:
    """The status after a change. A change that the table does not have is a bug of the machine."""
    if after is before:
        return before
    if after not in CHANGES.get(before, ()):
        raise ValueError(f"a task that is {before} cannot become {after}")
    return after
