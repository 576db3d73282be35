"""The log of a flow: what its machine was delivered, so that it can be rebuilt; and how loops keep it short.

A coroutine cannot be saved, so a flow is rebuilt by delivering its events again. `ctx.loop` marks where each
recent iteration began and with which state. Pruning forgets all that belongs to older iterations: the loop is
then entered right at the oldest iteration that is kept, at the very entry at which that iteration began.

A flow without loops has no log: nothing could make it shorter than its journal, which rebuilds it as well.

What an iteration leaves behind is its state and nothing else. Where that is not so (it woke code outside of
its loop through a queue, say) the saved log cannot rebuild the flow; the machine finds that out before it
hands a snapshot over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any

import msgspec

from perdure.kernel.decision import Decision
from perdure.kernel.entry import decode_run, encode_run
from perdure.kernel.events import Event, Message, Requested
from perdure.kernel.moment import Moment


class Mark(msgspec.Struct, array_like=True, gc=False):
    """Iteration `number` of a loop began at entry `entry` with `state` (canonical bytes)."""

    number: int
    entry: int
    state: bytes


class Item(msgspec.Struct, gc=False):
    """One delivery. `location`: the operation of its event. `ghost`: only its decision still matters."""

    number: int
    at: int
    event: Event
    decision: Decision
    location: str = ""
    ghost: bool = False
    seed: bytes = b""  # of its moment: a fork has that of its source in what it took over


class _Saved(msgspec.Struct, array_like=True):
    seeds: list[bytes]
    marks: dict[str, list[Mark]]
    items: list[tuple[bytes, int, str, bool, int]]


class Log:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.marks: dict[str, deque[Mark]] = {}
        self.taken: dict[int, str] = {}  # by the entry of a message that is received in its own delivery: where
        self.resumes: dict[str, list[Mark]] = {}  # loops that are yet to be entered, right at an iteration
        self.barriers: tuple[tuple[int, asyncio.Future[Any]], ...] = ()  # loops that wait for an entry
        self._messages: dict[int, Item] = {}  # not yet received
        self.pruned = False  # so much that a snapshot is worth its cost
        self._pruned = False
        self._saved_at = 0  # the last entry of the last snapshot
        self._compact_at = 64

    def add(self, moment: Moment, event: Event, decision: Decision, location: str = "") -> None:
        """A delivery. Reports and answers are not kept: they are heard once."""
        recorded = decision
        if decision.reports or decision.answers:
            recorded = msgspec.structs.replace(decision, reports=(), answers=())
        self.append(Item(moment.number, moment.at, event, recorded, location, seed=moment.seed))

    def append(self, item: Item) -> None:
        self.items.append(item)
        if type(item.event) in (Message, Requested) and not item.location:
            self._messages[item.number] = item

    def consumed(self, number: int, location: str) -> None:
        """The message of entry `number` was received by the operation at `location` and shares its fate."""
        item = self._messages.pop(number, None)
        if item is not None:
            item.location = location

    # ---- loops ---------------------------------------------------------------------------------------------

    def mark(self, loop: str, number: int, entry: int, state: bytes) -> None:
        marks = self.marks.setdefault(loop, deque())
        if not marks or marks[-1].number < number:
            marks.append(Mark(number, entry, state))

    def prune(self, loop: str, keep: int, alive: Iterable[str]) -> None:
        """Forget the iterations of a loop before the last `keep`, unless something of them is still alive."""
        marks = self.marks[loop]
        if len(marks) <= keep:
            return
        first = marks[-keep].number
        if any(_iteration(loop, place) < first for place in alive):
            return
        while marks[0].number < first:
            marks.popleft()
        for name in [name for name in self.marks if _iteration(loop, name) < first]:
            del self.marks[name]
        self._pruned = True
        kept = sum(each[-1].entry - each[0].entry for each in self.marks.values())
        self.pruned = marks[-1].entry - self._saved_at > kept
        if len(self.items) > self._compact_at:
            self._compact()

    def _compact(self) -> None:
        """Drop what the marks no longer reach. Only when the log has doubled: constant cost per entry."""
        starts = {marks[0].entry for marks in self.marks.values()}
        self.items = [item for item in self.items if self._reached(item, starts)]
        self._compact_at = 64 + 2 * len(self.items)

    def _reached(self, item: Item, starts: set[int]) -> bool:
        """Cut what belongs to forgotten iterations out of an item. False: nothing of it is left."""
        decision = item.decision
        opened = tuple([effect for effect in decision.open if not self.forgotten(effect.location)])
        noted = tuple([note for note in decision.noted if not self.forgotten(note.partition(" ")[2])])
        if len(opened) != len(decision.open) or len(noted) != len(decision.noted):
            item.decision = msgspec.structs.replace(decision, open=opened, noted=noted, intents=())
        if item.location and self.forgotten(item.location):
            item.ghost = True
        return not item.ghost or bool(opened or noted) or item.number in starts

    def forgotten(self, location: str) -> bool:
        """Whether a location lies in an iteration that no mark reaches any more, of whichever loop."""
        at = location.find("/~")
        while at >= 0:
            marks = self.marks.get(location[:at])
            if marks is not None and int(location[at + 2 :].partition("/")[0]) < marks[0].number:
                return True
            at = location.find("/~", at + 2)
        return False

    async def resume(self, location: str, number: int, loop: asyncio.AbstractEventLoop) -> Mark | None:
        """Where a pruned loop goes on, once replay has reached the entry at which that iteration began."""
        marks = self.resumes.pop(location, None)
        if not marks:
            return None
        self.marks[location] = deque(marks)
        first = marks[0]
        if first.entry > number:
            gate = loop.create_future()
            self.barriers = (*self.barriers, (first.entry, gate))
            await gate
        return first

    def release(self, number: int) -> None:
        """Replay has reached an entry: loops that wait for it go on."""
        for entry, gate in self.barriers:
            if entry <= number and not gate.done():
                gate.set_result(None)
        self.barriers = tuple([(entry, gate) for entry, gate in self.barriers if entry > number])

    # ---- saving --------------------------------------------------------------------------------------------

    def save(self) -> bytes | None:
        """The log as bytes, or None when nothing was pruned: then the journal itself is as short."""
        if not self._pruned:
            return None
        self._compact()
        seeds = list(dict.fromkeys(item.seed for item in self.items))
        bodies = encode_run((item.number, item.at, item.event, item.decision) for item in self.items)
        items = [
            (body, item.at, item.location, item.ghost, seeds.index(item.seed))
            for item, body in zip(self.items, bodies, strict=True)
        ]
        marks = {loop: list(marks) for loop, marks in self.marks.items()}
        self._pruned = self.pruned = False
        self._saved_at = self.items[-1].number if self.items else 0
        return msgspec.msgpack.encode(_Saved(seeds, marks, items))

    def put_off(self) -> None:
        """What was saved does not rebuild the flow. Saved again when the flow is twice as long."""
        self._saved_at *= 2

    @staticmethod
    def load(data: bytes) -> tuple[dict[str, list[Mark]], Iterator[Item]]:
        saved = msgspec.msgpack.decode(data, type=_Saved)
        return saved.marks, _items(saved)


def _items(saved: _Saved) -> Iterator[Item]:
    entries = decode_run((at, body) for body, at, *_ in saved.items)
    for entry, (_, at, location, ghost, seed) in zip(entries, saved.items, strict=True):
        yield Item(entry.number, at, entry.event, entry.decision, location, ghost, saved.seeds[seed])


def _iteration(loop: str, location: str) -> Any:
    """The iteration of `loop` that a location lies in; infinity when it lies in none."""
    prefix = loop + "/~"
    if not location.startswith(prefix):
        return inf
    return int(location[len(prefix) :].partition("/")[0])
