"""Which tasks a caller wants, as the index is asked for them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, TypedDict

from perdure.codec import is_text
from perdure.errors import BadCall
from perdure.kernel.asked import Actor
from perdure.kernel.moment import at_of
from perdure.kernel.task import NO_TIME, RANK_MAX
from perdure.ports.store import TaskFilter, TaskOrder
from perdure.tasks.life import ENDED, TaskStatus
from perdure.tasks.row import TaskInfo

Named = list[tuple[str, bool | None]]
"""Names of the index; with True only what is held, with False only what is open."""

OPEN: Final = ("open", "assigned")


class Wanted(TypedDict, total=False):
    """What lists of tasks take."""

    candidate: bool
    mine: bool
    status: str | Iterable[str]
    role: str
    user: str
    name: str
    workflow: str
    key: str
    reference: str
    label: tuple[str, str] | None
    due_before: datetime | None


def filter_of(actor: Actor | None, wanted: Wanted) -> TaskFilter:
    if wrong := wanted.keys() - Wanted.__optional_keys__:
        known = ", ".join(sorted(Wanted.__optional_keys__))
        raise BadCall(f"tasks are not listed by {', '.join(wrong)}=; there are: {known}")
    candidate, mine = wanted.get("candidate", False), wanted.get("mine", False)
    if actor is None and (candidate or mine):
        raise BadCall("candidate= and mine= are about an actor: give by=")
    statuses = _statuses(wanted.get("status", OPEN))
    live = {status == TaskStatus.ASSIGNED for status in statuses if status not in ENDED}
    named = _narrowed(_who(actor, candidate, mine, wanted), live)
    due_before = wanted.get("due_before")
    return TaskFilter(
        who=tuple(named),
        statuses=() if candidate or mine else tuple([status for status in statuses if status in ENDED]),
        without=f"x:{actor.id}" if actor is not None and candidate else "",
        name=_text(wanted, "name"),
        workflow=_text(wanted, "workflow"),
        key=_text(wanted, "key"),
        reference=_text(wanted, "reference"),
        label=_label(wanted.get("label")),
        due_before=None if due_before is None else _time(due_before),
    )


def shows_all(actor: Actor, filter: TaskFilter, wanted: Wanted) -> bool:
    """Whether the actor may see all that a filter finds."""
    return actor.admin or not (filter.statuses or wanted.get("role") or wanted.get("user"))


def checked_order(order: TaskOrder) -> None:
    if order not in ("created", "due", "priority"):
        raise BadCall(f"order={order!r}: tasks are in the order of created, due or priority")


def place_of(order: TaskOrder, info: TaskInfo) -> tuple[int, int]:
    """Where a task stands in a list."""
    match order:
        case "created":
            value = at_of(info.created_at)
        case "due":
            value = NO_TIME if info.due is None else at_of(info.due)
        case "priority":
            value = RANK_MAX - info.priority
    return value, int(info.id)


def _who(actor: Actor | None, candidate: bool, mine: bool, wanted: Wanted) -> Named:
    if mine and actor is not None:
        return [(f"a:{actor.id}", None)]
    role, user = _text(wanted, "role"), _text(wanted, "user")
    if role or user:
        asked_for = [f"r:{role}"] * bool(role) + [f"u:{user}"] * bool(user)
        return [(name, None) for name in asked_for]
    if actor is None:
        return [("*", None)]
    own = [*(f"r:{role}" for role in actor.roles), f"u:{actor.id}"]
    if candidate:
        takes: Named = [(name, False) for name in (["*"] if actor.admin else own)]
        return [*takes, (f"a:{actor.id}", None)]
    if actor.admin:
        return [("*", None)]
    return [(name, None) for name in (*own, *(f"m:{role}" for role in actor.roles), f"a:{actor.id}")]


def _narrowed(named: Named, live: set[bool]) -> Named:
    """Only what is held, or only what is open, where the list is of one of the two statuses."""
    if len(live) == 2:
        return named
    return [(name, held) for held in live for name, only in named if only in (None, held)]


def _statuses(status: Any) -> tuple[str, ...]:
    found = tuple(status) if isinstance(status, Iterable) and not isinstance(status, str) else (status,)
    for each in found:
        if each not in list(TaskStatus):
            raise BadCall(f"{each!r:.80} is no status of a task: {', '.join(TaskStatus)}")
    return found


def _label(label: Any) -> tuple[str, str] | None:
    if label is None:
        return None
    if not isinstance(label, list | tuple) or len(label) != 2 or not all(is_text(each) for each in label):
        raise BadCall(f'label= is a name and a text, label=("team", "red"), found {label!r:.80}')
    return label[0], label[1]


def _time(time: Any) -> int:
    if not isinstance(time, datetime) or time.utcoffset() is None:
        raise BadCall(f"due_before= is a time with a time zone, found {time!r:.80}: datetime.now(UTC) is one")
    return at_of(time)


def _text(wanted: Wanted, field: str) -> str:
    value: Any = wanted.get(field) or ""
    if not isinstance(value, str) or "\x00" in value:
        raise BadCall(f"{field}= is a text, found {value!r:.80}")
    return value
