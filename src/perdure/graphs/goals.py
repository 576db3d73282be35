"""The references of a goal: `${input.path}` and `${inputs.alias.path}`; `$$` is a dollar. There are no expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, Final

import msgspec

_PART: Final = re.compile(r"\$\$|\$\{([^{}]*)\}|\$\{")
_REFERENCE: Final = re.compile(r"input(\.[^.${}]+)*|inputs(\.[^.${}]+)+")

Path = tuple[str, ...]


class NoValue(Exception):
    """A reference names what is not there. `path` is the reference as it was written."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(f"${{{path}}} has no value: {found}")


@lru_cache(maxsize=4096)
def parts_of(goal: str) -> tuple[str | Path, ...]:
    """Texts and references, in order. A malformed reference raises `ValueError`."""
    if "$" not in goal:
        return (goal,)
    found: list[str | Path] = []
    end = 0
    for match in _PART.finditer(goal):
        found.append(goal[end : match.start()])
        end = match.end()
        if match[0] == "$$":
            found.append("$")
        elif match[1] is None or not _REFERENCE.fullmatch(match[1]):
            shown = goal[match.start() : match.start() + 40]
            raise ValueError(
                f"{shown!r} is no reference: write ${{input.path}} or ${{inputs.alias.path}}; $$ is a dollar"
            )
        else:
            found.append(tuple(match[1].split(".")))
    found.append(goal[end:])
    return tuple([part for part in found if part])


def problem_of(goal: str, aliases: Collection[str]) -> str:
    """What is wrong with the references of a goal; empty: nothing."""
    try:
        parts = parts_of(goal)
    except ValueError as error:
        return str(error)
    for part in parts:
        if isinstance(part, tuple) and part[0] == "inputs" and part[1] not in aliases:
            known = ", ".join(aliases) or "none"
            return f"${{{'.'.join(part)}}} names no dependency; the names in after are: {known}"
    return ""


def fill(goal: str, input: Any, read: Callable[[str], Any], quoted: Collection[str] = ()) -> str:
    """The goal with its references filled. `read` gives the value of a dependency, or raises `NoValue`.

    `quoted`: dependencies whose values stand elsewhere, and are only pointed to.
    """
    parts = parts_of(goal)
    if len(parts) == 1 and isinstance(parts[0], str):
        return parts[0]
    found = [
        part if isinstance(part, str)
        else f"[data of {part[1]}, quoted below]" if part[0] == "inputs" and part[1] in quoted
        else _shown(value_at(part, input, read))
        for part in parts
    ]  # fmt: skip
    return "".join(found)


def fill_data(data: Any, input: Any, read: Callable[[str], Any]) -> Any:
    """The same inside of plain data. A text that is one reference and nothing else becomes the value itself."""
    if isinstance(data, str):
        parts = parts_of(data)
        if len(parts) == 1 and isinstance(parts[0], tuple):
            return value_at(parts[0], input, read)
        return fill(data, input, read)
    if isinstance(data, dict):
        return {name: fill_data(value, input, read) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [fill_data(value, input, read) for value in data]
    return data


def texts_in(data: Any) -> list[str]:
    """Every text inside of plain data."""
    if isinstance(data, str):
        return [data]
    if isinstance(data, dict):
        return [text for value in data.values() for text in texts_in(value)]
    if isinstance(data, list | tuple):
        return [text for value in data for text in texts_in(value)]
    return []


def value_at(path: Path, input: Any, read: Callable[[str], Any]) -> Any:
    whole = ".".join(path)
    value, rest = (input, path[1:]) if path[0] == "input" else (read(path[1]), path[2:])
    for part in rest:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise NoValue(whole, f"there is no {part!r} in {type(value).__name__}")
    return value


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
