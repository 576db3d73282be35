"""Locations: the human-readable path that names an effect inside its instance.

A location is scopes and a name joined by `/`: `loop/~3/charge#2`. The signs with a meaning are `/` (into a scope),
`~N` (iteration), `&N` (task), `#N` (the same name again). Names are percent-escaped, so no name can look like a path.

In rows a location is compact. Its text without the numbers is a *pattern* (`loop/~/charge#`); patterns are stored
once per instance, in the entry that first uses them, and a row holds the number of the pattern and the numbers.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

Compact = int | tuple[int, ...]

_SPECIAL: Final = re.compile(r"[%/~&#\x00-\x1f]")
_NUMBER: Final = re.compile(r"(?<=[~&#])(?:0|[1-9][0-9]{0,17})(?=[/#]|\Z)")
_ORDINAL: Final = re.compile(r"[1-9][0-9]{0,17}")
_HOLE: Final = re.compile(r"(?<=[~&#])(?=[/#]|\Z)")
_OTHER_TIMERS: Final = re.compile(r"(/backoff#\d+|&timer(#\d+)?|&cleanup)$")


def escape(name: str) -> str:
    """A name as it stands inside a location."""
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", name)


def unescape(name: str) -> str:
    return re.sub(r"%([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), name)


def is_sleep(location: str) -> bool:
    """Whether a timer is a sleep that people know as one; others are pauses before retries and timers of asyncio."""
    return _OTHER_TIMERS.search(location) is None


@lru_cache(maxsize=4096)
def _split(location: str) -> tuple[str, tuple[int, ...]]:
    """The pattern of a location, and its numbers."""
    name, sign, digits = location.rpartition("#")
    if sign and _ORDINAL.fullmatch(digits) and not _SPECIAL.search(name):  # the common case: a name that is used again
        return name + sign, (int(digits),)
    # A text that has a hole already cannot be told from a pattern: it is stored as it is.
    numbers = () if _HOLE.search(location) else tuple(map(int, _NUMBER.findall(location)))
    return (_NUMBER.sub("", location) if numbers else location), numbers


def unnumbered(location: str) -> str:
    """A location without its numbers: equal for every iteration of a loop."""
    return _split(location)[0].rstrip("#")


@lru_cache(maxsize=4096)
def _parts(pattern: str) -> tuple[str, ...]:
    """What stands around the holes of a pattern."""
    return tuple(_HOLE.split(pattern))


class Patterns:
    """The name registry of one instance. It only grows, and only by `learn`, which `apply` calls."""

    __slots__ = ("_numbers", "_texts")

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self.learn(texts)

    def learn(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._numbers[text] = len(self._texts)
            self._texts.append(text)

    def texts(self) -> list[str]:
        return list(self._texts)

    def compact(self, location: str, fresh: dict[str, int]) -> Compact:
        """The compact form; a pattern that the instance does not know yet is added to `fresh` with its number."""
        number = self._numbers.get(location)
        if number is not None:
            return number
        pattern, numbers = _split(location)
        number = self._numbers.get(pattern)
        if number is None:
            number = fresh.setdefault(pattern, len(self._texts) + len(fresh))
        return (number, *numbers) if numbers else number

    def text(self, compact: Compact | list[int]) -> str:
        if isinstance(compact, int):
            return self._texts[compact]
        parts = _parts(self._texts[compact[0]])
        if len(compact) == 2:  # nearly always
            before, after = parts
            return f"{before}{compact[1]}{after}"
        numbers = compact[1:]
        return parts[0] + "".join(f"{n}{part}" for n, part in zip(numbers, parts[1:], strict=True))


class NoLocations(Patterns):
    """For entries that are read without those before them: where their effects are does not matter."""

    def text(self, compact: Compact | list[int]) -> str:
        return ""

    def learn(self, texts: Iterable[str]) -> None:
        pass
