"""What a task is now, in three forms: the machine's state, its row in the index, and what callers read of it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from perdure.codec import seal, unseal
from perdure.codec.phrases import span
from perdure.kernel.events import Address
from perdure.kernel.moment import TIME_MAX, at_of, when
from perdure.kernel.task import NO_TIME, TaskRow, publication

from .life import ENDED, TaskStatus
from .model import Question, digest_of
from .rights import Standing
from .votes import Vote


class State(msgspec.Struct):
    """What a task is now. The question does not change; what a verb changes of it stands here."""

    question: Question
    created_at: datetime
    generation: int = 1
    status: TaskStatus = TaskStatus.OPEN
    assignee: str = ""
    held_since: datetime | None = None
    priority: int = 50
    due: datetime | None = None
    expire: datetime | None = None
    roles: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    escalated: int = 0  # how many of the planned escalations have happened
    votes: tuple[Vote, ...] = ()
    timers: int = 0  # how many timers were opened
    timer_due: datetime | None = None  # of the open timer, which is the last one; None: none is open
    ended_at: datetime | None = None
    ended_by: tuple[str, ...] = ()
    outcome: str = ""
    answer: str = ""  # the digest of the answer that completed it

    @property
    def standing(self) -> Standing:
        asked = self.question
        shared = asked.quorum is not None
        return Standing(self.status, self.roles, self.users, asked.managers, asked.exclude, self.assignee, shared)

    @property
    def who(self) -> tuple[str, ...]:
        """The names under which the index has the task while it has not ended: see `kernel/task.py`."""
        if self.status in ENDED:
            return ()
        asked = self.question
        named = [f"r:{role}" for role in self.roles] + [f"u:{user}" for user in self.users]
        named += [f"m:{role}" for role in asked.managers] + [f"x:{person}" for person in asked.exclude]
        named += [f"f:{asked.reference}"] if asked.reference else []
        return ("*", *dict.fromkeys([*named, f"a:{self.assignee}"] if self.assignee else named))


class Body(msgspec.Struct, array_like=True):
    """What a row has beside its columns: what rights depend on. Append fields at the end only, with a default."""

    roles: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    managers: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    shared: bool = False
    held_since: int = NO_TIME
    answer: str = ""
    votes: int = 0
    form: str = ""  # the digest of the form, by which callers know whether they have it already


_body: Final = msgspec.msgpack.Decoder(Body)


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A task as lists show it. `owner` is the id of the instance that asked; `votes`: how many people have voted."""

    id: str
    owner: str
    workflow: str
    key: str
    location: str
    name: str
    title: str
    status: str
    assignee: str
    held_since: datetime | None
    priority: int
    created_at: datetime
    due: datetime | None
    expires: datetime | None
    ended_at: datetime | None
    ended_by: tuple[str, ...]
    outcome: str
    reference: str
    labels: dict[str, str]
    roles: tuple[str, ...]
    users: tuple[str, ...]
    managers: tuple[str, ...]
    exclude: tuple[str, ...]
    shared: bool
    votes: int

    @property
    def voted(self) -> int:
        """How many people have voted."""
        return self.votes

    @property
    def completed_by(self) -> tuple[str, ...]:
        """Who completed it: of several people who decide, everybody whose vote counted."""
        return self.ended_by if self.status == TaskStatus.COMPLETED else ()

    @property
    def standing(self) -> Standing:
        return Standing(
            TaskStatus(self.status), self.roles, self.users, self.managers, self.exclude, self.assignee, self.shared
        )


def published(state: State) -> tuple[str, bytes]:
    """The row of a task as its machine publishes it."""
    asked = state.question
    body = Body(
        state.roles,
        state.users,
        asked.managers,
        asked.exclude,
        asked.quorum is not None,
        _column(state.held_since),
        state.answer,
        len(state.votes),
        digest_of(asked.answer) if asked.answer else "",
    )
    row = TaskRow(
        0,
        0,
        asked.workflow,
        asked.key,
        asked.location,
        _text(asked.name),
        _text(asked.title or asked.name),
        state.status.value,
        state.assignee,
        state.priority,
        at_of(state.created_at),
        _column(state.due),
        _column(state.expire),
        _column(state.ended_at),
        msgspec.json.encode(state.ended_by).decode(),
        _text(state.outcome),
        asked.reference,
        msgspec.json.encode(asked.labels, order="sorted").decode(),
        seal(msgspec.msgpack.encode(body)),
    )
    return publication(row, state.who)


def info_of(row: TaskRow) -> TaskInfo:
    """A row as callers read it."""
    body = _body.decode(unseal(row.body))
    return TaskInfo(
        id=str(row.id),
        owner=str(Address(row.workflow, row.key)),
        workflow=row.workflow,
        key=row.key,
        location=row.location,
        name=row.name,
        title=row.title,
        status=row.status,
        assignee=row.assignee,
        held_since=_time(body.held_since),
        priority=row.priority,
        created_at=when(row.created_at),
        due=_time(row.due),
        expires=_time(row.expires),
        ended_at=_time(row.ended_at),
        ended_by=tuple(msgspec.json.decode(row.ended_by)),
        outcome=row.outcome,
        reference=row.reference,
        labels=msgspec.json.decode(row.labels),
        roles=body.roles,
        users=body.users,
        managers=body.managers,
        exclude=body.exclude,
        shared=body.shared,
        votes=body.votes,
    )


def answer_digest(row: TaskRow) -> str:
    """The digest of the answer that completed a task; empty: none did."""
    return _body.decode(unseal(row.body)).answer


def form_digest(row: TaskRow) -> str:
    """The digest of the form of a task; empty: it has none."""
    return _body.decode(unseal(row.body)).form


def _text(text: str) -> str:
    """A text as every database can keep it: no column of PostgreSQL takes a NUL."""
    return text.replace("\x00", "\ufffd")


def _column(time: datetime | None) -> int:
    return NO_TIME if time is None else min(at_of(time), TIME_MAX - 1)


def _time(column: int) -> datetime | None:
    return None if column == NO_TIME else when(column)


def overdue(info: TaskInfo, now: datetime) -> str:
    """How long a task is overdue, or until when there is time; empty: it has no due date."""
    if info.due is None or info.ended_at is not None:
        return ""
    seconds = (info.due - now).total_seconds()
    return f"in {span(seconds)}" if seconds >= 0 else f"{span(-seconds)} overdue"
