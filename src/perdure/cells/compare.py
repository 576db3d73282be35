"""Two manifests side by side: which definitions one has, the other has not, or has otherwise.

For people and for messages. What is applied to a manifest is a patch: `patch.py`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .manifest import Manifest

Kind = Literal["added", "removed", "changed"]


class Contrast(msgspec.Struct, frozen=True):
    """One place where they differ: `path` names the definition, or the part of it. The order of routes counts."""

    kind: Kind
    path: str
    before: Any = None
    after: Any = None


def contrasts(before: Manifest, after: Manifest) -> list[Contrast]:
    """Where they differ, in the order of schemas, effects, cells and routing."""
    old, new = before.data(), after.data()
    found = [each for part in ("schemas", "effects", "cells") for each in _below(f"$.{part}", old[part], new[part])]
    if old["routing"] != new["routing"]:
        found += _routes(old["routing"], new["routing"])
    return found


def _below(path: str, before: dict[str, Any], after: dict[str, Any]) -> list[Contrast]:
    found: list[Contrast] = []
    for name in [*before, *(name for name in after if name not in before)]:
        inner = f"{path}.{name}" if name.isidentifier() else f"{path}[{name!r}]"
        if name not in after:
            found.append(Contrast("removed", inner, before[name]))
        elif name not in before:
            found.append(Contrast("added", inner, None, after[name]))
        elif isinstance(before[name], dict) and isinstance(after[name], dict):
            found += _below(inner, before[name], after[name])
        elif before[name] != after[name]:
            found.append(Contrast("changed", inner, before[name], after[name]))
    return found


def _routes(before: list[Any], after: list[Any]) -> list[Contrast]:
    gone = [Contrast("removed", f"$.routing[{n}]", route) for n, route in enumerate(before) if route not in after]
    new = [Contrast("added", f"$.routing[{n}]", None, route) for n, route in enumerate(after) if route not in before]
    return [*gone, *new] or [Contrast("changed", "$.routing", before, after)]
