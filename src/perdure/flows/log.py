"""The log of a flow: what its machine was delivered, so that it can be rebuilt; and how loops keep that short.

A coroutine cannot be saved, so a flow is rebuilt by delivering its events again. `ctx.loop` marks where each recent
iteration began and with which state. Pruning forgets all that belongs to older iterations: the loop is then entered
right at the oldest iteration that is kept, at the very entry at which that iteration began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from perdure.kernel.decision import Decision
from perdure.kernel.entry import Entry, decode, encode, pack
from perdure.kernel.events import Event, Message, Received
from perdure.kernel.location import Patterns


class Mark(msgspec.Struct, array_like=True):
    """Iteration `number` of a loop began at entry `entry` with `state` (canonical bytes)."""

    number: int
    entry: int
    state: bytes


class Item(msgspec.Struct):
    """One delivery. `location`: the operation that its event belongs to. `ghost`: only its decision still matters."""

    number: int
    at: int
    event: Event
    decision: Decision
    location: str = ""
    ghost: bool = False


class _Saved(msgspec.Struct, array_like=True):
    seed: bytes
    marks: dict[str, list[Mark]]
    items: list[tuple[bytes, int, str, bool]]


class Log:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.marks: dict[str, deque[Mark]] = {}
        self._messages: dict[int, Item] = {}
        self._pruned = False
        self._compact_at = 64

    def append(self, number: int, at: int, event: Event, decision: Decision, location: str) -> None:
        item = Item(number, at, event, decision, location)
        self.items.append(item)
        if type(event) is Message:
            self._messages[number] = item

    def consumed(self, number: int, location: str) -> None:
        """The message of entry `number` was received by the operation at `location` and shares its fate."""
        item = self._messages.pop(number, None)
        if item is not None:
            item.location = location

    # ---- loops ---------------------------------------------------------------------------------------------------

    def mark(self, loop: str, number: int, entry: int, state: bytes) -> None:
        marks = self.marks.setdefault(loop, deque())
        if not marks or marks[-1].number < number:
            marks.append(Mark(number, entry, state))

    def prune(self, loop: str, keep: int, open_locations: Iterable[str]) -> None:
        """Forget the iterations of a loop before the last `keep`, unless one of them still has an operation open."""
        marks = self.marks[loop]
        if len(marks) <= keep:
            return
        first = marks[-keep].number
        if any(_iteration(loop, location) < first for location in open_locations):
            return
        while marks[0].number < first:
            marks.popleft()
        for name in [name for name in self.marks if name != loop and _iteration(loop, name) < first]:
            del self.marks[name]
        self._pruned = True
        if len(self.items) > self._compact_at:
            self._compact()

    def _compact(self) -> None:
        """Drop what the marks no longer reach. Only when the log has doubled, so the cost per entry is constant."""
        for loop, marks in self.marks.items():
            first, entry = marks[0].number, marks[0].entry
            kept = (_without(item, loop, first, entry) for item in self.items)
            self.items = [item for item in kept if item is not None]
        self._compact_at = 64 + 2 * len(self.items)

    # ---- saving --------------------------------------------------------------------------------------------------

    def save(self, seed: bytes) -> bytes | None:
        """The log as bytes, or None when nothing was pruned: then the journal itself is as short."""
        if not self._pruned:
            return None
        self._compact()
        patterns = Patterns()
        items = []
        for item in self.items:
            packed, fresh = pack(item.decision.open, patterns)
            entry = Entry(0, 0, item.number, item.at, item.event, item.decision, (), fresh)
            items.append((encode(entry, packed), item.at, item.location, item.ghost))
            patterns.learn(fresh)
        marks = {loop: list(marks) for loop, marks in self.marks.items()}
        self._pruned = False
        return msgspec.msgpack.encode(_Saved(seed, marks, items))

    @staticmethod
    def load(data: bytes) -> tuple[bytes, dict[str, list[Mark]], Iterator[Item]]:
        saved = msgspec.msgpack.decode(data, type=_Saved)
        return saved.seed, saved.marks, _items(saved.items)


def _items(saved: list[tuple[bytes, int, str, bool]]) -> Iterator[Item]:
    patterns = Patterns()
    for body, at, location, ghost in saved:
        entry = decode(0, 0, at, body, patterns)
        yield Item(entry.number, at, entry.event, entry.decision, location, ghost)


def _iteration(loop: str, location: str) -> Any:
    """The iteration of `loop` that a location lies in; infinity when it lies in none."""
    prefix = loop + "/~"
    if not location.startswith(prefix):
        return float("inf")
    digits = location[len(prefix) :].partition("/")[0]
    return int(digits)


def _without(item: Item, loop: str, first: int, entry: int) -> Item | None:
    """The item without what belongs to iterations before `first`, or None when nothing of it is left."""
    opened = tuple(e for e in item.decision.open if _iteration(loop, e.location) >= first)
    if len(opened) != len(item.decision.open):
        item.decision = msgspec.structs.replace(item.decision, open=opened)
    if isinstance(item.event, Received | Message) and _iteration(loop, item.location) < first:
        if not opened and item.number != entry:
            return None
        item.ghost = True
    return item
