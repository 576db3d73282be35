"""Loops of a flow: iteration after iteration, of which only the last few are kept."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from perdure.codec import decode, encode, from_plain, to_plain
from perdure.codec.returns import state_annotation_of
from perdure.errors import BadCall

from . import scope as scopes
from .author import Break, Continue, limited
from .loop import TURNS_MAX

if TYPE_CHECKING:
    from .context import Context
    from .machine import FlowMachine

T = TypeVar("T")

SAME_STATE: Final = (
    ": the next iteration has the same state; write return Continue(state), or return Break(value) to end"
)


async def loop(
    context: Context,
    name: str,
    body: Callable[..., Awaitable[Continue[Any] | Break[T] | None]],
    state: Any = None,
    *,
    keep: int = 20,
    prune_every: int = 20,
) -> T:
    if not callable(body):
        raise BadCall(f"ctx.loop({name!r}, body): found {body!r}")
    if not all(isinstance(each, int) and each >= 1 for each in (keep, prune_every)):  # type: ignore[redundant-expr]
        raise BadCall(f"ctx.loop({name!r}): keep={keep!r} and prune_every={prune_every!r} must be at least 1")
    machine, scope = context._machine, scopes.current.get()
    location = machine.claim(name)
    machine.note("loop", location)
    annotation, takes_state = state_annotation_of(body)
    mark = None if machine.log is None else await machine.log.resume(location, machine.moment.number, machine.loop)
    number, value = (mark.number, mark.state) if mark is not None else (0, _state_bytes(name, state))
    entry = turns = 0
    told = False
    while True:
        if entry != machine.moment.number:
            entry, turns = machine.moment.number, 0
        turns += 1
        if turns > TURNS_MAX:
            raise BadCall(f"loop {name!r} ran {TURNS_MAX:,} iterations without waiting for anything: it spins")
        _mark(machine, location, number, value)
        token = scopes.current.set(scope.iteration(location, number))
        try:
            arguments = (context, from_plain(decode(value), annotation)) if takes_state else (context,)
            awaitable = body(*arguments)
            if not inspect.isawaitable(awaitable):
                raise BadCall(f"the body of loop {name!r} must be async: {body!r} returned {awaitable!r}")
            answer = await awaitable
        finally:
            with suppress(ValueError):  # closed by the garbage collector, in whatever context that runs
                scopes.current.reset(token)
        if isinstance(answer, Break):
            _prune(machine, location, keep, number)
            return answer.value
        if answer is not None and not isinstance(answer, Continue):
            raise BadCall(f"the body of loop {name!r} returned {answer!r}; return Continue, Break or nothing")
        if answer is not None:
            value = _state_bytes(name, answer.state)
        elif takes_state and not told:
            told = True
            machine.flow.warn(body, f"the body of loop {name!r} returned nothing{SAME_STATE}")
        number += 1
        if number % prune_every == 0:
            _prune(machine, location, keep, number - 1)


def _state_bytes(name: str, state: object) -> bytes:
    return limited(encode(to_plain(state)), f"the state of loop {name!r}")


def _mark(machine: FlowMachine, loop: str, number: int, state: bytes) -> None:
    """An iteration of a loop begins."""
    if machine.log is None:
        machine.flow.loops = True
    else:
        machine.log.mark(loop, number, machine.moment.number, state)


def _prune(machine: FlowMachine, loop: str, keep: int, number: int) -> None:
    """Forget the iterations of a loop before the last `keep`; `number` is the last one."""
    if machine._undos is not None:
        machine._undos.forget(loop, number - keep + 1)
    if machine.log is None:
        machine.wants_log = True
        return
    alive = [operation.effect.location for operation in machine.operations.values()]
    alive += [task.path for task in machine.loop.pending()]
    machine.log.prune(loop, keep, alive)
