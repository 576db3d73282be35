"""Commands about tasks: what people are asked for, and what they do about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click
import msgspec

from perdure.errors import AskTimeout
from perdure.kernel.asked import Actor
from perdure.runtime.client import Client
from perdure.runtime.tasks import UNSET, Acting, TaskDetail, Unset
from perdure.tasks.history import TaskEvent
from perdure.tasks.life import TaskStatus
from perdure.tasks.row import TaskInfo, overdue

from ..console import Console, define
from ..exits import Stopped
from ..form import ask_form
from ..given import read_json, read_time
from ..text import ago, joined, local, short, style, table

F = TypeVar("F", bound=Callable[..., Any])

WAIT_SECONDS: Final = 30.0
"""So long a verb waits for its answer, where an engine runs."""

NOT_RUNNING_SECONDS: Final = 0.05
LATER: Final = "no engine runs now: the verb is recorded, and judged when one does"


def _acts(function: F) -> F:
    """Who acts: on the command line, or by the environment."""
    options = (
        click.option("--as", "person", metavar="ID", envvar="PERDURE_ACTOR", show_envvar=True, help="Who acts."),
        click.option(
            "--role", "roles", multiple=True, metavar="ROLE", help="A role of that person.  [env var: PERDURE_ROLES]"
        ),
        click.option("--admin", is_flag=True, help="That person is an admin."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _actor_of(console: Console, person: str | None, roles: tuple[str, ...], admin: bool) -> Actor | None:
    if console.server is not None:
        _refuse_roles()
        return None
    given = roles or tuple(os.environ.get("PERDURE_ROLES", "").replace(",", " ").split())
    if person is None and (roles or admin):
        raise Stopped("--role and --admin are of a person: add --as ID")
    return None if person is None else Actor(person, given, admin)


def _refuse_roles() -> None:
    """Over a server, the roles of the actor are known by the key."""
    context = click.get_current_context()
    for name in ("roles", "admin"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise Stopped("over a server the actor of the API key acts: leave out --role and --admin")


def _needed(console: Console, person: str | None, roles: tuple[str, ...], admin: bool) -> Actor | None:
    """Who acts; None: the actor of the API key does."""
    actor = _actor_of(console, person, roles, admin)
    if actor is None and console.server is None:
        raise Stopped("who acts? add --as ID, and --role ROLE for each role, or set PERDURE_ACTOR and PERDURE_ROLES")
    return actor


Acted = Callable[[Client, Acting], Awaitable[TaskInfo]]


def _act(  # noqa: PLR0917
    console: Console, name: str, task: str, actor: Actor | None, done: str, verb: Acted, **given: Any
) -> None:
    """Send a verb, and tell what became of the task. `given` are its parameters, as a server takes them."""
    if console.server is not None:
        info: TaskInfo | None = console.request(f"tasks {name}", task=task, **given)
    else:
        info = _acted(console, actor, verb)
    if info is None:
        console.note(LATER)
        console.answer({"task": task, "recorded": True}, "")
        return
    console.answer(_document(info), f"{done} task {info.id} ({info.name}): {_state(info)}")


def _acted(console: Console, actor: Actor | None, verb: Acted) -> TaskInfo | None:
    """None: no engine runs, and the verb is recorded."""

    async def ask(client: Client) -> TaskInfo | None:
        runs = await client.queries.owner() is not None
        try:
            return await verb(client, {"by": actor, "timeout": WAIT_SECONDS if runs else NOT_RUNNING_SECONDS})
        except AskTimeout:
            if runs:
                raise
            return None

    return console.ask(ask)


def _document(info: TaskInfo) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(info, builtin_types=(datetime,))
    return found


def _state(info: TaskInfo) -> str:
    """What a task is now, in few words."""
    match info.status:
        case "open":
            return f"open, {info.voted} votes so far" if info.shared else "open"
        case "assigned":
            return f"held by {info.assignee}"
        case "completed":
            return f"completed, {info.outcome}"
        case ended:
            return ended


@define("tasks ls")
@click.option("--mine", is_flag=True, help="What that person has.")
@click.option("--candidate", is_flag=True, help="What that person may take, or has.")
@click.option("--overdue", "late", is_flag=True, help="Only what is overdue.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in TaskStatus]),
    help="Only those.",
)
@click.option("--name", default="", metavar="NAME", help="Only tasks of this name.")
@click.option("--workflow", default="", metavar="NAME", help="Only tasks that this workflow asked for.")
@click.option("--reference", default="", metavar="TEXT", help="Only tasks with this reference.")
@click.option(
    "--order", type=click.Choice(["created", "due", "priority"]), help="[default: created; with --overdue, due]"
)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many at most.")
@click.option("--after", metavar="ID", help="Go on from the last task of a page before.")
@_acts
def ls(  # noqa: PLR0917
    console: Console,
    mine: bool,
    candidate: bool,
    late: bool,
    statuses: tuple[str, ...],
    name: str,
    workflow: str,
    reference: str,
    order: str | None,
    limit: int,
    after: str | None,
    person: str | None,
    roles: tuple[str, ...],
    admin: bool,
) -> None:
    """With --as only what that person may see; without it, all tasks that have not ended."""
    now, actor = datetime.now(UTC), _actor_of(console, person, roles, admin)

    wanted: dict[str, Any] = {
        "mine": mine,
        "candidate": candidate,
        "status": statuses or ("open", "assigned"),
        "name": name,
        "workflow": workflow,
        "reference": reference,
        "order": order or ("due" if late else "created"),
        "after": after or "",
    }

    async def read(client: Client) -> list[TaskInfo]:
        return await client.tasks.list(
            actor, **{**wanted, "after": after}, due_before=now if late else None, limit=limit + 1
        )

    if console.server is not None:
        page = console.request("tasks ls", **_set(**wanted, due_before=now if late else UNSET, limit=limit))
        shown, more = page.items, page.next is not None
    else:
        found = console.ask(read)
        shown, more = found[:limit], len(found) > limit
    console.answer(
        {"tasks": [_document(each) for each in shown], "next_after": shown[-1].id if more else None},
        _table(shown, now) if shown else "",
    )
    if not console.json and not shown:
        console.note("no tasks")
    if not console.json and more:
        console.note(f"there are more: add --after {shown[-1].id}")


def _table(found: list[TaskInfo], now: datetime) -> str:
    rows = [[style(name, bold=True) for name in ("ID", "STATUS", "PRIORITY", "ASKED", "DUE", "OWNER", "TITLE")]]
    for each in found:
        late = overdue(each, now)
        asked = ago(each.created_at, now)
        due = style(late, fg="red") if late.endswith("overdue") else late
        rows.append([each.id, _state(each), str(each.priority), asked, due, each.owner, each.title])
    return table(rows)


@define("tasks show")
@click.argument("id")
@_acts
def show(console: Console, id: str, person: str | None, roles: tuple[str, ...], admin: bool) -> None:
    """With --as, also what that person may do with it."""
    actor = _actor_of(console, person, roles, admin)

    async def read(client: Client) -> TaskDetail:
        return await client.tasks.get(id, by=actor)

    task = console.request("tasks show", task=id) if console.server is not None else console.ask(read)
    console.answer(_document(task), _text(task, datetime.now(UTC)))


def _text(task: TaskDetail, now: datetime) -> str:
    people = [*task.users, *(f"role {role}" for role in task.roles)]
    rows = [
        ("task", f"{task.id} {task.name}"),
        ("title", task.title),
        ("status", _state(task)),
        ("owner", task.owner),
        ("for", ", ".join(people)),
        ("not for", ", ".join(task.exclude)),
        ("due", "" if task.due is None else f"{local(task.due)} {overdue(task, now)}"),
        ("expires", "" if task.expires is None else local(task.expires)),
        ("about", task.description),
        ("data", "" if task.data is None else short(task.data, None)),
        ("answer", "" if task.form is None else short(task.form, None)),
        ("may", ", ".join(task.may)),
    ]
    parts = [table([[style(name, bold=True), value] for name, value in rows if value])]
    return joined([*parts, "", *(_line(event) for event in task.history)])


def _line(event: TaskEvent) -> str:
    words = [local(event.at), event.what, f"by {event.by}" if event.by else "", event.outcome, event.text]
    changes = [f"{name}: {short(_plain(old))} → {short(_plain(new))}" for name, (old, new) in event.changes.items()]
    return "  ".join([word for word in words if word] + changes)


def _plain(value: object) -> object:
    return msgspec.to_builtins(value)


@define("tasks claim")
@click.argument("id")
@_acts
def claim(console: Console, id: str, person: str | None, roles: tuple[str, ...], admin: bool) -> None:
    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.claim(id, **acting)

    _act(console, "claim", id, _needed(console, person, roles, admin), "claimed", verb)


@define("tasks release")
@click.argument("id")
@_acts
def release(console: Console, id: str, person: str | None, roles: tuple[str, ...], admin: bool) -> None:
    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.release(id, **acting)

    _act(console, "release", id, _needed(console, person, roles, admin), "released", verb)


@define("tasks assign")
@click.argument("id")
@click.argument("who")
@click.option("--who-role", "who_roles", multiple=True, metavar="ROLE", help="A role of WHO, if the task asks for one.")
@click.option("--override", is_flag=True, help="Take the task away from its holder.")
@_acts
def assign(  # noqa: PLR0917
    console: Console,
    id: str,
    who: str,
    who_roles: tuple[str, ...],
    override: bool,
    person: str | None,
    roles: tuple[str, ...],
    admin: bool,
) -> None:
    """A role that WHO has, and that the task asks for, is given with --who-role: perdure does not know who is who."""
    if console.server is not None and who_roles:
        raise Stopped("a server knows the roles of its people: leave out --who-role")

    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.assign(id, Actor(who, who_roles), override=override, **acting)

    _act(console, "assign", id, _needed(console, person, roles, admin), "assigned", verb, to=who, override=override)


@define("tasks complete")
@click.argument("id")
@click.argument("answer", required=False)
@click.option("--override", is_flag=True, help="As an admin: complete what another person has.")
@_acts
def complete(  # noqa: PLR0917
    console: Console,
    id: str,
    answer: str | None,
    override: bool,
    person: str | None,
    roles: tuple[str, ...],
    admin: bool,
) -> None:
    """ANSWER is JSON, @file or - (stdin). Without it, a terminal is asked for each field of the form."""
    actor = _needed(console, person, roles, admin)
    if answer is not None:
        value = read_json(answer, "ANSWER")
    else:

        async def read(client: Client) -> TaskDetail:
            return await client.tasks.get(id, by=actor)

        value = _asked(console.request("tasks show", task=id) if console.server is not None else console.ask(read))

    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.complete(id, value, override=override, **acting)

    _act(console, "complete", id, actor, "completed", verb, answer=value, override=override)


def _asked(task: TaskDetail) -> Any:
    if task.form is None or task.ended_at is not None:
        return None
    if not sys.stdin.isatty():
        raise Stopped(f"task {task.id} wants an answer: give it as JSON, @file or -; `perdure tasks show` has the form")
    return ask_form(task.title, task.form)


@define("tasks change")
@click.argument("id")
@click.option("--priority", type=int, metavar="N", help="0 to 100; higher is more urgent.")
@click.option("--due", metavar="TIME", help="When it is due, like 2026-11-16T09:00:00Z; none removes it.")
@click.option("--expire", metavar="TIME", help="When it ends without an answer; none removes it.")
@_acts
def change(  # noqa: PLR0917
    console: Console,
    id: str,
    priority: int | None,
    due: str | None,
    expire: str | None,
    person: str | None,
    roles: tuple[str, ...],
    admin: bool,
) -> None:
    due_at, expire_at = _time(due, "--due"), _time(expire, "--expire")

    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.change(id, priority=priority, due=due_at, expire=expire_at, **acting)

    _act(
        console,
        "change",
        id,
        _needed(console, person, roles, admin),
        "changed",
        verb,
        **_set(priority=priority if priority is not None else UNSET, due=due_at, expire=expire_at),
    )


def _set(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not UNSET}


def _time(text: str | None, what: str) -> datetime | Unset | None:
    if text is None:
        return UNSET
    return None if text == "none" else read_time(text, what)


@define("tasks comment")
@click.argument("id")
@click.argument("text")
@_acts
def comment(  # noqa: PLR0917
    console: Console, id: str, text: str, person: str | None, roles: tuple[str, ...], admin: bool
) -> None:
    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.comment(id, text, **acting)

    _act(console, "comment", id, _needed(console, person, roles, admin), "commented on", verb, text=text)


@define("tasks escalate")
@click.argument("id")
@click.option(
    "--add-role", "new_roles", multiple=True, metavar="ROLE", help="People of this role may do it from now on."
)
@click.option("--add-user", "users", multiple=True, metavar="ID", help="This person may do it from now on.")
@click.option("--release", is_flag=True, help="Take it away from its holder.")
@click.option("--priority", type=int, metavar="N", help="0 to 100; higher is more urgent.")
@_acts
def escalate(  # noqa: PLR0917
    console: Console,
    id: str,
    new_roles: tuple[str, ...],
    users: tuple[str, ...],
    release: bool,
    priority: int | None,
    person: str | None,
    roles: tuple[str, ...],
    admin: bool,
) -> None:
    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.escalate(
            id, roles=new_roles, users=users, release=release, priority=priority, **acting
        )

    _act(
        console,
        "escalate",
        id,
        _needed(console, person, roles, admin),
        "escalated",
        verb,
        roles=new_roles,
        users=users,
        release=release,
        priority=priority,
    )


@define("tasks cancel")
@click.argument("id")
@click.option("--reason", default="", metavar="TEXT", help="Why. It is needed.")
@_acts
def cancel(  # noqa: PLR0917
    console: Console, id: str, reason: str, person: str | None, roles: tuple[str, ...], admin: bool
) -> None:
    async def verb(client: Client, acting: Acting) -> TaskInfo:
        return await client.tasks.cancel(id, reason, **acting)

    _act(console, "cancel", id, _needed(console, person, roles, admin), "cancelled", verb, reason=reason)
