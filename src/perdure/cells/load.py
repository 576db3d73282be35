"""Manifest files: a manifest from JSON or YAML text, and back. Who has a file reads it: nothing here does I/O.

Both forms hold the same data, so both give the same canonical bytes and the same hash as the Python classes do. YAML is
read as YAML 1.2: `no` is a text. Names twice and aliases are refused, and what is wrong is told with line and column.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, Final

from perdure.codec.canonical import parse_json
from perdure.errors import BadDefinition, BadManifest, CallerError, SchemaMismatch
from perdure.kernel.limits import MEBIBYTE

from .check import check
from .manifest import Manifest, read

DEPTH_MAX: Final = 256
"""How deep the data of a YAML file may be nested: a schema of 64 types inside each other has not so many levels."""

SIZE_MAX: Final = 4 * MEBIBYTE
"""Characters of a manifest file. The reader of YAML is slow: it takes some 20 s for as many."""

_DEPTHS: Final = {"SequenceStartEvent": 1, "MappingStartEvent": 1, "SequenceEndEvent": -1, "MappingEndEvent": -1}


def _refuse_long(text: str, source: str) -> None:
    if len(text) > SIZE_MAX:
        raise BadDefinition("$", f"at most {SIZE_MAX:,} characters", f"{len(text):,}", "make it two worlds", source)


def from_json(text: str, source: str = "") -> Manifest:
    """`source` is the name of the file, for errors."""
    _refuse_long(text, source)
    try:
        data = parse_json(text)
    except SchemaMismatch as error:
        raise BadDefinition(error.path, error.expected, error.found, error.hint, source) from None
    try:
        return _checked(data)
    except (BadDefinition, BadManifest) as error:
        locate(error, text, source)
        raise


def from_yaml(text: str, source: str = "") -> Manifest:
    """`source` is the name of the file, for errors."""
    yaml = _yaml()
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.events import AliasEvent, DocumentStartEvent, ScalarEvent

    _refuse_long(text, source)
    depth = 0
    try:
        for event in yaml.parse(io.StringIO(text)):
            depth += _DEPTHS.get(type(event).__name__, 0)
            if depth > DEPTH_MAX:  # refused as soon as it is read: the reader gets slow when it is deep
                found, hint = "data nested too deeply", "flatten it"
                raise BadDefinition("$", "YAML of sensible depth", found, hint, _place(source, event.start_mark))
            if isinstance(event, DocumentStartEvent) and event.version not in (None, (1, 2)):
                found, hint = "%YAML {}.{}".format(*event.version), "leave that line out: `no` is a text here"
                raise BadDefinition("$", "YAML 1.2", found, hint, _place(source, event.start_mark))
            if isinstance(event, AliasEvent):
                hint = "write it out, or give it a name in schemas and refer to that"
                raise BadDefinition("$", "no aliases", f"*{event.anchor}", hint, _place(source, event.start_mark))
            if isinstance(event, ScalarEvent) and event.value == "<<" and event.implicit[0]:
                hint = "write out what it merges"
                raise BadDefinition("$", "YAML 1.2", "<<, of YAML 1.1", hint, _place(source, event.start_mark))
        data = yaml.load(io.StringIO(text))
    except MarkedYAMLError as error:
        place = _place(source, error.problem_mark or error.context_mark)
        found = str(error.problem or error.context).partition("\n")[0]
        raise BadDefinition("$", "YAML 1.2, each name once", found, "", place) from None
    except (YAMLError, ValueError) as error:  # bytes that no text may have, a date that is none
        raise BadDefinition("$", "YAML 1.2", str(error).partition("\n")[0], "", source) from None
    except RecursionError:
        raise BadDefinition("$", "YAML of sensible depth", "data nested too deeply", "flatten it", source) from None
    try:
        return _checked(data)
    except (BadDefinition, BadManifest) as error:
        locate(error, text, source)
        raise


def locate(error: BadDefinition | BadManifest, text: str, source: str) -> None:
    """Tell where in the text an error is. JSON is YAML too; without ruamel.yaml only the file is told."""
    try:
        from ruamel.yaml.error import YAMLError

        yaml = _yaml()
        root = yaml.compose(io.StringIO(text))
    except (ImportError, CallerError):
        root = None
    except (YAMLError, RecursionError):  # tabs, say, which JSON may have
        root = None
    error.where = error.where or _place(source, None if root is None else _mark(root, error.path.removeprefix("$")))


def to_json(manifest: Manifest) -> str:
    return json.dumps(manifest.data(), indent=2, ensure_ascii=False) + "\n"


def to_yaml(manifest: Manifest) -> str:
    out = io.StringIO()
    _yaml().dump(manifest.data(), out)
    return out.getvalue()


def _checked(data: Any) -> Manifest:
    manifest = read(data)
    check(manifest)
    return manifest


def _yaml() -> Any:
    try:
        from ruamel.yaml import YAML
    except ImportError:
        raise CallerError("manifests in YAML need ruamel.yaml: pip install 'perdure[yaml]', or write JSON") from None
    yaml: Any = YAML(typ="safe", pure=True)  # the one in C reads YAML 1.1
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    return yaml


# ---- where a path stands in the text -----------------------------------------------------------------------------


def _mark(node: Any, path: str) -> Any:
    """Where a path begins in the text; of what is missing, where the part begins that it is missing in.

    Errors write a name as `.name` or as `['name']`. A name may have dots: the longest one that fits is meant.
    """
    mark = node.start_mark
    while path:
        below = [found for found in _below(node) if path.startswith(found[0]) and path[len(found[0]) :][:1] in "[."]
        if not below:
            break
        part, mark, node = max(below, key=lambda found: len(found[0]))
        path = path[len(part) :]
    return mark


def _below(node: Any) -> Iterator[tuple[str, Any, Any]]:
    """Each way to write a part of this node, where the part begins, and the part."""
    if node.id == "mapping":
        for key, value in node.value:
            yield from ((part, key.start_mark, value) for part in (f".{key.value}", f"[{key.value!r}]"))
    elif node.id == "sequence":
        yield from ((f"[{number}]", item.start_mark, item) for number, item in enumerate(node.value))


def _place(source: str, mark: Any) -> str:
    """`file:line:column`, counted from 1."""
    place = "" if mark is None else f"{mark.line + 1}:{mark.column + 1}"
    return ":".join(part for part in (source, place) if part)
