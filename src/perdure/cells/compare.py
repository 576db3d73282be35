"""Two manifests side by side: which definitions one has, the other has not, or has otherwise."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .manifest import Manifest

Kind = Literal["added", "removed", "changed"]


class Change(msgspec.Struct, frozen=True):
    """`path` names the definition, or the part of it that is another one. The order of routes counts."""

    kind: Kind
    path: str
    before: Any = None
    after: Any = None


def changes(before: Manifest, after: Manifest) -> list[Change]:
    """What leads from one to the other, in the order of schemas, effects, cells and routing."""
    old, new = before.data(), after.data()
    found = [change for part in ("schemas", "effects", "cells") for change in _below(f"$.{part}", old[part], new[part])]
    if old["routing"] != new["routing"]:
        found += _routes(old["routing"], new["routing"])
    return found


def _below(path: str, before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    found: list[Change] = []
    for name in [*before, *(name for name in after if name not in before)]:
        inner = f"{path}.{name}" if name.isidentifier() else f"{path}[{name!r}]"
        if name not in after:
            found.append(Change("removed", inner, before[name]))
        elif name not in before:
            found.append(Change("added", inner, None, after[name]))
        elif isinstance(before[name], dict) and isinstance(after[name], dict):
            found += _below(inner, before[name], after[name])
        elif before[name] != after[name]:
            found.append(Change("changed", inner, before[name], after[name]))
    return found


def _routes(before: list[Any], after: list[Any]) -> list[Change]:
    gone = [Change("removed", f"$.routing[{n}]", route) for n, route in enumerate(before) if route not in after]
    new = [Change("added", f"$.routing[{n}]", None, route) for n, route in enumerate(after) if route not in before]
    return [*gone, *new] or [Change("changed", "$.routing", before, after)]
