"""Who may do what to a task: one pure function.

It judges twice: on the row, before a message is sent, and in the machine, because two messages may come at once. The
table of the documentation is the law; `tests/tasks/test_rights.py` is made from it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

import msgspec

from perdure.kernel.asked import Actor

from .life import ENDED, TaskStatus

Verb = Literal["see", "comment", "claim", "assign", "release", "complete", "change", "escalate", "cancel"]
VERBS: Final[tuple[Verb, ...]] = ("comment", "claim", "assign", "release", "complete", "change", "escalate", "cancel")

Code = Literal[
    "taken", "ended", "not-assignee", "not-candidate", "not-manager", "excluded", "no-reason", "shared", "unknown"
]


class Standing(msgspec.Struct, frozen=True):
    """What of a task rights depend on."""

    status: TaskStatus
    roles: Collection[str]
    users: Collection[str]
    managers: Collection[str]
    exclude: Collection[str]
    assignee: str = ""
    shared: bool = False  # several people decide it


class Refusal(msgspec.Struct, frozen=True):
    """Why an actor may not do something; the code `unknown`: the actor may not even know that the task exists."""

    code: Code
    text: str


class TaskRequest(msgspec.Struct, frozen=True):
    """What an actor wants: the verb, and what of its arguments rights depend on."""

    verb: Verb
    by: Actor
    to: Actor | None = None
    override: bool = False
    reason: str = ""


def is_candidate(task: Standing, actor: Actor) -> bool:
    return actor.id in task.users or any(role in task.roles for role in actor.roles)


def is_manager(task: Standing, actor: Actor) -> bool:
    return any(role in task.managers for role in actor.roles)


def may_see(task: Standing, actor: Actor) -> bool:
    return actor.admin or actor.id == task.assignee or is_candidate(task, actor) or is_manager(task, actor)


def refusal(task: Standing, request: TaskRequest) -> Refusal | None:
    """Why the request is refused; None: it is granted."""
    actor, verb = request.by, request.verb
    if not may_see(task, actor):
        return Refusal("unknown", "there is no such task, or it is not for this actor")
    if verb == "see":
        return None
    if task.status in ENDED:
        return Refusal("ended", f"the task is {task.status}")
    match verb:
        case "comment":
            return None
        case "claim":
            return _claim(task, actor)
        case "assign":
            return _assign(task, request)
        case "release":
            if task.status is TaskStatus.OPEN or actor.admin or is_manager(task, actor) or actor.id == task.assignee:
                return None
            return Refusal("not-assignee", f"{task.assignee} has the task: they, a manager or an admin release it")
        case "complete":
            return _complete(task, request)
        case "change" | "escalate" | "cancel":
            if not (actor.admin or is_manager(task, actor)):
                return Refusal("not-manager", f"only a manager or an admin may {verb} it{_roles(task.managers)}")
            if verb == "cancel" and not request.reason.strip():
                return Refusal("no-reason", "a task is cancelled with a reason: reason=...")
            return None


def _claim(task: Standing, actor: Actor) -> Refusal | None:
    if task.shared:
        return Refusal("shared", "several people decide this task: nobody holds it; complete it to vote")
    if actor.id in task.exclude:
        return Refusal("excluded", f"{actor} is excluded from this task")
    if task.assignee == actor.id:
        return None
    if task.assignee:
        return Refusal("taken", f"{task.assignee} has the task")
    if actor.admin or is_candidate(task, actor):
        return None
    return Refusal("not-candidate", f"{actor} is no candidate{_candidates(task)}")


def _assign(task: Standing, request: TaskRequest) -> Refusal | None:
    actor, to = request.by, request.to
    assert to is not None, "an assign names an actor"
    if task.shared:
        return Refusal("shared", "several people decide this task: nobody holds it")
    if not (actor.admin or is_manager(task, actor) or actor.id == task.assignee):
        return Refusal("not-manager", f"the assignee, a manager or an admin assigns it{_roles(task.managers)}")
    if to.id in task.exclude:
        return Refusal("excluded", f"{to} is excluded from this task")
    if not actor.admin and not is_candidate(task, to):
        return Refusal("not-candidate", f"{to} is no candidate{_candidates(task)}; an admin may assign to anybody")
    if task.assignee not in ("", actor.id, to.id) and not request.override:
        return Refusal("taken", f"{task.assignee} has the task: override=True takes it away")
    return None


def _complete(task: Standing, request: TaskRequest) -> Refusal | None:
    actor = request.by
    if actor.id in task.exclude:
        return Refusal("excluded", f"{actor} is excluded from this task")
    if actor.admin and request.override:
        return None
    if task.assignee:
        if task.assignee == actor.id:
            return None
        return Refusal("not-assignee", f"{task.assignee} has the task; an admin may complete it with override=True")
    if is_candidate(task, actor):
        return None
    return Refusal("not-candidate", f"{actor} is no candidate{_candidates(task)}")


def _candidates(task: Standing) -> str:
    users = [*task.users, *(f"role {role}" for role in task.roles)]
    return f" (candidates: {', '.join(users)})" if users else ""


def _roles(roles: Collection[str]) -> str:
    return f" (managers: {', '.join(f'role {role}' for role in roles)})" if roles else ""
