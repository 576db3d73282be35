"""Patches: how one manifest becomes another. Each change carries the hash of what it replaces.

So a patch that was made for one manifest does not silently change another: what another person changed meanwhile is
`StalePatch`, and nothing of the patch happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from perdure.codec import digest, encode
from perdure.codec.schema import properties
from perdure.errors import BadDefinition, StalePatch

from .manifest import Manifest, read

PARTS: Final = ("schemas", "effects", "cells", "routing")
ROUTING: Final = "routing"


class Change(msgspec.Struct, frozen=True):
    """One definition. `replaces`: the hash of what is there; empty: nothing is. `definition` None: it goes.

    The routing is one definition, because its order counts.
    """

    part: str
    name: str
    replaces: str = ""
    definition: Any = None

    def data(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


def hash_of(definition: Any) -> str:
    """Of a definition as it stands in the manifest; empty: of none."""
    return "" if definition is None else digest(encode(definition))


def patch_between(before: Manifest, after: Manifest) -> tuple[Change, ...]:
    """What has to change, in a fixed order."""
    old, new = before.data(), after.data()
    changes: list[Change] = []
    for part in PARTS[:3]:
        for name in sorted(old[part].keys() | new[part].keys()):
            then, now = old[part].get(name), new[part].get(name)
            if then != now:
                changes.append(Change(part, name, hash_of(then), now))
    if old[ROUTING] != new[ROUTING]:
        changes.append(Change(ROUTING, ROUTING, hash_of(old[ROUTING]), new[ROUTING]))
    return tuple(changes)


def patched(manifest: Manifest, changes: Iterable[Change]) -> Manifest:
    """The manifest with all of the changes. Raises `StalePatch`, or `BadDefinition` if it cannot be read."""
    data = manifest.data()
    for number, change in enumerate(changes):
        path = f"$[{number}]"
        there = data[ROUTING] if change.part == ROUTING else data[change.part].get(change.name)
        found = hash_of(there)
        if found != change.replaces:
            raise StalePatch(f"{path}.replaces", change.name, change.replaces, found)
        if change.part == ROUTING:
            data[ROUTING] = change.definition or []
        elif change.definition is None:
            data[change.part].pop(change.name, None)
        else:
            data[change.part][change.name] = change.definition
    return read(data)


def read_patch(data: Any) -> tuple[Change, ...]:
    """A patch from plain data. Raises `BadDefinition` with the path of what is wrong."""
    if type(data) is not list:
        raise BadDefinition("$", "a list of changes", repr(data)[:100])
    return tuple([_read_change(found, f"$[{number}]") for number, found in enumerate(data)])


def _read_change(data: Any, path: str) -> Change:
    properties(data, path, ("part", "name", "replaces"), ("definition",))
    if data["part"] not in PARTS:
        raise BadDefinition(f"{path}.part", f"one of {', '.join(PARTS)}", repr(data["part"])[:100])
    for field in ("name", "replaces"):
        if type(data[field]) is not str:
            raise BadDefinition(f"{path}.{field}", "text", repr(data[field])[:100])
    return Change(data["part"], data["name"], data["replaces"], data.get("definition"))


def in_words(changes: Iterable[Change]) -> list[str]:
    """For people: one line a change."""
    return [f"{_verb(change)} {change.part.removesuffix('s')} {change.name}".rstrip() for change in changes]


def _verb(change: Change) -> str:
    if change.definition is None:
        return "-"
    return "~" if change.replaces else "+"


def data_of(changes: Iterable[Change]) -> list[Mapping[str, Any]]:
    return [change.data() for change in changes]
