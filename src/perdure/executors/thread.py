"""The thread executor: a sync step runs in a daemon thread.

Everything but the step itself happens on the engine's loop, so nothing here needs a lock. A call hops twice:
through a queue to an idle thread, and back with `call_soon_threadsafe`. A thread cannot be stopped: a
stopped call is forgotten, its slot is free at once, and its thread comes back to the pool when the function
returns, if it ever does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, Generic, TypeVar

import msgspec

from perdure.kernel.batch import Publication
from perdure.kernel.receipt import Receipt
from perdure.ports.executor import Answered, Framed, Work

from . import info
from .frames import LoopOutlet
from .inline import InlineExecutor

C = TypeVar("C")
R = TypeVar("R")

IDLE_SECONDS: Final = 30.0


class ThreadExecutor:
    name = "thread"

    def __init__(self, slots: int = 32, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self.slots = slots
        self._outlet = LoopOutlet(asyncio.get_running_loop())
        self._context: Context = copy_context()  # of the code that opened the engine, not of its last caller
        self._threads = Threads("perdure-thread", idle_seconds)
        self._calls: CallQueue[_Call] = CallQueue(slots, self._begin)
        self._inline = InlineExecutor()  # awaits what a sync function gave instead of a result

    def listen(self, framed: Framed) -> None:
        self._outlet.framed = framed

    def start(self, publication: Publication, answered: Answered) -> None:
        work = publication.work
        if isinstance(work, Work):
            call = _Call(publication.intent, work, info.StepInfo.of(publication, self._outlet), answered)
            self._calls.add(call.intent, call)
        else:
            answered(publication.intent, info.NO_WORK)

    def stop(self, intent: bytes) -> None:
        call = self._calls.remove(intent)
        if call is not None:
            call.about.cancel()
        self._inline.stop(intent)

    async def close(self) -> None:
        self._outlet.close()
        for call in self._calls.close():
            call.about.cancel()
        self._threads.close()
        await self._inline.close()

    def _begin(self, call: _Call) -> None:
        self._threads.run(lambda: call.perform(self._context.copy()), lambda result: self._done(call, result))

    def _done(self, call: _Call, result: Receipt | Awaitable[Any]) -> None:
        wanted = self._calls.finish(call.intent, call)
        if isinstance(result, Receipt):
            if wanted:
                call.answered(call.intent, result)
        elif wanted:
            work = msgspec.structs.replace(call.work, function=lambda: result, args=(), kwargs={})
            task = self._inline.perform(call.intent, work, call.about, call.answered)
            task.add_done_callback(lambda _: _drop(result))  # stopped before its first line, it was never awaited
        else:
            _drop(result)


class _Call:
    __slots__ = ("about", "answered", "intent", "work")

    def __init__(self, intent: bytes, work: Work, about: info.StepInfo, answered: Answered) -> None:
        self.intent = intent
        self.work = work
        self.about = about
        self.answered = answered

    def perform(self, context: Context) -> Receipt | Awaitable[Any]:
        """In a thread. Whatever the function does, it ends in a value: an exception would end the thread."""
        if self.about.cancelled:  # stopped on its way here
            return info.NO_WORK
        try:
            return context.run(self._call)
        except BaseException as error:
            return info.error(error)

    def _call(self) -> Receipt | Awaitable[Any]:
        info.current.set(self.about)
        work = self.work
        value = work.function(*work.args, **work.kwargs)
        if not inspect.isawaitable(value):
            return info.ok(value, work.returns)
        if self.about.cancelled:  # perhaps the loop is gone too: this is the last place that can drop it
            _drop(value)
            return info.NO_WORK
        return value


def _drop(awaitable: Awaitable[Any]) -> None:
    """It is not awaited, and Python need not complain of that. Does nothing to one that has ended."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()


class CallQueue(Generic[C]):
    """At most so many calls at once, the others in the order in which they came. Used on the loop only."""

    def __init__(self, slots: int, begin: Callable[[C], None]) -> None:
        self._slots = slots
        self._begin = begin
        self._running: dict[bytes, C] = {}
        self._waiting: dict[bytes, C] = {}
        self._closed = False

    def add(self, intent: bytes, call: C) -> None:
        if self._closed:
            return
        self._waiting[intent] = call
        self._fill()

    def finish(self, intent: bytes, call: C) -> bool:
        """The call has ended. Whether anybody still wants its answer."""
        if self._running.get(intent) is not call:
            return False
        del self._running[intent]
        self._fill()
        return True

    def remove(self, intent: bytes) -> C | None:
        """The call is not needed any more. The call, if it was running: its slot is free from now on."""
        self._waiting.pop(intent, None)
        call = self._running.pop(intent, None)
        self._fill()
        return call

    def close(self) -> list[C]:
        """Forget all calls and take no more; the ones that were running."""
        self._closed = True
        running = list(self._running.values())
        self._waiting.clear()
        self._running.clear()
        return running

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            intent = next(iter(self._waiting))
            call = self._running[intent] = self._waiting.pop(intent)
            self._begin(call)


class Threads:
    """Daemon threads that are made when none is idle, and end when they were idle for long.

    Who is busy is counted on the loop alone. So a thread that is tired of waiting does not leave by itself,
    which could lose work that is being put in the queue: it asks the loop, which sends a None to an idle one.
    """

    def __init__(self, name: str, idle_seconds: float = IDLE_SECONDS) -> None:
        self._name = name
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = SimpleQueue()
        self._alive = 0
        self._busy = 0

    def run(self, perform: Callable[[], R], done: Callable[[R], None]) -> None:
        """`perform` in a thread, where it must not raise; then `done` with its result on the loop."""
        self._busy += 1
        if self._busy > self._alive:
            Thread(target=self._work, name=self._name, daemon=True).start()
            self._alive += 1
        self._queue.put((perform, done))

    def close(self) -> None:
        """End every thread: an idle one now, a busy one when its function returns."""
        for _ in range(self._alive):
            self._queue.put(None)
        self._alive = 0

    def _work(self) -> None:
        heard = True
        while heard:
            try:
                job = self._queue.get(timeout=self._idle_seconds)
            except Empty:
                heard = self._tell(self._tired)
                continue
            if job is None:
                return
            perform, done = job
            heard = self._tell(self._done, done, perform())
            del job, perform, done  # an idle thread must not keep a step's data alive

    def _tell(self, callback: Callable[..., None], *args: Any) -> bool:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: this thread was abandoned, and no listener is left
            return False
        return True

    def _done(self, done: Callable[[R], None], result: R) -> None:
        self._busy -= 1
        done(result)

    def _tired(self) -> None:
        if self._alive > self._busy:
            self._alive -= 1
            self._queue.put(None)
