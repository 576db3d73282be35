"""A definition as the boxes of a drawing, and an instance with what its journal says of each location."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from perdure.drawing import Branch, Choice, Guarded, Node, Parallel, Part, Repeat, Row, Side
from perdure.drawing.model import State
from perdure.expressions import Tree, text

from .model import names_of

_SIDES = {
    "on_failure": "failure",
    "on_timeout": "timeout",
    "on_unknown": "unknown",
    "on_cancel": "cancelled",
    "undo": "undo",
}
_TEXT_MAX = 40


class Mark(NamedTuple):
    """What became of a step: its state, and a note for people."""

    state: State
    note: str = ""


Marks = Mapping[str, Mark]
"""By location without the numbers of turns: all turns of a loop are one shape."""


def blocks(data: dict[str, Any], marks: Marks | None = None) -> Row:
    """The main sequence between its start and its end."""
    drawer = _Drawer(data, marks)
    first = Node("start", "start", state=None if marks is None else "done")
    row = drawer.row(data["steps"], "")
    last = data["steps"][-1] if data["steps"] else {}
    if last.get("kind") in ("complete", "fail"):
        return Row((first, *row.parts))
    return Row((first, *row.parts, Node("end", "end", "end", state=drawer.state("end"))))


class _Drawer:
    def __init__(self, data: dict[str, Any], marks: Marks | None) -> None:
        self.tasks: dict[str, Any] = data.get("tasks", {})
        self.marks = marks

    def state(self, location: str) -> State | None:
        if self.marks is None:
            return None
        return self.marks[location].state if location in self.marks else "not reached"

    def note(self, location: str) -> str:
        return self.marks[location].note if self.marks is not None and location in self.marks else ""

    def node(self, kind: Any, title: str, location: str, subtitle: str = "", badge: str = "") -> Node:
        return Node(kind, title, location, subtitle, self.state(location), self.note(location), badge)

    def row(self, steps: list[dict[str, Any]], prefix: str) -> Row:
        named = zip(names_of(steps), steps, strict=True)
        return Row(tuple(self.step(step, name, prefix + name) for name, step in named))

    def step(self, step: dict[str, Any], name: str, at: str) -> Part:
        match step["kind"]:
            case "decide":
                head = self.node("decision", name, at, _short(step["condition"]))
                otherwise = step.get("otherwise", [])
                return Choice(head, (self.way("yes", step["then"], at, "then"), self.way("no", otherwise, at)))
            case "choose":
                cases = [self.way(case["label"], case["steps"], at, case["label"]) for case in step["cases"]]
                other = self.way("otherwise", step.get("otherwise", []), at)
                return Choice(self.node("decision", name, at), (*cases, other))
            case "repeat":
                words = [f"{word} {_short(step[word])}" for word in ("over", "times", "while", "until") if word in step]
                title = f"{name}: {', '.join(words)}" + (f", {step['at_once']} at once" if "at_once" in step else "")
                body = self.row(step["steps"], f"{at}/~/")
                return Repeat(title, body, at, self.state(at), self.note(at))
            case "parallel":
                names = step["branches"]
                branches = tuple(Branch(branch, self.row(names[branch], f"{at}/{branch}/")) for branch in sorted(names))
                join = f"join {step.get('join', 'all')}"
                inner = Parallel(self.node("parallel", name, at), branches, self.node("join", join, at))
                return self.guarded(inner, step, at)
            case _:
                return self.guarded(self.plain(step, name, at), step, at)

    def way(self, label: str, steps: list[dict[str, Any]], at: str, segment: str = "otherwise") -> Branch:
        """A branch of a decision, and whether the instance took it."""
        taken = None if self.marks is None else f"{at}/{segment}" in self.marks
        return Branch(label, self.row(steps, f"{at}/{segment}/"), taken)

    def guarded(self, body: Node | Parallel, step: dict[str, Any], at: str) -> Part:
        sides = []
        for field, label in _SIDES.items():
            if field in step:
                sides.append(Side(label, self.row(step[field], f"{at}/{field}/"), joins=field != "undo"))
        return Guarded(body, tuple(sides)) if sides else body

    def plain(self, step: dict[str, Any], name: str, at: str) -> Node:
        match step["kind"]:
            case "call":
                return self.node("call", name, at, _address(step["address"]))
            case "activate":
                task = self.tasks.get(step["task"], {})
                return self.node("task", name, at, _people(task))
            case "set":
                return self.node("set", name, at, f"= {_short(step['value'])}")
            case "set_reference":
                return self.node("set", "reference", at, f"= {_short(step['key'])}")
            case "timer":
                return self.node("timer", name, at, _short(step.get("after", step.get("at"))))
            case "receive":
                return self.node("receive", name, at, f"message {step['message']}")
            case "subprocess":
                return self.node("subprocess", name, at, step["workflow"])
            case "continue_with":
                return self.node("continue", name, at, step["workflow"])
            case "fail":
                return self.node("fail", step["code"], at)
            case _:
                return self.node("end", "complete", at)


def _short(tree: Tree) -> str:
    match tree:
        case {"value": ["duration", str(span)]}:
            return span.removeprefix("P").removeprefix("T").lower()
        case _:
            written = text(tree)
            return written if len(written) <= _TEXT_MAX else written[: _TEXT_MAX - 1] + "…"


def _address(address: dict[str, Any]) -> str:
    match address:
        case {"http": request}:
            return f"{request['method']} {_short(request['url'])}".replace("'", "")
        case {"service": [name, command]}:
            return f"service {name}: {command}"
        case {"queue": [name, place]}:
            return f"queue {name}: {place}"
        case _:
            return str(address.get("python", ""))


def _people(task: dict[str, Any]) -> str:
    for field, word in (("roles", "role"), ("users", "user"), ("assignee", "")):
        match task.get(field):
            case {"list": [*names]} if names:
                return f"{word} {', '.join(name if isinstance(name, str) else _short(name) for name in names)}"
            case None | {"list": []}:
                continue
            case other:
                return f"{word} {_short(other)}".strip()
    return ""
