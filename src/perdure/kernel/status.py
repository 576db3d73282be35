"""Every status that an instance can have, and every legal change from one to another.

This table is the whole truth: `apply` asks it before each change, the documentation prints it, and nothing else in
the project compares statuses to find out whether a change is allowed.
"""

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    RUNNING = "running"  # has work in hand: at least one call is open
    WAITING = "waiting"  # every open intent is a wait: it costs nothing but its rows
    STUCK = "stuck"  # needs a person: retry, skip or cancel
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})

FINAL: Final = frozenset({Status.COMPLETED, Status.CANCELLED})
"""What is never anything else later. What has failed may be retried."""

LEGAL: Final[dict[Status, frozenset[Status]]] = {
    Status.RUNNING: frozenset({Status.RUNNING, Status.WAITING, Status.STUCK, *TERMINAL}),
    Status.WAITING: frozenset({Status.WAITING, Status.RUNNING, Status.STUCK, *TERMINAL}),
    Status.STUCK: frozenset({Status.STUCK, Status.RUNNING, Status.WAITING, *TERMINAL}),
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset({Status.RUNNING, Status.WAITING, Status.STUCK, Status.COMPLETED}),  # by a retry
    Status.CANCELLED: frozenset(),
}


def change(before: Status, after: Status) -> Status:
    """The status after a change, or an error when no such change exists."""
    if after not in LEGAL[before]:
        raise ValueError(f"no instance goes from {before} to {after}: see kernel/status.py")
    return after


def ended(status: str) -> str:
    """In a sentence, after the name of an instance that has ended so."""
    return "was cancelled" if status == Status.CANCELLED else f"has {status}"
