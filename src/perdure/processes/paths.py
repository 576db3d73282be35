"""Paths of expressions against schemas: which members can be there at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from perdure.expressions import Tree
from perdure.expressions.problem import meant

_SCALARS: Final = frozenset(("string", "number", "integer", "boolean", "null"))
_JOINED: Final = {"first": True, "ended": {"type": "array"}, "dropped": {"type": "array"}}
_WRITERS: Final[Mapping[str, Any]] = {
    "parallel": {"type": "object", "properties": _JOINED, "additionalProperties": False},
    "repeat": {"type": "array"},
}
"""What steps write to the result of their own name."""
_FOLLOWED: Final = 64  # references to other parts of a schema, one after the other


def find_gets(tree: Tree, bound: frozenset[str] = frozenset()) -> Iterator[list[Any]]:
    """The paths that a tree reads, from their roots; variables of `each` are no roots."""
    if not isinstance(tree, dict):
        return
    match tree:
        case {"get": [str(root), *_]} if root not in bound:
            yield tree["get"]
        case {"call": [_, *args]} | {"list": [*args]}:
            for arg in args:
                yield from find_gets(arg, bound)
        case {"object": dict(pairs)}:
            for item in pairs.values():
                yield from find_gets(item, bound)
        case {"each": [str(name), body]}:
            yield from find_gets(body, bound | {name})
        case _:
            pass


def impossible(schema: Any, keys: list[Any]) -> tuple[str, str] | None:
    """Why no value that fits the schema has a member at this path, with a hint; None: one may have."""
    root = schema
    for place, key in enumerate(keys):
        schema = _resolved(schema, root)
        if not isinstance(schema, dict):
            return None
        arms = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(arms, list):
            reasons = [
                impossible({"$defs": root.get("$defs", {}), **arm}, keys[place:]) if isinstance(arm, dict) else None
                for arm in arms
            ]
            return reasons[0] if reasons and all(reasons) else None
        kind = schema.get("type")
        if isinstance(kind, list) or any(word in schema for word in ("allOf", "not", "if", "patternProperties")):
            return None
        if kind in _SCALARS and kind != "null":
            return f"a {kind} has no member {key!r}", ""
        if kind == "null":
            return "it is always null", ""
        if kind == "array":
            if not isinstance(key, int):
                return f"a list has no member {key!r}", "use an index, first(), or map()"
            schema = schema.get("items", True)
            continue
        known = schema.get("properties", {})
        if not isinstance(known, dict):
            return None
        if key in known:
            schema = known[key]
        elif schema.get("additionalProperties", True) is False:
            return f"there is no member {key!r}", meant(
                str(key), known
            ) or f"known are: {', '.join(sorted(known)) or 'none'}"
        else:
            schema = schema.get("additionalProperties", True)
    return None


def results_of(steps: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The names of results, each with the schemas of the steps that write it; True: any value."""
    found: dict[str, list[Any]] = {}
    for step in steps:
        if "result" in step:
            schema = step.get("returns" if step["kind"] == "call" else "schema")
            found.setdefault(step["result"], []).append(True if schema is None else schema)
        if step["kind"] in _WRITERS and "name" in step:
            found.setdefault(step["name"], []).append(_WRITERS[step["kind"]])
    return found


def member(root: Any, keys: Iterable[Any]) -> dict[str, Any] | None:
    """The schema of the member at a path; None: it is not known."""
    schema = root
    for key in keys:
        schema = _resolved(schema, root)
        known = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(known, dict) or not isinstance(key, str) or key not in known:
            return None
        schema = known[key]
    schema = _resolved(schema, root)
    return {**schema, "$defs": root.get("$defs", {})} if isinstance(schema, dict) else None


def of_member(schemas: Mapping[str, Any], tree: Tree) -> Any:
    """The schema of the elements of the list that a tree reads; None: it is not known."""
    match tree:
        case {"get": [str(name), *keys]} if isinstance(schemas.get(name), dict):
            found = member(schemas[name], keys)
            items = None if found is None else _resolved(found.get("items"), found)
            return {**items, "$defs": schemas[name].get("$defs", {})} if isinstance(items, dict) else None
        case _:
            return None


def _resolved(schema: Any, root: Any) -> Any:
    for _ in range(_FOLLOWED):
        if not isinstance(schema, dict) or not str(schema.get("$ref", "")).startswith("#/"):
            return schema
        found = root
        for part in str(schema["$ref"])[2:].split("/"):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        schema = found
    return None
