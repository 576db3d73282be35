"""The reducers that every graph has: pure functions of the inputs of a node, in the order of `after`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Reducer = Callable[[dict[str, Any]], Any]
"""From alias to value; the order is that of `after`."""


def concat(inputs: dict[str, Any]) -> str:
    """All texts, a line break between each two."""
    return "\n".join(_texts(inputs))


def dedupe_lines(inputs: dict[str, Any]) -> str:
    """Every line of all texts once, where it came first."""
    return "\n".join(dict.fromkeys(line for text in _texts(inputs) for line in text.splitlines()))


def merge_arrays(inputs: dict[str, Any]) -> list[Any]:
    """All items of all lists."""
    merged: list[Any] = []
    for alias, value in inputs.items():
        if not isinstance(value, list):
            raise TypeError(f"the input {alias!r} is {type(value).__name__}, not a list")
        merged += value
    return merged


def merge_objects(inputs: dict[str, Any]) -> dict[str, Any]:
    """One object with the members of all; of one name the last counts."""
    merged: dict[str, Any] = {}
    for alias, value in inputs.items():
        if not isinstance(value, dict):
            raise TypeError(f"the input {alias!r} is {type(value).__name__}, not an object")
        merged.update(value)
    return merged


def count(inputs: dict[str, Any]) -> int:
    """How many inputs there are."""
    return len(inputs)


def collect(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs themselves, by alias."""
    return dict(inputs)


def _texts(inputs: dict[str, Any]) -> list[str]:
    for alias, value in inputs.items():
        if not isinstance(value, str):
            raise TypeError(f"the input {alias!r} is {type(value).__name__}, not a text")
    return list(inputs.values())


REDUCERS: Final[dict[str, Reducer]] = {
    each.__name__: each for each in (concat, dedupe_lines, merge_arrays, merge_objects, count, collect)
}
