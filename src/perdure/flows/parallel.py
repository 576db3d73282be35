"""Branches of a flow that run side by side: join, race and map."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.codec.returns import takes_argument, takes_context
from perdure.errors import BadCall, JoinFailed, RaceFailed, RollBack

from . import ending
from . import scope as scopes
from .author import StepFunction
from .loop import FlowTask

if TYPE_CHECKING:
    from .context import Context
    from .machine import FlowMachine

S = TypeVar("S")
T = TypeVar("T")


async def join(context: Context, name: str, branches: Mapping[str, Callable[..., Awaitable[Any]]]) -> dict[str, Any]:
    tasks = _branches(context, name, branches, "join")
    await _settled(context._machine, tasks.values())
    errors = {branch: error for branch, task in tasks.items() if (error := _error(task)) is not None}
    if errors:
        raise _joined(name, errors)
    return {branch: task.result() for branch, task in tasks.items()}


async def race(context: Context, name: str, branches: Mapping[str, Callable[..., Awaitable[Any]]]) -> tuple[str, Any]:
    tasks = _branches(context, name, branches, "race")
    names = {task: branch for branch, task in tasks.items()}
    finished = _Finished(tasks.values())
    errors: dict[str, Exception] = {}
    try:
        while not finished.all:
            for task in await finished.next():
                error = _error(task)
                if error is None:
                    return names[task], task.result()
                if isinstance(error, RollBack):
                    raise error
                errors[names[task]] = error
    finally:
        ending.cut(context._machine, tasks.values())
    raise RaceFailed(name, errors)


async def map_items(
    context: Context,
    name: str,
    function: Callable[[S], Awaitable[T]] | Callable[[Any, S], Awaitable[T]],
    items: Iterable[S],
    *,
    concurrency: int | None = None,
) -> list[T]:
    if not callable(function):
        raise BadCall(f"ctx.map({name!r}, function, items): found {function!r}")
    if concurrency is not None and (not isinstance(concurrency, int) or concurrency < 1):  # type: ignore[redundant-expr]
        raise BadCall(f"ctx.map({name!r}): concurrency={concurrency!r} must be at least 1")
    machine, scope, values = context._machine, scopes.current.get(), list(items)
    location = machine.claim(name)
    machine.note("map", location)
    slots = asyncio.Semaphore(concurrency or len(values) or 1)

    block = not isinstance(function, StepFunction) and takes_context(function)

    async def run(item: S) -> T:
        async with slots:
            awaitable: Any = function(context, item) if block else function(item)  # type: ignore[call-arg, arg-type]
            if not inspect.isawaitable(awaitable):
                raise BadCall(
                    f"ctx.map({name!r}, function, items): {function!r} must be async, and returned {awaitable!r}; "
                    "a plain function is a step: lambda item: ctx.step(name, function, item)"
                )
            return await awaitable  # type: ignore[no-any-return]

    tasks = [
        machine.loop.spawn(run(item), scope.item(location, number), copy_context(), f"{name}/{number}")
        for number, item in enumerate(values)
    ]
    await _settled(context._machine, tasks)
    errors = {str(number): error for number, task in enumerate(tasks) if (error := _error(task)) is not None}
    if errors:
        raise _joined(name, errors)
    return [task.result() for task in tasks]


def _branches(context: Context, name: str, branches: Mapping[str, Any], verb: str) -> dict[str, FlowTask]:
    if not (isinstance(branches, Mapping) and all(map(callable, branches.values()))):  # type: ignore[redundant-expr]
        raise BadCall(
            f"ctx.{verb}({name!r}, {{branch: async function}}): found {branches!r}; "
            "a call becomes a function with lambda: before it"
        )
    machine, scope = context._machine, scopes.current.get()
    location = machine.claim(name)
    machine.note(verb, location)
    inside = {branch: scope.branch(location, branch) for branch in branches}  # a bad name starts nothing
    return {
        branch: machine.loop.spawn(_called(function, context), inside[branch], copy_context(), f"{name}/{branch}")
        for branch, function in branches.items()
    }


async def _settled(machine: FlowMachine, tasks: Collection[FlowTask]) -> None:
    """Wait until all have ended; if that is cancelled, cut what still runs."""
    finished = _Finished(tasks)
    try:
        while not finished.all:
            await finished.next()
    except asyncio.CancelledError:
        ending.cut(machine, tasks)
        raise


class _Finished:
    """Tasks in the order in which they ended, a few at a time."""

    def __init__(self, tasks: Iterable[FlowTask]) -> None:
        self._left = 0
        self._fresh: list[FlowTask] = []
        self._wake: asyncio.Future[None] | None = None
        for task in tasks:
            self._left += 1
            task.add_done_callback(self._done)

    @property
    def all(self) -> bool:
        return self._left == 0 and not self._fresh

    async def next(self) -> list[FlowTask]:
        if not self._fresh:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        fresh, self._fresh = self._fresh, []
        return fresh

    def _done(self, task: Any) -> None:
        self._left -= 1
        self._fresh.append(task)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def _joined(name: str, errors: dict[str, Exception]) -> Exception:
    """What a join raises. A branch that asks for a rollback asks for all."""
    return next((error for error in errors.values() if isinstance(error, RollBack)), JoinFailed(name, errors))


def _error(task: FlowTask) -> Exception | None:
    if task.cancelled():
        return BadCall("the branch was cancelled from inside")
    error = task.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return error


async def _called(function: Callable[..., Any], context: Context) -> Any:
    """A branch is `async def branch()` or `async def branch(ctx)`, or whatever else gives an awaitable."""
    awaitable = function(context) if takes_argument(function) else function()
    if not inspect.isawaitable(awaitable):
        raise BadCall(f"a branch must be async: {function!r} returned {awaitable!r}")
    return await awaitable
