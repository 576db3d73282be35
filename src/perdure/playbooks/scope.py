"""What a name means at a place, and the compiled form of a step.

Every expression of a step is compiled when the step is first used, and all of them by `check`. `Compiler.step` gives a
`StepCode`: the model with closures in the places of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from perdure.errors import BadExpression
from perdure.expressions import Expression
from perdure.expressions.jinja import Scope, compile_guard, compile_value

from .kinds import OURS
from .model import Action, Admit, Arc, Definition, Loop, Next, Playbook, Rule, Step

BASE: Final = frozenset({"workload", "ctx", "args", "steps", "instance", "token"})
PLACES: Final = {
    "admit": BASE,
    "begin": BASE,
    "iteration": BASE | {"iter"},
    "action": BASE | {"iter", "_prev", "_attempt", "results", "keychain"},
    "guard": BASE | {"iter", "_prev", "_attempt", "results"},
    "rule": BASE | {"iter", "_prev", "_attempt", "results", "outcome"},
    "arc": BASE | {"event", "outcome"},
    "result": BASE | {"summary"},
}
"""The roots that an expression can read at each place."""

_ERROR: Final = frozenset({"kind", "message", "retryable", "status", "details"})
_RUN: Final = frozenset({"status", "result", "error", "run"})
MEMBERS: Final[dict[tuple[str, ...], frozenset[str]]] = {
    ("outcome",): frozenset({"status", "result", "error", "meta", "http", "sql", "py"}),
    ("outcome", "error"): _ERROR,
    ("outcome", "meta"): frozenset({"attempt", "visit", "duration_ms"}),
    ("event",): _RUN | {"name", "step", "loop"},
    ("event", "error"): _ERROR,
    ("loop",): frozenset({"total", "succeeded", "failed", "cancelled", "results", "errors"}),
    ("join",): frozenset({"arrived", "skipped", "late"}),
    ("instance",): frozenset({"id", "key", "playbook", "version", "started_at"}),
    ("token",): frozenset({"id", "from"}),
    ("token", "from"): _RUN | {"step"},
}
"""What has no other members than these. Tools of other packages may tell more in `outcome`."""

KNOWN_AT: Final = {
    **dict.fromkeys(("iter", "_prev", "_attempt", "results"), "only actions and their rules know it"),
    "outcome": "only rules, arcs and the sets of actions and steps know it",
    "event": "only arcs and the sets of steps know it",
    "loop": "only arcs and the set of a step with a loop know it",
    "join": "only a step with join knows it",
    "summary": "only executor.spec.result knows it; the final step has args.summary",
}
"""Where a name is known that is not known everywhere."""

ROOT_NAMES: Final = frozenset().union(*PLACES.values()) | {"loop", "join"}
V10_NAMES: Final = {
    "execution_id": ("instance", "id"),
    "job": ("job",),
    "loop_index": ("iter", "index"),
    "output": ("outcome",),
}


OWNERS: Final = {
    **{"results": "a label", "iter": "the iterator", "_steps": "a step"},
    **{"args": "an arg", "ctx": "a ctx key", "workload": "a workload key"},
}
"""What a bare name can mean, by its root."""


class Fixed(msgspec.Struct, frozen=True):
    """A value without a template in it."""

    value: Any


Code = Expression | Fixed
Sets = tuple[tuple[str, str, Code], ...]
"""Root (ctx or iter), key, value."""


class RuleCode(msgspec.Struct, frozen=True):
    rule: Rule
    when: Code | None
    sets: Sets
    numbers: dict[str, Code]
    error: Code | None
    path: str


class ActionCode(msgspec.Struct, frozen=True):
    action: Action
    when: Code | None
    fields: dict[str, Code]
    args: Code | None
    auth: Code | None
    sets: Sets
    rules: tuple[RuleCode, ...]
    timeout: Code | None
    queue: Code | None
    path: str


class ArcCode(msgspec.Struct, frozen=True):
    arc: Arc
    when: Code | None
    args: dict[str, Code]
    sets: Sets
    on: str  # done, failed or any
    handles: bool  # whether a failure that it follows is handled
    path: str


class StepCode(msgspec.Struct, frozen=True):
    step: Step
    path: str
    admit: tuple[tuple[Code | None, bool], ...]
    reads: frozenset[tuple[str | int, ...]]  # of the gate
    volatile: bool  # whether the gate reads the time or dice
    admit_timeout: Code | None
    args: dict[str, Code]
    items: Code | None
    max_in_flight: Code | None
    actions: tuple[ActionCode, ...]
    sets: Sets
    arcs: tuple[ArcCode, ...]
    timeout_s: Code | None
    deadline_s: Code | None
    join_timeout: Code | None


class Compiler:
    """Compiles the expressions of one definition. `refused` hears of a bad expression; without it that is raised."""

    def __init__(self, definition: Definition, refused: Callable[[str, BadExpression], None] | None = None) -> None:
        self.definition = definition
        self.playbook = definition.playbook
        self.names = Names(self.playbook)
        self._refused = refused
        self.twice: list[tuple[str, str, list[str]]] = []  # bare names with two owners, by path
        self.missed: list[tuple[str, str]] = []  # v10: bare names that nothing has, by path
        self._steps: dict[str, StepCode] = {}
        self._index = {step.name: index for index, step in enumerate(self.playbook.steps)}
        self._workbook: dict[str, tuple[ActionCode, ...]] = {}

    def step(self, name: str) -> StepCode:
        found = self._steps.get(name)
        if found is None:
            found = self._steps[name] = self._step(self._index[name])
        return found

    def entry(self, name: str) -> tuple[ActionCode, ...]:
        """The actions of a workbook entry."""
        found = self._workbook.get(name)
        if found is None:
            actions = self.playbook.workbook[name]
            scopes = _Scopes(self.names, None, actions)
            found = self._workbook[name] = self._actions(actions, scopes, f"workbook/{name}")
        return found

    @cached_property
    def workload(self) -> Code | None:
        """The templates of the workload, which v10 mode allows. They see the workload alone."""
        raw = self.playbook.workload
        if not self.playbook.v10 or not has_template(raw):
            return None
        names: dict[str, tuple[str, ...]] = {"workload": ("workload",), **{key: ("workload", key) for key in raw}}
        return self.value("workload", raw, Scope(bind=names.get, v10=True))

    @cached_property
    def result(self) -> Code | None:
        settings = self.playbook.settings
        if settings.result is None:
            return None
        return self.value("settings/result", settings.result, _Scopes(self.names, None, ()).of("result"))

    def spelled(self, path: str) -> str:
        """A path of the model for people: `order.next.arcs.0.when`. It is the same in every file of one version."""
        parts = path.split("/")
        if parts[0] == "steps" and len(parts) > 1:
            parts[:2] = [self.playbook.steps[int(parts[1])].name]
        return ".".join(part for part in parts if part != "actions")

    # ---- parts ---------------------------------------------------------------------------------------------------

    def guard(self, path: str, text: str | bool | None, scope: Scope) -> Code | None:
        if text is None or text is True:
            return None
        try:
            return self._compiled(path, compile_guard, text, scope)
        except BadExpression as error:
            return self._bad(path, error)

    def value(self, path: str, raw: Any, scope: Scope) -> Code:
        if not has_template(raw):
            return Fixed(raw)
        try:
            return self._compiled(path, compile_value, raw, scope)
        except BadExpression as error:
            return self._bad(path, error)

    def _compiled(self, path: str, compile: Callable[[Any, Scope], Expression], raw: Any, scope: Scope) -> Expression:
        self.names.doubled.clear()
        self.names.missed.clear()
        found = compile(raw, scope)
        self.twice += [(path, name, owners) for name, owners in self.names.doubled.items()]
        self.missed += [(path, name) for name in self.names.missed]
        return found

    def _bad(self, path: str, error: BadExpression) -> Code:
        if self._refused is None:
            raise error
        self._refused(path, error)
        return Fixed(None)

    def optional(self, path: str, raw: Any, scope: Scope) -> Code | None:
        return None if raw is None else self.value(path, raw, scope)

    def map(self, path: str, raw: Mapping[str, Any], scope: Scope) -> dict[str, Code]:
        return {key: self.value(f"{path}/{key}", value, scope) for key, value in sorted(raw.items())}

    def sets(self, path: str, raw: Mapping[str, Any], scope: Scope) -> Sets:
        made = []
        for target, value in sorted(raw.items()):
            root, _, key = target.partition(".")
            made.append((root, key, self.value(f"{path}/{target}", value, scope)))
        return tuple(made)

    def _step(self, index: int) -> StepCode:
        step, path = self.playbook.steps[index], f"steps/{index}"
        scopes = _Scopes(self.names, step, step.actions)
        begin, arc = scopes.of("begin"), scopes.of("arc")
        admit = self._admit(step.admit, f"{path}/admit", scopes.of("admit"))
        guards = [guard for guard, _ in admit if isinstance(guard, Expression)]
        loop = step.loop
        return StepCode(
            step=step,
            path=path,
            admit=admit,
            reads=frozenset().union(*(guard.reads for guard in guards)),
            volatile=any(guard.volatile for guard in guards),
            admit_timeout=None
            if step.admit is None
            else self.optional(f"{path}/admit/timeout", step.admit.timeout, begin),
            args=self.map(f"{path}/args", step.args, scopes.of("iteration" if loop is not None else "begin")),
            items=None if loop is None else self.value(f"{path}/loop/items", loop.items, begin),
            max_in_flight=None if loop is None else self.value(f"{path}/loop/max_in_flight", loop.max_in_flight, begin),
            actions=self._actions(step.actions, scopes, f"{path}/actions"),
            sets=self.sets(f"{path}/set", step.set, arc),
            arcs=() if step.next is None else self._arcs(step.next, f"{path}/next", arc),
            timeout_s=self.optional(f"{path}/timeout_s", step.timeout_s, begin),
            deadline_s=self.optional(f"{path}/deadline_s", step.deadline_s, begin),
            join_timeout=None if step.join is None else self.optional(f"{path}/join/timeout", step.join.timeout, begin),
        )

    def _admit(self, admit: Admit | None, path: str, scope: Scope) -> tuple[tuple[Code | None, bool], ...]:
        rules = () if admit is None else admit.rules
        return tuple(
            (self.guard(f"{path}/rules/{index}/when", rule.when, scope), rule.allow) for index, rule in enumerate(rules)
        )

    def _arcs(self, router: Next, path: str, scope: Scope) -> tuple[ArcCode, ...]:
        return tuple(self._arc(arc, f"{path}/arcs/{index}", scope) for index, arc in enumerate(router.arcs))

    def _arc(self, arc: Arc, path: str, scope: Scope) -> ArcCode:
        when = self.guard(f"{path}/when", arc.when, scope)
        asks = isinstance(when, Expression) and any(read[0] in ("event", "outcome") for read in when.reads)
        on = arc.on or ("any" if asks else self.playbook.settings.arc_default)
        handles = arc.on in ("failed", "any") or asks
        args, sets = self.map(f"{path}/args", arc.args, scope), self.sets(f"{path}/set", arc.set, scope)
        return ArcCode(arc, when, args, sets, on, handles, path)

    def _actions(self, actions: Iterable[Action], scopes: _Scopes, path: str) -> tuple[ActionCode, ...]:
        return tuple(self._action(action, scopes, f"{path}/{index}") for index, action in enumerate(actions))

    def _action(self, action: Action, scopes: _Scopes, path: str) -> ActionCode:
        # Only a tool gets the value of a secret. v10 mode tells it when the action runs.
        ours = action.kind in OURS and action.kind != "workbook" and not self.playbook.v10
        scope = scopes.of("guard" if ours else "action")
        fields = {
            key: Fixed(raw) if key in action.raw else self.value(f"{path}/fields/{key}", raw, scope)
            for key, raw in sorted(action.fields.items())
        }
        step = scopes.step
        timeout = action.timeout if action.timeout is not None else None if step is None else step.timeout
        queue = action.queue or (None if step is None else step.queue) or self.playbook.settings.queue
        return ActionCode(
            action=action,
            when=self.guard(f"{path}/when", action.when, scopes.of("guard")),
            fields=fields,
            args=self.optional(f"{path}/args", action.args, scope),
            auth=self.optional(f"{path}/auth", action.auth, scope),
            sets=self.sets(f"{path}/set", action.set, scopes.of("rule")),
            rules=tuple(
                self._rule(rule, f"{path}/rules/{index}", scopes.of("rule")) for index, rule in enumerate(action.rules)
            ),
            timeout=self.optional(f"{path}/timeout", timeout, scopes.of("guard")),
            queue=self.optional(f"{path}/queue", queue, scopes.of("guard")),
            path=path,
        )

    def _rule(self, rule: Rule, path: str, scope: Scope) -> RuleCode:
        numbers = {
            key: self.value(f"{path}/{key}", getattr(rule, key), scope)
            for key in ("attempts", "delay", "max_delay", "jitter")
        }
        return RuleCode(
            rule,
            self.guard(f"{path}/when", rule.when, scope),
            self.sets(f"{path}/set", rule.set, scope),
            numbers,
            self.optional(f"{path}/error", rule.error, scope),
            path,
        )


def has_template(raw: Any) -> bool:
    if isinstance(raw, str):
        return "{{" in raw or "{%" in raw or "{#" in raw
    if isinstance(raw, dict):
        return any(map(has_template, raw.values()))
    return isinstance(raw, list) and any(map(has_template, raw))


class Names:
    """What the bare names of a playbook can mean."""

    def __init__(self, playbook: Playbook) -> None:
        self.playbook = playbook
        self.steps = {step.name for step in playbook.steps}
        self.workload = set(playbook.workload)
        self.ctx = set(playbook.settings.ctx) | set(_set_keys(playbook, "ctx"))
        self.doubled: dict[str, list[str]] = {}  # names with two owners in the expression that is compiled
        self.missed: dict[str, None] = {}  # v10: names without an owner in it
        self.args = {"summary"}
        self.entry_args: set[str] = set()  # of entries of the workbook
        for step in playbook.steps:
            self.args |= step.args.keys()
            for arc in step.next.arcs if step.next is not None else ():
                self.args |= arc.args.keys()
        for actions in (*(step.actions for step in playbook.steps), *playbook.workbook.values()):
            for action in actions:
                if action.kind == "workbook" and isinstance(action.args, dict):
                    self.entry_args |= action.args.keys()

    def owners(
        self, name: str, step: Step | None, labels: Iterable[str], roots: frozenset[str]
    ) -> list[tuple[str, ...]]:
        """All that a bare name can mean at a place, the first owner first."""
        found: list[tuple[str, ...]] = []
        if name in labels and "results" in roots:
            found.append(("results", name))
        if step is not None and isinstance(step.loop, Loop) and step.loop.iterator == name and "iter" in roots:
            found.append(("iter", name))
        if name in self.steps:
            found.append(("_steps", name))
        args = self.entry_args if step is None else self.args
        for root, known in (("args", args), ("ctx", self.ctx), ("workload", self.workload)):
            if name in known:
                found.append((root, name))
        return found


class _Scopes:
    """The scopes of one step, or of one workbook entry."""

    def __init__(self, names: Names, step: Step | None, actions: Iterable[Action]) -> None:
        self.names = names
        self.step = step
        self.labels = {action.label for action in actions}
        self._made: dict[str, Scope] = {}

    def of(self, place: str) -> Scope:
        found = self._made.get(place)
        if found is None:
            found = self._made[place] = self._make(place)
        return found

    def _make(self, place: str) -> Scope:
        playbook, step = self.names.playbook, self.step
        roots = PLACES[place]
        if step is not None and step.join is not None:
            roots |= {"join"}
        if step is not None and step.loop is not None and place == "arc":
            roots |= {"loop"}

        def bind(name: str) -> tuple[str, ...] | None:
            if name in roots or name == "keychain":
                return (name,)
            owners = self.names.owners(name, step, self.labels, roots)
            if len(owners) > 1:
                self.names.doubled[name] = [OWNERS[root] for root, *_ in owners]
            if owners:
                return owners[0]
            if not playbook.v10:
                return None
            if name in playbook.data:
                return ("data", name)
            if name == "result":
                return ("outcome", "result") if "outcome" in roots else ("_prev",) if "_prev" in roots else None
            known = V10_NAMES.get(name)
            if known is None:
                self.names.missed[name] = None
            return known

        def secret(path: tuple[str | int, ...]) -> str | None:
            if len(path) != 3 or not all(isinstance(part, str) for part in path):
                return None
            entry = playbook.keychain.get(str(path[1]))
            if entry is None:
                return None
            return f"{path[1]}.{path[2]}" if playbook.v10 else entry.get(str(path[2]))

        def never_ran(path: tuple[str | int, ...]) -> bool:
            """`steps.s.result` and the like: null while `s` has not run."""
            return len(path) == 3 and path[0] == "steps" and path[1] in self.names.steps and path[2] in _RUN

        at_action = place == "action"
        return Scope(bind=bind, secret=secret if at_action else None, optional=never_ran, v10=playbook.v10)


def _set_keys(playbook: Playbook, root: str) -> Iterable[str]:
    """The keys under a root that anything in the playbook sets."""
    prefix = f"{root}."
    for sets in all_sets(playbook):
        yield from (target.removeprefix(prefix).partition(".")[0] for target in sets if target.startswith(prefix))


def all_sets(playbook: Playbook) -> Iterable[dict[str, Any]]:
    pipelines = [step.actions for step in playbook.steps] + list(playbook.workbook.values())
    for actions in pipelines:
        for action in actions:
            yield action.set
            yield from (rule.set for rule in action.rules)
    for step in playbook.steps:
        yield step.set
        yield from (arc.set for arc in (step.next.arcs if step.next is not None else ()))
