"""The event loop of a flow: deterministic, without I/O, driven only by delivered events.

Ordinary asyncio runs on it: `gather`, `TaskGroup`, `timeout`, `sleep`, `wait`, `Event`, `Queue`, `Lock`, `shield`.
Whatever asks for a later time becomes a durable timer; whatever asks for a real loop raises `NotDurable`.

Two things make the order of events equal in every process: callbacks run in the order in which they were made ready, and
tasks and futures have hashes that count up, because asyncio keeps them in sets and walks those sets.
"""

import asyncio
import sys
from asyncio import events as asyncio_events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, Final, Protocol

from perdure.errors import BadCall, NotDurable

TURNS_MAX: Final = 1_000_000
"""Callbacks in one delivery. A flow that needs more spins without waiting for anything."""


class Host(Protocol):
    """What the loop needs of its machine."""

    def open_timer(self, due: int, fire: Callable[[], None]) -> Callable[[], None]:
        """Open a durable timer; the answer cancels it."""
        ...

    def task_context(self) -> Context:
        """The context of a new task: a copy of the current one with a scope of its own."""
        ...


class FlowTask(asyncio.Task[Any]):
    """A task whose hash is its number. It is set first: asyncio hashes a task while it is being made."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self.number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class FlowFuture(asyncio.Future[Any]):
    """A future whose hash is its number."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class _Soon:
    """A callback that is ready to run. Cheaper than `asyncio.Handle`, of which it is the part that matters."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def run(self) -> None:
        if not self._cancelled:
            self._context.run(self._callback, *self._args)


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
    """See the module. `now` and `started_at` are recorded nanoseconds; `time()` counts seconds from the start."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._ready: deque[_Soon] = deque()
        self._tasks: list[FlowTask] = []
        self._tasks_check = 64
        self._numbers = 0
        self.now = 0
        self.started_at = 0

    # ---- driving -------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Run until nothing is ready. Called from a plain callback of the outer loop, never from a task of it."""
        ready = self._ready
        outer = asyncio_events._get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        asyncio_events._set_running_loop(self)
        sys.set_asyncgen_hooks(None, None)  # generators of a flow are closed where they stand, not on the outer loop
        try:
            for _ in range(TURNS_MAX):
                if not ready:
                    return
                ready.popleft().run()
        finally:
            asyncio_events._set_running_loop(outer)
            sys.set_asyncgen_hooks(*hooks)
        raise BadCall(f"the flow ran {TURNS_MAX:,} turns without waiting for anything: it spins")

    def number_from(self, seed: bytes) -> None:
        """Where the numbers of this loop begin: equal in every replay, unlike those of other flows.

        asyncio keeps all tasks of a process in one set; flows that all counted from 1 would collide there.
        """
        self._numbers = int.from_bytes(seed[:6], "big")

    def pending(self) -> list[FlowTask]:
        """Tasks that have not ended, in the order of their creation."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return self._tasks

    # ---- what asyncio asks of a loop -----------------------------------------------------------------------------

    def time(self) -> float:
        return (self.now - self.started_at) / 1e9

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Soon:
        soon = _Soon(callback, args, context if context is not None else copy_context())
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
        due = self.started_at + round(when * 1e9)
        if due <= self.now:
            self._ready.append(soon)
        else:
            later.withdraw = self._host.open_timer(due, lambda: self._ready.append(soon))
        return later

    def create_future(self) -> FlowFuture:
        future = FlowFuture(loop=self)
        self._numbers += 1
        future.number = self._numbers
        return future

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> FlowTask:
        if context is None:
            context = self._host.task_context()
        return self.spawn(coro, context, name)

    def spawn(self, coro: Coroutine[Any, Any, Any], context: Context, name: object = None) -> FlowTask:
        self._numbers += 1
        label = None if name is None else str(name)
        task = FlowTask(self._numbers, _Guarded(coro, self), loop=self, name=label, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # an evicted flow is not a leak
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_check:
            self._tasks_check = max(64, 2 * len(self.pending()))
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio_events._get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def get_exception_handler(self) -> None:
        return None

    def get_task_factory(self) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """asyncio reports what nobody awaited. The machine reports tasks itself, at the end of the flow."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        pass

    async def shutdown_asyncgens(self) -> None:
        pass


class _Guarded(Coroutine[Any, Any, Any]):
    """A coroutine that may only await what this loop can answer: a future of another loop is `NotDurable`."""

    __slots__ = ("_coro", "_loop", "_send")

    def __init__(self, coro: Coroutine[Any, Any, Any], loop: FlowLoop) -> None:
        self._coro = coro
        self._loop = loop
        self._send = coro.send

    def send(self, value: Any) -> Any:
        return self._checked(self._send(value))

    def throw(self, *error: Any) -> Any:
        return self._checked(self._coro.throw(*error))

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Any:
        return self._coro.__await__()

    def _checked(self, awaited: Any) -> Any:
        while awaited is not None:
            owner = getattr(awaited, "_loop", None)
            if owner is self._loop or owner is None:
                break
            call = f"awaiting {type(awaited).__module__}.{type(awaited).__qualname__} of another event loop"
            awaited = self._coro.throw(NotDurable(call, source_of(self._coro)))
        return awaited

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coro, name)  # cr_frame, cr_await, __qualname__...: what tracebacks and people ask for


def source_of(coro: Any, inside: str = "") -> str:
    """Where a suspended coroutine stands, as file:line: the innermost frame that is not perdure's or asyncio's."""
    place = ""
    while coro is not None:
        frame = getattr(coro, "cr_frame", None)
        if frame is not None:
            module = frame.f_globals.get("__name__", "")
            if not module.startswith(("perdure.", "asyncio.")):
                place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        coro = getattr(coro, "cr_await", None)
    return place


def _not_durable(name: str) -> Callable[..., Any]:
    def refuse(self: FlowLoop, *args: Any, **kwargs: Any) -> Any:
        raise NotDurable(f"loop.{name}()", _caller())

    refuse.__name__ = name
    return refuse


def _caller() -> str:
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(("perdure.", "asyncio", "concurrent.")):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


# Every other operation of an event loop is I/O, a thread or a process, or would drive the loop from inside.
_OWN = {name for name in vars(FlowLoop) if not name.startswith("__")}
for _name in dir(asyncio.AbstractEventLoop):
    if not _name.startswith("_") and _name not in _OWN:
        setattr(FlowLoop, _name, _not_durable(_name))
