"""Definitions as text: JSON and YAML 1.2, in and out. Nothing here does I/O.

Both forms hold the same data, so both give the same hash as the constructors do. In YAML a name twice, an alias or a
merge is refused. A problem is told with the line and column of the part that it is in.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from perdure.codec.canonical import parse_json
from perdure.errors import BadProcess, CallerError, Problem, SchemaMismatch
from perdure.kernel.limits import MEBIBYTE

from .process import Process

SIZE_MAX: Final = 4 * MEBIBYTE  # characters: the reader of YAML is slow
DEPTH_MAX: Final = 256

_DEPTHS: Final = {"SequenceStartEvent": 1, "MappingStartEvent": 1, "SequenceEndEvent": -1, "MappingEndEvent": -1}


def from_text(text: str, source: str = "", *, yaml: bool | None = None) -> Process:
    """The process of a text; `source` is the name of its file. Without `yaml` a text that begins with { is JSON."""
    if len(text) > SIZE_MAX:
        raise _unreadable(source, "PD017", f"the text has more than {SIZE_MAX:,} characters")
    is_yaml = not text.lstrip().startswith("{") if yaml is None else yaml
    data = _parse_yaml(text, source) if is_yaml else _parse_json(text, source)
    return Process.of(data, source, _locator(text, source))


def to_json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def to_yaml(data: dict[str, Any]) -> str:
    out = io.StringIO()
    _yaml().dump(data, out)
    return out.getvalue()


def _unreadable(source: str, code: str, text: str, place: str = "") -> BadProcess:
    where = ":".join(part for part in (source, place) if part) or "."
    return BadProcess(source or "the definition", (Problem(where, text, code),))


def _parse_json(text: str, source: str) -> Any:
    try:
        return parse_json(text)
    except SchemaMismatch as error:
        raise _unreadable(source, "PD003", str(error)) from None


def _parse_yaml(text: str, source: str) -> Any:
    yaml = _yaml()
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.events import AliasEvent, DocumentStartEvent, ScalarEvent

    depth = 0
    try:
        for event in yaml.parse(io.StringIO(text)):
            depth += _DEPTHS.get(type(event).__name__, 0)
            place = _place(event.start_mark)
            if depth > DEPTH_MAX:  # refused as soon as it is read: the reader gets slow when it is deep
                raise _unreadable(source, "PD017", "the data is nested too deeply", place)
            if isinstance(event, DocumentStartEvent) and event.version not in (None, (1, 2)):
                raise _unreadable(source, "PD003", "expected YAML 1.2: leave the line %YAML out", place)
            if isinstance(event, AliasEvent):
                raise _unreadable(source, "PD003", f"*{event.anchor} is an alias: write it out", place)
            if isinstance(event, ScalarEvent) and event.value == "<<" and event.implicit[0]:
                raise _unreadable(source, "PD003", "<< is of YAML 1.1: write out what it merges", place)
        return yaml.load(io.StringIO(text))
    except MarkedYAMLError as error:
        found = str(error.problem or error.context).partition("\n")[0]
        raise _unreadable(source, "PD003", found, _place(error.problem_mark or error.context_mark)) from None
    except (YAMLError, ValueError) as error:  # bytes that no text may have, a date that is none
        raise _unreadable(source, "PD003", str(error).partition("\n")[0]) from None
    except RecursionError:
        raise _unreadable(source, "PD017", "the data is nested too deeply") from None


def _yaml() -> Any:
    try:
        from ruamel.yaml import YAML
    except ImportError:
        raise CallerError("processes in YAML need ruamel.yaml: pip install 'perdure[yaml]', or write JSON") from None
    yaml: Any = YAML(typ="safe", pure=True)  # the one in C reads YAML 1.1
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.representer.ignore_aliases = lambda data: True
    return yaml


# ---- where a path stands in the text -----------------------------------------------------------------------------


def _locator(text: str, source: str) -> Callable[[str], str]:
    """A function that gives `file:line:column` of a path. JSON is YAML too; without ruamel.yaml it gives the file."""
    root: list[Any] = []

    def locate(path: str) -> str:
        if not root:
            root.append(_composed(text))
        mark = None if root[0] is None else _mark(root[0], path.partition("/")[0])
        return ":".join(part for part in (source, _place(mark)) if part)

    return locate


def _composed(text: str) -> Any:
    try:
        from ruamel.yaml.error import YAMLError

        return _yaml().compose(io.StringIO(text))
    except (ImportError, CallerError):
        return None
    except (YAMLError, RecursionError, ValueError):  # tabs, say, which JSON may have
        return None


def _mark(node: Any, path: str) -> Any:
    """Where a path begins in the text; of what is missing, where the part begins that it is missing in."""
    mark = node.start_mark
    path = "" if path == "." else f".{path}"
    while path:
        below = [
            found for found in _below(node) if path.startswith(found[0]) and path[len(found[0]) :][:1] in ("", "[", ".")
        ]
        if not below:
            break
        part, mark, node = max(below, key=lambda found: len(found[0]))
        path = path[len(part) :]
    return mark


def _below(node: Any) -> Iterator[tuple[str, Any, Any]]:
    """Each part of this node as a path writes it, where the part begins, and the part."""
    if node.id == "mapping":
        yield from ((f".{key.value}", key.start_mark, value) for key, value in node.value)
    elif node.id == "sequence":
        yield from ((f"[{number}]", item.start_mark, item) for number, item in enumerate(node.value))


def _place(mark: Any) -> str:
    """`line:column`, counted from 1."""
    return "" if mark is None else f"{mark.line + 1}:{mark.column + 1}"
