"""Manifest files: a manifest from JSON or YAML text, and back. Who has a file reads it: nothing here does I/O.

Both forms hold the same data, so both give the same canonical bytes and the same hash as the Python classes do. YAML is
read as YAML 1.2: `no` is a text. Names twice and aliases are refused, and what is wrong is told with line and column.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

from perdure.codec.canonical import parse_json
from perdure.errors import BadDefinition, BadManifest, CallerError, SchemaMismatch

from .check import check
from .manifest import Manifest, read


def from_json(text: str, source: str = "") -> Manifest:
    """`source` is the name of the file, for errors."""
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
    from ruamel.yaml.events import AliasEvent, ScalarEvent

    try:
        for event in yaml.parse(io.StringIO(text)):
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
    except YAMLError:  # tabs, say, which JSON may have
        root = None
    places = {"$": root.start_mark, **dict(_places(root, ["$"]))} if root is not None else {}
    error.where = error.where or _place(source, _nearest(places, error.path))


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


def _places(node: Any, paths: list[str]) -> Iterator[tuple[str, Any]]:
    """Where each path begins. Errors write a name as `.name` or as `['name']`."""
    if node.id == "mapping":
        for key, value in node.value:
            below = [path + part for path in paths for part in (f".{key.value}", f"[{key.value!r}]")]
            yield from ((path, key.start_mark) for path in below)
            yield from _places(value, below)
    elif node.id == "sequence":
        for number, item in enumerate(node.value):
            below = [f"{path}[{number}]" for path in paths]
            yield from ((path, item.start_mark) for path in below)
            yield from _places(item, below)


def _nearest(places: dict[str, Any], path: str) -> Any:
    """Of what is missing, the place of what it is missing in."""
    return next((places[path[:end]] for end in range(len(path), 0, -1) if path[:end] in places), None)


def _place(source: str, mark: Any) -> str:
    """`file:line:column`, counted from 1."""
    place = "" if mark is None else f"{mark.line + 1}:{mark.column + 1}"
    return ":".join(part for part in (source, place) if part)
