"""v10 mode: the spellings of NoETL documents, rewritten to ours before anything reads them, and their result shapes.

All that v10 mode changes about a document stands here; what it changes about evaluation is `Scope.v10` of the
expressions and the defaults that `keys.py` chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .keys import KEYS
from .kinds import Kind
from .load import Node
from .problem import Report
from .values import Stored

_RENAMED: Final = {"input": "args", "payload": "args", "endpoint": "url", "credential": "auth"}
_SQL: Final = ("postgres", "sqlite", "duckdb")
_EVENTS: Final = {"call.done": "step.done", "call.error": "step.failed"}


def rewrite(root: Node, kinds: Mapping[str, Kind], report: Report) -> Node:
    """The document in our spelling. What is no map or list where one is expected is left for the reader to report."""
    return _Rewriter(kinds, report).root(root)


class _Rewriter:
    def __init__(self, kinds: Mapping[str, Kind], report: Report) -> None:
        self.kinds = kinds
        self.report = report

    def root(self, node: Node) -> Node:
        if not isinstance(node.value, dict):
            return node
        changed = dict(node.value)
        workflow = changed.get("workflow")
        if workflow is not None and isinstance(workflow.value, list):
            changed["workflow"] = _like(workflow, [self.step(step) for step in workflow.value])
        workbook = changed.get("workbook")
        if workbook is not None and isinstance(workbook.value, dict):
            changed["workbook"] = _like(workbook, {name: self.tool(item) for name, item in workbook.value.items()})
        elif workbook is not None and isinstance(workbook.value, list):
            changed["workbook"] = _like(workbook, [self.entry(item) for item in workbook.value])
        return _like(node, changed)

    def entry(self, node: Node) -> Node:
        if not isinstance(node.value, dict):
            return node
        tool = node.get("tool")
        inner = tool if tool is not None else _like(node, {k: v for k, v in node.value.items() if k != "name"})
        return _like(node, {"name": node.value.get("name", Node("", node.at)), "tool": self.tool(inner)})

    def step(self, node: Node) -> Node:
        if not isinstance(node.value, dict):
            return node
        changed = self.renamed(node, {"input": "args", "payload": "args", "description": "desc"})
        for key in ("set", "set_vars", "set_ctx"):
            if key in changed:
                found = changed.pop(key)
                changed["set"] = _like(found, self.context(found))
        if "tool" in changed:
            changed["tool"] = self.tool(changed["tool"])
        if "next" in changed:
            changed["next"] = self.next(changed["next"])
        return _like(node, changed)

    def renamed(self, node: Node, names: Mapping[str, str]) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for key, value in node.value.items():
            name = names.get(key, key)
            if name not in found:
                found[name] = value
        return found

    def context(self, node: Node) -> Any:
        """Keys without a root are keys of ctx."""
        if not isinstance(node.value, dict):
            return node.value
        return {
            key if key.partition(".")[0] in ("ctx", "iter") and "." in key else f"ctx.{key}": value
            for key, value in node.value.items()
        }

    def next(self, node: Node) -> Node:
        if isinstance(node.value, list):
            names = all(isinstance(item.value, str) for item in node.value)
            arcs = _like(node, [self.arc(item) for item in node.value])
            if names and len(node.value) > 1:
                spec = Node({"mode": Node("inclusive", node.at)}, node.at)
                return Node({"spec": spec, "arcs": arcs}, node.at)
            return arcs
        arcs_node = node.get("arcs")
        if arcs_node is None or not isinstance(arcs_node.value, list):
            return node
        return _like(node, {**node.value, "arcs": _like(arcs_node, [self.arc(arc) for arc in arcs_node.value])})

    def arc(self, node: Node) -> Node:
        if not isinstance(node.value, dict):
            return node
        changed = self.renamed(node, {"input": "args", "payload": "args", "set_vars": "set", "set_ctx": "set"})
        if "set" in changed:
            changed["set"] = _like(changed["set"], self.context(changed["set"]))
        self.guard(changed)
        return _like(node, changed)

    def guard(self, keys: dict[str, Node]) -> None:
        when = keys.get("when")
        if when is not None and isinstance(when.value, str):
            text = when.value
            for old, new in _EVENTS.items():
                text = text.replace(f"'{old}'", f"'{new}'").replace(f'"{old}"', f'"{new}"')
            keys["when"] = Node(text, when.at, when.text_at)

    # ---- actions -------------------------------------------------------------------------------------------------

    def tool(self, node: Node) -> Node:
        if isinstance(node.value, list):
            return _like(node, [self.labelled(item) for item in node.value])
        if isinstance(node.value, dict) and "kind" not in node.value:
            inner = list(node.value.items())
            if inner and all(isinstance(item.value, dict) and "kind" in item.value for _, item in inner):
                return _like(node, [self.named(name, item) for name, item in inner])
        return self.action(node)

    def labelled(self, node: Node) -> Node:
        if isinstance(node.value, dict) and "kind" not in node.value and len(node.value) == 1:
            ((name, inner),) = node.value.items()
            if isinstance(inner.value, dict):
                return self.named(name, inner)
        return self.action(node)

    def named(self, name: str, node: Node) -> Node:
        changed = dict(self.action(node).value)
        changed["name"] = Node(_name(name), node.at)
        return _like(node, changed)

    def action(self, node: Node) -> Node:
        if not isinstance(node.value, dict):
            return node
        changed = self.renamed(node, _RENAMED)
        kind = changed.get("kind")
        word = kind.value if kind is not None else None
        if word == "playbook" and kind is not None:
            changed["kind"] = Node("workflow", kind.at)
            self.move(changed, "path", "workflow")
            self.move(changed, "playbook", "workflow")
        if word in _SQL:
            self.move(changed, "command", "query")
        if word == "python":
            self.move(changed, "script_path", "script")
            self.python(changed)
        if word == "workbook":
            self.move(changed, "name", "use")
        if word == "shell":
            self.move(changed, "cmds", "script")
        if "name" in changed and isinstance(changed["name"].value, str):
            changed["name"] = Node(_name(changed["name"].value), changed["name"].at)
        self.spec(changed, str(changed["kind"].value) if "kind" in changed else "", node)
        for key in ("set", "set_vars"):
            if key in changed:
                found = changed.pop(key)
                changed["set"] = _like(found, self.context(found))
        self.guard(changed)
        return _like(node, changed)

    def python(self, keys: dict[str, Node]) -> None:
        """`script: {uri}` is a file, and `libs: {name: {from, import}}` a name of a module."""
        script, libs = keys.get("script"), keys.get("libs")
        if script is not None and (uri := script.get("uri")) is not None:
            keys["script"] = uri
        for name, item in libs.value.items() if libs is not None and isinstance(libs.value, dict) else ():
            parts = [node.value for key in ("from", "import") if (node := item.get(key)) is not None]
            if parts and libs is not None:
                libs.value[name] = Node(":".join(map(str, parts)), item.at)

    def move(self, keys: dict[str, Node], old: str, new: str) -> None:
        if old in keys and new not in keys:
            keys[new] = keys.pop(old)

    def spec(self, keys: dict[str, Node], kind: str, action: Node) -> None:
        """Parameters may stand under spec, and parts of spec beside kind."""
        given = keys.get("spec")
        spec = dict(given.value) if given is not None and isinstance(given.value, dict) else {}
        own = self.kinds[kind].fields if kind in self.kinds else {}
        for key in list(spec):
            if key not in KEYS["action.spec"] and (key in own or key in KEYS["action"]) and key not in keys:
                keys[key] = spec.pop(key)
        if "timeout" in keys and "timeout" not in own:
            spec.setdefault("timeout", keys.pop("timeout"))
        if "output_select" in keys:
            spec["result"] = Node({"select": self.select(keys.pop("output_select"))}, action.at)
        policy = spec.get("policy")
        if policy is not None and isinstance(policy.value, dict):
            spec["policy"] = self.policy(policy)
        if spec:
            at = given.at if given is not None else action.at
            keys["spec"] = Node(spec, at, keys=given.keys if given is not None else None)

    def select(self, node: Node) -> Node:
        if isinstance(node.value, list):
            return _like(node, {str(item.value): item for item in node.value})
        return node

    def policy(self, node: Node) -> Node:
        rules = node.get("rules")
        if rules is None or not isinstance(rules.value, list):
            return node
        return _like(node, {**node.value, "rules": _like(rules, [self.rule(rule) for rule in rules.value])})

    def rule(self, node: Node) -> Node:
        if not isinstance(node.value, dict):
            return node
        changed = dict(node.value)
        self.guard(changed)
        other = changed.get("else")
        if other is not None and isinstance(other.value, dict):
            inner = other.get("then") or other
            changed["else"] = _like(other, {"then": self.then(inner)})
        if "then" in changed:
            changed["then"] = self.then(changed["then"])
        return _like(node, changed)

    def then(self, node: Node) -> Node:
        if not isinstance(node.value, dict):
            return node
        changed = dict(node.value)
        if "set_vars" in changed:
            changed.setdefault("set_ctx", changed.pop("set_vars"))
        if "set" in changed:
            changed["set"] = _like(changed["set"], self.context(changed["set"]))
        backoff = changed.get("backoff")
        if backoff is not None and backoff.value == "fixed":
            changed["backoff"] = Node("none", backoff.at)
        return _like(node, changed)


def _like(node: Node, value: Any) -> Node:
    return Node(value, node.at, node.text_at, node.keys)


def _name(text: str) -> str:
    """A label as our names are: other characters become _."""
    made = "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in text)[:64]
    return made if made[:1].isalpha() or made[:1] == "_" else f"_{made}"[:64]


def shape(result: Any, status: str, error: Any, kind: str, extra: Mapping[str, Any]) -> Any:
    """What a bare step name is in v10 mode: the result, with what v10's engines put around it."""
    http = extra.get("http")
    if isinstance(result, Stored):
        more = {"status_code": http.get("status"), "headers": http.get("headers")} if http else {}
        about = {"status": status, "_ref": result.kept.digest, "_preview": result.kept.preview, **more}
        kept = msgspec.structs.replace(result.kept, fields={**result.kept.fields, **about}, wrapped=True)
        return Stored(kept, result.cache)
    found: dict[str, Any] = dict(result) if isinstance(result, dict) else {"result": result}
    found.setdefault("status", status)
    found.setdefault("data", result)
    if error is not None:
        found.setdefault("error", error)
    if http:
        found |= {"data": result}  # the body, whatever it has itself
        found.setdefault("body", result)
        found.setdefault("status_code", http.get("status"))
        found.setdefault("headers", http.get("headers"))
    if kind in _SQL and isinstance(result, dict):
        found |= {"data": {**result, "command_0": result}}
        found.setdefault("command_0", result)
    return found


def labelled(result: Any, outcome: Mapping[str, Any], kind: str) -> Any:
    """What the label of an action is: in its shape too, if it has parts."""
    if result is None or (not isinstance(result, dict) and not outcome.get("http")):
        return result
    return shape(result, "done" if outcome["status"] == "ok" else "failed", outcome["error"], kind, outcome)
