"""The model of a playbook: one canonical value, whatever spelling the file used.

The version of a playbook is the hash of this value. Places in the file stand beside it, in `Definition`, and are no
part of the hash. Templates are texts here; `scope.py` compiles them.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Any, Literal

import msgspec

from perdure.codec import decode, encode

from .net import JoinRule, Net

Value = Any
"""Plain data with templates in its texts."""


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first rule whose guard is true decides. `when` is None for else."""

    when: str | bool | None = None
    do: Literal["continue", "retry", "jump", "break", "fail", "skip"] = "continue"
    set: dict[str, Value] = {}  # targets (ctx.a, iter.b) to values
    attempts: Value = 3
    backoff: Literal["none", "linear", "exponential"] = "none"
    delay: Value = 1
    max_delay: Value = 300
    jitter: Value = 0
    retry_after: Value = True
    to: str = ""
    error: Value = None


class Action(msgspec.Struct, frozen=True, omit_defaults=True):
    label: str
    kind: str
    fields: dict[str, Value] = {}  # what the kind takes
    args: Value = None
    auth: Value = None
    when: str | bool = True
    set: dict[str, Value] = {}
    rules: tuple[Rule, ...] = ()
    on_unmatched: Literal["default", "continue", "fail"] = "default"
    timeout: Value = None
    queue: Value = None
    once: bool = False
    select: dict[str, str] = {}
    inline_max_bytes: int = 65536
    raw: tuple[str, ...] = ()  # fields whose text is code and is not rendered
    takes_args: bool = False  # the tool has a parameter args


class AdmitRule(msgspec.Struct, frozen=True, omit_defaults=True):
    allow: bool
    when: str | bool | None = None  # None: else


class Admit(msgspec.Struct, frozen=True, omit_defaults=True):
    rules: tuple[AdmitRule, ...] = ()
    on_deny: Literal["pending", "discard", "fail"] = "pending"
    timeout: Value = None
    on_timeout: Literal["discard", "fail", "admit"] = "discard"


class Loop(msgspec.Struct, frozen=True, omit_defaults=True):
    items: Value
    iterator: str = "item"
    mode: Literal["sequential", "parallel"] = "sequential"
    max_in_flight: Value = 64
    collect: Literal["list", "last", "none"] = "list"
    failure: Literal["fail_fast", "best_effort"] = "fail_fast"


class Join(msgspec.Struct, frozen=True, omit_defaults=True):
    mode: Literal["all", "any", "number"] = "all"
    of: int = 1
    timeout: Value = None
    on_short: Literal["fail", "run"] = "fail"
    cancel_rest: bool = False


class Arc(msgspec.Struct, frozen=True, omit_defaults=True):
    step: str
    when: str | bool | None = None
    on: Literal["done", "failed", "any", ""] = ""
    args: dict[str, Value] = {}
    set: dict[str, Value] = {}
    inherit: bool = True


class Next(msgspec.Struct, frozen=True, omit_defaults=True):
    arcs: tuple[Arc, ...] = ()
    mode: Literal["exclusive", "inclusive"] = "exclusive"
    on_no_match: Literal["complete", "fail"] = "complete"


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    desc: str = ""
    actions: tuple[Action, ...] = ()
    args: dict[str, Value] = {}
    set: dict[str, Value] = {}
    loop: Loop | None = None
    join: Join | None = None
    admit: Admit | None = None
    next: Next | None = None
    timeout_s: Value = None
    deadline_s: Value = None
    timeout: Value = None
    queue: Value = None


class CtxKey(msgspec.Struct, frozen=True, omit_defaults=True):
    init: Value = None
    patch: bool = True
    reduce: Literal["sum", "min", "max", "append", "merge", "last", "first", ""] = ""


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    max_tokens: int = 10_000
    max_firings: int = 100_000
    max_jumps: int = 10_000
    max_iterations: int = 1_000_000
    max_payload_bytes: int = 65_536
    max_result_bytes: int = 16_777_216


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    entry_step: str = ""
    final_step: str = ""
    final_on: tuple[Literal["success", "partial", "failed", "cancelled"], ...] = ("success", "partial", "failed")
    final_failure: Literal["fail", "partial"] = "fail"
    no_next_is_error: bool = False
    status: Literal["fail_on_unhandled", "fail_fast", "best_effort"] = "fail_on_unhandled"
    pending_at_end: Literal["wait", "discard", "fail"] = "wait"
    arc_default: Literal["done", "failed", "any"] = "done"
    join_default: Literal["none", "all"] = "none"
    on_template_error: Literal["fail", "false"] = "fail"
    ctx: dict[str, CtxKey] = {}
    result: Value = None
    timeout: Value = None
    queue: Value = None
    limits: Limits = Limits()


class Playbook(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    steps: tuple[Step, ...] = ()
    v10: bool = False
    settings: Settings = Settings()
    keychain: dict[str, dict[str, str]] = {}  # entry, field, name of the secret
    requires: tuple[str, ...] = ()
    workload: dict[str, Value] = {}
    workbook: dict[str, tuple[Action, ...]] = {}
    data: dict[str, Value] = {}  # v10: root keys that the language does not know
    metadata: dict[str, Any] = {}

    @property
    def entry(self) -> str:
        return self.settings.entry_step or self.steps[0].name

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)


class Definition(msgspec.Struct, frozen=True):
    """A playbook with the places of its values: what is kept of a definition."""

    playbook: Playbook
    version: str
    source: str = ""
    places: dict[str, tuple[int, int]] = {}  # path in the model, joined by /, to line and column

    def where(self, details: Any) -> str:
        """`file:line:column` of an error of an expression; empty if the file is not known here."""
        if not isinstance(details, dict) or "at" not in details or not self.places:
            return ""
        line, column = self.places.get(details["at"], (0, 0))
        if details["line"] > 1:
            line, column = line + details["line"] - 1, details["column"]
        elif details["line"] == 1:
            column += details["column"] - 1
        return f"{self.source}:{line}:{column}"


def plain(value: Any) -> Any:
    """Plain data without what is as if it were left out: a default that is spelled out is no other playbook."""
    kind = type(value)
    if kind is dict:
        return {key: plain(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [plain(item) for item in value]
    if not isinstance(value, msgspec.Struct):
        return value
    found = {}
    for name, default in _defaults(kind):  # type: ignore[arg-type]
        item = getattr(value, name)
        if item is not default and not (type(item) is type(default) and item == default):
            found[name] = plain(item)
    return found


@cache
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields of a struct with their defaults; one that must be given has none that a value could equal."""
    return tuple(
        (field.name, field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory())
        for field in msgspec.structs.fields(kind)
    )


def version_of(playbook: Playbook) -> str:
    return sha256(encode(plain(playbook))).hexdigest()[:12]


def define(playbook: Playbook, source: str = "", places: dict[str, tuple[int, int]] | None = None) -> Definition:
    return Definition(playbook, version_of(playbook), source, places or {})


def to_bytes(playbook: Playbook) -> bytes:
    """Canonical bytes: equal playbooks have equal bytes, whatever file they come from. Places are no part of them."""
    return encode(plain(playbook))


def from_bytes(data: bytes, version: str = "") -> Definition:
    """A definition as it was kept, under the version that it was kept with."""
    playbook = msgspec.convert(decode(data), Playbook)
    return Definition(playbook, version) if version else define(playbook)


def net_of(playbook: Playbook) -> Net:
    joins = {}
    for step in playbook.steps:
        if step.join is not None:
            needs = {"all": 0, "any": 1}.get(step.join.mode, step.join.of)
            joins[step.name] = JoinRule(needs, step.join.cancel_rest)
    return Net(
        [step.name for step in playbook.steps],
        {step.name: [arc.step for arc in step.next.arcs] if step.next is not None else [] for step in playbook.steps},
        {step.name for step in playbook.steps if step.next is not None and step.next.mode == "inclusive"},
        joins,
        playbook.entry,
    )
