"""The tasks of a database, as callers hold them: `engine.tasks`. Lists are read from the index, verbs are messages.

Who may do what is judged on the row first: a refusal leaves no entry. The machine of the task judges again, because two
people may act at once.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypedDict, Unpack

import msgspec

from perdure.codec import decode, digest, encode, from_plain, to_plain
from perdure.errors import (
    BadAnswer,
    BadCall,
    CallerError,
    InstanceEnded,
    Misfit,
    NotAnswered,
    Problem,
    TaskRefused,
    UnknownTask,
)
from perdure.kernel.asked import Actor, actor_of
from perdure.kernel.entry import Entry
from perdure.kernel.entry import decode as decode_entry
from perdure.kernel.events import Address, Started
from perdure.kernel.location import Patterns
from perdure.kernel.rows import response_name
from perdure.kernel.task import TaskRow
from perdure.kernel.workflows import Workflows
from perdure.ports.store import TaskFilter, TaskOrder
from perdure.tasks.history import TaskEvent, history, vote_of, votes_of
from perdure.tasks.life import TaskStatus
from perdure.tasks.machine import BAD_ANSWER, BAD_REQUEST, checked_comment, fitting
from perdure.tasks.model import WORKFLOW, Question, Quorum, checked_priority, moment_of, texts
from perdure.tasks.rights import VERBS, Refusal, Standing, TaskRequest, Verb, may_see, refusal
from perdure.tasks.row import TaskInfo, answer_digest, form_digest, info_of
from perdure.tasks.votes import Vote

from .arguments import Said, checked_text, limited
from .connection import Connection, Speaker
from .handle import Handle
from .startable import Named
from .task_filters import Wanted, checked_order, filter_of, place_of, shows_all

FORMS_MAX: Final = 1000
"""So many forms are remembered."""

PAGE: Final = 500
NONE: Final[Workflows[Any]] = Workflows()
SOME_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)  # to check a duration before the task knows since when it counts

By = Actor | str


class TaskDetail(TaskInfo, frozen=True, kw_only=True):
    """A task with all that is known of it. `form` is JSON Schema; `votes` has one for each person who voted, the newest
    last; `may` are the verbs that the actor may use now.

    `against` says why not the others. `override` are those of `may` that an actor must ask for with `override`.
    """

    description: str
    data: Any
    form: dict[str, Any] | None
    quorum: Quorum | None
    votes: tuple[Vote, ...]  # type: ignore[assignment]  # lists have their number alone
    history: tuple[TaskEvent, ...]
    may: tuple[str, ...]
    against: dict[str, str]
    override: tuple[str, ...]

    @property
    def voted(self) -> int:
        return len(self.votes)


class Acting(TypedDict, total=False):
    """What each verb takes: who acts (needed), an id by which the verb is known if it comes twice, how long to wait."""

    by: By | None
    id: str | None
    timeout: float | timedelta | None


class Unset(msgspec.Struct, frozen=True):
    """Says that a change leaves a field as it is: None removes it."""


UNSET: Final = Unset()


class Tasks(Speaker):
    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._forms: dict[str, dict[str, Any] | None] = {}

    # ---- reading -------------------------------------------------------------------------------------------

    async def list(
        self,
        by: By | None = None,
        *,
        order: TaskOrder = "created",
        after: TaskInfo | str | None = None,
        limit: int = 50,
        **wanted: Unpack[Wanted],
    ) -> list[TaskInfo]:
        """A page of tasks, those that `by` may see; without `by`, all.

        `candidate`: what the actor may take, or has. `mine`: what the actor has. `after` is the last one of the page
        before. Tasks without a due date come last in the order of due dates, equal ones in the order of their ids.
        """
        actor = None if by is None else actor_of(by)
        if type(limit) is not int or limit < 1:
            raise BadCall(f"limit is a number of at least 1, found {limit!r:.80}")
        checked_order(order)
        place = None if after is None else await self._place(order, after)
        filter = msgspec.structs.replace(filter_of(actor, wanted), order=order, after=place, limit=limit)
        found: list[TaskInfo] = []
        async for row in self._rows(filter):
            info = info_of(row)
            if actor is None or may_see(info.standing, actor):
                found.append(info)
                if len(found) == limit:
                    break
        return found

    async def count(self, by: By | None = None, **wanted: Unpack[Wanted]) -> int:
        """How many tasks a list with the same arguments has."""
        actor = None if by is None else actor_of(by)
        filter = filter_of(actor, wanted)
        if actor is None or shows_all(actor, filter, wanted):
            return await self._connection.queries.count_tasks(filter)
        filter = msgspec.structs.replace(filter, limit=PAGE)
        return len([row async for row in self._rows(filter) if may_see(info_of(row).standing, actor)])

    async def get(self, task: str, by: By | None = None) -> TaskDetail:
        """A task with its data, form, votes and history, and what `by` may do with it."""
        actor = None if by is None else actor_of(by)
        row = await self._row(task, actor)
        info, asked = info_of(row), await self._question(row.id)
        entries = await self._entries(row.id)
        judged = {} if actor is None else {verb: _judged(info.standing, verb, actor) for verb in VERBS}
        return TaskDetail(
            **{field: getattr(info, field) for field in TaskInfo.__struct_fields__ if field != "votes"},
            description=asked.description,
            data=asked.data,
            form=asked.form,
            quorum=asked.quorum,
            votes=tuple(votes_of(entries, asked)) if info.votes else (),
            history=tuple(history(entries)),
            may=tuple([verb for verb, (against, _) in judged.items() if against is None]),
            against={verb: against.text for verb, (against, _) in judged.items() if against is not None},
            override=tuple(
                [verb for verb, (against, plain) in judged.items() if against is None and plain is not None]
            ),
        )

    async def _rows(self, filter: TaskFilter) -> AsyncIterator[TaskRow]:
        """All rows of a filter, page by page."""
        while rows := await self._connection.queries.tasks(filter):
            for row in rows:
                yield row
            if len(rows) < filter.limit:
                return
            filter = msgspec.structs.replace(filter, after=place_of(filter.order, info_of(rows[-1])))

    async def _place(self, order: TaskOrder, after: TaskInfo | str) -> tuple[int, int]:
        info = after if isinstance(after, TaskInfo) else info_of(await self._row(after, None))
        return place_of(order, info)

    async def _row(self, task: str, actor: Actor | None) -> TaskRow:
        if isinstance(task, TaskInfo):
            raise BadCall(f"a task is named by its id: give task.id, which is {task.id!r}, and not the task itself")
        row = await self._connection.queries.task(int(task)) if _is_id(task) else None
        if row is None or (actor is not None and not may_see(info_of(row).standing, actor)):
            raise UnknownTask(_unknown(task))
        return row

    async def _entries(self, id: int) -> builtins.list[Entry]:
        rows, patterns = await self._connection.queries.history(id), Patterns()
        return [decode_entry(each.seq, each.instance, each.at, each.body, patterns) for each in rows]

    async def _question(self, id: int) -> Question:
        (row,) = await self._connection.queries.history(id, limit=1)
        event = decode_entry(row.seq, row.instance, row.at, row.body, Patterns()).event
        assert type(event) is Started
        question: Question = from_plain(decode(event.input), Question)
        return question

    # ---- verbs ---------------------------------------------------------------------------------------------

    async def claim(self, task: str, **acting: Unpack[Acting]) -> TaskInfo:
        """Take a task that is free."""
        return await self._verb(task, "claim", {}, acting)

    async def release(self, task: str, **acting: Unpack[Acting]) -> TaskInfo:
        """Give a task back."""
        return await self._verb(task, "release", {}, acting)

    async def assign(self, task: str, to: By, *, override: bool = False, **acting: Unpack[Acting]) -> TaskInfo:
        """Give a task to a person: an actor with its roles, or the id of a user. `override`: its holder loses it."""
        person = actor_of(to)
        arguments = {"to": [person.id, list(person.roles)], "override": override}
        return await self._verb(task, "assign", arguments, acting, to=person, override=override)

    async def complete(
        self, task: str, answer: Any = None, *, override: bool = False, **acting: Unpack[Acting]
    ) -> TaskInfo:
        """Answer a task, or vote. `BadAnswer` has everything that does not fit its form.

        Who completes a task again with the same answer, or votes the same again, gets the first result.
        """
        plain = to_plain(answer)
        limited(encode(plain), "an answer")
        return await self._verb(task, "complete", {"answer": plain, "override": override}, acting, override=override)

    async def change(
        self,
        task: str,
        *,
        priority: int | None = None,
        due: datetime | timedelta | Unset | None = UNSET,
        expire: datetime | timedelta | Unset | None = UNSET,
        **acting: Unpack[Acting],
    ) -> TaskInfo:
        """Change how urgent a task is, when it is due, or when it expires; None removes a time."""
        arguments: dict[str, Any] = {} if priority is None else {"priority": checked_priority(priority)}
        for name, value in (("due", due), ("expire", expire)):
            if not isinstance(value, Unset):
                moment_of(value, SOME_TIME, name)
                arguments[name] = value
        if not arguments:
            raise BadCall("change(task, ...) changes nothing: give priority=, due= or expire=")
        return await self._verb(task, "change", arguments, acting)

    async def comment(self, task: str, text: str, **acting: Unpack[Acting]) -> TaskInfo:
        """Say something for the history of a task."""
        return await self._verb(task, "comment", {"text": checked_comment(text)}, acting)

    async def escalate(
        self,
        task: str,
        *,
        roles: Iterable[str] = (),
        users: Iterable[str] = (),
        release: bool = False,
        priority: int | None = None,
        **acting: Unpack[Acting],
    ) -> TaskInfo:
        """Add candidates, take the task from its holder, make it more urgent: what an `Escalation` does by itself."""
        arguments = {
            "roles": list(texts(roles, "roles")),
            "users": list(texts(users, "users")),
            "release": release,
            "priority": None if priority is None else checked_priority(priority),
        }
        if not any(value not in (None, False, []) for value in arguments.values()):
            raise BadCall("escalate(task, ...) changes nothing: give roles=, users=, release=True or priority=")
        return await self._verb(task, "escalate", arguments, acting)

    async def cancel(self, task: str, reason: str = "", **acting: Unpack[Acting]) -> TaskInfo:
        """End a task without an answer. Its owner hears the reason."""
        if reason:
            checked_text(reason, "a reason")
        return await self._verb(task, "cancel", {}, acting, reason=reason)

    async def _verb(
        self,
        task: str,
        verb: Verb,
        arguments: dict[str, Any],
        acting: Acting,
        *,
        to: Actor | None = None,
        override: bool = False,
        reason: str = "",
    ) -> TaskInfo:
        if wrong := acting.keys() - Acting.__optional_keys__:
            raise BadCall(f"tasks.{verb}(...) takes by=, id= and timeout= of every verb, and no {', '.join(wrong)}=")
        by, id = acting.get("by"), acting.get("id")
        if by is None:
            raise BadCall(f"tasks.{verb}(...) needs the actor who does it: by=perdure.Actor(id, roles=[...])")
        actor = actor_of(by)
        row = await self._row(task, actor)
        if id is not None and (known := await self._known(row, id)) is not None:
            return _result(row, known)
        request = TaskRequest(verb, actor, to, override, reason)
        done = await self._judged(row, request, arguments)
        if done is not None:
            return done
        said: Said = {"id": id, "by": actor}
        if reason:
            said["reason"] = reason
        handle: Handle[Any] = Handle(self._connection, Address(WORKFLOW, task), Named(WORKFLOW), row.id, NONE)
        try:
            response = await self._ask(handle, verb, arguments, acting, said)
        except (InstanceEnded, NotAnswered):  # it ended meanwhile, perhaps by the same verb
            row = await self._row(task, actor)
            if id is not None and (known := await self._known(row, id)) is not None:
                return _result(row, known)
            done = await self._judged(row, request, arguments)
            assert done is not None, "an ended task takes no verb"
            return done
        return _result(row, response)

    async def _ask(self, handle: Handle[Any], verb: str, arguments: dict[str, Any], acting: Acting, said: Said) -> Any:
        """Send a verb, and wait for the response of the task."""
        return await handle.ask(verb, arguments, acting.get("timeout"), **said)

    async def _judged(self, row: TaskRow, request: TaskRequest, arguments: dict[str, Any]) -> TaskInfo | None:
        """The task, if the verb changes nothing; None: it is to be done. Raises what is wrong with it."""
        info = info_of(row)
        against = refusal(info.standing, request)
        if request.verb == "complete":
            if against is None:
                answer = await self._fitting(row, arguments["answer"])
                if info.votes and await self._is_vote(row, request.by, answer):
                    return info
            elif against.code == "ended" and await self._is_same(row, request.by, arguments["answer"]):
                return info
        if against is not None:
            if against.code == "unknown":
                raise UnknownTask(_unknown(info.id))
            raise TaskRefused(against.code, against.text, info.assignee, info.ended_by, info.ended_at)
        unchanged = (request.verb == "claim" and info.assignee == request.by.id) or (
            request.verb == "release" and info.status == TaskStatus.OPEN
        )
        return info if unchanged else None

    async def _is_same(self, row: TaskRow, by: Actor, answer: Any) -> bool:
        """Whether the actor completed the task with this answer."""
        info = info_of(row)
        if row.status != TaskStatus.COMPLETED or not (info.shared or by.id in info.ended_by):
            return False
        try:
            fits = await self._fitting(row, answer)
        except BadAnswer:
            return False
        return await self._is_vote(row, by, fits) if info.shared else answer_digest(row) == digest(encode(fits))

    async def _is_vote(self, row: TaskRow, by: Actor, answer: Any) -> bool:
        """Whether the vote that the actor has is this answer."""
        vote = vote_of(await self._entries(row.id), by.id)
        return vote is not None and encode(await self._fitting(row, vote["answer"])) == encode(answer)

    async def _fitting(self, row: TaskRow, answer: Any) -> Any:
        try:
            return fitting(await self._form(row), answer)
        except Misfit as misfit:
            raise BadAnswer(misfit.problems, f"task {row.id} ({row.name})") from None

    async def _form(self, row: TaskRow) -> dict[str, Any] | None:
        """Tasks that one line of code asks for have one form: it is read once."""
        digest = form_digest(row)
        if digest and digest not in self._forms:
            self._forms[digest] = (await self._question(row.id)).form
            if len(self._forms) > FORMS_MAX:
                del self._forms[next(iter(self._forms))]
        return self._forms[digest] if digest else None

    async def _known(self, row: TaskRow, id: str) -> Any:
        """The response that a verb with this id got before."""
        value = await self._connection.queries.published(row.id, response_name(checked_text(id, "the id of a verb")))
        return None if value is None else decode(value)


def _result(row: TaskRow, response: Any) -> TaskInfo:
    """The response of the machine: the columns of the row, or why the verb is refused."""
    if isinstance(response, list):
        return info_of(TaskRow(row.id, row.owner, *response[:-1]))
    code = response["refused"]
    if code == "unknown":
        raise UnknownTask(_unknown(str(row.id)))
    if code == BAD_ANSWER:
        raise BadAnswer([Problem(*each) for each in response["problems"]], f"task {row.id} ({row.name})")
    if code == BAD_REQUEST:
        raise CallerError(response["text"])
    raise TaskRefused(code, response["text"], response.get("holder", ""))


def _judged(task: Standing, verb: Verb, actor: Actor) -> tuple[Refusal | None, Refusal | None]:
    """Why an actor may not use a verb whose arguments are right: with `override`, and without."""
    to = Actor(actor.id, (*task.roles, *actor.roles)) if verb == "assign" else None
    asked = TaskRequest(verb, actor, to, True, "some reason")
    return refusal(task, asked), refusal(task, msgspec.structs.replace(asked, override=False))


def _is_id(task: Any) -> bool:
    return isinstance(task, str) and task.isascii() and task.isdigit() and len(task) < 20


def _unknown(task: Any) -> str:
    if not _is_id(task):
        return f"{task!r:.80} is no id of a task: an id is a number as text, '1042'; `perdure tasks ls` lists tasks"
    return f"there is no task {task!r}, or it is not for this actor; `perdure tasks ls` lists tasks"
