"""A text in, a definition and its warnings out, or all of its problems.

What one place can say is reported by `read.py`. Here stands what needs the whole: names of steps and labels,
expressions, the final step, dead arcs, and the warnings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from perdure.errors import BadExpression
from perdure.expressions import Expression

from .keys import V10, VERSIONS
from .kinds import Kind, all_kinds
from .load import Node, Place, read_yaml
from .model import Action, Definition, Playbook, Step, define, net_of
from .net import Net
from .problem import BadPlaybook, Problem, Report, meant
from .read import Reader
from .scope import KNOWN_AT, MEMBERS, ROOT_NAMES, ActionCode, Code, Compiler, StepCode, has_template
from .soundness import findings
from .v10 import rewrite


class Loaded(msgspec.Struct, frozen=True):
    definition: Definition
    warnings: tuple[Problem, ...] = ()


def load(text: str, source: str = "", tools: Mapping[str, Kind] | None = None) -> Loaded:
    """A playbook from YAML text. Raises `BadPlaybook` with all problems. `source` is the name of the file."""
    report = Report(source)
    root = read_yaml(text, source, report)
    partial = bool(report.problems)  # parts of the text could not be read: what is missing may stand there
    kinds = all_kinds(tools or {})
    v10 = _mode(root, report)
    if v10:
        root = rewrite(root, kinds, report)
    reader = Reader(kinds, report, v10=v10)
    playbook = reader.playbook(root)
    if partial:
        report.forget("missing-key")
    if playbook is not None:
        playbook = _joined(playbook)
        definition = define(playbook, source, reader.places)
        _Check(definition, kinds, report).run()
        report.finish()
        return Loaded(definition, report.ordered_warnings())
    report.finish()
    raise BadPlaybook([Problem("missing-key", "the playbook has no name or no step", "", 1, 1, source)])


def _mode(root: Node, report: Report) -> bool:
    """Whether the document asks for v10 mode."""
    version = root.get("apiVersion")
    if version is None or version.value in VERSIONS:
        return False
    if version.value in V10:
        return True
    hint = meant(str(version.value), (*VERSIONS, *V10)) or f"write {VERSIONS[0]}"
    report.add(version.at, "bad-word", f"{str(version.value)[:60]} is no version of the language", hint)
    return False


def _joined(playbook: Playbook) -> Playbook:
    """With `join_default: all`, every step that several arcs lead to joins."""
    if playbook.settings.join_default == "none":
        return playbook
    from .model import Join

    sources: dict[str, set[str]] = {}
    for step in playbook.steps:
        for arc in step.next.arcs if step.next is not None else ():
            sources.setdefault(arc.step, set()).add(step.name)
    steps = []
    for step in playbook.steps:
        several = len(sources.get(step.name, ())) > 1 and step.join is None
        steps.append(msgspec.structs.replace(step, join=Join()) if several else step)
    return msgspec.structs.replace(playbook, steps=tuple(steps))


class _Check:
    def __init__(self, definition: Definition, kinds: Mapping[str, Kind], report: Report) -> None:
        self.definition = definition
        self.playbook = definition.playbook
        self.kinds = kinds
        self.report = report
        self.compiler = Compiler(definition, self.bad_expression)

    def at(self, path: str) -> Place:
        """The place of a path, or of what it stands in."""
        places = self.definition.places
        while path and path not in places:
            path = path.rpartition("/")[0]
        return places.get(path, (1, 1))

    def run(self) -> None:
        self.names()
        self.targets()
        self.final_step()
        for name in self.playbook.workbook:
            self.compiler.entry(name)
        compiled = {step.name: self.compiler.step(step.name) for step in self.playbook.steps}
        _ = self.compiler.result, self.compiler.workload
        if not self.playbook.v10 and has_template(self.playbook.workload):
            text = "a template stands in the workload, which is data"
            self.report.add(self.at("workload"), "bad-expression", text, "use args of a step, or executor.spec.ctx")
        for step in self.playbook.steps:
            self.dead_arcs(step, compiled[step.name])
        for path, action in self.pipelines():
            self.action(path, action)
        self.workbook_recursion()
        if not self.report.problems:
            _Warnings(self, compiled).run()

    # ---- problems ------------------------------------------------------------------------------------------------

    def bad_expression(self, path: str, error: BadExpression) -> None:
        for problem in error.problems:
            inner = "".join(f"/{key}" for key in problem.path)
            line, column = self.at(path + inner)
            if problem.line > 1:
                line, column = line + problem.line - 1, problem.column
            elif problem.line == 1:
                column += problem.column - 1
            hint = problem.hint
            if problem.code == "unknown-name" and not hint:
                name = problem.text.removeprefix("the name ").partition(" ")[0]
                names = self.compiler.names
                hint = KNOWN_AT.get(name) or meant(
                    name, (*ROOT_NAMES, *names.steps, *names.args, *names.ctx, *names.workload)
                )
            self.report.add((line, column), problem.code, problem.text, hint)

    def names(self) -> None:
        for index, step in enumerate(self.playbook.steps):
            if any(step.name == other.name for other in self.playbook.steps[:index]):
                self.report.add(self.at(f"steps/{index}/name"), "duplicate-step", f"the step {step.name} stands twice")
        for path, actions in self.lists():
            counts = Counter(action.label for action in actions)
            for index, action in enumerate(actions):
                if counts[action.label] > 1 and action.label in [each.label for each in actions[:index]]:
                    at = self.at(f"{path}/{index}/label")
                    self.report.add(at, "duplicate-label", f"the label {action.label} stands twice", "name one of them")

    def lists(self) -> Iterator[tuple[str, tuple[Action, ...]]]:
        for index, step in enumerate(self.playbook.steps):
            yield f"steps/{index}/actions", step.actions
        for name, actions in self.playbook.workbook.items():
            yield f"workbook/{name}", actions

    def pipelines(self) -> Iterator[tuple[str, Action]]:
        for path, actions in self.lists():
            for index, action in enumerate(actions):
                yield f"{path}/{index}", action

    def known_step(self, name: str, path: str) -> None:
        steps = [step.name for step in self.playbook.steps]
        if name and name not in steps:
            self.report.add(self.at(path), "unknown-step", f"there is no step {name}", meant(name, steps))

    def targets(self) -> None:
        settings = self.playbook.settings
        self.known_step(settings.entry_step, "settings/entry_step")
        self.known_step(settings.final_step, "settings/final_step")
        for index, step in enumerate(self.playbook.steps):
            for number, arc in enumerate(step.next.arcs if step.next is not None else ()):
                self.known_step(arc.step, f"steps/{index}/next/arcs/{number}/step")
        for path, actions in self.lists():
            labels = [action.label for action in actions]
            for number, action in enumerate(actions):
                for at, rule in enumerate(action.rules):
                    place = f"{path}/{number}/rules/{at}"
                    if rule.do == "jump" and not rule.to:
                        self.report.add(self.at(place), "missing-key", "a jump needs the key to")
                    elif rule.do == "jump" and rule.to == "previous" and number == 0:
                        self.report.add(self.at(f"{place}/to"), "unknown-label", "no action is before the first")
                    elif rule.do == "jump" and rule.to not in (*labels, "previous"):
                        text = f"the step has no label {rule.to}"
                        self.report.add(self.at(f"{place}/to"), "unknown-label", text, meant(rule.to, labels))

    def final_step(self) -> None:
        final = self.playbook.settings.final_step
        if not final:
            return
        for index, step in enumerate(self.playbook.steps):
            for number, arc in enumerate(step.next.arcs if step.next is not None else ()):
                if arc.step == final:
                    self.final(f"steps/{index}/next/arcs/{number}/step", f"an arc leads to the final step {final}")
            if step.name == final:
                for key, found in (("next", step.next), ("join", step.join), ("admit", step.admit)):
                    if found is not None:
                        self.final(f"steps/{index}/{key}", f"the final step {final} has {key}")
        if final == self.playbook.entry:
            self.final("settings/final_step", f"the final step {final} is the entry")

    def final(self, path: str, text: str) -> None:
        if self.playbook.v10:
            self.report.warn(self.at(path), "v10", text)
        else:
            self.report.add(self.at(path), "final-step", text, "the final step runs after all others, by itself")

    def action(self, path: str, action: Action) -> None:
        if action.kind == "workbook":
            use = action.fields.get("use")
            if isinstance(use, str) and use not in self.playbook.workbook:
                hint = meant(use, self.playbook.workbook)
                self.report.add(self.at(f"{path}/fields/use"), "unknown-kind", f"the workbook has no entry {use}", hint)
        kind = self.kinds.get(action.kind)
        for key, field in kind.fields.items() if kind is not None else ():
            raw = action.fields.get(key)
            if field.sql and has_template(raw):
                self.sql(f"{path}/fields/{key}")

    def dead_arcs(self, step: Step, code: StepCode) -> None:
        if step.next is None or step.next.mode != "exclusive":
            return
        taken: set[str] = set()
        for arc in code.arcs:
            ends = {"done", "failed"} if arc.on == "any" else {arc.on}
            if ends <= taken:
                text = f"the arc to {arc.arc.step} stands behind one that is always followed"
                self.report.add(self.at(arc.path), "dead-arc", text, "give the one before a guard, or remove it")
            if arc.when is None:
                taken |= ends

    def sql(self, path: str) -> None:
        text = "a template stands in SQL text"
        if self.playbook.v10:
            self.report.warn(self.at(path), "v10", text, "bind values as :name")
        else:
            self.report.add(self.at(path), "sql-interpolation", text, "write :name, and the value under params")

    def workbook_recursion(self) -> None:
        uses = {
            name: {str(action.fields.get("use")) for action in actions if action.kind == "workbook"}
            for name, actions in self.playbook.workbook.items()
        }
        for name, direct in uses.items():
            seen: set[str] = set()
            ahead = list(direct)
            while ahead:
                at = ahead.pop()
                if at not in seen:
                    seen.add(at)
                    ahead.extend(uses.get(at, ()))
            if name in seen:
                self.report.add(self.at(f"workbook/{name}/0"), "bad-word", f"the workbook entry {name} runs itself")


class _Warnings:
    """What is no problem and yet likely a mistake."""

    def __init__(self, check: _Check, compiled: dict[str, StepCode]) -> None:
        self.check = check
        self.playbook = check.playbook
        self.compiled = compiled
        self.report = check.report
        self.net = net_of(check.playbook)

    def run(self) -> None:
        for step in self.playbook.steps:
            code = self.compiled[step.name]
            self.reachable(step, code)
            self.gate(step, code)
            self.rules(step, code)
            self.reads(step, code)
            self.parallel(step, code)
        for path, name, owners in self.check.compiler.twice if not self.playbook.v10 else ():
            also = " and ".join(owners[1:])
            self.warn(
                path, "two-owners", f"{name} is {owners[0]} here; {also} has that name too", "write the root before it"
            )
        for path, name in self.check.compiler.missed:
            self.warn(path, "v10", f"the name {name} is not known here: it is null", meant(name, ROOT_NAMES))
        self.cycles()
        self.twice()

    def warn(self, path: str, code: str, text: str, hint: str = "") -> None:
        self.report.warn(self.check.at(path), code, text, hint)

    def reachable(self, step: Step, code: StepCode) -> None:
        special = (self.playbook.entry, self.playbook.settings.final_step)
        if step.name not in special and step.name not in self.net.reach(self.playbook.entry):
            self.warn(code.path, "unreachable-step", f"no path leads to the step {step.name}")

    def gate(self, step: Step, code: StepCode) -> None:
        if step.admit is None:
            return
        changing = any(read[0] in ("ctx", "steps", "_steps") for read in code.reads)
        if step.admit.rules and not changing and not code.volatile:
            self.warn(f"{code.path}/admit", "constant-gate", f"the gate of {step.name} reads nothing that can change")
        if step.admit.rules and step.admit.rules[-1].when is not None:
            self.warn(
                f"{code.path}/admit", "no-else", f"the gate of {step.name} has no else: without a match it denies"
            )

    def rules(self, step: Step, code: StepCode) -> None:
        for action in code.actions:
            if action.rules and action.rules[-1].rule.when is not None:
                self.warn(action.path, "no-else", f"the rules of {action.action.label} have no else")

    def reads(self, step: Step, code: StepCode) -> None:
        names = self.check.compiler.names
        for path, each in expressions(code):
            for read in each.reads:
                if read[0] == "ctx" and len(read) > 1 and str(read[1]) not in names.ctx:
                    self.warn(path, "never-set", f"ctx.{read[1]} is read and never set", meant(str(read[1]), names.ctx))
                self.member(path, read)
                if read[0] in ("steps", "_steps") and len(read) > 1 and str(read[1]) in names.steps:
                    self.early(path, step, str(read[1]))

    def member(self, path: str, read: tuple[str | int, ...]) -> None:
        """A member that what has it never has: `is defined` and `default()` would hide the mistake at run time."""
        for size in (1, 2):
            known = MEMBERS.get(tuple(map(str, read[:size])))
            if known is not None and len(read) > size and str(read[size]) not in known and not self.playbook.v10:
                text = f"{'.'.join(map(str, read[:size]))} has no member {read[size]}"
                self.warn(path, "unknown-member", text, meant(str(read[size]), known))

    def early(self, path: str, step: Step, read: str) -> None:
        ahead = read in (step.name, self.playbook.settings.final_step) or step.name == self.playbook.settings.final_step
        if not ahead and not self.net._on_every_path(read, step.name):
            self.warn(path, "read-early", f"the result of {read} is read where {read} may not have run")

    def parallel(self, step: Step, code: StepCode) -> None:
        if step.loop is None or step.loop.mode != "parallel":
            return
        declared = self.playbook.settings.ctx
        for action in code.actions:
            for sets in (action.sets, *(rule.sets for rule in action.rules)):
                for root, key, _ in sets:
                    owner = declared.get(key.partition(".")[0])
                    if root == "ctx" and (owner is None or not owner.reduce):
                        text = f"a parallel loop writes ctx.{key}, which has no reducer"
                        self.warn(action.path, "parallel-write", text, f"declare executor.spec.ctx.{key} with reduce")

    def cycles(self) -> None:
        """Steps that can follow each other for ever without a guard, a gate or a wait."""
        free = {}
        for step in self.playbook.steps:
            waits = any(action.kind in ("wait", "task", "workflow") for action in step.actions)
            arcs = step.next.arcs if step.next is not None and step.admit is None and not waits else ()
            free[step.name] = [arc.step for arc in arcs if arc.when is None]
        net = Net(list(free), free, entry=self.playbook.entry)
        for index, step in enumerate(self.playbook.steps):
            if step.name in net.reach(step.name):
                self.warn(
                    f"steps/{index}", "free-cycle", f"{step.name} leads back to itself without guard, gate or wait"
                )

    def twice(self) -> None:
        for step in self.playbook.steps:
            if step.next is None or step.next.mode != "inclusive":
                continue
            reached: Counter[str] = Counter()
            for arc in step.next.arcs:
                reached.update(self.behind(arc.step))
            for name, count in reached.items():
                target = self.playbook.step(name)
                if count > 1 and target.join is None and name != step.name:
                    path = self.compiled[name].path
                    self.warn(
                        path, "runs-twice", f"{name} runs once for each token of the split {step.name}", "add join: all"
                    )

    def behind(self, start: str) -> set[str]:
        """The steps that a token reaches before a join takes it."""
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            at = ahead.pop()
            if at not in seen and at in self.net.arcs and at not in self.net.joins:
                seen.add(at)
                ahead.extend(self.net.arcs[at])
        return seen


def expressions(code: StepCode) -> Iterator[tuple[str, Expression]]:
    """Every expression of a step, with its path."""

    def found(path: str, each: Code | None) -> Iterator[tuple[str, Expression]]:
        if isinstance(each, Expression):
            yield path, each

    for index, (guard, _) in enumerate(code.admit):
        yield from found(f"{code.path}/admit/rules/{index}/when", guard)
    for key, value in code.args.items():
        yield from found(f"{code.path}/args/{key}", value)
    yield from found(f"{code.path}/loop/items", code.items)
    for action in code.actions:
        yield from _of_action(action)
    for root, key, value in code.sets:
        yield from found(f"{code.path}/set/{root}.{key}", value)
    for arc in code.arcs:
        yield from found(f"{arc.path}/when", arc.when)
        for key, value in arc.args.items():
            yield from found(f"{arc.path}/args/{key}", value)


def _of_action(action: ActionCode) -> Iterator[tuple[str, Expression]]:
    parts: list[tuple[str, Code | None]] = [
        (f"{action.path}/fields/{key}", value) for key, value in action.fields.items()
    ]
    parts += [(f"{action.path}/args", action.args), (f"{action.path}/when", action.when)]
    parts += [(f"{action.path}/set/{root}.{key}", value) for root, key, value in action.sets]
    for rule in action.rules:
        parts.append((f"{rule.path}/when", rule.when))
        parts += [(f"{rule.path}/set/{root}.{key}", value) for root, key, value in rule.sets]
    yield from ((path, code) for path, code in parts if isinstance(code, Expression))


def problems_of(text: str, source: str = "", tools: Mapping[str, Kind] | None = None) -> list[Problem]:
    """Problems, or else warnings, soundness included: what `check` prints."""
    try:
        loaded = load(text, source, tools)
    except BadPlaybook as bad:
        return list(bad.problems)
    known = {(each.code, each.line, each.column) for each in loaded.warnings}
    places = loaded.definition.places
    index = {step.name: number for number, step in enumerate(loaded.definition.playbook.steps)}
    more = []
    for each in findings(loaded.definition.playbook):
        line, column = places.get(f"steps/{index[each.step]}", (1, 1)) if each.step else (1, 1)
        if not known & {(each.code, line, column), ("unreachable-step", line, column)}:
            more.append(Problem(each.code, each.text, "", line, column, source, warning=True))
    return sorted([*loaded.warnings, *more], key=lambda each: (each.line, each.column))
