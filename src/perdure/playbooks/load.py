"""YAML text in, nodes with line and column out. Nothing here knows what a playbook is.

One pass over the events of the parser makes the nodes, so a bomb is refused while it is read: the document has at most
1 MiB, 10,000 nodes with aliases expanded, and 64 levels. Scalars are read by the core schema of YAML 1.2: `no` is a
text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

from perdure.codec import is_text
from perdure.errors import NotInstalled

from .problem import BadPlaybook, Problem, Report

BYTES_MAX: Final = 1024 * 1024
NODES_MAX: Final = 10_000
DEPTH_MAX: Final = 64

_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_UNQUOTED: Final = re.compile(r"(?:^|[-:,\[{]\s+|:\s*)(\{\{.*?\}\}\S*)")

Place = tuple[int, int]


class Node:
    """A scalar, a list of nodes, or a map of texts to nodes. `keys` has the places of a map's keys."""

    __slots__ = ("at", "keys", "size", "text_at", "value")

    def __init__(
        self, value: Any, at: Place, text_at: Place | None = None, keys: dict[str, Place] | None = None
    ) -> None:
        self.value = value
        self.at = at
        self.text_at = text_at or at  # where the first character of a text stands
        self.keys = keys or {}
        self.size = 1

    @property
    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, list):
            return [item.plain for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain for key, item in self.value.items()}
        return self.value

    def get(self, key: str) -> Node | None:
        return self.value.get(key) if isinstance(self.value, dict) else None

    def key_at(self, key: str) -> Place:
        return self.keys.get(key, self.at)


def read_yaml(text: str, source: str = "", report: Report | None = None) -> Node:
    """The one document in the text. Problems after which the rest can be read go to the report. Raises `BadPlaybook`
    where it cannot be read, after a syntax error for instance, and without a report for every problem.
    """
    found = Report(source) if report is None else report
    try:
        root = _read(text, source, found)
    except BadPlaybook as bad:
        for problem in bad.problems:
            found.add((problem.line, problem.column), problem.code, problem.text, problem.hint)
        found.finish()
        raise
    if report is None:
        found.finish()
    return root


def _read(text: str, source: str, report: Report) -> Node:
    if len(text.encode(errors="replace")) > BYTES_MAX:
        raise _bad((1, 1), "too-large", f"the document has more than {BYTES_MAX:,} bytes", "", source)
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError, YAMLError
    except ImportError:
        raise NotInstalled("a playbook", "playbooks") from None
    parser: Any = YAML(typ="safe", pure=True)
    try:
        return _Reader(parser.parse(io.StringIO(text)), text, report).document()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        found = _unquoted(text, at[0])
        if found is not None:
            column, shown = found
            raise _bad(
                (at[0], column), "unquoted-template", "a template has no quotes", f'write "{shown}"', source
            ) from None
        said = str(error.problem or error.context).partition("\n")[0]
        hint = "is it indented as the lines before it?" if "<block" in said or "mapping values" in said else ""
        raise _bad(at, "yaml-syntax", said, hint, source) from None
    except (YAMLError, ValueError) as error:
        raise _bad((1, 1), "yaml-syntax", str(error).partition("\n")[0], "", source) from None
    except RecursionError:
        raise _bad((1, 1), "too-large", "the document is nested too deeply", "flatten it", source) from None


def _unquoted(text: str, line: int) -> tuple[int, str] | None:
    lines = text.splitlines()
    if not 0 < line <= len(lines):
        return None
    found = _UNQUOTED.search(lines[line - 1])
    return None if found is None else (found.start(1) + 1, found[1].rstrip(",]}") + "}}" * found[1].endswith("}}"))


def _bad(at: Place, code: str, text: str, hint: str, source: str) -> BadPlaybook:
    return BadPlaybook([Problem(code, text, hint, at[0], at[1], source)])


class _Reader:
    def __init__(self, events: Iterator[Any], text: str, report: Report) -> None:
        self.events = events
        self.text = text
        self.report = report
        self.anchors: dict[str, Node] = {}
        self.left = NODES_MAX

    def refuse(self, event: Any, code: str, text: str, hint: str = "") -> BadPlaybook:
        return _bad(_at(event), code, text, hint, self.report.source)

    def tell(self, event: Any, code: str, text: str, hint: str = "") -> None:
        """A problem after which the rest of the document can be read."""
        self.report.add(_at(event), code, text, hint)

    def document(self) -> Node:
        root: Node | None = None
        for event in self.events:
            match type(event).__name__:
                case "DocumentStartEvent":
                    if root is not None:
                        raise self.refuse(event, "yaml-syntax", "a playbook is one document", "make it two files")
                    if event.version not in (None, (1, 2)):
                        raise self.refuse(event, "yaml-syntax", "the document is not YAML 1.2", "leave %YAML away")
                    root = self.node(next(self.events), 0)
                case _:
                    pass
        if root is None:
            raise _bad((1, 1), "yaml-syntax", "the document is empty", "", self.report.source)
        return root

    def spend(self, event: Any, nodes: int) -> None:
        self.left -= nodes
        if self.left < 0:
            hint = "move data out of the playbook, or use fewer aliases"
            raise self.refuse(event, "too-large", f"the document has more than {NODES_MAX:,} nodes", hint)

    def node(self, event: Any, depth: int) -> Node:
        kind = type(event).__name__
        if depth > DEPTH_MAX:
            raise self.refuse(event, "too-large", f"the document has more than {DEPTH_MAX} levels", "flatten it")
        if kind == "AliasEvent":
            found = self.anchors.get(event.anchor)
            if found is None:
                raise self.refuse(event, "yaml-syntax", f"*{event.anchor} has no anchor before it")
            self.spend(event, found.size)
            return found
        self.spend(event, 1)
        if event.ctag is not None and str(event.ctag) not in ("None", "!"):
            self.tell(event, "yaml-syntax", f"the tag {event.ctag} is not known", "leave it away")
        match kind:
            case "ScalarEvent":
                made = self.scalar(event)
            case "SequenceStartEvent":
                made = self.sequence(event, depth)
            case _:
                made = self.mapping(event, depth)
        if event.anchor:
            self.anchors[event.anchor] = made
        return made

    def scalar(self, event: Any) -> Node:
        at = _at(event)
        if not event.implicit[0] or event.style:
            ahead = (at[0], at[1] + 1) if event.style in ("'", '"') else (at[0] + 1, 1) if event.style else at
            return Node(self.unicode(event), at, ahead)
        text = event.value
        if text in _WORDS:
            return Node(_WORDS[text], at)
        if _INT.fullmatch(text) and len(text) < 400:
            return Node(int(text, 0) if text[:2] in ("0o", "0x") else int(text), at)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if not isfinite(number):
                raise self.refuse(event, "yaml-syntax", f"the number {text[:40]} is too large")
            return Node(number, at)
        return Node(text, at)

    def unicode(self, event: Any) -> str:
        """The text; two escapes of JSON that are one character, as `\\ud83d\\ude00`, as that character."""
        text: str = event.value
        if is_text(text):
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self.tell(event, "yaml-syntax", "the text has half a surrogate pair in it", "write the whole character")
            return ""

    def sequence(self, start: Any, depth: int) -> Node:
        items: list[Node] = []
        for event in self.events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            items.append(self.node(event, depth + 1))
        return self.sized(Node(items, _at(start)), items)

    def mapping(self, start: Any, depth: int) -> Node:
        found: dict[str, Node] = {}
        keys: dict[str, Place] = {}
        for event in self.events:
            if type(event).__name__ == "MappingEndEvent":
                break
            if type(event).__name__ in ("MappingStartEvent", "SequenceStartEvent"):
                inner = self.node(event, depth + 1)
                if isinstance(inner.value, dict) and start.flow_style and inner.value:
                    return self.template(start, depth)
                raise self.refuse(event, "yaml-syntax", "a key is a text")
            key = self.node(event, depth + 1)
            name = key.value if isinstance(key.value, str) else getattr(event, "value", "")
            value = self.node(next(self.events), depth + 1)
            if name == "<<" and getattr(event, "style", None) is None:
                self.tell(event, "yaml-syntax", "<< is of YAML 1.1", "write out what it merges")
            elif name in found:
                first = f"line {keys[name][0]}"
                self.tell(event, "duplicate-key", f"the key {name} stands twice", f"it stands in {first} too")
            else:
                keys[name], found[name] = key.at, value
        return self.sized(Node(found, _at(start), keys=keys), list(found.values()))

    def template(self, start: Any, depth: int) -> Node:
        """`{{ y }}` without quotes: a map in a map. It is read as the text that was meant."""
        for event in self.events:
            if type(event).__name__ == "MappingEndEvent":
                break
            self.node(event, depth + 1)
        shown = self.text[start.start_mark.index : event.end_mark.index]
        self.tell(start, "unquoted-template", "a template has no quotes", f'write "{shown}"')
        return Node(shown, _at(start))

    def sized(self, node: Node, items: list[Node]) -> Node:
        node.size = 1 + sum(item.size for item in items) + len(node.keys)
        return node


def _at(event: Any) -> Place:
    return event.start_mark.line + 1, event.start_mark.column + 1
