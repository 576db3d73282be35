"""Graphs from YAML or JSON text. Who has a file reads it: nothing here does I/O.

JSON is read as the YAML that it is. YAML is read as version 1.2: `no` is a text. Aliases, names twice and very deep or
long documents are refused while they are read. Every problem has its line and column.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from perdure.codec.converters.frame import did_you_mean
from perdure.errors import BadGraph, GraphProblem, NotInstalled

from .author import Graph, Runner
from .tools import Tool

SIZE_MAX: Final = 1024 * 1024
DEPTH_MAX: Final = 64
OPTIONS: Final = (
    "version",
    "limits",
    "permits",
    "veto",
    "roles",
    "system",
    "outputs",
    "rest_after",
    "order",
    "taint",
    "rate",
)
KEYS: Final = ("name", "nodes", *OPTIONS)

Places = dict[tuple[Any, ...], str]
"""Where each part of a document stands: line:column by path."""


def from_text(
    text: str,
    source: str = "",
    *,
    runner: Runner | None = None,
    runners: Mapping[str, Runner] | None = None,
    tools: Iterable[Tool | Callable[..., Any]] = (),
) -> Graph:
    """The graph of a document, or `BadGraph` with everything that is wrong. `source` is the name of the file."""
    data, places = _read(text, source)
    if not isinstance(data, dict):
        raise BadGraph(
            source or "graph", (GraphProblem("$", f"a graph is a mapping, found {type(data).__name__}", "1:1"),)
        )
    name = data.get("name")
    found = Graph(
        name if isinstance(name, str) else "",
        runner=runner,
        runners=runners,
        tools=tools,
        **{option: data[option] for option in OPTIONS if data.get(option) is not None},
    )
    nodes, problems = _nodes(data.get("nodes"))
    problems += [
        GraphProblem(str(key), f"unknown key{did_you_mean(key, KEYS)}", places.get((key,), ""))
        for key in data
        if key not in KEYS
    ]
    found.add(*nodes)
    problems += [_placed(problem, data, places) for problem in found.problems]
    if problems:
        raise BadGraph(source or found.name, tuple(problems))
    return found


def _nodes(given: Any) -> tuple[list[dict[str, Any]], list[GraphProblem]]:
    """Nodes as a list, or fields by name."""
    if isinstance(given, dict):
        wrong = [name for name, fields in given.items() if not isinstance(fields, dict | None)]
        problems = [GraphProblem(str(name), "a node is a mapping of its fields") for name in wrong]
        return [{"name": name, **(fields or {})} for name, fields in given.items() if name not in wrong], problems
    if isinstance(given, list):
        return given, []
    return [], [GraphProblem("nodes", f"nodes is a list, or fields by name, found {type(given).__name__}")]


def _placed(problem: GraphProblem, data: dict[str, Any], places: Places) -> GraphProblem:
    """The problem with the place of the field that it speaks of, else of its node."""
    nodes = data.get("nodes")
    path: tuple[Any, ...] = (problem.where.partition("[")[0],)
    fields: Any = None
    if isinstance(nodes, dict) and problem.where in nodes:
        path, fields = ("nodes", problem.where), nodes[problem.where]
    elif isinstance(nodes, list):
        for number, each in enumerate(nodes):
            if isinstance(each, dict) and problem.where in (each.get("name"), f"node {number}"):
                path, fields = ("nodes", number), each
    for field in fields if isinstance(fields, dict) else ():
        if problem.text.startswith(f"{field} ") or repr(field) in problem.text:
            path = (*path, field)
            break
    return problem._replace(at=places.get(path) or places.get(path[:-1]) or "")


def _read(text: str, source: str) -> tuple[Any, Places]:
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError, YAMLError
    except ImportError:
        raise NotInstalled("a graph from a file", "yaml") from None

    def refused(text: str, at: str = "") -> BadGraph:
        return BadGraph(source or "graph", (GraphProblem("$", text, at),))

    if len(text) > SIZE_MAX:
        raise refused(f"a document has at most {SIZE_MAX:,} characters, found {len(text):,}")
    yaml = YAML(typ="safe", pure=True)
    depth = 0
    try:
        for event in yaml.parse(io.StringIO(text)):
            kind = type(event).__name__
            depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
            if depth > DEPTH_MAX:
                raise refused(f"the document is nested more than {DEPTH_MAX} deep", _at(event.start_mark))
            if kind == "AliasEvent" or getattr(event, "anchor", None):
                raise refused("anchors and aliases are not read: write the part out", _at(event.start_mark))
        root = YAML(typ="safe", pure=True).compose(io.StringIO(text))
        if root is None:
            return None, {}
        places: Places = {}
        return _plain(root, (), places, YAML(typ="safe", pure=True), refused), places
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise refused(error.problem or "this is no YAML", _at(mark) if mark is not None else "") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise refused(f"this is no YAML: {error}"[:300]) from None


def _plain(node: Any, path: tuple[Any, ...], places: Places, yaml: Any, refused: Callable[[str, str], BadGraph]) -> Any:
    places.setdefault(path, _at(node.start_mark))
    match type(node).__name__:
        case "MappingNode":
            found: dict[Any, Any] = {}
            for key_node, value in node.value:
                key = _scalar(key_node, yaml, refused)
                if key in found:
                    raise refused(f"the key {key!r:.80} is there twice", _at(key_node.start_mark))
                places[(*path, key)] = _at(key_node.start_mark)
                found[key] = _plain(value, (*path, key), places, yaml, refused)
            return found
        case "SequenceNode":
            return [_plain(each, (*path, number), places, yaml, refused) for number, each in enumerate(node.value)]
        case _:
            return _scalar(node, yaml, refused)


def _scalar(node: Any, yaml: Any, refused: Callable[[str, str], BadGraph]) -> Any:
    if type(node).__name__ != "ScalarNode":
        raise refused("a key is a text", _at(node.start_mark))
    kind = str(node.tag).rpartition(":")[2]
    value = str(node.value)
    match kind:
        case "null":
            return None
        case "bool":
            return value.lower() == "true"
        case "int":
            return int(value.replace("_", ""), 0)
        case "float":
            return float(value)
        case _:
            return value


def _at(mark: Any) -> str:
    return f"{mark.line + 1}:{mark.column + 1}"
