"""What the parts of a definition mean together: every problem that is known before anything runs.

`check` takes the data that `model.py` has read. It raises nothing for a wrong definition, and goes on after a problem:
all of them are told at once. The codes PD001 to PD090 are errors, PD501 and above warnings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from perdure.errors import BadExpression, Problem
from perdure.expressions import Tree, compile_tree
from perdure.expressions import check as check_tree
from perdure.expressions.compile import certain_kind
from perdure.expressions.problem import meant

from .fields import Path, spelled
from .model import every_step, functions_in, sequences
from .paths import find_gets, impossible, of_member, results_of

ALWAYS: Final = frozenset(
    ("start", "state", "result", "payload", "task", "tasks", "message", "reference", "meta")
)  # fmt: skip
IN_A_TURN: Final = frozenset(("item", "index", "loop"))
AFTER_AN_ERROR: Final = ("on_failure", "on_timeout", "on_unknown", "on_cancel")
META: Final = ("workflow", "version", "instance", "key", "entry", "now", "started_by")
ANSWER: Final = ("outcome", "answer", "by", "at", "votes")
ERROR: Final = ("class", "code", "message", "data", "location", "all", "branch")
UNDOING: Final = ("call", "set", "decide", "activate", "subprocess", "?")
ENDING: Final = ("complete", "fail")
FUNCTION: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
UNKNOWN_WORKFLOW: Final = "PD031"
ENDLESS: Final = "PD501"
ELSEWHERE: Final = re.compile("PD030 |PD031 |PD060 requires")
"""Problems of parts that an engine may be given from other modules: code and place."""
URL: Final = re.compile(r"https?://[^/?#\s]", re.IGNORECASE)
SAFE: Final = ("GET", "HEAD", "OPTIONS")

Schemas = Mapping[str, Any]


class Known(NamedTuple):
    """What an engine has; None: it is not judged here."""

    functions: Mapping[str, str] | None = None  # name to version
    transports: Collection[str] | None = None
    workflows: Collection[str] | None = None
    steps: Callable[[str], bool] | None = None  # whether `module:function` is a step
    ending: Collection[str] = ()  # workflows of which it is known that they do not wait for ever


class Scope(NamedTuple):
    """What expressions may read at a place."""

    roots: frozenset[str]
    schemas: Schemas
    undoing: bool = False


def check(data: dict[str, Any], known: Known = Known()) -> list[Problem]:  # noqa: B008  # it is immutable
    checker = _Checker(data, known)
    checker.all()
    return checker.problems


class _Checker:
    def __init__(self, data: dict[str, Any], known: Known) -> None:
        self.data = data
        self.known = known
        self.problems: list[Problem] = []
        self.tasks: dict[str, Any] = data.get("tasks", {})
        self.steps = list(every_step(data.get("steps", [])))
        self.results = results_of([step for _, step in self.steps])
        self.users = {
            name: _any for name in functions_in([data.get(part) for part in PARTS]) if FUNCTION.fullmatch(name)
        }
        self.parts = {*data.get("reference", {}).get("parts", {}), "key"}
        for _, step in self.steps:
            self.parts |= set(step.get("parts", {}))

    def error(self, code: str, path: Path, text: str, hint: str = "") -> None:
        self.problems.append(Problem(spelled(path), text, code, hint))

    def warn(self, code: str, path: Path, text: str, hint: str = "") -> None:
        self.problems.append(Problem(spelled(path), text, code, hint, "warning"))

    def all(self) -> None:
        data = self.data
        schemas = {"start": data.get("input"), "state": data.get("state_schema")}
        first = Scope(frozenset(("start", "meta")), schemas)
        for name, tree in data.get("state", {}).items():
            self.expression(tree, first, ("state", name))
        if "reference" in data:
            scope = Scope(frozenset(("start", "state", "meta")), schemas)
            self.expression(data["reference"].get("key"), scope, ("reference", "key"))
            for name, tree in data["reference"].get("parts", {}).items():
                self.expression(tree, scope, ("reference", "parts", name))
        for name, task in self.tasks.items():
            self.task(task, Scope(ALWAYS | IN_A_TURN | {"error"}, schemas), ("tasks", name))
        self.sequence(data.get("steps", []), Scope(ALWAYS, schemas), ("steps",))
        activated = {step.get("task") for _, step in self.steps if step["kind"] == "activate"}
        for name in self.tasks.keys() - activated:
            self.warn("PD504", ("tasks", name), f"the task {name} is never activated", f'Activate("{name}")')
        self.undo_is_missing()
        self.required()

    # ---- expressions -----------------------------------------------------------------------------------------------

    def expression(self, tree: Tree, scope: Scope, path: Path, kind: str = "") -> None:
        if tree is None:
            return
        found = check_tree(tree, scope.roots, self.users)
        for each in found:
            self.error(
                each.code,
                (*path, "".join(f"/{part}" for part in each.path)) if each.path else path,
                each.text,
                each.hint,
            )
        if found:
            return
        for keys in find_gets(tree):
            self.path(keys, scope, path)
        if kind:
            certain = _certain(tree, self.users)
            if certain is not None and certain not in kind.split():
                self.error(
                    "PD016",
                    path,
                    f"expected {' or '.join(kind.split())}, found {certain}",
                    _SPELLED.get(kind if certain == "text" else "", "nothing is converted by itself"),
                )

    def path(self, keys: list[Any], scope: Scope, path: Path) -> None:
        """Whether there can be a value at a path, as far as schemas and names say."""
        root, rest = keys[0], keys[1:]
        if root not in scope.roots or not rest:
            return
        first = rest[0]
        known = {
            "result": self.results,
            "tasks": self.tasks,
            "meta": META,
            "error": ERROR,
            "reference": self.parts,
        }.get(root)
        if known is not None and first not in known:
            code = "PD010" if root == "tasks" else "PD013"
            hint = meant(str(first), map(str, known)) or f"known are: {', '.join(sorted(map(str, known))) or 'none'}"
            self.error(code, path, f"{root} has no {first!r}", hint)
        elif root == "tasks" and len(rest) > 1:
            if rest[1] not in ANSWER:
                self.error("PD013", path, f"a task has no {rest[1]!r}", f"known are: {', '.join(ANSWER)}")
            elif rest[1] == "answer":
                self.member(self.tasks[first].get("answer"), rest[2:], keys, path)
        elif root == "result":
            self.member({"anyOf": self.results[first]}, rest[1:], keys, path)
        elif root in scope.schemas:
            self.member(scope.schemas[root], rest, keys, path)

    def member(self, schema: Any, rest: list[Any], keys: list[Any], path: Path) -> None:
        reason = impossible(schema, rest) if schema is not None else None
        if reason is not None:
            self.error("PD013", path, f"{'.'.join(map(str, keys))}: {reason[0]}", reason[1])

    # ---- tasks -----------------------------------------------------------------------------------------------------

    def task(self, task: dict[str, Any], scope: Scope, path: Path) -> None:
        for name in ("title", "description", "assignee"):
            self.expression(task.get(name), scope, (*path, name), "text null")
        for name in ("roles", "users", "managers", "exclude"):
            self.expression(task.get(name), scope, (*path, name), "list null")
        for name in ("due", "expire"):
            self.expression(task.get(name), scope, (*path, name), "duration datetime null")
            self.span(task.get(name), (*path, name))
        self.expression(task.get("data"), scope, (*path, "data"))
        self.expression(task.get("labels"), scope, (*path, "labels"), "object null")
        self.expression(task.get("priority"), scope, (*path, "priority"), "number null")
        priority = task.get("priority")
        if type(priority) in (int, float) and not (type(priority) is int and 0 <= priority <= 100):
            self.error("PD003", (*path, "priority"), f"expected a whole number from 0 to 100, found {priority}")
        people = [task.get(name) for name in ("roles", "users", "assignee")]
        if not self.data.get("roles") and all(each in (None, {"list": []}, "") for each in people):
            self.error("PD042", path, "nobody can complete this task", "give it roles, users or an assignee")
        quorum = task.get("quorum")
        if quorum is not None:
            if task.get("assignee") is not None:
                self.error(
                    "PD040", (*path, "quorum"), "several people decide it, so it has no assignee", "leave one out"
                )
            known = _outcomes(task)
            for outcome in quorum.get("veto", {}):
                if known is not None and outcome not in known:
                    text = f"veto names the outcome {outcome!r}, which the answer does not have"
                    self.error("PD040", (*path, "quorum"), text, f"it has: {', '.join(known) or 'none'}")

    # ---- steps -----------------------------------------------------------------------------------------------------

    def sequence(self, steps: list[dict[str, Any]], scope: Scope, path: Path) -> None:
        counted = Counter(step["name"] for step in steps if "name" in step)
        for place, step in enumerate(steps):
            at = (*path, place)
            name = step.get("name")
            if name is not None and counted[name] > 1:
                self.error("PD007", (*at, "name"), f"{counted[name]} steps of this sequence are named {name}")
                counted[name] = 0
            if scope.undoing and step["kind"] not in UNDOING:
                self.error(
                    "PD003", at, f"a {step['kind']} step cannot stand in undo", f"known are: {', '.join(UNDOING[:-1])}"
                )
            self.step(step, scope, at)
            if place + 1 < len(steps) and _ends(step):
                self.error("PD050", (*path, place + 1), "this step is never reached: the process ends before it")
                break

    def step(self, step: dict[str, Any], scope: Scope, path: Path) -> None:
        inside = scope
        match step["kind"]:
            case "set" | "set_reference" | "complete" | "fail":
                self.fields(step, scope, path, "value", "key" if step["kind"] == "set_reference" else "", "output")
                if step["kind"] == "set" and "key" in step:
                    keys = step["key"].split(".")
                    self.member(scope.schemas["state"], keys, ["state", *keys], (*path, "key"))
                self.expression(step.get("message"), scope, (*path, "message"), "text")
                for name, tree in step.get("parts", {}).items():
                    self.expression(tree, scope, (*path, "parts", name))
            case "activate":
                self.activate(step, path)
            case "call":
                self.call(step, scope, path)
            case "decide":
                self.expression(step.get("condition"), scope, (*path, "condition"), "boolean")
            case "choose":
                self.choose(step, scope, path)
            case "repeat":
                inside = self.repeat(step, scope, path)
            case "parallel":
                self.parallel(step, path)
            case "timer":
                self.timer(step, scope, path)
            case "receive":
                self.expression(step.get("match"), scope, (*path, "match"), "boolean")
                if "timeout" not in step:
                    self.warn(ENDLESS, path, "this receive may wait for ever", "give it timeout=")
            case "subprocess" | "continue_with":
                self.fields(step, scope, path, "input", "key")
                self.workflow(step, path)
                if step["kind"] == "subprocess" and "timeout" not in step and self.may_last(step.get("workflow")):
                    self.warn(ENDLESS, path, "this sub-process may wait for ever", "give it timeout=")
            case _:
                pass
        self.inner(step, scope, inside, path)

    def inner(self, step: dict[str, Any], scope: Scope, inside: Scope, path: Path) -> None:
        for below, steps in sequences(step):
            here = inside if below[0] == "steps" else scope
            if below[0] in AFTER_AN_ERROR:
                here = here._replace(roots=here.roots | {"error"})
            self.sequence(steps, here._replace(undoing=scope.undoing or below[0] == "undo"), (*path, *below))

    def fields(self, step: dict[str, Any], scope: Scope, path: Path, *names: str) -> None:
        for name in names:
            self.expression(step.get(name), scope, (*path, name))

    def activate(self, step: dict[str, Any], path: Path) -> None:
        name = step.get("task")
        task = self.tasks.get(name) if isinstance(name, str) else None
        if name is not None and task is None:
            hint = meant(name, self.tasks) or f"declared are: {', '.join(sorted(self.tasks)) or 'none'}"
            self.error("PD010", (*path, "task"), f"no task is named {name}", hint)
        elif task is not None and "expire" not in task:
            self.warn(ENDLESS, path, f"the task {name} may stay open for ever", "give it expire=")

    def call(self, step: dict[str, Any], scope: Scope, path: Path) -> None:
        self.expression(step.get("payload"), scope, (*path, "payload"), "object null" if _is_python(step) else "")
        self.expression(
            step.get("retry_if"), scope._replace(roots=scope.roots | {"error"}), (*path, "retry_if"), "boolean"
        )
        request = step.get("address", {}).get("http", {})
        self.expression(request.get("url"), scope, (*path, "address", "http", "url"), "text")
        if isinstance(request.get("url"), str) and not URL.match(request["url"]):
            text = f"{request['url']!r:.80} is no URL"
            self.error("PD032", (*path, "address", "http", "url"), text, "https:// or http://, then a host")
        for name, value in request.get("headers", {}).items():
            if not (isinstance(value, dict) and "secret" in value):
                self.expression(value, scope, (*path, "address", "http", "headers", name), "text")
        if step.get("once") and "on_unknown" not in step:
            hint = "give it on_unknown=: after a crash it is not known whether the call took effect"
            self.warn("PD505", path, "a call that is sent once has no branch for an unknown outcome", hint)

    def choose(self, step: dict[str, Any], scope: Scope, path: Path) -> None:
        cases = step.get("cases", [])
        if not cases:
            self.error("PD020", path, "a choice without cases")
        labels = Counter(case.get("label") for case in cases)
        for place, case in enumerate(cases):
            at = (*path, "cases", place)
            self.expression(case.get("condition"), scope, (*at, "condition"), "boolean")
            label = case.get("label")
            if label is not None and (labels[label] > 1 or label == "otherwise"):
                self.error("PD007", (*at, "label"), f"{label} is the label of another case, or of otherwise")

    def repeat(self, step: dict[str, Any], scope: Scope, path: Path) -> Scope:
        given = [name for name in ("over", "times", "while", "until") if name in step]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            self.error("PD022", path, f"a repeat has one of over, times, while and until, found {found}")
        self.expression(step.get("over"), scope, (*path, "over"), "list null")
        self.expression(step.get("times"), scope, (*path, "times"), "number null")
        schemas = {**scope.schemas, "item": of_member(scope.schemas, step.get("over"))}
        inside = scope._replace(roots=scope.roots | IN_A_TURN, schemas=schemas)
        self.expression(step.get("while"), inside, (*path, "while"), "boolean")
        self.expression(step.get("until"), inside, (*path, "until"), "boolean")
        self.expression(step.get("collect"), inside, (*path, "collect"))
        if step.get("at_once", 1) > 1 and ("while" in step or "until" in step):
            self.error(
                "PD022", (*path, "at_once"), "turns side by side need over or times: nobody knows how many there are"
            )
        return inside

    def parallel(self, step: dict[str, Any], path: Path) -> None:
        branches = step.get("branches", {})
        if not branches:
            self.error("PD020", path, "a parallel without branches")
        join = step.get("join")
        if isinstance(join, int) and join > len(branches):
            self.error("PD003", (*path, "join"), f"join={join} is above the {len(branches)} branches", '"all" or "any"')
        if "on_failure" in branches:
            self.error(
                "PD007", (*path, "branches", "on_failure"), "on_failure is the name of the branch after an error"
            )
        writers: dict[str, str] = {}
        for name, steps in branches.items():
            keys = {
                inner["key"].split(".")[0]
                for _, inner in every_step(steps)
                if inner["kind"] == "set" and "key" in inner
            }
            for key in sorted(keys):
                if writers.setdefault(key, name) != name:
                    text = f"the branches {writers[key]} and {name} both write state.{key}"
                    self.warn("PD502", (*path, "branches", name), text, "the one that ends last wins")

    def timer(self, step: dict[str, Any], scope: Scope, path: Path) -> None:
        if ("after" in step) == ("at" in step):
            self.error("PD022", path, "a timer has one of after and at")
        self.expression(step.get("after"), scope, (*path, "after"), "duration")
        self.expression(step.get("at"), scope, (*path, "at"), "datetime")
        self.span(step.get("after"), (*path, "after"))

    def span(self, tree: Tree, path: Path) -> None:
        match tree:
            case {"value": ["duration", str(text)]} if text.startswith("-"):
                self.error("PD023", path, f"{text}: a duration is not negative")
            case _:
                pass

    # ---- the whole -------------------------------------------------------------------------------------------------

    def undo_is_missing(self) -> None:
        """Where one call is undone, the others that change something are worth a look."""
        undone = [path for path, step in self.steps if "undo" in step]
        for path, step in self.steps:
            request = step.get("address", {}).get("http", {})
            if (
                undone
                and step["kind"] == "call"
                and "undo" not in step
                and "undo" not in path
                and request.get("method") not in SAFE
            ):
                self.warn(
                    "PD507", path, "other calls of this process are undone, this one is not", "undo=[...], or undo=[]"
                )

    def workflow(self, step: dict[str, Any], path: Path) -> None:
        known, name = self.known.workflows, step.get("workflow")
        if known is not None and name is not None and name not in known:
            hint = meant(name, known) or "perdure.open(..., workflows=[...])"
            self.error(UNKNOWN_WORKFLOW, (*path, "workflow"), f"no workflow is named {name} here", hint)

    def may_last(self, workflow: Any) -> bool:
        """Whether a child may wait for ever. Waits of this very process are told at the steps that wait."""
        return workflow is not None and workflow != self.data.get("name") and workflow not in self.known.ending

    def required(self) -> None:
        known = self.known
        wanted = self.data.get("requires", {})
        functions = known.functions
        for name, major in wanted.get("functions", {}).items() if functions is not None else ():
            assert functions is not None
            version = functions.get(name)
            if version is None:
                hint = meant(name, functions) or "perdure.open(..., functions=[...])"
                self.error("PD060", ("requires", "functions", name), f"there is no function {name} here", hint)
            elif version.split(".")[0] != str(major):
                text = f"{name} has version {version} here; the process needs major version {major}"
                self.error("PD060", ("requires", "functions", name), text, "open the engine with that version")
        for path, step in self.steps:
            address = step.get("address", {})
            if known.transports is not None and "service" in address and address["service"][0] not in known.transports:
                name = address["service"][0]
                hint = meant(name, known.transports) or f'@transport("{name}"), and perdure.open(..., handlers=[...])'
                self.error("PD030", (*path, "address"), f"no transport is named {name} here", hint)
            if known.steps is not None and "python" in address and not known.steps(address["python"]):
                text = f"{address['python']} is no function with @perdure.step that this process can import"
                self.error("PD060", (*path, "address"), text)


PARTS: Final = ("state", "reference", "tasks", "steps")


def _any(*args: Any) -> None:
    """Stands for a function of a user: how many arguments it takes is not known here."""


def _is_python(step: dict[str, Any]) -> bool:
    address = step.get("address", {})
    return "python" in address or "queue" in address


def _certain(tree: Tree, users: Mapping[str, Callable[..., Any]]) -> str | None:
    try:
        return certain_kind(compile_tree(tree, users).node)
    except BadExpression:
        return None


def _outcomes(task: dict[str, Any]) -> list[str] | None:
    """The outcomes that an answer can have; None: any."""
    field = (task.get("answer") or {}).get("properties", {}).get(task.get("outcome", "outcome"))
    if field is None:
        return ["done"]
    return (
        [each for each in field["enum"] if isinstance(each, str)]
        if isinstance(field, dict) and "enum" in field
        else None
    )


def _ends(step: dict[str, Any]) -> bool:
    """Whether the process has ended for certain after this step."""
    match step:
        case {"kind": "complete" | "fail"}:
            return True
        case {"kind": "decide", "then": then, "otherwise": otherwise}:
            return _last_ends(then) and _last_ends(otherwise)
        case {"kind": "choose", "cases": cases, "otherwise": otherwise}:
            return _last_ends(otherwise) and all(_last_ends(case.get("steps", [])) for case in cases)
        case _:
            return False


def _last_ends(steps: list[dict[str, Any]]) -> bool:
    return bool(steps) and _ends(steps[-1])


_SPELLED: Final = {
    "duration": "in a file a duration is {value: [duration, PT1H]}, in an expression value('duration', 'PT1H')",
    "datetime": "in a file a time is {value: [datetime, '2030-01-31T09:00:00Z']}",
}
"""What to write instead of a text, by the kind that is wanted."""
