"""Undo: what completed steps left to be undone, and the rollback that does it, the last one first.

An undo is a step of its own, durable like any other: a crash in the middle of a rollback goes on with the next one. One
that cannot be done needs a person, and the rest waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import StepFailed
from perdure.kernel.problem import Hook

from . import scope as scopes
from . import unsettled
from .operation import AGAIN

if TYPE_CHECKING:
    from .machine import FlowMachine


class Done(msgspec.Struct, eq=False):
    """A completed step, and how it is undone: `undo(value)`. `on_error`: the step's hook, which hears of that too."""

    number: int
    location: str
    undo: Callable[..., Any]
    value: Any
    on_error: Hook | None


class Undos:
    """In the order of completion."""

    def __init__(self) -> None:
        self.checkpoints: dict[str, None] = {}  # the names of all that the flow has come to
        self._done: list[Done] = []
        self._count = 0

    def add(self, location: str, undo: Callable[..., Any], value: Any, on_error: Hook | None) -> None:
        self._count += 1
        self._done.append(Done(self._count, location, undo, value, on_error))

    @property
    def mark(self) -> int:
        """What is completed after now has a higher number."""
        return self._count

    def last(self, after: int, path: str) -> Done | None:
        """The last that was completed after a mark, in a scope or below it."""
        for done in reversed(self._done):
            if done.number <= after:
                return None
            if done.location.startswith(path):
                return done
        return None

    def remove(self, done: Done) -> None:
        """Unless its loop, which goes on in another branch, has forgotten it while it was undone."""
        if done in self._done:
            self._done.remove(done)

    def forget(self, loop: str, first: int) -> None:
        """A loop keeps its iterations from this one on: what older ones did stays done."""
        prefix = loop + "/~"
        self._done = [
            done
            for done in self._done
            if not done.location.startswith(prefix) or int(done.location[len(prefix) :].partition("/")[0]) >= first
        ]

    def locations(self) -> list[str]:
        return [done.location for done in self._done]


async def roll_back(machine: FlowMachine, after: int, path: str) -> None:
    """Undo what was completed after a mark, in a scope or below it."""
    token = scopes.current.set(machine.undo_scope(path))
    try:
        while (done := machine.undos.last(after, path)) is not None:
            await _undo(machine, done)
            machine.undos.remove(done)
            machine.undone(done.location)
    finally:
        with suppress(ValueError):  # closed by the garbage collector, in whatever context that runs
            scopes.current.reset(token)


async def _undo(machine: FlowMachine, done: Done) -> None:
    from .steps import undoing

    while True:
        try:
            await undoing(machine, done)
            return
        except StepFailed as failed:
            answer = await unsettled.ask_person(machine, done.location, failed)
            if answer is not AGAIN:
                return  # a person says that it is done, or need not be
