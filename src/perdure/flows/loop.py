"""The event loop of a flow: deterministic, without I/O, driven only by delivered events.

Ordinary asyncio runs on it: `gather`, `TaskGroup`, `timeout`, `sleep`, `wait`, `Event`, `Queue`, `Lock`...
Whatever asks for a later time becomes a durable timer; whatever asks for a real loop raises `NotDurable`.

Two things make the order of events equal in every process: callbacks run in the order in which they were made
ready, and tasks and futures have hashes that depend on their scope alone, because asyncio keeps them in sets
and walks those sets.
"""

import asyncio
import sys
from asyncio import Future
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import Context, copy_context
from sys import get_asyncgen_hooks, set_asyncgen_hooks
from types import FrameType
from typing import Any, Final, Protocol
from zlib import crc32

import msgspec

from perdure.errors import BadCall, NotDurable
from perdure.kernel.moment import TIME_MAX, first_nanosecond

from . import scope as scopes
from .completion import Places, given_to_as_completed
from .scope import Scope

FAILED_MAX: Final = 20  # failures of tasks that were never awaited: more are not told
TURNS_MAX: Final = 1_000_000
"""Callbacks in one delivery. A flow that needs more spins without waiting for anything."""


class Evicted(GeneratorExit):
    """The machine was dropped while its code stood here. Only code in `finally` blocks can ever see it.

    Python takes a `GeneratorExit` for the proper end of a generator that is closed, and prints nothing.
    """


class Host(Protocol):
    """What the loop needs of its machine."""

    def open_timer(self, due: int, fire: Callable[[], None]) -> Callable[[], None]:
        """Open a durable timer; the answer cancels it."""
        ...


class _Nobody:
    """The host of a loop that was disposed of."""

    def open_timer(self, due: int, fire: Callable[[], None]) -> Callable[[], None]:
        raise Evicted


NOBODY: Final = _Nobody()


class FlowTask(asyncio.Task[Any]):
    """A task that knows its scope. Its hash is set first: asyncio hashes a task while it is being made."""

    def __init__(
        self, path: str, number: int, coro: Coroutine[Any, Any, Any], context: Context, **options: Any
    ) -> None:
        self.path = path
        self.context = context
        self.made = False  # by the author: a failure that no code asks for is told
        self._number = number
        super().__init__(coro, context=context, **options)

    def __hash__(self) -> int:
        return self._number

    def cancel(self, msg: Any = None) -> bool:
        self.get_loop().stay()  # type: ignore[attr-defined]  # a task that cancels itself ends at its next await
        return super().cancel(msg)


class FlowFuture(asyncio.Future[Any]):
    """A future whose hash is a number of the scope that first puts it into a set."""

    _number: int | None = None

    def __hash__(self) -> int:
        if self._number is None:
            scope = scopes.current.get(None)
            self._number = 0 if scope is None else scope.next_hash()
        return self._number


class _Soon(msgspec.Struct, eq=False):
    """A callback that is ready to run. Cheaper than `asyncio.Handle`, and the part of it that matters."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: Context
    dropped: bool = False

    def cancel(self) -> None:
        self.dropped = True

    def cancelled(self) -> bool:
        return self.dropped

    def become(self, other: "_Soon") -> None:
        """Run in this turn what was to run in the other's."""
        self.callback, self.args, self.context = other.callback, other.args, other.context


class _Later:
    """A callback behind a durable timer."""

    __slots__ = ("_cancelled", "_soon", "_when", "withdraw")

    def __init__(self, when: float, soon: _Soon) -> None:
        self._when = when
        self._soon = soon
        self._cancelled = False
        self.withdraw: Callable[[], None] | None = None

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._soon.cancel()
            if self.withdraw is not None:
                self.withdraw()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


class FlowLoop(asyncio.AbstractEventLoop):
    """See the module. `now` and `started_at` are recorded nanoseconds; `time()` is seconds from the start.

    `time()` never goes back, and never stands still while time passes: `lost` is how far the clock was set back since
    the start.
    """

    def __init__(self, host: Host) -> None:
        self._host: Host = host
        self._ready: list[_Soon] = []
        self._tasks: list[FlowTask] = []
        self._tasks_check = 64
        self._failed: list[FlowTask] = []
        self._salt = 0
        self._places: Places | None = None
        self._turns: Sequence[_Soon] = ()
        self._closed = False
        self.now = 0
        self.lost = 0
        self.started_at = 0
        self.refused: NotDurable | None = None
        self.ahead: Callable[[object], bool] | None = None

    # ---- driving -------------------------------------------------------------------------------------------

    def drain(self, ahead: Callable[[object], bool] | None = None) -> None:
        """Run until nothing is ready. Called from a plain callback of the outer loop, never from a task.

        `ahead`: in a replay, what the only task that is ready comes to await may be known already. It is asked about
        that, and about None at the end; True: it is done now, and the task goes on without another turn.
        """
        if type(_get_running_loop()) is not FlowLoop:
            with Enclosure():
                self.drain(ahead)
            return
        _set_running_loop(self)
        if ahead is not None and len(self._ready) == 1:
            self.ahead = ahead
        turns = 0
        while self._ready:
            ready, self._ready = self._ready, []
            for soon in ready:
                if not soon.dropped:
                    soon.context.run(soon.callback, *soon.args)
            if self.ahead is not None:
                self.stay()
            turns += len(ready)
            if turns >= TURNS_MAX:
                raise BadCall(f"the flow ran {TURNS_MAX:,} turns without waiting for anything: it spins")

    def stay(self) -> None:
        """From here on, what is awaited is waited for."""
        ahead, self.ahead = self.ahead, None
        if ahead is not None:
            ahead(None)

    def salt(self, seed: bytes) -> None:
        """Tasks of different flows get different hashes: asyncio keeps all tasks of a process in one set."""
        self._salt = int.from_bytes(seed[:4], "big")

    def dispose(self) -> None:
        """Close every coroutine where it stands, in its own context: nothing reaches the outer loop."""
        self._closed = True
        self.ahead = None
        self._ready.clear()
        standing = [task for task in self._tasks if not task.done()]
        if standing:
            with Enclosure():
                _set_running_loop(self)
                for task in standing:
                    task.context.run(_close, task.get_coro())  # type: ignore[arg-type]
        # Loop, tasks and machine refer to each other: taken apart here, they need no collector.
        self._ready.clear()
        self._tasks, self._failed = [], []
        self._turns, self._places = (), None
        self._host = NOBODY

    def refuse(self, call: str, where: str, by: str = "", *, expected: bool = False) -> NotDurable:
        """Remembered, because a broad `except` around a network call must not turn this into an answer.

        `expected`: the code around the call names `NotDurable`, so its author handles it.
        """
        error = NotDurable(call, where, by)
        if not expected:
            self.refused = self.refused or error
        return error

    def pending(self) -> list[FlowTask]:
        """Tasks that have not ended, in the order of their creation."""
        failed = [task for task in (*self._failed, *self._tasks) if task.made and task._log_traceback]
        self._failed = failed[:FAILED_MAX]
        self._tasks = [task for task in self._tasks if not task.done()]
        return self._tasks

    def failed(self) -> list[FlowTask]:
        """Tasks that have failed, and whose failure no code has asked for: asyncio's own mark."""
        if len(self._tasks) > 1 or self._failed:
            self.pending()
        return self._failed

    def others(self) -> list[FlowTask]:
        """The same, for a flow that has ended itself: most had one task."""
        return [] if len(self._tasks) == 1 and self._tasks[0].done() else self.pending()

    # ---- what asyncio asks of a loop -----------------------------------------------------------------------

    def set(self, now: int) -> None:
        """What the clock shows at this delivery."""
        if now < self.now:
            self.lost += self.now - now
        self.now = now

    def time(self) -> float:
        return (self.now + self.lost - self.started_at) / 1e9

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Soon:
        soon = _Soon(callback, args, copy_context() if context is None else context)
        self._ready.append(soon)
        return soon

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Later | _Soon:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Later | _Soon:
        soon = _Soon(callback, args, context if context is not None else copy_context())
        later = _Later(when, soon)
        end = TIME_MAX if when > TIME_MAX / 1e9 else self.started_at + first_nanosecond(when)
        if end <= self.now + self.lost:
            self._ready.append(soon)
            return later

        def fire() -> None:
            self.lost = max(self.lost, end - self.now)  # more, if the clock was set back since the timer was over
            self._ready.append(soon)

        later.withdraw = self._host.open_timer(min(TIME_MAX, end - self.lost), fire)
        return later

    def create_future(self) -> FlowFuture:
        return FlowFuture(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> FlowTask:
        """A task of the author's: its scope is numbered within the scope that makes it."""
        if self._closed:  # no raise: `gather` would leave its other coroutines behind, and Python warns of those
            coro.close()
            over: Any = self.create_future()
            over.set_exception(Evicted())
            return over  # type: ignore[no-any-return]
        given = given_to_as_completed()
        if given is not None:
            return self._task_in_order(given, coro)
        # A context that the author gives is copied: two tasks that share one could not have two scopes.
        copied = copy_context() if context is None else context.copy()
        return self.spawn(coro, scopes.current.get().task(), copied, name, made=True)

    def _task_in_order(self, given: Any, coro: Coroutine[Any, Any, Any]) -> FlowTask:
        scope, places = scopes.current.get(), self._places
        if places is None or places.given is not given or places.of(coro) is None:
            places = self._places = Places(given, scope.tasks)
            self._turns = tuple([_Soon(_nothing, (), copy_context()) for _ in range(places.count)])
            self._ready.extend(self._turns)
        place = places.of(coro)
        if place is None:
            coro.close()
            raise BadCall("asyncio.as_completed takes tasks and coroutines here, no other awaitables")
        task = self.spawn(coro, scope.numbered_task(places.first + place), copy_context(), made=True)
        self._turns[place].become(self._ready.pop())
        return task

    def spawn(
        self, coro: Coroutine[Any, Any, Any], scope: Scope, context: Context, name: object = None, made: bool = False
    ) -> FlowTask:
        """A task in a scope of its own. `context` becomes the task's."""
        if self._closed:
            coro.close()
            raise Evicted
        context.run(scopes.current.set, scope)
        label = scope.path.rstrip("/") if name is None else str(name)  # asyncio would count across the process
        number = crc32(scope.path.encode(), self._salt)
        task = FlowTask(scope.path, number, _Guarded(coro, self), context, loop=self, name=label)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # an evicted flow is not a leak
        task.made = made
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_check:
            self._tasks_check = max(64, 2 * len(self.pending()))
        return task

    get_debug = staticmethod(bool)  # False; asked for every future that is made, so it is no Python function

    def is_running(self) -> bool:
        return _get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def get_exception_handler(self) -> None:
        return None

    def get_task_factory(self) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """asyncio reports tasks that were not awaited. The machine reports tasks itself, at the end of the flow."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        pass

    async def shutdown_asyncgens(self) -> None:
        pass


class Enclosure:
    """Where flows run: no outer loop is seen from here, and none sees what they do.

    Entered once for all the deliveries of a turn, because entering costs as much as half a delivery.
    """

    def __enter__(self) -> None:
        self._outer, self._hooks = _get_running_loop(), get_asyncgen_hooks()
        _set_running_loop(_EMPTY)
        set_asyncgen_hooks(None, None)  # generators of a flow are closed where they stand, not on the outer loop

    def __exit__(self, *error: object) -> None:
        _set_running_loop(self._outer)
        set_asyncgen_hooks(*self._hooks)


class _Guarded(Coroutine[Any, Any, Any]):
    """A coroutine that may only await what this loop can answer: a future of another loop is `NotDurable`."""

    __slots__ = ("_coro", "_loop", "_send")

    def __init__(self, coro: Coroutine[Any, Any, Any], loop: FlowLoop) -> None:
        self._coro = coro
        self._loop = loop
        self._send = coro.send

    def send(self, value: Any) -> Any:
        loop = self._loop
        while True:
            awaited = self._send(value)  # on one line, however it came here: recorded tracebacks name it
            if loop.ahead is None or loop._ready or not loop.ahead(awaited) or loop._ready:
                break
            value = None
        if type(awaited) is Future and awaited._loop is loop:  # a step: nearly always
            return awaited
        return self._checked(awaited)

    def throw(self, *error: Any) -> Any:
        return self._checked(self._coro.throw(*error))

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Any:
        return self._coro.__await__()

    def _checked(self, awaited: Any) -> Any:
        while awaited is not None and getattr(awaited, "_loop", None) is not self._loop:
            call = f"awaiting {type(awaited).__module__}.{type(awaited).__qualname__} of another event loop"
            expected = any(map(_expects, frames_of(self._coro)))
            awaited = self._coro.throw(self._loop.refuse(call, source_of(self._coro), expected=expected))
        return awaited

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coro, name)  # cr_frame, cr_await, __qualname__...: what tracebacks and people ask for


def source_of(coro: Any) -> str:
    """Where a suspended coroutine stands, as file:line: the innermost frame of the author's own code."""
    place = ""
    for frame in frames_of(coro):
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("perdure.", "asyncio.")):
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return place


def frames_of(coro: Any) -> Iterator[FrameType]:
    """Where a suspended coroutine stands, and what it awaits, from the outside in."""
    while coro is not None:
        frame = getattr(coro, "cr_frame", None)
        if frame is not None:
            yield frame
        coro = getattr(coro, "cr_await", None)


def _expects(frame: FrameType) -> bool:
    return NotDurable.__name__ in frame.f_code.co_names


def _close(coro: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine, although code in its `finally` blocks may await something: nothing will answer."""
    for _ in range(100):
        try:
            coro.close()
        except RuntimeError:  # "coroutine ignored GeneratorExit": it is closed where it awaits now
            continue
        except BaseException:  # errors of code that is thrown away are not reported
            pass
        return


def _nothing() -> None:
    """A turn that was not taken."""


def _not_durable(name: str) -> Callable[..., Any]:
    def refuse(self: FlowLoop, *args: Any, **kwargs: Any) -> Any:
        place, library, expected = _caller()
        raise self.refuse(f"loop.{name}()", place, library, expected=expected)

    refuse.__name__ = name
    return refuse


def _caller() -> tuple[str, str, bool]:
    """Where the author called something that came to an operation of the loop, as file:line, and what that was.

    The third is whether the author's code around it names `NotDurable`.
    """
    frame: FrameType | None = sys._getframe(2)
    library = place = ""
    while frame is not None:
        module, file = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
        if module.startswith("perdure."):
            break  # it drives the flow
        if not module.startswith(("asyncio", "concurrent.")):
            place = f"{file}:{frame.f_lineno}"
            if "site-packages" not in file:
                break
        library = f"{module.partition('.')[0]}.{frame.f_code.co_name}()"
        frame = frame.f_back
    expected = False
    while frame is not None and not expected and not frame.f_globals.get("__name__", "").startswith("perdure."):
        expected, frame = _expects(frame), frame.f_back
    return place, library, expected


# Every other operation of an event loop is I/O, a thread or a process, or would drive the loop from inside.
_OWN = {name for name in vars(FlowLoop) if not name.startswith("__")}
for _name in dir(asyncio.AbstractEventLoop):
    if not _name.startswith("_") and _name not in _OWN:
        setattr(FlowLoop, _name, _not_durable(_name))

_EMPTY: Final = FlowLoop(NOBODY)  # type: ignore[abstract]  # what runs in an enclosure between two deliveries
