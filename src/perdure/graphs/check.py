"""Reading and judging: nodes as authors write them become the model, or every problem is told at once.

The same code reads declared nodes, the nodes of a file, the nodes of a start and a batch that a run submits. Nothing
here raises for what an author wrote: it adds to the problems.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.codec.converters.frame import did_you_mean
from perdure.errors import GraphProblem

from . import goals
from .fields import COMMON, NEEDED, OWN
from .model import KINDS, NAME, POLICIES, ROLES, TAKEN, TAKEN_MESSAGES, Model, NodeSpec, Permit, fits, fits_any
from .tools import Tool

CONDITIONS: Final = ("equals", "one_of", "min", "max", "matches")
PROBLEMS_MAX: Final = 200


class Book(msgspec.Struct):
    """The names that a node may use. `roles`: the graph names people who answer for it."""

    runners: Collection[str] = ()
    has_runner: bool = True
    tools: Collection[str] = ()
    reducers: Collection[str] = ()
    workflows: Collection[str] | None = None  # None: any
    types: Collection[str] = ()
    roles: bool = False


class Reading:
    """One batch of nodes on its way to the model. `prefix`: what stands before their names, with its slash."""

    def __init__(self, book: Book, prefix: str = "", existing: Collection[str] = (), *, tainted: bool = False) -> None:
        self.tainted = tainted  # the nodes were made quarantined: those that could write are denied when they open
        self.book = book
        self.prefix = prefix
        self.existing = existing
        self.problems: list[GraphProblem] = []
        self.nodes: dict[str, NodeSpec] = {}

    def read(self, given: Iterable[Mapping[str, Any]]) -> list[NodeSpec]:
        for number, raw in enumerate(given):
            self._read_one(number, raw)
        names = {name: self.prefix + name for name in self.nodes}
        resolved = [self._resolved(spec, names) for spec in self.nodes.values()]
        self._refuse_cycles(resolved)
        known = {spec.name: spec for spec in resolved}
        for spec in resolved:
            self._judge_kind(spec, known)
        return resolved

    def tell(self, where: str, text: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(GraphProblem(where, text))

    # ---- one node ------------------------------------------------------------------------------------------------

    def _read_one(self, number: int, raw: Any) -> None:
        if not isinstance(raw, Mapping):
            self.tell(f"node {number}", f"expected a node, found {type(raw).__name__}")
            return
        name = raw.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            self.tell(f"node {number}", f"a name is a to z, digits, - and _, at most 64 of them, found {name!r:.80}")
            return
        if name in TAKEN:
            self.tell(name, f"this name is taken; no node is called {', '.join(sorted(TAKEN))}")
        if name in self.nodes or self.prefix + name in self.existing:
            self.tell(name, f"there is another node of this name, {self.prefix + name!r}")
            return
        kind = raw.get("kind", "node")
        if kind not in KINDS:
            self.tell(name, f"unknown kind {kind!r:.80}; there are: {', '.join(KINDS)}{did_you_mean(kind, KINDS)}")
            kind = "node"
        kind = KINDS[KINDS.index(kind)]  # the very object: a snapshot leaves out what *is* the default
        self.nodes[name] = self._spec(name, kind, raw)

    def _spec(self, name: str, kind: Any, raw: Mapping[str, Any]) -> NodeSpec:
        readers = {**COMMON, **OWN[kind]}
        values: dict[str, Any] = {}
        for field, value in raw.items():
            if field in ("name", "kind"):
                continue
            if field not in readers:
                self.tell(name, f"unknown field {field!r:.80}{did_you_mean(field, readers)}")
                continue
            try:
                values[field] = readers[field](value)
            except ValueError as error:
                self.tell(name, f"{field} is {error}, found {value!r:.80}")
        if (needed := NEEDED.get(kind)) and needed not in raw:
            self.tell(name, f"a {kind} needs {needed}=")
        isolation, context = ROLES.get(values.get("role", "custom"), ROLES["custom"])
        values.setdefault("isolation", isolation)
        values.setdefault("context", context)
        values["needs"] = self._needs(name, values.get("needs", {}), values.get("after", ()))
        return NodeSpec(name=name, kind=kind, **values)

    def _needs(self, name: str, needs: str | dict[str, str], after: tuple[tuple[str, str], ...]) -> dict[str, Any]:
        names = [each for _, each in after]
        given = dict.fromkeys(names, needs) if isinstance(needs, str) else needs
        if isinstance(needs, str) and not names:
            given = {"": needs}  # nothing to wait for; the policy is judged all the same
        for each, policy in given.items():
            if each and each not in names:
                self.tell(name, f"needs names {each!r:.80}, which is not in after{did_you_mean(each, names)}")
            if policy not in POLICIES:
                known = ", ".join(POLICIES)
                self.tell(
                    name,
                    f"needs has the unknown policy {policy!r:.80}; there are: {known}{did_you_mean(policy, POLICIES)}",
                )
        return {each: policy for each, policy in given.items() if each and policy != "all_success"}

    # ---- names ---------------------------------------------------------------------------------------------------

    def _resolved(self, spec: NodeSpec, names: Mapping[str, str]) -> NodeSpec:
        """The same with full names: those of its batch first, then those that exist."""
        after: dict[str, str] = {}
        for alias, name in spec.after:
            full = names.get(name) or (name if name in self.existing or self._is_of_batch(name) else "")
            if not full:
                known = [*names, *self.existing] if len(self.existing) < 1000 else list(names)
                self.tell(spec.name, f"after names {name!r:.80}, and there is no such node{did_you_mean(name, known)}")
            elif full == self.prefix + spec.name:
                self.tell(spec.name, "after names the node itself")
            elif alias in after:
                self.tell(spec.name, f"after has the alias {alias!r:.80} twice")
            else:
                after[alias] = full
        unique = {full: alias for alias, full in reversed(after.items())}
        full_of = {name: names.get(name, name) for _, name in spec.after}
        return msgspec.structs.replace(
            spec,
            name=self.prefix + spec.name,
            after=tuple([(alias, full) for alias, full in after.items() if unique[full] == alias]),
            needs={full_of.get(name, name): policy for name, policy in spec.needs.items()},
            branches={label: tuple([names.get(each, each) for each in to]) for label, to in spec.branches.items()},
        )

    def _is_of_batch(self, full: str) -> bool:
        return full.startswith(self.prefix) and full[len(self.prefix) :] in self.nodes

    def _refuse_cycles(self, nodes: Sequence[NodeSpec]) -> None:
        waits = {spec.name: [name for _, name in spec.after] for spec in nodes}
        done: set[str] = set()
        for start, first in waits.items():
            path: dict[str, Any] = {}
            stack = [(start, iter(first))] if start not in done else []
            if stack:
                path[start] = None
            while stack:
                name, rest = stack[-1]
                step = next((each for each in rest if each in waits and each not in done), None)
                if step is None:
                    stack.pop()
                    path.pop(name)
                    done.add(name)
                elif step in path:
                    cycle = [*list(path)[list(path).index(step) :], step]
                    self.tell(step, f"after closes a cycle: {' -> '.join(reversed(cycle))}")
                    return
                else:
                    path[step] = None
                    stack.append((step, iter(waits[step])))

    # ---- what a node may be --------------------------------------------------------------------------------------

    def _judge_kind(self, spec: NodeSpec, known: Mapping[str, NodeSpec]) -> None:
        aliases = [alias for alias, _ in spec.after]
        for text in [spec.goal, spec.question, *spec.entrants.values(), *goals.texts_in(spec.input)]:
            if problem := goals.problem_of(text, aliases):
                self.tell(spec.name, problem)
        if spec.trust == "quarantined" and spec.isolation != "read_only" and not self.tainted:
            self.tell(spec.name, f'a quarantined node is isolation="read_only", found {spec.isolation!r}')
        if spec.isolation == "remote" and not spec.queue:
            self.tell(spec.name, 'isolation="remote" needs queue=, the queue whose workers run it')
        if spec.approve and not self.book.roles:
            self.tell(spec.name, "approve= asks a person, and no role may answer: give the graph roles=[...]")
        match spec.kind:
            case "classify":
                self._judge_branches(spec, known)
            case "tournament":
                self._judge_entrants(spec)
            case "reduce" if not spec.after:
                self.tell(spec.name, "a reduce needs after=, the nodes whose outputs it reduces")
            case "wait":
                self._judge_wait(spec)
            case _:
                pass
        self._judge_names(spec)

    def _judge_wait(self, spec: NodeSpec) -> None:
        if (spec.seconds is not None) + bool(spec.message) + bool(spec.question) != 1:
            self.tell(spec.name, "a wait has one of seconds=, message= and question=")
        if spec.message in TAKEN_MESSAGES:
            self.tell(spec.name, f"the message {spec.message!r} is for the graph itself: give it another name")
        if spec.question and not self.book.roles:
            self.tell(spec.name, "question= asks a person, and no role may answer: give the graph roles=[...]")

    def _judge_branches(self, spec: NodeSpec, known: Mapping[str, NodeSpec]) -> None:
        if spec.default and spec.default not in spec.branches:
            labels = f"{', '.join(spec.branches)}{did_you_mean(spec.default, spec.branches)}"
            self.tell(
                spec.name,
                f"default is {spec.default!r:.80}, and the labels are: {labels}",
            )
        for label, names in spec.branches.items():
            for name in names:
                if name == spec.name:
                    self.tell(spec.name, f"the branch {label!r} names the classifier itself")
                elif name not in known:
                    hint = did_you_mean(name, known)
                    self.tell(spec.name, f"the branch {label!r} names {name!r:.80}, and there is no such node{hint}")
                elif not _comes_after(name, spec.name, known):
                    self.tell(
                        spec.name,
                        f"the branch {label!r} names {name!r}, which does not come after it: "
                        f"add after=[{spec.name!r}] there",
                    )

    def _judge_entrants(self, spec: NodeSpec) -> None:
        if len(spec.entrants) < 2:
            self.tell(spec.name, "a tournament has 2 entrants at least")
        for name in spec.entrants:
            if not NAME.fullmatch(name):
                self.tell(spec.name, f"the entrant {name!r:.80} has no name that a node could have")

    def _judge_names(self, spec: NodeSpec) -> None:
        book = self.book
        runs = spec.kind not in ("reduce", "child", "wait")
        if runs and not spec.runner and not book.has_runner:
            self.tell(spec.name, "the graph has no runner=; give it one, or the node a runner= of runners")
        for what, name, names in (
            ("runner", spec.runner, book.runners),
            ("reducer", spec.reducer, book.reducers),
            ("workflow", spec.workflow, book.workflows),
            ("output type", spec.output, book.types),
        ):
            if not isinstance(name, str):
                self.tell(spec.name, f"expected the name of the {what}, found {name!r:.80}")
            elif name and names is not None and name not in names:
                known = ", ".join(sorted(names)) or "none"
                self.tell(spec.name, f"unknown {what} {name!r:.80}; there are: {known}{did_you_mean(name, names)}")
        for glob in spec.tools or ():
            if not any(fits(glob, tool) for tool in book.tools):
                known = ", ".join(sorted(book.tools)) or "none"
                self.tell(
                    spec.name,
                    f"tools has {glob!r:.80}, which fits no tool; there are: {known}{did_you_mean(glob, book.tools)}",
                )


def _comes_after(name: str, before: str, known: Mapping[str, NodeSpec]) -> bool:
    seen: set[str] = set()
    todo = [name]
    while todo:
        each = todo.pop()
        if each == before:
            return True
        if each not in seen and each in known:
            seen.add(each)
            todo += [name for _, name in known[each].after]
    return False


# ---- the graph around the nodes ------------------------------------------------------------------------------------


def check_graph(model: Model, reading: Reading) -> None:
    """What is wrong with the graph itself. Its nodes were read before."""
    names = [spec.name for spec in model.nodes]
    if not isinstance(model.name, str) or not model.name or "/" in model.name:  # type: ignore[redundant-expr]
        reading.tell("name", f"the name of a graph is a text without a slash, found {model.name!r:.80}")
    if not names and not reading.problems:
        reading.tell("nodes", "a graph needs a node at least")
    for output in model.outputs:
        if output not in names:
            reading.tell("outputs", f"{output!r:.80} is no node{did_you_mean(output, names)}")
    for number, permit in enumerate(model.permits):
        _check_permit(f"permits[{number}]", permit, model, reading)
    limit = model.limits.nodes
    weight = sum(spec.weight for spec in model.nodes)
    if limit is not None and weight > limit:
        reading.tell("limits", f"nodes={limit}, and the graph has {weight}")


def _check_permit(where: str, permit: Permit, model: Model, reading: Reading) -> None:
    if permit.verdict not in ("allow", "ask", "deny"):
        verdicts = ("allow", "ask", "deny")
        hint = did_you_mean(permit.verdict, verdicts)
        reading.tell(where, f"the verdict on {permit.glob} is allow, ask or deny, found {permit.verdict!r:.80}{hint}")
    if permit.verdict == "ask" and not (permit.roles or permit.users or model.roles):
        text = f"ask for {permit.glob} asks a person, and no role may answer"
        reading.tell(where, f"{text}: give it roles= or users=, or the graph roles=")
    for argument, conditions in permit.where.items():
        if not isinstance(conditions, Mapping) or not conditions:  # type: ignore[redundant-expr]
            reading.tell(
                where, f"where has conditions on {argument!r:.80}, such as {{'max': 5}}, found {conditions!r:.80}"
            )
            continue
        for condition, value in conditions.items():
            if condition not in CONDITIONS:
                known = ", ".join(CONDITIONS)
                reading.tell(
                    where,
                    f"unknown condition {condition!r:.80}; there are: {known}{did_you_mean(condition, CONDITIONS)}",
                )
            elif condition == "matches" and not _is_pattern(value):
                reading.tell(where, f"matches is a regular expression, found {value!r:.80}")
            elif condition == "one_of" and not isinstance(value, list | tuple):
                reading.tell(where, f"one_of is a list, found {value!r:.80}")
            elif condition in ("min", "max") and (isinstance(value, bool) or not isinstance(value, int | float)):
                reading.tell(where, f"{condition} is a number, found {value!r:.80}")


def check_tools(model: Model, tools: Mapping[str, Tool], reading: Reading) -> None:
    """What permits and strict taint say of tools that the graph has."""
    for number, permit in enumerate(model.permits):
        tool = tools.get(permit.glob)
        known = () if tool is None else tuple(tool.schema.get("properties", ()))
        for path in permit.where if known else ():
            argument = path.partition(".")[0]
            if argument not in known:  # such a condition would never be met
                there = f"{', '.join(known)}{did_you_mean(argument, known)}"
                text = f"{permit.glob} has no argument {argument!r:.80}; there are: {there}"
                reading.tell(f"permits[{number}]", text)
    for name in tools if model.taint and not model.roles else ():
        permits = [each for each in model.permits if fits(each.glob, name)]
        answered = all(each.verdict == "deny" or each.roles or each.users for each in permits)
        judged = answered and any(not each.where for each in permits)
        if tools[name].writes and not judged and not fits_any(model.veto, name):
            reading.tell("taint", f"strict taint asks a person for {name}, and no role may answer: give roles=[...]")


def _is_pattern(value: Any) -> bool:
    import re

    try:
        re.compile(value)
    except (re.error, TypeError):
        return False
    return True


def warnings_of(model: Model, tools: Mapping[str, bool]) -> list[GraphProblem]:
    """What is allowed and seldom meant. `tools`: whether each of them writes."""
    found = [
        GraphProblem(spec.name, 'a verifier with context="full" sees what it is to judge: leave out context')
        for spec in model.nodes
        if spec.role == "verify" and spec.context == "full"
    ]
    for tool in sorted(name for name, writes in tools.items() if writes):
        if not any(fits(permit.glob, tool) for permit in model.permits) and not any(
            fits(glob, tool) for glob in model.veto
        ):
            found.append(GraphProblem("permits", f"no permit names {tool}, which writes: every node may use it"))
    by_permit = [each.glob for each in model.permits]
    for place, globs in (("permits", by_permit), ("veto", model.veto), ("rate", model.rate)):
        for glob in globs:
            if tools and not any(fits(glob, tool) for tool in tools):
                hint = did_you_mean(glob, tools)
                found.append(GraphProblem(place, f"{glob!r:.80} fits no tool of the graph{hint}"))
    if model.limits.nodes is None and model.limits.depth != 0:
        found.append(GraphProblem("limits", "runs may submit nodes without end: give limits nodes=, or depth=0"))
    return found
