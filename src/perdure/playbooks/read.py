"""The reader that turns nodes into the model.

It reports a key that is not in `KEYS`, a key that is missing, and a value of another type, each with line and column.
What needs more than one place at a time is in `check.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, get_args, get_type_hints

import msgspec

from . import model
from .keys import KEYS, NAME, REMOVED, WORKFLOW, bare, seconds, spelled, words
from .kinds import WORDS, KeyChoice, Kind, wrong_type
from .load import Node, Place
from .model import (
    Action,
    Admit,
    AdmitRule,
    Arc,
    CtxKey,
    Join,
    Limits,
    Loop,
    Next,
    Playbook,
    Rule,
    Settings,
    Step,
)
from .problem import Report, meant

UNNAMED: Final = "?"
"""Stands for the name of a playbook that has none, so that its other problems are found. It is never registered."""
ITER: Final = ("index", "count", "first", "last", "parent")
"""What `iter` has besides the item."""

T = TypeVar("T")


class Reader:
    """Nodes in, model out. `places` gets the place of every value, by its path in the model."""

    def __init__(self, kinds: Mapping[str, Kind], report: Report, *, v10: bool) -> None:
        self.kinds = kinds
        self.report = report
        self.v10 = v10
        self.places: dict[str, Place] = {}

    # ---- small parts ---------------------------------------------------------------------------------------------

    def problem(self, node: Node | Place, code: str, text: str, hint: str = "") -> None:
        self.report.add(node if isinstance(node, tuple) else node.at, code, text, hint)

    def place(self, path: str, node: Node) -> None:
        self.places[path] = node.text_at if isinstance(node.value, str) else node.at

    def map(self, node: Node | None, place: str, more: Iterable[str] = ()) -> dict[str, Node]:
        """The entries of a map whose keys this place knows. Others are reported."""
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict):
            self.wrong(node, f"{place} is a map")
            return {}
        known = {**KEYS.get(place, {}), **dict.fromkeys(more, "")}
        found = {}
        for key, value in node.value.items():
            if key in known:
                found[key] = value
            elif not key.startswith("x-"):
                self.unknown(node.key_at(key), key, place, known)
        return found

    def unknown(self, at: Place, key: str, place: str, known: Iterable[str]) -> None:
        replacement = REMOVED.get(place, {}).get(key)
        if replacement is not None:
            self.problem(at, "removed-key", f"{place} has no key {key} any more", replacement)
            return
        if self.v10:
            what = "the root has no key {}; it is data" if place == "root" else f"{{}} means nothing in {place}"
            self.report.warn(at, "v10", what.format(key))
            return
        near = meant(key, known)
        owners = [other for other, keys in KEYS.items() if key in keys]
        owners.sort(key=lambda owner: not owner.startswith(f"{place}."))
        if place == "step" and any(key in kind.fields for kind in self.kinds.values()):
            owners = ["tool"]
        belongs = f"it belongs under {owners[0]}" if owners else ""
        hint = "; ".join(filter(None, (near, belongs))) or f"known: {', '.join(sorted(known))}"
        self.problem(at, "unknown-key", f"{place} has no key {key}", hint)

    def wrong(self, node: Node, expected: str) -> None:
        self.problem(node, "wrong-type", f"{expected}, found {_kind(node.value)}")

    def need(self, node: Node, found: Mapping[str, Node], key: str, place: str) -> Node | None:
        if key in found:
            return found[key]
        if node.value is None or isinstance(node.value, dict):  # else it is told that this is no map
            self.problem(node, "missing-key", f"{place} needs the key {key}")
        return None

    def text(self, node: Node | None, default: str = "") -> str:
        if node is None:
            return default
        if not isinstance(node.value, str):
            self.wrong(node, "a text is expected")
            return default
        return node.value

    def flag(self, node: Node | None, default: bool) -> bool:
        if node is None:
            return default
        if not isinstance(node.value, bool):
            self.wrong(node, "true or false is expected")
            return default
        return node.value

    def count(self, node: Node | None, default: int, least: int = 1) -> int:
        if node is None:
            return default
        if type(node.value) is not int or node.value < least:
            self.wrong(node, f"a whole number of at least {least} is expected")
            return default
        return node.value

    def word(self, node: Node | None, kind: type, field: str) -> Any:
        """One of the words that a field of the model takes."""
        default = kind.__struct_defaults__[kind.__struct_fields__.index(field) - _without_default(kind)]  # type: ignore[attr-defined]
        if node is None:
            return default
        words = _words(kind, field)
        if node.value not in words:
            shown = [word for word in words if word]
            hint = meant(str(node.value), shown)
            self.problem(node, "bad-word", f"expected {' '.join(shown)}, found {str(node.value)[:60]}", hint)
            return default
        return node.value

    def name(self, node: Node | None, what: str) -> str:
        found = self.text(node)
        if node is not None and isinstance(node.value, str) and not NAME.fullmatch(found):
            hint = "names begin with a letter or _, and have up to 64 letters, digits, _ and -"
            self.problem(node, "bad-word", f"{found[:80]!r} is no name of {what}", hint)
        return found

    def value(self, node: Node | None, path: str) -> Any:
        """Plain data with templates; the place of each part is kept."""
        if node is None:
            return None
        self.place(path, node)
        if isinstance(node.value, list):
            return [self.value(item, f"{path}/{index}") for index, item in enumerate(node.value)]
        if isinstance(node.value, dict):
            return {key: self.value(item, f"{path}/{key}") for key, item in node.value.items()}
        return node.value

    def values(self, node: Node | None, path: str, what: str) -> dict[str, Any]:
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict):
            self.wrong(node, f"{what} is a map")
            return {}
        found: dict[str, Any] = self.value(node, path)
        return found

    def duration(self, node: Node | None, path: str) -> Any:
        if node is None or node.value is None:
            return None
        found = self.value(node, path)
        if not (isinstance(found, str) and "{{" in found) and seconds(found) is None:
            self.problem(
                node, "wrong-type", "a duration is seconds, 30s, 5m, 2h, 1d or ISO 8601", f"found {found!r:.40}"
            )
            return None
        return spelled(found)

    def number(self, node: Node | None, path: str, default: float, least: float, most: float | None = None) -> Any:
        """A number or a template."""
        if node is None:
            return default
        found = self.value(node, path)
        if isinstance(found, str) and "{{" in found:
            return found
        good = isinstance(found, int | float) and not isinstance(found, bool) and found >= least
        if not good or (most is not None and found > most):
            self.wrong(node, f"a number of at least {least:g}" + (f" and at most {most:g}" if most is not None else ""))
            return default
        return found

    def delay(self, node: Node | None, path: str, default: float) -> Any:
        """Seconds, spelled as a duration too."""
        if node is not None and isinstance(node.value, str) and (found := seconds(node.value)) is not None:
            return int(found) if found.is_integer() else found
        return self.number(node, path, default, 0)

    def whole(self, node: Node | None, path: str, default: int) -> Any:
        """A whole number of at least 1, or a template."""
        if node is not None and not isinstance(node.value, str):
            return self.count(node, default)
        return self.number(node, path, default, 1)

    def guard(self, node: Node | None, path: str) -> Any:
        if node is None:
            return None
        self.place(path, node)
        if not isinstance(node.value, str | bool):
            self.wrong(node, "a guard is an expression")
            return None
        found = bare(node.value)
        if isinstance(node.value, str) and found != node.value.strip():
            ahead = node.value.index("{{") + 2
            ahead += len(node.value[ahead:]) - len(node.value[ahead:].lstrip("-+ \n\t"))
            self.places[path] = (node.text_at[0], node.text_at[1] + ahead)
        return found

    def list_of(self, node: Node | None, what: str, read: Callable[[Node, int], T | None]) -> tuple[T, ...]:
        if node is None or node.value is None:
            return ()
        if not isinstance(node.value, list):
            self.wrong(node, f"{what} is a list")
            return ()
        found = [read(item, index) for index, item in enumerate(node.value)]
        return tuple(item for item in found if item is not None)

    # ---- the document --------------------------------------------------------------------------------------------

    def playbook(self, root: Node) -> Playbook | None:
        if not isinstance(root.value, dict):
            self.problem(root, "wrong-type", f"a playbook is a map, found {_kind(root.value)}")
            return None
        found = {key: node for key, node in root.value.items() if key in KEYS["root"]}
        data: dict[str, Any] = {}
        for key, node in root.value.items():
            if key in found or key.startswith("x-"):
                continue
            self.unknown(root.key_at(key), key, "root", KEYS["root"])
            if self.v10:
                data[key] = self.value(node, f"data/{key}")
        for key in ("apiVersion", "metadata", "workflow"):
            self.need(root, found, key, "a playbook")
        kind = found.get("kind")
        if kind is not None and kind.value != "Playbook":
            self.problem(kind, "bad-word", f"the kind is Playbook, found {str(kind.value)[:60]}")
        metadata, name = self.metadata(found.get("metadata"))
        settings, requires = self.executor(found.get("executor"))
        workbook = self.workbook(found.get("workbook"))
        steps = self.list_of(found.get("workflow"), "workflow", self.step)
        if "workflow" in found and found["workflow"].value in (None, []):
            self.problem(found["workflow"], "missing-key", "the workflow has no step")
        keychain = self.keychain(found.get("keychain"))
        workload = self.values(found.get("workload"), "workload", "workload")
        if self.report.problems and not steps:
            return None
        return Playbook(
            name=name or UNNAMED,
            steps=steps,
            v10=self.v10,
            settings=settings,
            keychain=keychain,
            requires=requires,
            workload=workload,
            workbook=workbook,
            data=data,
            metadata=metadata,
        )

    def metadata(self, node: Node | None) -> tuple[dict[str, Any], str]:
        if node is None:
            return {}, ""
        if not isinstance(node.value, dict):
            self.wrong(node, "metadata is a map")
            return {}, ""
        self.place("metadata", node)
        source = node.get("path") or node.get("name")
        if source is None:
            self.problem(node, "missing-key", "metadata needs the key name")
            return {}, ""
        name = self.text(source).replace("/", ".")
        if isinstance(source.value, str) and (not WORKFLOW.fullmatch(name) or name.startswith("perdure.")):
            hint = "names begin with a letter, have letters, digits, _ - . and /, and perdure. is taken"
            self.problem(source, "bad-word", f"{name[:80]!r} is no name of a workflow", hint)
        plain = {key: item.plain for key, item in node.value.items() if key not in ("name", "path")}
        return plain, name

    def keychain(self, node: Node | None) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}

        def entry(item: Node, index: int) -> None:
            if self.v10:
                name = self.text(item.get("name"))
                found[name] = {}
                return
            keys = self.map(item, "keychain")
            name = self.name(self.need(item, keys, "name", "an entry of the keychain"), "a keychain entry")
            fields = self.need(item, keys, "map", "an entry of the keychain")
            if name in found:
                self.problem(keys["name"], "duplicate-key", f"the keychain entry {name} stands twice")
            found[name] = {}
            if fields is not None and not isinstance(fields.value, dict):
                self.wrong(fields, "map is a map of fields to names of secrets")
                return
            for field, secret in fields.value.items() if fields is not None else ():
                found[name][field] = self.text(secret)

        self.list_of(node, "keychain", entry)
        return found

    def executor(self, node: Node | None) -> tuple[Settings, tuple[str, ...]]:
        keys = self.map(node, "executor")
        requires = self.map(keys.get("requires"), "executor.requires", ("tools",))
        tools = self.list_of(requires.get("tools"), "tools", lambda item, _: self.required_tool(item))
        spec = self.map(keys.get("spec"), "executor.spec")
        default = Settings(arc_default="any", join_default="all") if self.v10 else Settings()
        words = ("final_failure", "status", "pending_at_end", "arc_default", "join_default", "on_template_error")
        settings = msgspec.structs.replace(
            default,
            **{word: self.word(self.spelled(spec[word]), Settings, word) for word in words if word in spec},
            entry_step=self.text(spec.get("entry_step")),
            final_step=self.text(spec.get("final_step")),
            final_on=self.final_on(spec.get("final_on")),
            no_next_is_error=self.flag(spec.get("no_next_is_error"), False),
            ctx=self.ctx_keys(spec.get("ctx")),
            result=self.value(spec.get("result"), "settings/result"),
            timeout=self.duration(spec.get("timeout"), "settings/timeout"),
            queue=self.value(spec.get("queue"), "settings/queue"),
            limits=self.limits(spec.get("limits")),
        )
        for key in ("entry_step", "final_step"):
            if key in spec:
                self.place(f"settings/{key}", spec[key])
        return settings, tools

    def spelled(self, node: Node) -> Node:
        """`false` is the word of `on_template_error`, and YAML reads a boolean."""
        return Node("false", node.at) if node.value is False else node

    def required_tool(self, node: Node) -> str:
        name = self.text(node)
        if name and name not in self.kinds and not self.v10:
            self.problem(node, "unknown-kind", f"the tool {name} is not installed", meant(name, self.kinds))
        return name

    def final_on(self, node: Node | None) -> Any:
        if node is None:
            return Settings().final_on
        words = ("success", "partial", "failed", "cancelled")

        def word(item: Node, _: int) -> str | None:
            if item.value in words:
                return str(item.value)
            self.problem(item, "bad-word", f"expected {' '.join(words)}, found {str(item.value)[:60]}")
            return None

        return self.list_of(node, "final_on", word)

    def ctx_keys(self, node: Node | None) -> dict[str, CtxKey]:
        found = {}
        for key, item in node.value.items() if node is not None and isinstance(node.value, dict) else ():
            if not isinstance(item.value, dict):
                self.problem(item, "wrong-type", f"ctx.{key} is a map", f"write {key}: {{init: …}}")
                continue
            keys = self.map(item, "ctx")
            init = self.value(keys.get("init"), f"settings/ctx/{key}/init")
            word = self.word(keys.get("reduce"), CtxKey, "reduce")
            found[key] = CtxKey(init, self.flag(keys.get("patch"), True), word)
        if node is not None and node.value is not None and not isinstance(node.value, dict):
            self.wrong(node, "ctx is a map")
        return found

    def limits(self, node: Node | None) -> Limits:
        keys = self.map(node, "limits")
        return Limits(**{key: self.count(item, getattr(Limits(), key)) for key, item in keys.items()})

    def workbook(self, node: Node | None) -> dict[str, tuple[Action, ...]]:
        if node is None or node.value is None:
            return {}
        entries: list[tuple[str, Node]] = list(node.value.items()) if isinstance(node.value, dict) else []
        if isinstance(node.value, list):
            entries = [(self.text(item.get("name")), item.get("tool") or item) for item in node.value]
        elif not isinstance(node.value, dict):
            self.wrong(node, "the workbook is a map")
        found: dict[str, tuple[Action, ...]] = {}
        for name, item in entries:
            found[name] = self.actions(item, name, f"workbook/{name}")
        return found

    # ---- steps ---------------------------------------------------------------------------------------------------

    def step(self, node: Node, index: int) -> Step | None:
        path = f"steps/{index}"
        if not isinstance(node.value, dict):
            self.wrong(node, "a step is a map")
            return None
        self.place(path, node)
        keys = self.map(node, "step")
        named = self.need(node, keys, "step", "a step")
        name = self.name(named, "a step")
        if named is not None:
            self.place(f"{path}/name", named)
        spec = self.map(keys.get("spec"), "step.spec")
        policy = self.policy(spec.get("policy"), "policy")
        life = self.map(policy.get("lifecycle"), "lifecycle")
        if not keys.keys() & {"tool", "next", "join"} and not self.v10:
            self.problem(node, "missing-key", f"the step {name} has no tool, next or join")
        failure = policy.get("failure")
        return Step(
            name=name,
            desc=self.text(keys.get("desc")),
            actions=self.actions(keys.get("tool"), name, f"{path}/actions"),
            args=self.values(keys.get("args"), f"{path}/args", "args"),
            set=self.sets(keys.get("set"), f"{path}/set", ("ctx",)),
            loop=self.loop(keys.get("loop"), f"{path}/loop", failure),
            join=self.join(keys.get("join"), f"{path}/join"),
            admit=self.admit(policy.get("admit"), f"{path}/admit"),
            next=self.next(keys.get("next"), f"{path}/next"),
            timeout_s=self.duration(life.get("timeout_s"), f"{path}/timeout_s"),
            deadline_s=self.duration(life.get("deadline_s"), f"{path}/deadline_s"),
            timeout=self.duration(spec.get("timeout"), f"{path}/timeout"),
            queue=self.value(spec.get("queue"), f"{path}/queue"),
        )

    def policy(self, node: Node | None, place: str) -> dict[str, Node]:
        if node is not None and isinstance(node.value, list):
            self.problem(node, "removed-key", "a policy is no list any more", "write policy: {rules: [...]}")
            return {}
        return self.map(node, place)

    def sets(self, node: Node | None, path: str, roots: tuple[str, ...]) -> dict[str, Any]:
        """Targets to values. A target is `ctx.KEY` or `iter.KEY`."""
        found: dict[str, Any] = {}
        for key, value in self.values(node, path, "set").items():
            root, dot, rest = key.partition(".")
            if dot and root in roots and rest:
                found[key] = value
            else:
                at = node.key_at(key) if node is not None else (0, 0)
                text = f"{key} cannot be set here"
                names = [f"{each}.{rest or root}" for each in roots]
                if key in roots:
                    names = [f"{key}.{name}" for name in value] if isinstance(value, dict) else [f"{key}.NAME"]
                self.problem(at, "bad-word", text, f"write {' or '.join(names[:3])}")
        return found

    def loop(self, node: Node | None, path: str, failure: Node | None) -> Loop | None:
        if node is None:
            return None
        keys = self.map(node, "loop")
        items = self.need(node, keys, "in", "a loop")
        spec = self.map(keys.get("spec"), "loop.spec")
        policy = self.map(spec.get("policy"), "loop.policy")
        where = policy.get("exec")
        if where is not None and where.value not in ("local", "distributed"):
            self.problem(where, "bad-word", f"expected local distributed, found {str(where.value)[:60]}")
        iterator = self.name(keys.get("iterator"), "an iterator") or "item"
        if iterator in ITER and not self.v10:
            self.problem(
                keys["iterator"], "bad-word", f"iter.{iterator} is of the loop itself", "name the item otherwise"
            )
        return Loop(
            items=self.value(items, f"{path}/items"),
            iterator=iterator,
            mode=self.word(spec.get("mode"), Loop, "mode"),
            max_in_flight=self.whole(spec.get("max_in_flight"), f"{path}/max_in_flight", 64),
            collect=self.word(spec.get("collect"), Loop, "collect"),
            failure=self.word(policy.get("failure") or failure, Loop, "failure"),
        )

    def join(self, node: Node | None, path: str) -> Join | None:
        if node is None or node.value is None:
            return None
        self.place(path, node)
        if node.value in ("all", "any"):
            return Join(mode=node.value)
        if type(node.value) is int and node.value > 0:
            return Join(mode="number", of=node.value)
        if not isinstance(node.value, dict):
            self.problem(node, "bad-word", f"expected all, any or a number, found {str(node.value)[:60]}")
            return None
        keys = self.map(node, "join")
        mode: Any = "number" if "of" in keys and "mode" not in keys else self.word(keys.get("mode"), Join, "mode")
        return Join(
            mode=mode,
            of=self.count(keys.get("of"), 1),
            timeout=self.duration(keys.get("timeout"), f"{path}/timeout"),
            on_short=self.word(keys.get("on_short"), Join, "on_short"),
            cancel_rest=self.flag(keys.get("cancel_rest"), False),
        )

    def admit(self, node: Node | None, path: str) -> Admit | None:
        if node is None:
            return None
        self.place(path, node)
        keys = self.map(node, "admit")
        rules = self.list_of(
            keys.get("rules"), "rules", lambda item, index: self.admit_rule(item, f"{path}/rules/{index}")
        )
        self.else_last(keys.get("rules"))
        return Admit(
            rules=rules,
            on_deny=self.word(keys.get("on_deny"), Admit, "on_deny"),
            timeout=self.duration(keys.get("timeout"), f"{path}/timeout"),
            on_timeout=self.word(keys.get("on_timeout"), Admit, "on_timeout"),
        )

    def else_last(self, rules: Node | None) -> None:
        if rules is None or not isinstance(rules.value, list):
            return
        for rule in rules.value[:-1]:
            if rule.get("else") is not None:
                self.problem(rule, "bad-word", "else is the last rule", "move it to the end")

    def admit_rule(self, node: Node, path: str) -> AdmitRule | None:
        keys = self.map(node, "admit.rule")
        then = keys.get("then")
        if "else" in keys:
            then = self.need(node, self.map(keys["else"], "else", ("then", "allow")), "then", "else")
        elif "when" not in keys:
            self.problem(node, "missing-key", "a rule needs when, or else")
        if then is None:
            if "else" not in keys:
                self.problem(node, "missing-key", "a rule needs then")
            return None
        allow = self.need(then, self.map(then, "admit.then"), "allow", "then")
        return AdmitRule(self.flag(allow, False), self.guard(keys.get("when"), f"{path}/when"))

    def next(self, node: Node | None, path: str) -> Next | None:
        if node is None or node.value is None:
            return None
        self.place(path, node)
        if isinstance(node.value, str):
            return Next((self.arc(node, 0, path),))
        if isinstance(node.value, list):
            return Next(self.list_of(node, "next", lambda item, index: self.arc(item, index, path)))
        keys = self.map(node, "next")
        spec = self.map(keys.get("spec"), "next.spec")
        return Next(
            arcs=self.list_of(keys.get("arcs"), "arcs", lambda item, index: self.arc(item, index, path)),
            mode=self.word(spec.get("mode"), Next, "mode"),
            on_no_match=self.word(spec.get("on_no_match"), Next, "on_no_match"),
        )

    def arc(self, node: Node, index: int, path: str) -> Arc:
        path = f"{path}/arcs/{index}"
        self.place(path, node)
        if isinstance(node.value, str):
            self.place(f"{path}/step", node)
            return Arc(node.value)
        keys = self.map(node, "arc")
        target = self.need(node, keys, "step", "an arc")
        if target is not None:
            self.place(f"{path}/step", target)
        spec = self.map(keys.get("spec"), "arc.spec")
        return Arc(
            step=self.text(target),
            when=self.guard(keys.get("when"), f"{path}/when"),
            on=self.word(keys.get("on"), Arc, "on"),
            args=self.values(keys.get("args"), f"{path}/args", "args"),
            set=self.sets(keys.get("set"), f"{path}/set", ("ctx",)),
            inherit=self.flag(spec.get("inherit"), True),
        )

    # ---- actions -------------------------------------------------------------------------------------------------

    def actions(self, node: Node | None, step: str, path: str) -> tuple[Action, ...]:
        if node is None or node.value is None:
            return ()
        if not isinstance(node.value, list):
            found = self.action(node, f"{step}_task", f"{path}/0")
            return () if found is None else (found,)
        return self.list_of(node, "tool", lambda item, index: self.action(item, f"task_{index}", f"{path}/{index}"))

    def action(self, node: Node, label: str, path: str) -> Action | None:
        self.place(path, node)
        if not isinstance(node.value, dict):
            self.wrong(node, "an action is a map")
            return None
        kind = self.text(self.need(node, node.value, "kind", "an action"))
        if not kind:
            return None
        known = self.kinds.get(kind)
        if known is None and not self.v10:
            at = node.get("kind") or node
            self.problem(at, "unknown-kind", f"there is no kind {kind}", meant(kind, self.kinds))
        elif known is None:
            self.report.warn(node.at, "v10", f"there is no kind {kind} here: the action fails when it runs")
        own: dict[str, Any] = dict(known.fields) if known is not None else dict.fromkeys(node.value)
        own = {key: field for key, field in own.items() if key not in KEYS["action"]}
        keys = self.map(node, "action", own)
        spec = self.map(keys.get("spec"), "action.spec")
        policy = self.policy(spec.get("policy"), "action.policy")
        result = self.map(spec.get("result"), "action.result")
        fields = {key: self.value(keys[key], f"{path}/fields/{key}") for key in own if key in keys}
        self.fields(node, known, fields, path)
        for one in known.one_of if known is not None else ():
            self.one_of(node, kind, one)
        raw = []
        for key, field in known.fields.items() if known is not None else ():
            if field.split and isinstance(fields.get(key), str):
                fields[key] = words(fields[key])
            if key in fields and (field.raw or (field.sql and not self.v10)):
                raw.append(key)
        rules = policy.get("rules")
        self.else_last(rules)
        if "name" in keys:
            self.place(f"{path}/label", keys["name"])
        return Action(
            label=self.name(keys.get("name"), "an action") or label,
            kind=kind,
            fields=fields,
            args=self.value(keys.get("args"), f"{path}/args"),
            auth=self.value(keys.get("auth"), f"{path}/auth"),
            when=True if "when" not in keys else self.guard(keys["when"], f"{path}/when"),
            set=self.sets(keys.get("set"), f"{path}/set", ("ctx", "iter")),
            rules=self.list_of(rules, "rules", lambda item, index: self.rule(item, f"{path}/rules/{index}")),
            on_unmatched=self.word(policy.get("on_unmatched"), Action, "on_unmatched"),
            timeout=self.duration(spec.get("timeout"), f"{path}/timeout"),
            queue=self.value(spec.get("queue"), f"{path}/queue"),
            once=self.flag(spec.get("once"), False),
            select={
                key: str(item) for key, item in self.values(result.get("select"), f"{path}/select", "select").items()
            },
            inline_max_bytes=self.count(result.get("inline_max_bytes"), 65536, 0),
            raw=tuple(sorted(raw)),
            takes_args=known is not None and known.tool and "args" in known.fields,
        )

    def fields(self, node: Node, known: Kind | None, fields: dict[str, Any], path: str) -> None:
        """Literals of the wrong type, and fields that are missing."""
        for key, field in known.fields.items() if known is not None else ():
            if key not in fields:
                if field.required and key not in node.value:
                    self.problem(node, "missing-key", f"the kind {known.name if known else ''} needs the key {key}")
                continue
            value, at = fields[key], self.places.get(f"{path}/fields/{key}", node.at)
            if value is None or (isinstance(value, str) and "{{" in value):
                continue
            if found := wrong_type(value, field.types):
                expected = " or ".join(WORDS.get(word, word) for word in field.types)
                self.problem(at, "wrong-type", f"{key} is a {expected}, found a {found}")
            elif field.words and value not in field.words:
                shown = f"{key} is one of {' '.join(field.words)}, found {str(value)[:60]}"
                self.problem(at, "bad-word", shown, meant(str(value), field.words))
            elif field.duration:
                fields[key] = self.duration(node.value[key], f"{path}/fields/{key}")

    def one_of(self, node: Node, kind: str, one: KeyChoice) -> None:
        given = [key for key in one.keys if (found := node.get(key)) is not None and found.value is not None]
        if len(given) == 1 or not (given or one.needed):
            return
        least = "one" if one.needed else "at most one"
        text = f"the kind {kind} has {least} of the keys {', '.join(one.keys)}, found {' and '.join(given) or 'none'}"
        if self.v10:
            self.report.warn(node.at, "v10", text)
        else:
            self.problem(node, "missing-key", text)

    def rule(self, node: Node, path: str) -> Rule | None:
        self.place(path, node)
        keys = self.map(node, "rule")
        then = keys.get("then")
        if "else" in keys:
            inner = self.map(keys["else"], "else", ("then", *(KEYS["then"] if self.v10 else ())))
            then = inner.get("then") or (keys["else"] if self.v10 else self.need(node, inner, "then", "else"))
        elif "when" not in keys and not any(node.get(key) for key in REMOVED["rule"]):
            self.problem(node, "missing-key", "a rule needs when, or else")
        if then is None:
            if "else" not in keys:
                self.problem(node, "missing-key", "a rule needs then")
            return None
        found = self.map(then, "then")
        sets = self.sets(found.get("set"), f"{path}/set", ("ctx", "iter"))
        for key, root in (("set_ctx", "ctx"), ("set_iter", "iter")):
            for name, item in found[key].value.items() if key in found and isinstance(found[key].value, dict) else ():
                sets[f"{root}.{name}"] = self.value(item, f"{path}/set/{root}.{name}")
        if found.get("to") is not None:
            self.place(f"{path}/to", found["to"])
        retry_after = found.get("retry_after")
        return Rule(
            when=self.guard(keys.get("when"), f"{path}/when"),
            do=self.word(found.get("do"), Rule, "do"),
            set=sets,
            attempts=self.whole(found.get("attempts"), f"{path}/attempts", 3),
            backoff=self.word(found.get("backoff"), Rule, "backoff"),
            delay=self.delay(found.get("delay"), f"{path}/delay", 1),
            max_delay=self.delay(found.get("max_delay"), f"{path}/max_delay", 300),
            jitter=self.number(found.get("jitter"), f"{path}/jitter", 0, 0, 1),
            retry_after=True if retry_after is None else self.flag(retry_after, True),
            to=self.text(found.get("to")),
            error=self.value(found.get("error"), f"{path}/error"),
        )


def _kind(value: Any) -> str:
    names = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a map"}
    return names.get(type(value), "null")


def _words(kind: type, field: str) -> tuple[Any, ...]:
    return get_args(get_type_hints(kind, vars(model))[field])


def _without_default(kind: type) -> int:
    return len(kind.__struct_fields__) - len(kind.__struct_defaults__)  # type: ignore[attr-defined]
