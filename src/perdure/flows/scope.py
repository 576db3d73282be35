"""Scopes: where in a flow an operation stands. A scope gives each of its operations a location of its own."""

from contextvars import ContextVar
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast
from zlib import crc32

from perdure.errors import BadCall, RepeatedName
from perdure.kernel.location import escape
from perdure.kernel.moment import Moment

if TYPE_CHECKING:
    from .machine import FlowMachine


@lru_cache(maxsize=4096)
def _escaped(name: Any) -> str:
    return escape(text(name, "a name"))


def text(value: Any, what: str) -> str:
    """The value, if it is a text that can be recorded and shown."""
    if not isinstance(value, str) or not value:
        raise BadCall(f"{what} must be a text of at least one character, found {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadCall(f"{what} must be valid Unicode, found {value!a}") from None
    return value


class Scope:
    """`path` is empty at the root and ends with a slash elsewhere."""

    __slots__ = ("_counts", "_hashes", "_strict", "_tasks", "dice", "dice_entry", "machine", "path")

    def __init__(self, path: str, strict: bool, machine: "FlowMachine") -> None:
        self.path = path
        self.machine = machine
        self._strict = strict
        self._counts: dict[str, int] = {}
        self._tasks = 0
        self._hashes = 0
        self.dice: Random | None = None  # what `ctx.random` is in this scope...
        self.dice_entry = 0  # ...during this entry

    def claim(self, name: str) -> str:
        """The location of the next operation of this name: `charge`, then `charge#2`."""
        location = self.path + _escaped(name)
        count = self._counts[location] = self._counts.get(location, 0) + 1
        if count == 1:
            return location
        if self._strict:
            raise RepeatedName(location)
        return f"{location}#{count}"

    def claim_own(self, sign: str) -> str:
        """The location of an operation that has no name of the author's, such as a timer of asyncio."""
        location = f"{self.path}&{sign}"
        count = self._counts[location] = self._counts.get(location, 0) + 1
        return location if count == 1 else f"{location}#{count}"

    def claim_version(self, name: str) -> str:
        """The location of a version: it has a count of its own, so that none of the operations is shifted by it."""
        return self.claim_own("version:" + _escaped(name))

    def iteration(self, location: str, number: int) -> "Scope":
        return Scope(f"{location}/~{number}/", self._strict, self.machine)

    def branch(self, location: str, name: str) -> "Scope":
        return Scope(f"{location}/{_escaped(name)}/", self._strict, self.machine)

    def block(self, location: str) -> "Scope":
        return Scope(f"{location}/", self._strict, self.machine)

    def item(self, location: str, number: int) -> "Scope":
        return Scope(f"{location}/&{number}/", self._strict, self.machine)

    def task(self) -> "Scope":
        return self.numbered_task(self.tasks(1))

    def tasks(self, count: int) -> int:
        """Reserve numbers for so many tasks; the first of them."""
        first = self._tasks + 1
        self._tasks += count
        return first

    def numbered_task(self, number: int) -> "Scope":
        return Scope(f"{self.path}&{number}/", self._strict, self.machine)

    def next_hash(self) -> int:
        """A number for something that this scope puts into a set: equal in every replay."""
        self._hashes += 1
        return crc32(self.path.encode(), self._hashes)


OUTSIDE: Final = "this belongs in the flow itself: a step runs outside of it, and nothing of it is recorded"


class _Nowhere:
    """The scope of code that is no part of a flow: whatever is asked of it is out of place."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise BadCall(OUTSIDE)


NOWHERE: Final = cast(Scope, _Nowhere())

current: ContextVar[Scope] = ContextVar("perdure_scope", default=NOWHERE)
"""The scope of the code that is running now. Each task of a flow has its own, by its context."""


def dice(moment: Moment) -> Random:
    """Recorded dice: equal on replay. Each scope has its own: a pruned loop does not shift the others."""
    scope = current.get()
    if scope.dice is None or scope.dice_entry != moment.number:
        scope.dice = Random(moment.entropy() + scope.path.encode())
        scope.dice_entry = moment.number
    return scope.dice
