"""The history of a task: what people and time did to it, read from its journal."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from perdure.codec import decode
from perdure.codec.jsonschema import read
from perdure.errors import Misfit
from perdure.kernel.entry import Entry
from perdure.kernel.events import CancelAsked, Message, ReceiptArrived, Started
from perdure.kernel.moment import when
from perdure.kernel.task import TASK, TaskRow

from .life import TaskStatus
from .model import Question
from .row import TaskInfo, info_of
from .votes import Vote

DONE: Final = {
    "claim": "claimed",
    "assign": "assigned",
    "release": "released",
    "change": "changed",
    "comment": "commented",
    "complete": "completed",
    "escalate": "escalated",
    "cancel": "cancelled",
}
COMPARED: Final = ("assignee", "priority", "due", "expires", "roles", "users")


class TaskEvent(msgspec.Struct, frozen=True):
    """What happened to a task. `changes` has old and new value of what is another one since, by field."""

    at: datetime
    what: str
    by: str = ""
    text: str = ""  # of a comment, or the reason of a cancel
    changes: dict[str, tuple[Any, Any]] = {}
    outcome: str = ""


def history(entries: Iterable[Entry]) -> list[TaskEvent]:
    """Refused verbs are in the journal and not here: they changed nothing."""
    found: list[TaskEvent] = []
    before: TaskInfo | None = None
    for entry in entries:
        after = _row(entry) or before
        if after is not None and not _refused(entry):
            found += _events(entry, before, after)
        before = after
    return found


def vote_of(entries: Iterable[Entry], person: str) -> dict[str, Any] | None:
    """What the last vote of a person was sent with; None: there is none."""
    return next((body for by, _, body in reversed(_answers(entries)) if by == person), None)


def votes_of(entries: Iterable[Entry], asked: Question) -> list[Vote]:
    """The vote of each person, the newest last. Those of a task that was completed are in its result."""
    found: dict[str, Vote] = {}
    recorded: list[Any] = []
    for by, entry, body in _answers(entries):
        answer = _fitting(asked.form, body["answer"])
        found.pop(by, None)
        found[by] = Vote(by, asked.outcome_of(answer), answer, when(entry.clock))
        if entry.decision.outcome is not None and entry.decision.outcome.value is not None:
            recorded = decode(entry.decision.outcome.value)["votes"]
    return [Vote(*each) for each in recorded] or list(found.values())


def _answers(entries: Iterable[Entry]) -> list[tuple[str, Entry, dict[str, Any]]]:
    """The answers that the task has taken: by whom, and what was sent."""
    found = []
    for entry in entries:
        event = entry.event
        if type(event) is Message and event.name == "complete" and _row(entry) is not None:
            asked = event.asked
            if asked is not None and asked.by is not None:
                found.append((asked.by.id, entry, decode(event.body)))
    return found


def _fitting(form: dict[str, Any] | None, answer: Any) -> Any:
    """The answer as its form means it; as it was sent, where a newer validator would refuse it."""
    try:
        return answer if form is None else read(form, answer)
    except Misfit:
        return answer


def _row(entry: Entry) -> TaskInfo | None:
    values = [value for name, value in entry.decision.publish if name == TASK]
    return info_of(TaskRow(entry.instance, 0, *decode(values[-1])[:-1])) if values else None


def _refused(entry: Entry) -> bool:
    """A verb that is taken is answered with the row, one that is not with a reason."""
    return any(isinstance(decode(value), dict) for _, value in entry.decision.respond)


def _events(entry: Entry, before: TaskInfo | None, after: TaskInfo) -> list[TaskEvent]:
    at, event = when(entry.clock), entry.event
    changes: dict[str, tuple[Any, Any]] = {}
    if before is not None:
        pairs = {name: (getattr(before, name), getattr(after, name)) for name in COMPARED}
        changes = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    match event:
        case Started():
            return [TaskEvent(at, "created")]
        case Message(name=verb, asked=asked) if verb in DONE:
            by = "" if asked is None or asked.by is None else asked.by.id
            text = decode(event.body).get("text", "") if verb == "comment" else "" if asked is None else asked.reason
            if verb != "complete":
                return [TaskEvent(at, DONE[verb], by, text, changes)]
            if entry.decision.outcome is None:
                return [TaskEvent(at, "voted", by, text)]
            return [TaskEvent(at, "completed", by, text, outcome=after.outcome)]
        case ReceiptArrived():
            expired = after.status == TaskStatus.EXPIRED
            return [TaskEvent(at, "escalated", changes=changes)] * bool(changes) + [TaskEvent(at, "expired")] * expired
        case CancelAsked(reason=reason):
            return [TaskEvent(at, "cancelled", text=reason)]
        case _:
            return []
