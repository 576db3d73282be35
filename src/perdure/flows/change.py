"""Changed code: what stands in a flow for what older code did there.

Both look at what was decided when the entry that is being replayed was made (`Moment.recorded`). Live, there is nothing
to look at: a version is pinned, and what was removed is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.kernel.decision import Decision
from perdure.kernel.effects import Effect, Timer
from perdure.kernel.location import is_sleep

from .operation import SLEEP

if TYPE_CHECKING:
    from .machine import FlowMachine
    from .operation import Operation

VERSION = "version:"


class Pinned(int):
    """A version. It may be awaited, like all operations, and need not be."""

    def __await__(self) -> Generator[Any, Any, int]:
        return int(self)
        yield


def pinned(machine: FlowMachine, location: str, latest: int) -> Pinned:
    """The version at a location: the recorded one; 1 if older code ran past it without one; else the latest."""
    recorded = machine.moment.recorded
    for note in machine.noted_before if recorded is None else recorded.noted:
        kind, _, at = note.partition(" ")
        if at == location and kind.startswith(VERSION):
            machine.note(kind, location)
            return Pinned(kind.removeprefix(VERSION))
    if recorded is None:
        machine.note(f"{VERSION}{latest}", location)
        return Pinned(latest)
    return Pinned(1)


def in_order(decision: Decision, recorded: Decision) -> Decision:
    """The same decision, as far as it is recorded in the recorded order.

    What was removed is opened again in one go, where older code opened it task by task.
    """

    def sort(found: Iterable[Any], then: Iterable[Any]) -> tuple[Any, ...]:
        places = {each: place for place, each in enumerate(then)}
        return tuple(sorted(found, key=lambda each: places.get(each, len(places))))

    places = {effect.location: place for place, effect in enumerate(recorded.open)}
    order = sorted(range(len(decision.open)), key=lambda n: places.get(decision.open[n].location, len(places)))
    return msgspec.structs.replace(
        decision,
        open=tuple([decision.open[n] for n in order]),
        intents=tuple([decision.intents[n] for n in order]),
        withdraw=sort(decision.withdraw, recorded.withdraw),
        noted=sort(decision.noted, recorded.noted),
    )


class Removed:
    """An operation that the code no longer has, with all that it had inside, in an instance that has begun it.

    What older code opened there is opened again, as it is recorded, and its answers are not used. The flow goes on
    in the delivery in which it went on then. A cancel takes back what is open, as it did then, and what older code
    cleaned up after it is waited for.
    """

    def __init__(self, machine: FlowMachine, location: str) -> None:
        self._machine = machine
        self._location = location
        self._open: dict[bytes, Operation] = {}
        self._over: asyncio.Future[Any] | None = None
        self._followed = 0

    async def pass_by(self) -> None:
        self._follow()
        cancelled: asyncio.CancelledError | None = None
        while self._open:
            self._over = self._machine.loop.create_future()
            try:
                await self._over
            except asyncio.CancelledError as error:
                cancelled = error
                for operation in self._open.values():
                    self._machine.withdraw(operation)
                self._open.clear()
                self._follow()
        if cancelled is not None:
            raise cancelled

    def _follow(self) -> None:
        """Do what is recorded of this operation in this delivery."""
        recorded, number = self._machine.moment.recorded, self._machine.moment.number
        if recorded is None or number == self._followed:
            return
        self._followed = self._machine.passed_by = number
        for note in recorded.noted:
            kind, _, at = note.partition(" ")
            if self._is_mine(at):
                self._machine.note(kind, at)
        for effect in recorded.open:
            if self._is_mine(effect.location):
                self._begin(effect)
        for id in recorded.withdraw:
            operation = self._open.pop(id, None)
            if operation is not None and operation.future is not None and not operation.future.done():
                self._machine.withdraw(operation)

    def _begin(self, effect: Effect) -> None:
        sleeps = type(effect) is Timer and is_sleep(effect.location)
        operation = self._machine.open(effect, SLEEP if sleeps else None)
        assert operation.future is not None
        self._open[operation.id] = operation
        operation.future.add_done_callback(lambda _: self._answered(operation))

    def _answered(self, operation: Operation) -> None:
        opened = next((id for id, each in self._open.items() if each is operation), None)  # a rewind changes its id
        if opened is None:
            return
        del self._open[opened]
        self._follow()
        if not self._open and self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _is_mine(self, location: str) -> bool:
        return location == self._location or location.startswith(self._location + "/")
