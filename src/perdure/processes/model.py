"""The definition of a process as plain data, and its normaliser.

`STEPS`, `TASK` and `PROCESS` say which fields there are, how each is read and what its default is. `read` turns a
document (constructors, JSON or YAML) into canonical data: expressions are trees, a field that has its default is left
out, `requires` is computed. It finds every problem of form; what the parts mean together is judged in `check.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from perdure.codec import encode, is_text
from perdure.errors import NotPlain
from perdure.expressions.problem import meant

from . import fields
from .fields import BAD, FORMAT, NESTING_MAX, RETRIES_MAX, STEPS_MAX, Document, Field, Path, Reader, shown, spelled

__all__ = ["FORMAT", "spelled"]


class Kind(NamedTuple):
    """A kind of step: its constructor, the fields that are given by position, and all fields."""

    constructor: str
    positional: tuple[str, ...]
    fields: dict[str, Field]


DEPTH_MAX: Final = 400
PARTS_MAX: Final = 1_000_000
UNREADABLE: Final = {"kind": "?"}
"""Stands for a step that could not be read, so that the places of the others stay true."""


# ---- steps ---------------------------------------------------------------------------------------------------------


def _steps(reader: Reader, value: Any, path: Path) -> Any:
    if not isinstance(value, list | tuple):
        return reader.wrong(path, "a list of steps", value)
    if reader.depth >= NESTING_MAX:
        return reader.problem("PD017", path, f"sequences are nested more than {NESTING_MAX} deep", "use a sub-process")
    reader.depth += 1
    found = [read_step(reader, each, (*path, place)) for place, each in enumerate(value)]
    reader.depth -= 1
    return [UNREADABLE if each is BAD else each for each in found]


def read_step(reader: Reader, value: Any, path: Path) -> Any:
    reader.steps += 1
    if reader.steps > STEPS_MAX:
        if reader.steps == STEPS_MAX + 1:
            reader.problem("PD017", path, f"the definition has more than {STEPS_MAX:,} steps", "use sub-processes")
        return BAD
    document = getattr(value, "document", None)
    if isinstance(document, Document):
        reader.places[path] = document.where
        value = {"kind": document.kind, **document.fields}
    if not isinstance(value, dict):
        return reader.wrong(path, "a step", value)
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in STEPS:
        hint = meant(str(kind), STEPS) or f"known are: {', '.join(STEPS)}"
        return reader.problem(
            "PD003" if "kind" in value else "PD002", (*path, "kind"), f"no kind of step: {shown(kind)}", hint
        )
    rest = {name: each for name, each in value.items() if name != "kind"}
    return {"kind": kind, **reader.record(STEPS[kind].fields, rest, path, f"a {kind} step")}


def _branches(reader: Reader, value: Any, path: Path) -> Any:
    """Branches by name. They have no order: they begin in the order of their names."""
    if not isinstance(value, dict):
        return reader.wrong(path, "steps by the name of their branch", value)
    found = {}
    for name, steps in value.items():
        if fields.step_name(reader, name, (*path, str(name))) is not BAD:
            found[name] = _steps(reader, steps, (*path, name))
    return {name: found[name] for name in sorted(found) if found[name] is not BAD}


def _cases(reader: Reader, value: Any, path: Path) -> Any:
    """The cases of a choice, in their order: the first that is true is taken."""
    if not isinstance(value, list | tuple):
        return reader.wrong(path, "a list of cases", value)
    case = {"label": Field(fields.step_name), "condition": Field(fields.given), "steps": Field(_steps)}
    return [reader.record(case, each, (*path, place), "a case") for place, each in enumerate(value)]


_NAMED: Final = {"name": Field(fields.step_name)}
_HOUR: Final = "PT3600S"
_HALF_MINUTE: Final = "PT30S"

STEPS: Final[dict[str, Kind]] = {
    "set": Kind(
        "Set",
        ("key", "value"),
        {"key": Field(fields.state_key), "value": Field(fields.given), "if_value": Field(fields.flag, False)},
    ),
    "set_reference": Kind(
        "SetReference", ("key",), {"key": Field(fields.given), "parts": Field(fields.expressions, {})}
    ),
    "activate": Kind(
        "Activate",
        ("task",),
        {"task": Field(fields.member), "on_timeout": Field(_steps, None), "on_cancel": Field(_steps, None)},
    ),
    "call": Kind(
        "Call",
        ("name", "address", "payload"),
        {
            **_NAMED,
            "address": Field(fields.address),
            "payload": Field(fields.given, None),
            "result": Field(fields.member, None),
            "returns": Field(fields.schema, None),
            "retries": Field(fields.whole(0, RETRIES_MAX, "PD024"), 3),
            "backoff": Field(fields.backoff, {}),
            "retry_if": Field(fields.given, None),
            "retry_on_timeout": Field(fields.flag, False),
            "timeout": Field(fields.duration, _HOUR),
            "attempt_timeout": Field(fields.duration, _HALF_MINUTE),
            "once": Field(fields.flag, False),
            "on_failure": Field(_steps, None),
            "on_timeout": Field(_steps, None),
            "on_unknown": Field(_steps, None),
            "undo": Field(_steps, None),
        },
    ),
    "decide": Kind(
        "Decide",
        ("name", "condition", "then", "otherwise"),
        {**_NAMED, "condition": Field(fields.given), "then": Field(_steps), "otherwise": Field(_steps, [])},
    ),
    "choose": Kind(
        "Choose", ("name", "cases", "otherwise"), {**_NAMED, "cases": Field(_cases), "otherwise": Field(_steps, [])}
    ),
    "repeat": Kind(
        "Repeat",
        ("name", "steps"),
        {
            **_NAMED,
            "steps": Field(_steps),
            "over": Field(fields.given, None),
            "times": Field(fields.given, None),
            "while": Field(fields.given, None),
            "until": Field(fields.given, None),
            "limit": Field(fields.whole(1, 1_000_000), None),
            "as": Field(fields.member, None),
            "collect": Field(fields.given, None),
            "at_once": Field(fields.whole(1, 10_000), 1),
            "join": Field(fields.join, "all"),
        },
    ),
    "parallel": Kind(
        "Parallel",
        ("name", "branches"),
        {
            **_NAMED,
            "branches": Field(_branches),
            "join": Field(fields.join, "all"),
            "on_error": Field(fields.choice("cancel", "wait"), "cancel"),
            "on_failure": Field(_steps, None),
        },
    ),
    "timer": Kind("Timer", ("name",), {**_NAMED, "after": Field(fields.given, None), "at": Field(fields.given, None)}),
    "receive": Kind(
        "Receive",
        ("name", "message"),
        {
            **_NAMED,
            "message": Field(fields.step_name),
            "result": Field(fields.member, None),
            "schema": Field(fields.schema, None),
            "match": Field(fields.given, None),
            "timeout": Field(fields.duration, None),
            "on_timeout": Field(_steps, None),
        },
    ),
    "subprocess": Kind(
        "SubProcess",
        ("name", "workflow", "input"),
        {
            **_NAMED,
            "workflow": Field(fields.workflow_name),
            "input": Field(fields.given, None),
            "version": Field(fields.text_, None),
            "result": Field(fields.member, None),
            "timeout": Field(fields.duration, None),
            "on_failure": Field(_steps, None),
            "on_timeout": Field(_steps, None),
            "undo": Field(_steps, None),
        },
    ),
    "continue_with": Kind(
        "ContinueWith",
        ("name", "workflow", "input"),
        {
            **_NAMED,
            "workflow": Field(fields.workflow_name),
            "input": Field(fields.given, None),
            "version": Field(fields.text_, None),
            "key": Field(fields.given, None),
            "on_failure": Field(_steps, None),
        },
    ),
    "complete": Kind("Complete", ("output",), {"output": Field(fields.given, None)}),
    "fail": Kind("Fail", ("code", "message"), {"code": Field(fields.step_name), "message": Field(fields.given, "")}),
}

BRANCHES: Final = ("then", "otherwise", "steps", "on_failure", "on_timeout", "on_cancel", "on_unknown", "undo")
"""Fields of steps that are sequences. `branches` and `cases` have further ones."""

TASK: Final[dict[str, Field]] = {
    "title": Field(fields.given, None),
    "description": Field(fields.given, None),
    "data": Field(fields.given, None),
    "answer": Field(fields.schema, None),
    "outcome": Field(fields.member, "outcome"),
    "roles": Field(fields.given, None),
    "users": Field(fields.given, None),
    "managers": Field(fields.given, None),
    "assignee": Field(fields.given, None),
    "exclude": Field(fields.given, None),
    "priority": Field(fields.given, None),
    "labels": Field(fields.given, None),
    "due": Field(fields.given, None),
    "expire": Field(fields.given, None),
    "escalate": Field(fields.escalations, []),
    "quorum": Field(fields.quorum, None),
}


def _tasks(reader: Reader, value: Any, path: Path) -> Any:
    """Tasks by name; constructors have their name with them."""
    if isinstance(value, list | tuple):
        named: list[tuple[Any, Any]] = [(_name_of(task), task) for task in value]
    elif isinstance(value, dict):
        named = list(value.items())
    else:
        return reader.wrong(path, "tasks by name", value)
    found: dict[str, Any] = {}
    for name, task in named:
        at = (*path, str(name))
        if fields.member(reader, name, at) is BAD:
            continue
        if name in found:
            reader.problem("PD007", at, f"two tasks are named {name}")
        found[name] = read_task(reader, task, at)
    return found


def read_task(reader: Reader, task: Any, path: Path) -> dict[str, Any]:
    document = getattr(task, "document", None)
    if isinstance(document, Document):
        reader.places[path] = document.where
        task = {name: value for name, value in document.fields.items() if name != "name"}
    return reader.record(TASK, task, path, "a task")


def _name_of(task: Any) -> Any:
    document = getattr(task, "document", None)
    return document.fields.get("name") if isinstance(document, Document) else None


def _requires(reader: Reader, value: Any, path: Path) -> Any:
    """Only the major versions of functions are taken from a document: the rest is computed."""
    functions = value.get("functions", {}) if isinstance(value, dict) else None
    if not isinstance(functions, dict) or not all(
        is_text(name) and type(major) is int and 0 <= major < 10**9 for name, major in functions.items()
    ):
        return reader.wrong(path, "functions with their major versions", value)
    return {"functions": functions}


PROCESS: Final[dict[str, Field]] = {
    "format": Field(fields.format_),
    "name": Field(fields.process_name),
    "version": Field(fields.version),
    "title": Field(fields.text_, ""),
    "description": Field(fields.text_, ""),
    "labels": Field(fields.labels, {}),
    "input": Field(fields.schema, None),
    "output": Field(fields.schema, None),
    "state_schema": Field(fields.schema, None),
    "state": Field(fields.expressions, {}),
    "reference": Field(fields.reference, None),
    "roles": Field(fields.texts, []),
    "managers": Field(fields.texts, []),
    "tasks": Field(_tasks, {}),
    "steps": Field(_steps),
    "requires": Field(_requires, None),
    "unhandled": Field(fields.choice("stuck", "fail"), "stuck"),
    "limits": Field(fields.limits, {}),
    "retention": Field(fields.retention, {}),
}


def read(document: Any) -> tuple[dict[str, Any], Reader]:
    """The canonical data of a document, and the reader with the problems and places that it found."""
    reader = Reader()
    if not _is_finite(document):
        reader.problem("PD017", (), "the document is nested too deeply, is too large, or holds itself")
        return {}, reader
    data = reader.record(PROCESS, document, (), "a process")
    if isinstance(data.get("steps"), list):
        majors = data.pop("requires", {}).get("functions", {})
        if required := requires(data, majors):
            data["requires"] = required
    if not reader.problems:
        try:
            encode(data)
        except NotPlain as error:
            reader.problem("PD017", (), f"the definition cannot be recorded: {error}", "nest it less deeply")
    return data, reader


def _is_finite(document: Any) -> bool:
    """Whether it can be walked: objects of Python may hold themselves, or one part very often."""
    count, ahead = 0, [(document, 0)]
    while ahead:
        part, depth = ahead.pop()
        count += 1
        if depth > DEPTH_MAX or count > PARTS_MAX:
            return False
        if isinstance(part, dict):
            ahead.extend((value, depth + 1) for value in part.values())
        elif isinstance(part, list):
            ahead.extend((value, depth + 1) for value in part)
    return True


# ---- walking a definition ------------------------------------------------------------------------------------------


def sequences(step: dict[str, Any]) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """The sequences inside a step, each with its path below the step."""
    for name in BRANCHES:
        if isinstance(step.get(name), list):
            yield (name,), step[name]
    for name, steps in step.get("branches", {}).items():
        yield ("branches", name), steps
    for place, case in enumerate(step.get("cases", ())):
        yield ("cases", place, "steps"), case.get("steps", [])


def every_step(steps: list[dict[str, Any]], path: Path = ("steps",)) -> Iterator[tuple[Path, dict[str, Any]]]:
    for place, step in enumerate(steps):
        at = (*path, place)
        yield at, step
        for below, inner in sequences(step):
            yield from every_step(inner, (*at, *below))


def names_of(steps: list[dict[str, Any]]) -> list[str]:
    """The name of each step in its sequence. A step without a name is named by what it sets or activates."""
    taken = {step["name"] for step in steps if "name" in step}
    names: list[str] = []
    for step in steps:
        name: str | None = step.get("name")
        if name is None:
            base = name = str(step.get("key") if step["kind"] == "set" else step.get("task") or step["kind"])
            number = 1
            while name in taken:
                number += 1
                name = f"{base}.{number}"
            taken.add(name)
        names.append(name)
    return names


def functions_in(tree: Any) -> Iterator[str]:
    """The names of all functions that data calls, however deep."""
    ahead = [tree]
    while ahead:
        part = ahead.pop()
        if isinstance(part, dict):
            called = part.get("call")
            if isinstance(called, list) and called and isinstance(called[0], str):
                yield called[0]
            ahead.extend(part.values())
        elif isinstance(part, list):
            ahead.extend(part)


def requires(data: dict[str, Any], majors: dict[str, int]) -> dict[str, Any]:
    """What a definition needs from the engine that runs it."""
    functions: dict[str, int] = {}
    for part in ("state", "reference", "tasks", "steps"):
        for name in _expression_functions(data.get(part)):
            functions[name] = majors.get(name, 1)
    transports: set[str] = set()
    workflows: dict[str, str | None] = {}
    modules = {name.rpartition(".")[0] for name in functions}
    for _, step in every_step(data["steps"]):
        address = step.get("address", {})
        if "service" in address:
            transports.add(address["service"][0])
        places = [address["python"]] if "python" in address else [address["queue"][1]] if "queue" in address else []
        modules |= {place.partition(":")[0] for place in places}
        if isinstance(step.get("workflow"), str):
            workflows[step["workflow"]] = step.get("version")
    found: dict[str, Any] = {
        "functions": {name: functions[name] for name in sorted(functions)},
        "modules": sorted(modules),
        "transports": sorted(transports),
        "workflows": {name: workflows[name] for name in sorted(workflows)},
    }
    return {name: value for name, value in found.items() if value}


def _expression_functions(data: Any) -> Iterable[str]:
    """Functions of users have a dot in their name; built-in ones have none."""
    return sorted({name for name in functions_in(data) if "." in name})


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a definition: its fields and kinds of steps. What the fields mean together `check` says."""
    steps = {"type": "array", "items": {"$ref": "#/$defs/step"}}

    def record(known: dict[str, Field], **more: Any) -> dict[str, Any]:
        properties = {name: steps if name in BRANCHES else {} for name in known}
        needed = [name for name, field in known.items() if field.default is fields.REQUIRED]
        return {
            "type": "object",
            "properties": {**more, **properties},
            "required": [*more, *needed],
            "additionalProperties": False,
        }

    kinds = [record(kind.fields, kind={"const": name}) for name, kind in STEPS.items()]
    task = {"type": "object", "additionalProperties": record(TASK)}
    whole = record(PROCESS)
    whole["properties"] |= {"format": {"const": FORMAT}, "steps": steps, "tasks": task}
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": "A process of perdure", **whole, "$defs": {"step": {"oneOf": kinds}}}
