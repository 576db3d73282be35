"""A graph as data: its nodes, limits and permits, their one canonical form and its hash.

Code (`author.py`) and files (`load.py`) both become the types of this file; `check.py` reads and judges them, and the
machine knows nothing else. A type, a function or a workflow stands here by its name: `author.py` keeps the objects.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from perdure.codec import digest, encode
from perdure.kernel.backoff import Backoff

Kind = Literal["node", "loop", "classify", "tournament", "reduce", "child", "wait"]
Policy = Literal["all_success", "accept_partial", "any_success", "all_terminal", "optional"]
OutcomeWord = Literal["completed", "partial", "failed", "skipped", "cancelled"]

KINDS: Final = ("node", "loop", "classify", "tournament", "reduce", "child", "wait")
POLICIES: Final = ("all_success", "accept_partial", "any_success", "all_terminal", "optional")
ISOLATIONS: Final = ("shared", "read_only", "worktree", "remote")
CONTEXTS: Final = ("none", "system_only", "full")
TRUSTS: Final = ("trusted", "quarantined")
APPROVALS: Final = ("", "before")
TAINTS: Final = ("", "strict")
ORDERS: Final = ("", "critical")
AXES: Final = ("tokens", "cost", "calls", "wall")
"""What runs use up. The other limits bound the graph itself."""

ROLES: Final[dict[str, tuple[str, str]]] = {
    "explore": ("read_only", "system_only"),
    "plan": ("shared", "full"),
    "implement": ("worktree", "full"),
    "verify": ("read_only", "none"),
    "custom": ("shared", "none"),
}
"""The isolation and the context that a role gives."""

NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
TAKEN: Final = frozenset({"ask", "use", "step", "entrant", "judge"})
"""Names that locations inside of a run have."""
TAKEN_MESSAGES: Final = ("submit", "cancel", "note")
"""What people say to every graph."""


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a graph or a node may use. None is no limit.

    `running`: runs with a place. `nodes`: nodes of the graph. `depth`: generations of submitted nodes. `tokens`,
    `cost`, `calls`: what runs report. `wall`: seconds with a run open. `repeats`: the first equal call of a tool in one
    run that is denied.
    """

    running: int | None = None
    nodes: int | None = None
    depth: int | None = None
    tokens: float | None = None
    cost: float | None = None
    calls: float | None = None
    wall: float | None = None
    repeats: int | None = None

    def tightened(self, other: Limits) -> Limits:
        """The lower one of each."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Limits(*[lower(*pair) for pair in pairs])


def lower(one: Any, other: Any) -> Any:
    """The lower one of two limits; None is no limit."""
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


class Permit(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who may use the tools that a glob names: `allow`, `ask` (a person first) or `deny`. The first that fits counts.

    `where` has conditions on arguments: `{"cents": {"max": 5000}}`. `within`: seconds that a person has to answer.
    """

    glob: str
    verdict: Literal["allow", "ask", "deny"]
    where: dict[str, dict[str, Any]] = {}
    within: float | None = None
    roles: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class NodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node, with every field resolved. `name` is its full name; `after` has an alias and a full name each."""

    name: str
    kind: Kind = "node"
    goal: str = ""
    labels: dict[str, str] = {}
    model: str = ""
    after: tuple[tuple[str, str], ...] = ()
    needs: dict[str, Policy] = {}  # by name; all_success for the others
    role: str = "custom"
    isolation: str = "shared"
    context: str = "none"
    trust: str = "trusted"
    runner: str = ""
    queue: str = ""
    tools: tuple[str, ...] | None = None
    veto: tuple[str, ...] = ()
    output: str = ""  # the name of a type: see `author.Graph.types`
    repairs: int = 1
    retries: int = 0
    backoff: Backoff = Backoff()
    timeout: float | None = None
    once: bool = False
    limits: Limits = Limits()
    priority: int = 0
    rest: bool = True
    approve: str = ""
    max_iters: int = 0
    branches: dict[str, tuple[str, ...]] = {}
    default: str = ""
    entrants: dict[str, str] = {}
    reducer: str = ""
    workflow: str = ""
    input: Any = None
    detach: bool = False
    seconds: float | None = None
    message: str = ""
    question: str = ""

    @property
    def weight(self) -> int:
        """How many nodes it becomes: a tournament has its entrants and a judge for each match."""
        return 1 + 2 * len(self.entrants) - 1 if self.entrants else 1


class Model(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole graph. Its bytes and its hash are equal however it was written."""

    name: str
    nodes: tuple[NodeSpec, ...]
    limits: Limits = Limits()
    permits: tuple[Permit, ...] = ()
    veto: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    system: str = ""
    outputs: tuple[str, ...] = ()
    rest_after: float | None = 5
    version: str = "1"
    taint: str = ""  # "strict": who reads what is not trusted is not trusted
    order: str = ""  # "critical": the longest remaining path first
    rate: dict[str, tuple[int, float]] = {}  # by glob: how many calls of tools may begin in so many seconds

    def canonical(self) -> bytes:
        return encode(_written(self))

    @property
    def hash(self) -> str:
        return digest(self.canonical())


USUAL: Final[dict[type, Any]] = {
    each.__class__: each
    for each in (NodeSpec(""), Model("", ()), Permit("", ""), Limits(), Backoff())  # type: ignore[arg-type]
}
"""What a field has that was not given."""


def _written(value: Any) -> Any:
    """Plain data without the fields that have what is usual, whether they were given or left out."""
    if isinstance(value, msgspec.Struct):
        usual = USUAL[type(value)]
        given = {name: getattr(value, name) for name in value.__struct_fields__}
        return {name: _written(each) for name, each in given.items() if each != getattr(usual, name)}
    if isinstance(value, tuple):
        return [_written(each) for each in value]
    return value


class Partial(msgspec.Struct, frozen=True):
    """A runner returns this: the value is there, and not all of what was wanted. `reason` says why."""

    value: Any = None
    reason: str = ""


class Used(msgspec.Struct, frozen=True):
    """A tool or a runner returns this: a value, and what it cost: `Used(answer, {"tokens": 812, "cost": 0.004})`."""

    value: Any = None
    usage: dict[str, float] = {}


class Result(msgspec.Struct, frozen=True):
    """What is known of a node that has ended: `node.inputs[alias]`, `await node.results(names)`."""

    node: str
    value: Any
    outcome: OutcomeWord
    trusted: bool = True
    reason: str = ""


class Match(msgspec.Struct, frozen=True):
    """The two candidates that a judge compares."""

    left: Result
    right: Result


@lru_cache(maxsize=1024)
def _pattern(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*)", glob)
    text = "".join({"**": ".*", "*": "[^.]*"}.get(part, re.escape(part)) for part in parts)
    return re.compile(text, re.DOTALL)


def fits(glob: str, name: str) -> bool:
    """`*` is a part of a name between dots, `**` is anything."""
    return _pattern(glob).fullmatch(name) is not None


def fits_any(globs: tuple[str, ...], name: str) -> bool:
    return any(fits(glob, name) for glob in globs)
