"""What a task asks, as data: the question, its quorum and escalations, and the row that lists read.

A question is fixed when the task is asked for: durations have become times, expressions values. Its plain data is the
input of the instance of `perdure.task`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Literal, NoReturn, TypedDict, Unpack

import msgspec

from perdure.codec import encode, is_text, to_plain
from perdure.codec.jsonschema import schema_of
from perdure.errors import BadCall, BadSchema
from perdure.kernel.asked import NAME_MAX, is_name
from perdure.kernel.effects import TASK_WORKFLOW

WORKFLOW: Final = TASK_WORKFLOW
DATA_MAX: Final = 1024 * 1024
KEY_MAX: Final = 400
COMMENT_MAX: Final = 4096

Need = int | Literal["majority", "all"]


class Quorum(msgspec.Struct, frozen=True):
    """Several people decide: `need` votes decide for an outcome, or as many as `veto` names for it. `of` vote."""

    need: Need
    of: int | None = None
    veto: dict[str, int] = {}

    def __post_init__(self) -> None:
        if self.need not in ("majority", "all") and not _is_count(self.need):
            _wrong("quorum", f'need is a number of at least 1, "majority" or "all", found {self.need!r}')
        if self.of is not None and not _is_count(self.of):
            _wrong("quorum", f"of is the number of people who vote, at least 1, found {self.of!r}")
        if self.of is None and isinstance(self.need, str):
            _wrong("quorum", f"need={self.need!r} counts against of=, the number of people who vote: give it")
        if self.of is not None and isinstance(self.need, int) and self.need > self.of:
            _wrong("quorum", f"need={self.need} is above of={self.of}: no outcome could decide")
        if not isinstance(self.veto, dict):
            _wrong("quorum", f'veto has a number of votes by outcome, veto={{"reject": 1}}, found {self.veto!r:.80}')
        for outcome, count in self.veto.items():
            if not isinstance(outcome, str) or not _is_count(count):  # type: ignore[redundant-expr]
                _wrong("quorum", f"veto has a number of votes by outcome, found {outcome!r}: {count!r}")
            if self.of is not None and count > self.of:
                _wrong("quorum", f"veto={{{outcome!r}: {count}}} is above of={self.of}: it could not decide")

    @property
    def needed(self) -> int:
        """How many votes decide for an outcome that has no veto."""
        if isinstance(self.need, int):
            return self.need
        assert self.of is not None
        return self.of if self.need == "all" else self.of // 2 + 1


class Escalation(msgspec.Struct, frozen=True):
    """So long after a task was opened: candidates are added, the holder may lose it, it may become more urgent."""

    after: timedelta
    roles: Sequence[str] = ()
    users: Sequence[str] = ()
    release: bool = False
    priority: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.after, timedelta) or self.after < timedelta(0):  # type: ignore[redundant-expr]
            _wrong("escalation", f"after is a timedelta that is not negative, found {self.after!r:.80}")
        msgspec.structs.force_setattr(self, "roles", texts(self.roles, "the roles of an escalation"))
        msgspec.structs.force_setattr(self, "users", texts(self.users, "the users of an escalation"))
        if self.priority is not None:
            checked_priority(self.priority)
        if not (self.roles or self.users or self.release or self.priority is not None):
            _wrong("escalation", "it changes nothing: give roles=, users=, release=True or priority=")


class Step(msgspec.Struct, frozen=True):
    """An escalation with its time."""

    at: datetime
    roles: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    release: bool = False
    priority: int | None = None


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is asked, and of whom. `workflow` and `key` name the instance that asks, `location` is where it does."""

    name: str
    workflow: str
    key: str
    location: str
    title: str = ""
    description: str = ""
    data: Any = None
    answer: str = ""  # the form as JSON text, because its fields have an order; empty: none
    outcome: str = "outcome"
    roles: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    managers: tuple[str, ...] = ()
    assignee: str = ""
    exclude: tuple[str, ...] = ()
    priority: int = 50
    labels: dict[str, str] = {}
    due: datetime | None = None
    expire: datetime | None = None
    escalate: tuple[Step, ...] = ()
    quorum: Quorum | None = None
    reference: str = ""

    def encode(self) -> bytes:
        """What is not said is left out: most of a question is."""
        given = {name: getattr(self, name) for name, default in _DEFAULTS.items() if getattr(self, name) != default}
        for name in given.keys() & {"escalate", "quorum"}:
            given[name] = to_plain(given[name])
        return encode(
            {"name": self.name, "workflow": self.workflow, "key": self.key, "location": self.location, **given}
        )

    @property
    def form(self) -> dict[str, Any] | None:
        """The JSON Schema of the answer; None: the task is done or not."""
        return _form(self.answer) if self.answer else None

    @property
    def outcomes(self) -> tuple[str, ...] | None:
        """The outcomes that an answer can have; None: any text."""
        field = (self.form or {}).get("properties", {}).get(self.outcome)
        if field is None:
            return ("done",)
        known = field.get("enum") if isinstance(field, dict) else None
        return tuple([each for each in known if isinstance(each, str)]) if known is not None else None

    def outcome_of(self, answer: Any) -> str:
        """The outcome that an answer decides for."""
        found = answer.get(self.outcome) if isinstance(answer, dict) else None
        return found if isinstance(found, str) and found else "done"


_DEFAULTS: Final = {
    field.name: {} if field.name == "labels" else field.default
    for field in msgspec.structs.fields(Question)
    if field.name not in ("name", "workflow", "key", "location")
}


class TaskFields(TypedDict, total=False):
    """What can be said of a task beside its name and its answer."""

    outcome: str
    title: str
    description: str
    data: Any
    roles: Iterable[str]
    users: Iterable[str]
    managers: Iterable[str]
    assignee: str | None
    exclude: Iterable[str | None]
    priority: int
    labels: Mapping[str, str] | None
    due: datetime | timedelta | None
    expire: datetime | timedelta | None
    escalate: Iterable[Escalation]
    quorum: Quorum | None
    reference: str


FIELDS: Final = TaskFields.__optional_keys__


def question(
    name: str,
    *,
    workflow: str,
    key: str,
    location: str,
    now: datetime,
    answer: Any = None,
    **fields: Unpack[TaskFields],
) -> Question:
    """The question that these arguments ask, checked. Raises `BadCall` that says what is wrong and what to write."""
    if not isinstance(name, str) or not name:  # type: ignore[redundant-expr]
        _wrong("task", f"a task has a name, found {name!r:.80}")
    if unknown := fields.keys() - FIELDS:
        _wrong(name, f"a task has no {', '.join(sorted(unknown))}; it has: {', '.join(sorted(FIELDS))}")
    plain = to_plain(fields.get("data"))
    if plain is not None and len(encode(plain)) > DATA_MAX:
        _wrong(name, f"data is at most {DATA_MAX} bytes: keep it elsewhere, and give a reference to it")
    excluded = fields.get("exclude", ())
    if not isinstance(excluded, str):
        excluded = [each for each in excluded if each is not None]
    found = Question(
        name=name,
        workflow=workflow,
        key=key,
        location=location,
        title=checked_text(fields.get("title", ""), f"{name}: title"),
        description=checked_text(fields.get("description", ""), f"{name}: description"),
        data=plain,
        answer="" if answer is None else msgspec.json.encode(_schema(name, answer)).decode(),
        outcome=checked_text(fields.get("outcome", "outcome"), f"{name}: outcome"),
        roles=texts(fields.get("roles", ()), f"{name}: roles"),
        users=texts(fields.get("users", ()), f"{name}: users"),
        managers=texts(fields.get("managers", ()), f"{name}: managers"),
        assignee=_name(fields.get("assignee"), f"{name}: assignee"),
        exclude=texts(excluded, f"{name}: exclude"),
        priority=checked_priority(fields.get("priority", 50)),
        labels=_labels(fields.get("labels") or {}, name),
        due=moment_of(fields.get("due"), now, f"{name}: due"),
        expire=moment_of(fields.get("expire"), now, f"{name}: expire"),
        escalate=_steps(fields.get("escalate", ()), now, name),
        quorum=fields.get("quorum"),
        reference=_name(fields.get("reference"), f"{name}: reference"),
    )
    _refuse_impossible(found)
    return found


def _refuse_impossible(asked: Question) -> None:
    if not (asked.roles or asked.users or asked.assignee):
        _wrong(asked.name, "nobody can complete it: give roles=, users= or assignee= (PD042)")
    if asked.assignee and asked.assignee in asked.exclude:
        _wrong(asked.name, f"{asked.assignee} is its assignee and excluded")
    quorum = asked.quorum
    if quorum is not None:
        if not isinstance(quorum, Quorum):
            _wrong(asked.name, f"quorum is a perdure.Quorum, Quorum(2) for two votes, found {quorum!r:.80}")
        if asked.assignee:
            _wrong(asked.name, "several people decide it, so it has no assignee: leave out assignee= or quorum=")
        for outcome in quorum.veto:
            if asked.outcomes is not None and outcome not in asked.outcomes:
                known = ", ".join(asked.outcomes)
                _wrong(asked.name, f"veto names the outcome {outcome!r}, which the answer does not have: {known}")


def key_of(owner_key: str, generation: int, workflow: str, location: str) -> str:
    """The key of the task that an owner asks for at a location."""
    owner = owner_key if generation <= 1 else f"{owner_key}~{generation}"
    key = f"{owner}/@{workflow}/{location}"
    if len(key) <= KEY_MAX:
        return key
    short = blake2b(location.encode(), digest_size=8).hexdigest()
    return f"{owner}/@{workflow}/~{short}"


# ---- checks --------------------------------------------------------------------------------------------------------


def texts(values: Any, what: str) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise BadCall(f"{what} is a list of texts, found {values!r:.80}")
    found = tuple(values)
    for value in found:
        if not is_name(value):
            raise BadCall(f"{what} is a list of texts of 1 to {NAME_MAX} characters, found {value!r:.80} in it")
    return tuple(dict.fromkeys(found))


def checked_text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise BadCall(f"{what} is a text, found {value!r:.80}")
    return value


def _name(value: Any, what: str) -> str:
    if value and not is_name(value):
        raise BadCall(f"{what} is a text of at most {NAME_MAX} characters, found {value!r:.80}")
    return value or ""


def checked_priority(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 100:
        raise BadCall(f"priority is a whole number from 0 to 100, found {value!r:.80}")
    return value


def moment_of(value: Any, now: datetime, what: str) -> datetime | None:
    """A time, or a duration from now."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise BadCall(f"{what} is a duration that is not negative, found {value!r}")
        try:
            return now + value
        except OverflowError:
            raise BadCall(f"{what} lies too far in the future: {value!r}") from None
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise BadCall(f"{what} is a time with a time zone, found {value!r}: add tzinfo=UTC")
        return value
    raise BadCall(f"{what} is a datetime or a timedelta, found {value!r:.80}")


def _steps(escalate: Iterable[Escalation], now: datetime, name: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    for each in escalate if isinstance(escalate, Iterable) else (escalate,):  # type: ignore[redundant-expr]
        if not isinstance(each, Escalation):
            _wrong(name, f"escalate is a list of perdure.Escalation, found {each!r:.80}")
        at = moment_of(each.after, now, f"{name}: escalate")
        assert at is not None
        steps.append(Step(at, tuple(each.roles), tuple(each.users), each.release, each.priority))
    return tuple(sorted(steps, key=lambda step: step.at))


def _labels(labels: Mapping[str, str], name: str) -> dict[str, str]:
    if not isinstance(labels, Mapping):
        _wrong(name, f"labels are texts by name, found {labels!r:.80}")
    for label, value in labels.items():
        if not isinstance(label, str) or not isinstance(value, str):  # type: ignore[redundant-expr]
            _wrong(name, f"labels are texts by name, found {label!r:.80}: {value!r:.80}")
    return dict(labels)


@lru_cache(maxsize=512)
def digest_of(form: str) -> str:
    return blake2b(form.encode(), digest_size=8).hexdigest()


@lru_cache(maxsize=512)
def _form(text: str) -> dict[str, Any]:
    form: dict[str, Any] = msgspec.json.decode(text)
    return form


def _schema(name: str, answer: Any) -> dict[str, Any]:
    try:
        return schema_of(answer)
    except BadSchema as error:
        raise BadCall(f"the answer of the task {name}: {error}") from None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _wrong(what: str, text: str) -> NoReturn:
    raise BadCall(f"{what}: {text}")
