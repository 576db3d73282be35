"""How each field of a definition is read: a value comes in, canonical data goes out, and problems are collected.

A document may come from constructors of Python, from JSON or from YAML: all three are read here. Nothing is raised for
a wrong value; `BAD` stands in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from perdure.codec import is_text
from perdure.codec.jsonschema import schema_of
from perdure.errors import BadCall, BadExpression, BadSchema, NotPlain, Problem
from perdure.expressions import Tree, parse
from perdure.expressions.budget import PROCESS as BUDGET
from perdure.expressions.problem import meant
from perdure.expressions.values import LITERALS, scalar_text
from perdure.kernel.backoff import Backoff
from perdure.ports.secrets import Secret
from perdure.tasks.model import Escalation, Quorum

from .roots import Expr, tree_of

FORMAT: Final = "perdure.process/1"
NESTING_MAX: Final = 32  # sequences inside each other
STEPS_MAX: Final = 10_000
RETRIES_MAX: Final = 1_000_000

Path = tuple[str | int, ...]
Read = Callable[["Reader", Any, Path], Any]

_NAME: Final = re.compile(r"[a-z][a-z0-9._-]{0,79}")
_STEP: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,79}")
_MEMBER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,79}")
_VERSION: Final = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")
_PLACE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*")


class _Bad:
    """Stands where a value has a problem."""

    def __repr__(self) -> str:
        return "(a problem)"


UNREADABLE: Final = (msgspec.ValidationError, ValueError, OverflowError, TypeError)
"""What a conversion raises: also for text that has no bytes, and for numbers of any size."""

BAD: Final = _Bad()
REQUIRED: Final = _Bad()


class Field(NamedTuple):
    read: Read
    default: Any = REQUIRED


class Document:
    """What a constructor made: fields as they were given, and the caller's place for messages."""

    __slots__ = ("fields", "kind", "where")

    def __init__(self, kind: str, fields: dict[str, Any], where: str) -> None:
        self.kind = kind
        self.fields = fields
        self.where = where


class Reader:
    """Reads one document. Problems are collected, and nothing is raised for them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.places: dict[Path, str] = {}
        self.workflows: list[Any] = []  # that were given themselves, not by their names
        self.steps = 0
        self.depth = 0

    def problem(self, code: str, path: Path, text: str, hint: str = "") -> Any:
        self.problems.append(Problem(spelled(path), text, code, hint))
        return BAD

    def wrong(self, path: Path, expected: str, found: Any, hint: str = "") -> Any:
        return self.problem("PD003", path, f"expected {expected}, found {shown(found)}", hint)

    def record(self, fields: dict[str, Field], given: Any, path: Path, what: str) -> dict[str, Any]:
        """The fields of an object, each once, without those that have their default."""
        if not isinstance(given, dict):
            self.wrong(path, what, given)
            return {}
        for name in given:
            if name not in fields:
                hint = meant(str(name), fields) or f"{what} has: {', '.join(sorted(fields))}"
                self.problem("PD001", (*path, str(name)), f"unknown field {shown(name)}", hint)
        found: dict[str, Any] = {}
        for name, field in fields.items():
            value = given.get(name, REQUIRED)
            if value is REQUIRED or (value is None and field.default is not REQUIRED):
                if field.default is REQUIRED:
                    self.problem("PD002", (*path, name), f"{what} needs the field {name}")
                continue
            read = field.read(self, value, (*path, name))
            if read is not BAD and (read != field.default or type(read) is not type(field.default)):
                found[name] = read
        return found


def spelled(path: Path) -> str:
    """`steps[0].then[1]`"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "."


def shown(value: Any) -> str:
    try:
        return f"{value!r:.80}"
    except Exception:
        return f"a {type(value).__name__}"


# ---- readers of fields ---------------------------------------------------------------------------------------------


def text_(reader: Reader, value: Any, path: Path) -> Any:
    return value if isinstance(value, str) and is_text(value) else reader.wrong(path, "a text", value)


def matching(pattern: re.Pattern[str], hint: str, code: str = "PD004") -> Read:
    def read(reader: Reader, value: Any, path: Path) -> Any:
        if not isinstance(value, str):
            return reader.wrong(path, "a text", value)
        if not pattern.fullmatch(value):
            return reader.problem(code, path, f"{shown(value)} is not allowed here", hint)
        return value

    return read


member = matching(_MEMBER, "a letter or _, then up to 79 letters, digits, _ and -")
step_name = matching(_STEP, "a letter or _, then up to 79 letters, digits, _ . and -")
version = matching(_VERSION, "MAJOR.MINOR.PATCH, as 1.2.0", "PD005")


def process_name(reader: Reader, value: Any, path: Path) -> Any:
    found = matching(_NAME, "a-z first, then up to 79 of a-z 0-9 . _ -")(reader, value, path)
    if isinstance(found, str) and found.startswith("perdure."):
        return reader.problem("PD004", path, f"{found!r}: names that begin with perdure. belong to perdure")
    return found


def workflow_name(reader: Reader, value: Any, path: Path) -> Any:
    name = getattr(value, "name", value)
    if not isinstance(name, str) or not name or not is_text(name) or len(name) > 200:
        return reader.wrong(path, "the name of a workflow, or the workflow", value)
    if not isinstance(value, str):
        reader.workflows.append(value)
    return name


def format_(reader: Reader, value: Any, path: Path) -> Any:
    return value if value == FORMAT else reader.problem("PD006", path, f"found {shown(value)}", f"write {FORMAT}")


def state_key(reader: Reader, value: Any, path: Path) -> Any:
    if not isinstance(value, str) or not all(_MEMBER.fullmatch(part) for part in value.split(".")):
        return reader.problem("PD004", path, f"{shown(value)} is no key of the state", "names joined by dots: order.id")
    return value


def flag(reader: Reader, value: Any, path: Path) -> Any:
    return value if isinstance(value, bool) else reader.wrong(path, "true or false", value)


def whole(least: int, most: int, code: str = "PD003") -> Read:
    def read(reader: Reader, value: Any, path: Path) -> Any:
        if type(value) is int and least <= value <= most:
            return value
        return reader.problem(code, path, f"expected a whole number from {least} to {most}, found {shown(value)}")

    return read


def choice(*known: str) -> Read:
    def read(reader: Reader, value: Any, path: Path) -> Any:
        return value if value in known and isinstance(value, str) else reader.wrong(path, " or ".join(known), value)

    return read


def join(reader: Reader, value: Any, path: Path) -> Any:
    if value in ("all", "any") or (type(value) is int and 1 <= value <= STEPS_MAX):
        return value
    return reader.wrong(path, '"all", "any" or a whole number', value)


def duration(reader: Reader, value: Any, path: Path) -> Any:
    """A length of time as ISO 8601 text, in its one spelling."""
    try:
        span = value if isinstance(value, timedelta) else msgspec.convert(value, timedelta)
    except UNREADABLE:
        return reader.problem("PD023", path, f"{shown(value)} is no duration", "a timedelta, or text as PT30S, P2D")
    if span <= timedelta(0) or span > timedelta(days=36_500):
        return reader.problem("PD023", path, f"{shown(value)}: a duration is above 0 and at most 100 years")
    return msgspec.to_builtins(span)


def schema(reader: Reader, value: Any, path: Path) -> Any:
    try:
        return schema_of(value)
    except BadSchema as error:
        return reader.problem("PD041", path, str(error), "an annotation that has a JSON Schema, or one itself")
    except (RecursionError, TypeError, ValueError) as error:
        return reader.problem("PD041", path, f"it has no JSON Schema: {shown(error)}")


def labels(reader: Reader, value: Any, path: Path) -> Any:
    if isinstance(value, dict) and all(is_text(name) and is_text(text) for name, text in value.items()):
        return dict(value)
    return reader.wrong(path, "texts by name", value)


def texts(reader: Reader, value: Any, path: Path) -> Any:
    if isinstance(value, list | tuple) and all(is_text(text) and text for text in value):
        return list(value)
    return reader.wrong(path, "a list of texts", value)


def expression(reader: Reader, value: Any, path: Path) -> Any:
    """The tree of an expression that may be given as an object of Python, a tree, or text: `{"expr": "state.a"}`."""
    try:
        return _tree(reader, value, path, 0)
    except (TypeError, NotPlain) as error:
        return reader.wrong(path, "an expression", value, str(error)[:200])
    except RecursionError:
        return reader.problem("PD017", path, "the expression is nested too deeply", "split it")


def _tree(reader: Reader, value: Any, path: Path, depth: int) -> Tree:
    if depth > 3 * BUDGET.depth:
        raise RecursionError
    if isinstance(value, Expr):
        value = tree_of(value)
    match value:
        case {"expr": str(text)} if len(value) == 1:
            try:
                return _tree(reader, parse(text), path, depth + 1)
            except BadExpression as error:
                for each in error.problems:
                    line = f"line {each.line}, " if "\n" in text.strip() else ""
                    at = f"{line}column {each.column} of the text: " if each.line else ""
                    reader.problem(each.code, (*path, "expr"), f"{at}{each.text}", each.hint)
                return BAD
        case {"value": [str(kind), str(text)]} if len(value) == 1 and kind in LITERALS:
            try:
                return {"value": [kind, scalar_text(LITERALS[kind](text))]}
            except (ValueError, ArithmeticError):
                return {"value": [kind, text]}  # `check` tells what is wrong with it
        case {"object": dict(pairs)} if len(value) == 1:
            found = {key: _tree(reader, item, path, depth + 1) for key, item in pairs.items()}
            return BAD if any(item is BAD for item in found.values()) else {"object": found}
        case {"call": [str(name), *args]} if len(value) == 1:
            parts = _parts(reader, args, path, depth)
            return BAD if parts is None else {"call": [name, *parts]}
        case {"each": [str(name), body]} if len(value) == 1:
            parts = _parts(reader, [body], path, depth)
            return BAD if parts is None else {"each": [name, *parts]}
        case {"list": list(items)} if len(value) == 1:
            parts = _parts(reader, items, path, depth)
            return BAD if parts is None else {"list": parts}
        case list() | tuple():  # roles: [manager]
            return _tree(reader, {"list": list(value)}, path, depth)
        case dict():
            return value
        case _:
            return tree_of(value)


def _parts(reader: Reader, items: list[Any], path: Path, depth: int) -> list[Tree] | None:
    found = [_tree(reader, item, path, depth + 1) for item in items]
    return None if any(item is BAD for item in found) else found


def given(reader: Reader, value: Any, path: Path) -> Any:
    """An expression that a constructor lifts: plain data of Python may hold expressions."""
    if isinstance(value, Lifted):
        try:
            value = tree_of(value.value)
        except (TypeError, NotPlain) as error:
            return reader.wrong(path, "an expression", value.value, str(error)[:200])
        except RecursionError:
            return reader.problem("PD017", path, "the expression is nested too deeply", "split it")
    return expression(reader, value, path)


class Lifted(NamedTuple):
    """A value of Python where an expression is expected: a dict is an object, not a tree."""

    value: Any


def expressions(reader: Reader, value: Any, path: Path) -> Any:
    if not isinstance(value, dict):
        return reader.wrong(path, "expressions by name", value)
    found = {}
    for name, each in value.items():
        if state_key(reader, name, (*path, str(name))) is not BAD:
            found[name] = given(reader, each, (*path, name))
    return {name: each for name, each in found.items() if each is not BAD}


def reference(reader: Reader, value: Any, path: Path) -> Any:
    document = getattr(value, "document", None)
    if isinstance(document, Document):
        reader.places[path] = document.where
        value = document.fields
    return reader.record({"key": Field(given), "parts": Field(expressions, {})}, value, path, "a reference")


def backoff(reader: Reader, value: Any, path: Path) -> Any:
    try:
        found = value if isinstance(value, Backoff) else msgspec.convert(value, Backoff)
    except (*UNREADABLE, BadCall) as error:
        return reader.problem("PD024", path, f"{shown(value)} is no backoff: {error}", "base, factor, max, jitter")
    plain = {name: float(value) for name, value in msgspec.structs.asdict(found).items()}
    return {name: value for name, value in plain.items() if value != getattr(Backoff(), name)}


def quorum(reader: Reader, value: Any, path: Path) -> Any:
    try:
        found = value if isinstance(value, Quorum) else msgspec.convert(value, Quorum)
    except (*UNREADABLE, BadCall) as error:
        return reader.problem("PD040", path, f"{shown(value)} is no quorum: {error}", "need, of, veto: Quorum(2)")
    plain: dict[str, Any] = {"need": found.need}
    if found.of is not None:
        plain["of"] = found.of
    return {**plain, "veto": dict(found.veto)} if found.veto else plain


def escalations(reader: Reader, value: Any, path: Path) -> Any:
    if not isinstance(value, list | tuple):
        return reader.wrong(path, "a list of escalations", value)
    return [_escalation(reader, each, (*path, place)) for place, each in enumerate(value)]


def _escalation(reader: Reader, value: Any, path: Path) -> Any:
    try:
        found = value if isinstance(value, Escalation) else msgspec.convert(value, Escalation)
    except (*UNREADABLE, BadCall) as error:
        return reader.problem("PD003", path, f"no escalation: {error}")
    plain: dict[str, Any] = {"after": msgspec.to_builtins(found.after)}
    plain |= {name: list(getattr(found, name)) for name in ("roles", "users") if getattr(found, name)}
    plain |= {"release": True} if found.release else {}
    return {**plain, "priority": found.priority} if found.priority is not None else plain


def retention(reader: Reader, value: Any, path: Path) -> Any:
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    return reader.record({name: Field(duration, None) for name in ENDS}, value, path, "a retention")


ENDS: Final = ("completed", "failed", "cancelled")

LIMITS: Final = {
    "slice_steps": Field(whole(1, 1_000_000), 10_000),
    "iterations": Field(whole(1, 1_000_000), 10_000),
    "depth": Field(whole(1, 100), 16),
    "state_bytes": Field(whole(1, 16 * 1024 * 1024), 1024 * 1024),
}


def limits(reader: Reader, value: Any, path: Path) -> Any:
    return reader.record(LIMITS, value, path, "limits")


# ---- addresses -----------------------------------------------------------------------------------------------------


def address(reader: Reader, value: Any, path: Path) -> Any:
    match value:
        case {"python": str(place)} if len(value) == 1:
            return {"python": place} if _PLACE.fullmatch(place) else _no_place(reader, place, path)
        case {"queue": [str(name), str(place)]} if len(value) == 1 and _STEP.fullmatch(name):
            return {"queue": [name, place]} if _PLACE.fullmatch(place) else _no_place(reader, place, path)
        case {"service": [str(name), str(command)]} if len(value) == 1 and _STEP.fullmatch(name) and is_text(command):
            return {"service": [name, command]}
        case {"http": dict(request)} if len(value) == 1:
            fields = {"method": Field(_method), "url": Field(given), "headers": Field(headers, {})}
            return {"http": reader.record(fields, request, (*path, "http"), "http")}
        case _:
            hint = (
                'python("module:function"), queue(name, "module:function"), service(name, command), http(method, url)'
            )
            return reader.problem("PD032", path, f"{shown(value)} is no address", hint)


def _no_place(reader: Reader, place: str, path: Path) -> Any:
    return reader.problem("PD032", path, f"{shown(place)} names no function", "module:function")


METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def _method(reader: Reader, value: Any, path: Path) -> Any:
    return value if value in METHODS else reader.problem("PD032", path, f"{shown(value)} is no method of HTTP")


def headers(reader: Reader, value: Any, path: Path) -> Any:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        return reader.wrong(path, "headers by name", value)
    found = {}
    for name, each in value.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_|~-]{1,100}", name):
            reader.problem("PD032", (*path, name), f"{shown(name)} is no name of a header")
            continue
        found[name.lower()] = _header(reader, each, (*path, name))
    return {name: each for name, each in found.items() if each is not BAD}


def _header(reader: Reader, value: Any, path: Path) -> Any:
    """A secret stands beside the data: no expression can make one."""
    if isinstance(value, Lifted) and isinstance(value.value, Secret):
        value = value.value
    if isinstance(value, Secret):
        value = {"secret": value.name, "prefix": value.prefix, "digest": value.digest}
    if isinstance(value, dict) and "secret" in value:
        fields = {"secret": Field(text_), "prefix": Field(text_, ""), "digest": Field(text_, None)}
        found = reader.record(fields, value, path, "a secret")
        try:
            Secret(found.get("secret", ""), found.get("digest"), found.get("prefix", ""))
        except BadCall as error:
            return reader.problem("PD032", path, str(error))
        return found
    return given(reader, value, path)
