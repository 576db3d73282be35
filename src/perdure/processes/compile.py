"""A definition made ready to run: sequences and steps with numbers, and compiled expressions. Immutable.

A program follows from the bytes of a definition and from the functions that it calls. Snapshots name sequences by
their numbers, so they belong to one hash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final

import msgspec

from perdure.codec import decode, digest, encode
from perdure.errors import BadProcess, Problem
from perdure.expressions import Expression, compile_tree
from perdure.kernel.backoff import Backoff
from perdure.kernel.location import escape
from perdure.kernel.moment import MICROSECOND
from perdure.tasks.model import Escalation, Quorum

from .fields import LIMITS, given
from .model import STEPS, TASK, every_step, functions_in, names_of
from .paths import member

Users = Mapping[str, Callable[..., Any]]

_COMPUTED: Final = {
    kind: [name for name, field in step.fields.items() if field.read is given] for kind, step in STEPS.items()
}
_TASK_COMPUTED: Final = [name for name, field in TASK.items() if field.read is given]


class Op:
    """One step. `e` has its expressions by field, `s` its sequences by the segment of their location."""

    __slots__ = ("data", "e", "kind", "name", "s")

    def __init__(self, name: str, data: dict[str, Any]) -> None:
        self.name = escape(name)
        self.kind: str = data["kind"]
        self.data = data
        self.e: dict[str, Expression] = {}
        self.s: dict[str, Seq] = {}

    def span(self, field: str) -> int | None:
        """A duration in nanoseconds."""
        text = self.data.get(field)
        if text is None:
            default = STEPS[self.kind].fields[field].default
            text = default if isinstance(default, str) else None
        return None if text is None else nanoseconds(msgspec.convert(text, timedelta))

    def get(self, field: str) -> Any:
        """The value of a field, or its default."""
        return self.data.get(field, STEPS[self.kind].fields[field].default)


class Seq:
    """A sequence of steps. `owner` is the step that it is inside of; None: the main one."""

    __slots__ = ("number", "ops", "owner")

    def __init__(self, number: int, owner: Op | None) -> None:
        self.number = number
        self.owner = owner
        self.ops: list[Op] = []


class TaskPlan:
    """A task declaration with its expressions compiled."""

    __slots__ = ("answer", "e", "escalate", "managers", "outcome", "quorum", "roles")

    def __init__(self, task: dict[str, Any], data: dict[str, Any], compiled: Callable[[Any], Expression]) -> None:
        self.e = {name: compiled(task[name]) for name in _TASK_COMPUTED if name in task}
        self.answer: dict[str, Any] | None = task.get("answer")
        self.outcome: str = task.get("outcome", "outcome")
        self.quorum = msgspec.convert(task["quorum"], Quorum) if "quorum" in task else None
        self.escalate = [msgspec.convert(each, Escalation) for each in task.get("escalate", ())]
        self.roles: list[str] = data.get("roles", [])
        self.managers: list[str] = data.get("managers", [])


def messages_of(data: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The messages that a definition receives, by name, with the schema of each step that receives it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for _, step in every_step(data["steps"]):
        if step["kind"] == "receive":
            found.setdefault(step["message"], []).append(step.get("schema", {}))
    return found


CALLED: Final[ContextVar[list[str]]] = ContextVar("called")
"""Where functions of users note what they gave, for the slice that runs here: a replay in a thread has its own."""


class Program:
    """See the module. A program is shared by all instances of its version, also by those that a thread replays."""

    def __init__(self, definition: bytes, users: Users | None = None) -> None:
        self.definition = definition
        self.data: dict[str, Any] = decode(definition)
        self.hash = digest(definition)
        self.name: str = self.data["name"]
        self.version: str = self.data["version"]
        self._members: dict[str, dict[str, Any] | None] = {}
        known = dict(users or {})
        wanted = {name for name in functions_in([self.data.get(part) for part in PARTS]) if "." in name}
        if missing := sorted(wanted - known.keys()):
            text = f"there is no function {missing[0]} here"
            problem = Problem("requires.functions", text, "PD060", "perdure.open(..., functions=[...])")
            raise BadProcess(f"{self.name} {self.version}", (problem,))
        self._users = {name: self._noted(name, known[name]) for name in wanted}
        self.seqs: list[Seq] = []
        self.main = self._sequence(self.data["steps"], None)
        self.state = {name: self._compiled(tree) for name, tree in self.data.get("state", {}).items()}
        reference = self.data.get("reference", {})
        self.reference = {name: self._compiled(tree) for name, tree in reference.get("parts", {}).items()}
        if reference:
            self.reference[""] = self._compiled(reference["key"])
        self.tasks = {
            name: TaskPlan(task, self.data, self._compiled) for name, task in self.data.get("tasks", {}).items()
        }
        self.limits = {name: self.data.get("limits", {}).get(name, field.default) for name, field in LIMITS.items()}
        self.messages = messages_of(self.data)
        self.fails = self.data.get("unhandled") == "fail"

    def state_member(self, key: str) -> dict[str, Any] | None:
        """The schema of a dotted key of the state; None: any value is taken."""
        schema = self.data.get("state_schema")
        if schema is None:
            return None
        if key not in self._members:
            self._members[key] = member(schema, key.split("."))
        return self._members[key]

    def _noted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose values are in the journal by their digest: an impure one is a divergence in a replay."""

        def call(*args: Any) -> Any:
            value = function(*args)
            CALLED.get([]).append(f"function {name} {digest(encode(value))[7:19]}")
            return value

        return call

    def _compiled(self, tree: Any) -> Expression:
        return compile_tree(tree, self._users)

    def _sequence(self, steps: list[dict[str, Any]], owner: Op | None) -> Seq:
        seq = Seq(len(self.seqs), owner)
        self.seqs.append(seq)
        seq.ops = [self._op(name, step) for name, step in zip(names_of(steps), steps, strict=True)]
        return seq

    def _op(self, name: str, step: dict[str, Any]) -> Op:
        op = Op(name, step)
        op.e = {field: self._compiled(step[field]) for field in _COMPUTED[op.kind] if field in step}
        for part, tree in step.get("parts", {}).items():
            op.e[f"parts.{part}"] = self._compiled(tree)
        for number, case in enumerate(step.get("cases", ())):
            op.e[f"case.{number}"] = self._compiled(case["condition"])
            op.s[case["label"]] = self._sequence(case["steps"], op)
        request = step.get("address", {}).get("http", {})
        if request:
            op.e["url"] = self._compiled(request["url"])
            for header, tree in request.get("headers", {}).items():
                if not (isinstance(tree, dict) and "secret" in tree):
                    op.e[f"header.{header}"] = self._compiled(tree)
        for branch, steps in step.get("branches", {}).items():
            op.s[branch] = self._sequence(steps, op)
        for field in ("then", "otherwise", "steps", "on_failure", "on_timeout", "on_cancel", "on_unknown", "undo"):
            if isinstance(step.get(field), list):
                op.s[field] = self._sequence(step[field], op)
        return op


PARTS: Final = ("state", "reference", "tasks", "steps")


def nanoseconds(span: timedelta) -> int:
    return span // MICROSECOND * 1000


def backoff_of(op: Op) -> Backoff:
    return Backoff(**op.data.get("backoff", {}))


def reads(seq: Seq) -> set[tuple[Any, ...]]:
    """The paths that the expressions of a sequence read, however deep."""
    found: set[tuple[Any, ...]] = set()
    for op in seq.ops:
        for expression in op.e.values():
            found |= expression.reads
        for inner in op.s.values():
            found |= reads(inner)
    return found
