"""Scopes: where in a flow an operation stands. A scope gives each of its operations a location of its own."""

from contextvars import ContextVar
from functools import lru_cache

from perdure.errors import RepeatedName
from perdure.kernel.location import escape

_escaped = lru_cache(maxsize=4096)(escape)


class Scope:
    """`path` is empty at the root and ends with a slash elsewhere."""

    __slots__ = ("_counts", "_strict", "_tasks", "path")

    def __init__(self, path: str, strict: bool) -> None:
        self.path = path
        self._strict = strict
        self._counts: dict[str, int] = {}
        self._tasks = 0

    def claim(self, name: str) -> str:
        """The location of the next operation of this name: `charge`, then `charge#2`."""
        location = self.path + _escaped(name)
        return self._numbered(location)

    def claim_own(self, sign: str) -> str:
        """The location of an operation that has no name of the author's, such as a timer of asyncio."""
        return self._numbered(self.path + "&" + sign, strict=False)

    def _numbered(self, location: str, strict: bool = True) -> str:
        count = self._counts.get(location, 0) + 1
        self._counts[location] = count
        if count == 1:
            return location
        if self._strict and strict:
            raise RepeatedName(location)
        return f"{location}#{count}"

    def inside(self, location: str) -> "Scope":
        """The scope below an operation or branch that was claimed before."""
        return Scope(location + "/", self._strict)

    def iteration(self, location: str, number: int) -> "Scope":
        return Scope(f"{location}/~{number}/", self._strict)

    def branch(self, location: str, name: str) -> "Scope":
        return Scope(f"{location}/{_escaped(name)}/", self._strict)

    def task(self) -> "Scope":
        self._tasks += 1
        return Scope(f"{self.path}&{self._tasks}/", self._strict)


current: ContextVar[Scope] = ContextVar("perdure_scope")
"""The scope of the code that is running now. Each task of a flow has its own, by its context."""
