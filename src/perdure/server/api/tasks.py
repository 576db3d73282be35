"""Tasks over HTTP. Who may see and do what is up to the rules of each task: see `perdure.tasks.rights`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from perdure.access.model import Login, sees_values
from perdure.kernel.events import Address
from perdure.ports.store import TaskOrder
from perdure.runtime.tasks import UNSET, TaskDetail
from perdure.tasks.rights import may_see
from perdure.tasks.row import TaskInfo

from ..calling import Calling
from ..problems import HttpProblem
from ..rendering import WITHHELD


class TaskQuery(msgspec.Struct, frozen=True):
    """`mine`: what the actor has. `candidate`: what the actor may take, or has. `after`: the last task before."""

    mine: bool = False
    candidate: bool = False
    status: list[str] = []
    reference: str = ""
    name: str = ""
    workflow: str = ""
    due_before: datetime | None = None
    order: TaskOrder = "created"
    after: str = ""
    limit: int = 50


class TaskList(msgspec.Struct, frozen=True):
    items: list[TaskInfo]
    next: str | None


def _wanted(given: TaskQuery) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    if given.mine:
        wanted["mine"] = True
    if given.candidate:
        wanted["candidate"] = True
    if given.status:
        wanted["status"] = given.status if len(given.status) > 1 else given.status[0]
    wanted |= {name: value for name in ("reference", "name", "workflow") if (value := getattr(given, name))}
    if given.due_before is not None:
        wanted["due_before"] = given.due_before
    return wanted


async def ls(calling: Calling, given: TaskQuery) -> TaskList:
    if not 1 <= given.limit <= 500:
        raise HttpProblem(422, "bad-request", f"limit is 1 to 500, found {given.limit}", where="/limit")
    found = await calling.client.tasks.list(
        calling.login.actor, order=given.order, after=given.after or None, limit=given.limit + 1, **_wanted(given)
    )
    shown = [await told(calling, each) for each in found[: given.limit]]
    return TaskList(shown, shown[-1].id if len(found) > given.limit else None)


class TaskCount(msgspec.Struct, frozen=True):
    count: int


async def count(calling: Calling, given: TaskQuery) -> TaskCount:
    return TaskCount(await calling.client.tasks.count(calling.login.actor, **_wanted(given)))


class TaskId(msgspec.Struct, frozen=True):
    task: str


async def show(calling: Calling, given: TaskId) -> TaskDetail:
    found = await calling.client.tasks.get(given.task, calling.login.actor)
    seen = await told(calling, found)
    if seen is found:
        return found
    history = tuple(replace(each, text="", changes={}) for each in found.history)
    return replace(seen, description="", data=WITHHELD, votes=(), history=history)


T = TypeVar("T", bound=TaskInfo)
Verb = Callable[[Calling, Any], Awaitable[TaskInfo]]


def seen_by(login: Login, task: T) -> T:
    """A task as a login sees it. An admin whose grant withholds values sees no title that names them."""
    if sees_values(login, task.workflow) or may_see(task.standing, replace(login.actor, admin=False)):
        return task
    return replace(task, title=task.name, outcome="")


async def told(calling: Calling, task: T) -> T:
    """The same; fields that no login sees are hidden in its title as well: they are those of its owner."""
    if calling.settings.redact:
        owner = await calling.client.queries.head(Address(task.workflow, task.key))
        calling.found |= set() if owner is None else {owner.id}
    return seen_by(calling.login, task)


def _told_as_seen(verb: Verb) -> Verb:
    """What a verb answers, as the login sees the task."""

    async def handler(calling: Calling, given: Any) -> TaskInfo:
        return await told(calling, await verb(calling, given))

    return handler


@_told_as_seen
async def claim(calling: Calling, given: TaskId) -> TaskInfo:
    return await calling.client.tasks.claim(given.task, by=calling.login.actor, id=_id(calling))


@_told_as_seen
async def release(calling: Calling, given: TaskId) -> TaskInfo:
    return await calling.client.tasks.release(given.task, by=calling.login.actor, id=_id(calling))


class AssignParams(msgspec.Struct, frozen=True):
    task: str
    to: str
    override: bool = False


@_told_as_seen
async def assign(calling: Calling, given: AssignParams) -> TaskInfo:
    by, id = calling.login.actor, _id(calling)
    return await calling.client.tasks.assign(given.task, given.to, override=given.override, by=by, id=id)


class CompleteParams(msgspec.Struct, frozen=True):
    task: str
    answer: Any = None
    override: bool = False


@_told_as_seen
async def complete(calling: Calling, given: CompleteParams) -> TaskInfo:
    by, id = calling.login.actor, _id(calling)
    return await calling.client.tasks.complete(given.task, given.answer, override=given.override, by=by, id=id)


class ChangeParams(msgspec.Struct, frozen=True):
    task: str
    priority: int | None = None
    due: datetime | msgspec.UnsetType | None = msgspec.UNSET
    expire: datetime | msgspec.UnsetType | None = msgspec.UNSET


@_told_as_seen
async def change(calling: Calling, given: ChangeParams) -> TaskInfo:
    due = UNSET if given.due is msgspec.UNSET else given.due
    expire = UNSET if given.expire is msgspec.UNSET else given.expire
    by, id = calling.login.actor, _id(calling)
    return await calling.client.tasks.change(
        given.task,
        priority=given.priority,
        due=due,
        expire=expire,
        by=by,
        id=id,
    )


class CommentParams(msgspec.Struct, frozen=True):
    task: str
    text: str


@_told_as_seen
async def comment(calling: Calling, given: CommentParams) -> TaskInfo:
    return await calling.client.tasks.comment(given.task, given.text, by=calling.login.actor, id=_id(calling))


class EscalateParams(msgspec.Struct, frozen=True):
    task: str
    roles: list[str] = []
    users: list[str] = []
    release: bool = False
    priority: int | None = None


@_told_as_seen
async def escalate(calling: Calling, given: EscalateParams) -> TaskInfo:
    return await calling.client.tasks.escalate(
        given.task,
        roles=given.roles,
        users=given.users,
        release=given.release,
        priority=given.priority,
        by=calling.login.actor,
        id=_id(calling),
    )


class TaskCancelParams(msgspec.Struct, frozen=True):
    task: str
    reason: str = ""


@_told_as_seen
async def cancel(calling: Calling, given: TaskCancelParams) -> TaskInfo:
    return await calling.client.tasks.cancel(given.task, given.reason, by=calling.login.actor, id=_id(calling))


def _id(calling: Calling) -> str | None:
    return calling.event or None
