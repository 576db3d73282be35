"""What can be seen of an instance, as data: entries in words, what is open, and why it does not move.

`runtime/history.py` reads it from the journal, `views/` puts it together. A dialect says what its instances wait for in
its own words: see `Words`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

import msgspec

from perdure.codec import decode
from perdure.codec.phrases import ago, first_line, local, span, until
from perdure.kernel.decision import Fact, Stuck
from perdure.kernel.effects import Call
from perdure.kernel.instance import Instance, Intent
from perdure.kernel.policy import ANY, Policy
from perdure.kernel.receipt import Failure
from perdure.kernel.rules import NO_RULES, Rules
from perdure.kernel.task import TaskRow

from .frame import Frame
from .store import JobState


class Line(msgspec.Struct, frozen=True):
    """One entry: `event` in one word, the `location` it belongs to, the `value` that came, what it `opened`.

    `announced` has the names of the domain events that it led to, `facts` these themselves, each with `name` and
    `value`; `seq` is its place in the journal. `noted` has the operations that needed no effect, as kind and location.
    `by` is the actor that asked for it, `reason` why, if they are known.
    """

    number: int
    at: datetime
    event: str
    location: str = ""
    status: str = ""
    value: Any = None
    error: Failure | None = None
    opened: tuple[str, ...] = ()
    outcome: str = ""
    announced: tuple[str, ...] = ()
    seq: int = 0
    facts: tuple[Fact, ...] = ()
    noted: tuple[str, ...] = ()
    by: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """What came, in a word or two."""
        return f"{self.event} {self.location}".strip()


class Summary(msgspec.Struct, frozen=True):
    """An instance in a list."""

    id: int
    workflow: str
    key: str
    generation: int
    version: str
    status: str
    started_at: datetime
    changed_at: datetime
    parent: int
    tags: dict[str, Any]  # texts, numbers, bools, times
    root: int = 0
    ended_at: datetime | None = None
    reason: str = ""  # what it waits for, or its error and where


class Waiting(msgspec.Struct, frozen=True):
    """What an instance has open, since when, and what would move it."""

    kind: str
    location: str
    since: datetime
    due: datetime | None
    attempt: int
    delivery: int
    held: bool
    what: str
    once: bool  # a step that a crash makes unknown
    progress: Frame | None = None  # live, where it is seen: no part of the history
    intent: str = ""  # its id: `handle.send(..., intent=)` answers this wait and no other
    job: JobState | None = None  # of a step in a queue, where it is seen
    schema: dict[str, Any] | None = None  # of the message that it waits for, where the definition has it


class Advice(msgspec.Struct, frozen=True):
    """What would move an instance: a text, a command (a verb and its words), or a text that leads to a command."""

    text: str = ""
    command: tuple[str, ...] = ()


class Reason(msgspec.Struct, frozen=True):
    """Why an instance does not move. Without `todo`: time or the engine will move it."""

    kind: str
    text: str
    todo: tuple[Advice, ...] = ()
    waiting: Waiting | None = None


class Seen(msgspec.Struct, frozen=True):
    """All that is known of one instance at one time. `lines` is its whole history."""

    now: datetime
    summary: Summary
    state: Instance
    lines: Sequence[Line]
    waiting: Sequence[Waiting]
    policy: Policy = ANY
    definition: bytes | None = None  # of its version, where a definition is data that the database has
    undelivered: Sequence[Line] = ()  # on the way to it
    children: Mapping[str, str] = {}  # by location: the status of a child that has started
    tasks: Mapping[str, TaskRow] = {}  # by location: of those children, the tasks
    engine: str | None = None  # the engine that runs; None: no engine does
    workflows: frozenset[str] = frozenset()  # the names that this engine knows
    versions: frozenset[str] = frozenset()  # of this instance's workflow, those that this engine has
    rules: Rules = NO_RULES
    database: str = "this database"
    server: bool = False  # the database is served by a server, and workers may come

    @property
    def id(self) -> str:
        return str(self.state.address)

    @property
    def result(self) -> Any:
        return result_of(self.state)

    @property
    def error(self) -> Failure | None:
        return error_of(self.state)

    def command(self, verb: str, *words: str) -> tuple[str, ...]:
        """A command about this instance."""
        return (verb, self.id, *words)

    def intent(self, open: Waiting) -> Intent | None:
        return self.state.at(open.location)

    # ---- phrases that every dialect needs ----------------------------------------------------------------------

    def since(self, open: Waiting) -> str:
        return f" since {span((self.now - open.since).total_seconds())}"

    def at(self, due: datetime) -> str:
        return f"{local(due)} ({until(due, self.now)})"

    def deadline(self, open: Waiting) -> str:
        return "" if open.due is None else f", at most until {self.at(open.due)}"

    def cut(self, open: Waiting) -> str:
        """When a call is cut."""
        intent = self.intent(open)
        timeout = intent.effect.timeout if intent is not None and isinstance(intent.effect, Call) else None
        return "" if timeout is None else f", cut after {timeout / 1e9:g} s"

    def ago(self, at: datetime) -> str:
        return ago(at, self.now)

    def last_error(self, location: str) -> str:
        """The error of the last receipt at a location."""
        for line in reversed(self.lines):
            if line.event == "receipt" and line.location == location:
                return first_line(str(line.error)) if line.error is not None else ""
        return ""


@runtime_checkable
class TakesMessages(Protocol):
    """A workflow that knows the messages of its instances."""

    def message_schemas(self) -> dict[str, list[dict[str, Any]]]:
        """JSON Schemas by name, one for each place that takes the message; an empty one takes anything."""
        ...


def schema_of_message(code: Any, name: str) -> dict[str, Any] | None:
    """The schema of a message, if the code of a workflow has one."""
    known = code.message_schemas().get(name, []) if isinstance(code, TakesMessages) else []
    if not known or not all(known):
        return None
    return known[0] if len(known) == 1 else {"anyOf": known}


class Words:
    """What a dialect says of its instances. Each answer may be None: then the words are the common ones."""

    policy: Policy = ANY
    """What holds for instances of a workflow that no engine has registered lately."""

    code: str = "workflow's code"
    """What people call the code that a delivery runs."""

    def name(self, location: str) -> str | None:
        """The step at a location, as the subject of a sentence."""
        return None

    def open(self, seen: Seen, open: Waiting) -> Reason | None:
        """Why it waits for something that is open."""
        return None

    def idle(self, seen: Seen) -> Reason | None:
        """What it waits for when nothing is open and nothing is in its way."""
        return None

    def ways_out(self, seen: Seen, stuck: Stuck) -> tuple[Advice, ...] | None:
        """What to do about an instance that is stuck."""
        return None

    def ended(self, seen: Seen) -> Reason | None:
        """How it ended."""
        return None

    def besides(self, seen: Seen) -> Iterable[Reason]:
        """What is worth telling of an instance that has ended, besides how."""
        return ()

    def repeats(self, name: str) -> bool:
        """Whether what is published or announced by this name, or the data of such an error, only tells again what
        the history has, with its times: two instances are not compared by it."""
        return False

    def table(self, lines: Sequence[Line]) -> list[dict[str, Any]] | None:
        """The parts of an instance, a row for each, as its history tells them; None: it has no such parts."""
        return None


def holder(worker: str, claimed: datetime | None, now: datetime) -> str:
    """Who has a step of a queue, and since when. A worker's name on a cluster begins with the kind of the cluster."""
    kind, _, name = worker.partition(" ")
    since = "" if claimed is None else f" since {span((now - claimed).total_seconds())}"
    return (f"on the cluster: {kind} worker {name}" if name else f"worker {worker}") + since


def result_of(state: Instance) -> Any:
    value = state.outcome.value if state.outcome is not None else None
    return None if value is None else decode(value)


def error_of(state: Instance) -> Failure | None:
    if state.stuck is not None:
        return state.stuck.error
    return state.outcome.error if state.outcome is not None else None
