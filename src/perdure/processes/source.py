"""The decompiler: a definition as Python of `perdure.processes`. Running that gives the same bytes.

Expressions are written with operators where Python builds the same tree from them, and with `fn` elsewhere: Python
itself computes `1 < 2`, and turns `5 < state.x` around.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from keyword import iskeyword
from typing import Any, Final, NamedTuple

import msgspec

from perdure.expressions import Tree
from perdure.expressions.values import LITERALS

from . import fields
from .fields import Read
from .model import PROCESS, STEPS, TASK

WIDTH: Final = 120

_OPERATORS: Final = {  # sign, strength, least strength of the left and of the right operand
    "or": ("|", 1, 1, 2),
    "and": ("&", 3, 3, 4),
    "eq": ("==", 0, 1, 1),
    "ne": ("!=", 0, 1, 1),
    "lt": ("<", 0, 1, 1),
    "le": ("<=", 0, 1, 1),
    "gt": (">", 0, 1, 1),
    "ge": (">=", 0, 1, 1),
    "add": ("+", 5, 5, 6),
    "sub": ("-", 5, 5, 6),
    "mul": ("*", 6, 6, 7),
    "div": ("/", 6, 6, 7),
    "mod": ("%", 6, 6, 7),
}
_ATOM: Final = 9
_RENAMED: Final = {"while": "while_", "as": "as_"}
_HOMES: Final = {
    "datetime": ("date", "datetime", "timedelta"),
    "decimal": ("Decimal",),
    "uuid": ("UUID",),
    "perdure": ("Backoff", "Escalation", "Quorum", "Retention", "Secret"),
}


class Group(NamedTuple):
    """Text in brackets: on one line if it fits, else an item a line."""

    opening: str
    items: list[Code]
    closing: str


class Named(NamedTuple):
    """`name=value`, or `"key": value`."""

    before: str
    value: Code


Code = str | Group | Named


def source(data: dict[str, Any]) -> str:
    writer = _Writer(_variables(data))
    process = writer.process(data)
    return f"{writer.imports()}\n\nprocess = {_rendered(process, 0, len('process = '))}\n"


class _Writer:
    def __init__(self, variables: set[str]) -> None:
        self.variables = variables  # names that a lambda binds: an imported name of the same spelling gets another one
        self.bound: list[str] = []  # those of the lambdas around this place
        self.used: set[str] = set()

    def name(self, name: str) -> str:
        """An imported name, as it is written."""
        self.used.add(name)
        return self.written(name)

    def written(self, name: str) -> str:
        while name in self.variables:
            name += "_"
        return name

    def imports(self) -> str:
        homes = {name: home for home, names in _HOMES.items() for name in names}
        found: dict[str, list[str]] = {}
        for name in sorted(self.used):
            as_ = "" if self.written(name) == name else f" as {self.written(name)}"
            found.setdefault(homes.get(name, "perdure.processes"), []).append(f"{name}{as_}")
        ours = [home for home in found if home.startswith("perdure")]
        blocks = [[home for home in found if home not in ours], ours]
        return "\n\n".join("\n".join(_import(home, found[home]) for home in sorted(block)) for block in blocks if block)

    # ---- parts -----------------------------------------------------------------------------------------------------

    def call(self, name: str, args: Iterable[Code], named: Mapping[str, Code]) -> Group:
        keywords = [Named(f"{key}=", value) for key, value in named.items() if _is_name(key)]
        others = {key: value for key, value in named.items() if not _is_name(key)}
        rest = [Named("**", self.mapping(others))] if others else []
        return Group(f"{self.name(name)}(", [*args, *keywords, *rest], ")")

    def mapping(self, items: Mapping[str, Code]) -> Group:
        return Group("{", [Named(f"{_quoted(key)}: ", value) for key, value in items.items()], "}")

    def process(self, data: dict[str, Any]) -> Group:
        named: dict[str, Code] = {}
        for key, field in PROCESS.items():
            if key not in data or key in ("format", "name"):
                continue
            value = data[key]
            if key == "tasks":
                tasks = [self.task(name, task) for name, task in value.items()]
                named[key] = Group("[", list(tasks), "]")
            elif key == "requires":
                majors = {name: str(major) for name, major in value.get("functions", {}).items() if major != 1}
                if majors:
                    named["functions"] = self.mapping(majors)
            elif key == "reference":
                named[key] = self.call("Reference", [self.tree(value["key"])], self.trees(value.get("parts", {})))
            elif key == "state":
                named[key] = self.mapping(self.trees(value))
            elif key == "steps":
                named[key] = self.steps(value)
            else:
                named[key] = self.field(field.read, value)
        return self.call("Process", [_quoted(data["name"])], named)

    def task(self, name: str, task: dict[str, Any]) -> Group:
        named = {key: self.field(TASK[key].read, task[key]) for key in TASK if key in task}
        return self.call("Task", [_quoted(name)], named)

    def steps(self, steps: list[dict[str, Any]]) -> Group:
        return Group("[", [self.step(step) for step in steps], "]")

    def step(self, step: dict[str, Any]) -> Group:
        kind = STEPS[step["kind"]]
        args: list[Code] = []
        named: dict[str, Code] = {}
        positional = True  # until a field is left out
        for key, field in kind.fields.items():
            if key not in step:
                positional = False
                continue
            value = self.inside(step["kind"], key, field.read, step[key])
            if key == "parts":
                named |= self.trees(step[key])
            elif positional and key in kind.positional and kind.positional.index(key) == len(args):
                args.append(value)
            else:
                named[_RENAMED.get(key, key)] = value
        return self.call(kind.constructor, args, named)

    def inside(self, kind: str, key: str, read: Read, value: Any) -> Code:
        if key == "branches":
            return self.mapping({name: self.steps(steps) for name, steps in value.items()})
        if key == "cases":
            cases = {
                case["label"]: Group("(", [self.tree(case["condition"]), self.steps(case["steps"])], ")")
                for case in value
            }
            return self.mapping(cases)
        if isinstance(value, list) and read not in (fields.texts, fields.given):
            return self.steps(value)
        return self.field(read, value)

    def field(self, read: Read, value: Any) -> Code:
        if read is fields.given:
            return self.tree(value)
        if read is fields.duration:
            return self.span(value)
        if read is fields.address:
            return self.address(value)
        if read is fields.backoff:
            return self.call("Backoff", [], {key: repr(item) for key, item in value.items()})
        if read is fields.quorum:
            return self.call("Quorum", [], {key: _plain(item) for key, item in value.items()})
        if read is fields.escalations:
            return Group("[", [self.escalation(each) for each in value], "]")
        if read is fields.retention:
            return self.call("Retention", [], {key: self.span(item) for key, item in value.items()})
        return _data(value)

    def escalation(self, value: dict[str, Any]) -> Code:
        named = {key: self.span(item) if key == "after" else _plain(item) for key, item in value.items()}
        return self.call("Escalation", [], named)

    def address(self, address: dict[str, Any]) -> Code:
        ((kind, value),) = address.items()
        if kind != "http":
            return self.call(kind, map(_quoted, [value] if isinstance(value, str) else value), {})
        args = [_quoted(value["method"]), self.tree(value["url"])]
        headers = {name: self.header(header) for name, header in value.get("headers", {}).items()}
        return self.call("http", args, {"headers": self.mapping(headers)} if headers else {})

    def header(self, header: Any) -> Code:
        if not (isinstance(header, dict) and "secret" in header):
            return self.tree(header)
        named = {key: _quoted(header[key]) for key in ("digest", "prefix") if key in header}
        return self.call("Secret", [_quoted(header["secret"])], named)

    def span(self, text: str) -> Code:
        span: timedelta = msgspec.convert(text, timedelta)
        named = {"days": span.days, "seconds": span.seconds, "microseconds": span.microseconds}
        if span.days == 0 and span.microseconds == 0 and span.seconds % 60 == 0 and span.seconds:
            minutes = span.seconds // 60
            named = {"hours": minutes // 60} if minutes % 60 == 0 else {"minutes": minutes}
        return self.call("timedelta", [], {key: str(number) for key, number in named.items() if number})

    # ---- expressions -----------------------------------------------------------------------------------------------

    def trees(self, trees: Mapping[str, Tree]) -> dict[str, Code]:
        return {name: self.tree(tree) for name, tree in trees.items()}

    def tree(self, tree: Tree) -> Code:
        match tree:
            case {"object": dict(pairs)}:
                return self.mapping(self.trees(pairs))
            case {"list": [*items]}:
                return Group("[", [self.tree(item) for item in items], "]")
            case {"value": ["duration", str(text)]}:
                return self.span(text)
            case {"call": [str(name), *args]} if not self.is_operator(name, args):
                called = ".".join(f"{part}_" if iskeyword(part.rstrip("_")) else part for part in name.split("."))
                return Group(f"{self.name('fn')}.{called}(", [self.argument(arg) for arg in args], ")")
            case _:
                return self.text(tree)[0]

    def argument(self, tree: Tree) -> Code:
        match tree:
            case {"each": [str(name), body]}:
                self.bound.append(name)
                written = Named(f"lambda {name}: ", self.tree(body))
                self.bound.pop()
                return written
            case _:
                return self.tree(tree)

    def is_operator(self, name: str, args: list[Tree]) -> bool:
        """Whether Python builds this very call from an operator."""
        if name in ("neg", "not"):
            return len(args) == 1 and _is_expression(args[0])
        return name in _OPERATORS and len(args) == 2 and _is_expression(args[0])

    def text(self, tree: Tree, least: int = 0) -> tuple[str, int]:
        written, strength = self.bare(tree)
        return (written, strength) if strength >= least else (f"({written})", _ATOM)

    def bare(self, tree: Tree) -> tuple[str, int]:
        match tree:
            case {"get": [str(root), *keys]}:
                name = root if root in self.bound else self.name(root)
                return name + "".join(f".{key}" if _is_attribute(key) else f"[{_plain(key)}]" for key in keys), _ATOM
            case {"call": ["not", item]} if _is_expression(item):
                return f"~{self.text(item, 7)[0]}", 7
            case {"call": ["neg", item]} if _is_expression(item):
                return f"-{self.text(item, 7)[0]}", 7
            case {"call": [str(name), one, two]} if self.is_operator(name, [one, two]):
                sign, strength, left, right = _OPERATORS[name]
                return f"{self.text(one, left)[0]} {sign} {self.text(two, right)[0]}", strength
            case {"value": ["bytes", str(text)]}:
                return repr(LITERALS["bytes"](text)), _ATOM
            case {"value": [str(kind), str(text)]} if kind != "duration":
                return self.literal(kind, text), _ATOM
            case dict():
                return _flat(self.tree(tree)), _ATOM
            case _:
                negative = isinstance(tree, int | float) and repr(tree).startswith("-")
                return _plain(tree), 7 if negative else _ATOM

    def literal(self, kind: str, text: str) -> str:
        if kind == "decimal":
            return f"{self.name('Decimal')}({_quoted(text)})"
        if kind == "uuid":
            return f"{self.name('UUID')}({_quoted(text)})"
        return f"{self.name(kind)}.fromisoformat({_quoted(text)})"


def _variables(data: Any) -> set[str]:
    """The names that `each` binds anywhere."""
    found: set[str] = set()
    ahead = [data]
    while ahead:
        part = ahead.pop()
        if isinstance(part, dict):
            match part:
                case {"each": [str(name), _]} if len(part) == 1:
                    found.add(name)
                case _:
                    pass
            ahead.extend(part.values())
        elif isinstance(part, list):
            ahead.extend(part)
    return found


def _is_expression(tree: Tree) -> bool:
    """Whether Python holds an object of ours for this tree, and so asks it about operators."""
    return isinstance(tree, dict) and ("get" in tree or "call" in tree)


def _is_name(name: str) -> bool:
    return name.isidentifier() and name.isascii() and not iskeyword(name)


def _is_attribute(key: Any) -> bool:
    return isinstance(key, str) and _is_name(key) and not key.startswith("_")


def _quoted(text: str) -> str:
    return json.dumps(text) if text.isascii() and "\x7f" not in text else repr(text)


def _plain(value: Any) -> str:
    return _flat(_data(value))


def _data(value: Any) -> Code:
    """Plain data as Python writes it."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return Group("[", [_data(item) for item in value], "]")
    if isinstance(value, dict):
        return Group("{", [Named(f"{_plain(key)}: ", _data(item)) for key, item in value.items()], "}")
    return repr(value)


def _import(home: str, names: list[str]) -> str:
    line = f"from {home} import {', '.join(names)}"
    return line if len(line) <= WIDTH else f"from {home} import (\n" + "".join(f"    {each},\n" for each in names) + ")"


def _flat(code: Code) -> str:
    match code:
        case Group(opening, items, closing):
            end = "," if opening == "(" and len(items) == 1 else ""
            return f"{opening}{', '.join(map(_flat, items))}{end}{closing}"
        case Named(before, value):
            return f"{before}{_flat(value)}"
        case _:
            return code


def _rendered(code: Code, indent: int, used: int) -> str:
    """`used`: how many characters of the first line are taken."""
    flat = _flat(code)
    if used + len(flat) < WIDTH:
        return flat
    match code:
        case Group(opening, items, closing) if items:
            inner = indent + 4
            lines = [f"{' ' * inner}{_rendered(item, inner, inner)},\n" for item in items]
            return f"{opening}\n{''.join(lines)}{' ' * indent}{closing}"
        case Named(before, value):
            return f"{before}{_rendered(value, indent, used + len(before))}"
        case _:
            return flat
