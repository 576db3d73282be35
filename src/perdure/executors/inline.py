"""The inline executor: async steps on the engine's own loop. Stopping one cancels its task.

A step that never waits needs no task of its own: a batch of such steps shares one (`_work_off`). A step that does
wait keeps the task that it began in, for itself alone, and the rest of the batch goes on in another. Each step has
its own context.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final

from perdure.errors import NotInRun, TooLarge
from perdure.kernel.batch import Publication
from perdure.kernel.limits import VALUE_MAX
from perdure.kernel.receipt import is_interrupt
from perdure.ports import asking
from perdure.ports.executor import CUT, Answered, Framed, Requests, Work

from . import info
from .frames import LoopOutlet

CLEAN_UP_SECONDS: Final = 5.0
"""How long `close` waits for steps that were stopped before: such a step may have swallowed its cancellation."""


class InlineExecutor:
    name = "inline"

    def __init__(self, slots: int | None = None) -> None:
        self.slots = slots
        self._loop = asyncio.get_running_loop()
        self._outlet = LoopOutlet(self._loop)
        self._context: Context = copy_context()  # of the code that opened the engine, not of its last caller
        self._waiting: OrderedDict[bytes, tuple[Publication, Answered]] = OrderedDict()  # not begun, oldest first
        self._tasks: dict[bytes, tuple[asyncio.Task[None], info.StepInfo]] = {}  # begun
        self._stopped: set[asyncio.Task[None]] = set()  # cancelled, and not at their end yet
        self._worker: asyncio.Task[None] | None = None  # the task that begins them
        self._asked: dict[tuple[bytes, str], asyncio.Future[bytes]] = {}  # requests without an answer
        self._requested: Requests | None = None
        self._outlet.ask = self._ask

    def listen(self, framed: Framed) -> None:
        self._outlet.framed = framed

    def hear(self, requested: Requests) -> None:
        self._requested = requested

    def answer(self, intent: bytes, id: str, value: bytes) -> None:
        future = self._asked.get((intent, id))
        if future is not None and not future.done():
            future.set_result(value)

    async def _ask(self, about: info.StepInfo, id: str, name: str, body: bytes) -> bytes:
        if self._requested is None or not self._runs(about.intent, about):
            raise NotInRun(f"the request {name!r}")
        if len(body) > VALUE_MAX:
            raise TooLarge(f"the request {name!r}", len(body), VALUE_MAX)
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._asked[about.intent, id] = future
        self._requested(about.intent, about.delivery, id, name, body)
        try:
            return await future
        finally:
            del self._asked[about.intent, id]

    def start(self, publication: Publication, answered: Answered) -> None:
        if type(publication.work) is not Work:
            answered(publication.intent, info.NO_WORK)
            return
        self._waiting[publication.intent] = publication, answered
        if self._worker is None:
            self._begin()

    def perform(self, intent: bytes, work: Work, about: info.StepInfo, answered: Answered) -> asyncio.Task[None]:
        """Await what the work gives, as a task of its own."""
        coroutine = self._run(intent, work, about, answered)
        task = self._loop.create_task(coroutine, context=self._context.copy())
        self._tasks[intent] = task, about
        return task

    def stop(self, intent: bytes) -> None:
        self._waiting.pop(intent, None)
        if intent not in self._tasks:
            return
        task, about = self._tasks.pop(intent)
        about.cancel()
        if not task.done():
            task.cancel()
            self._stopped.add(task)
            task.add_done_callback(self._stopped.discard)

    async def close(self) -> None:
        self._outlet.close()
        self._outlet.ask = self._requested = None
        self._waiting.clear()
        itself = asyncio.current_task()  # a step may close the engine that runs it
        tasks = {task for task, _ in self._tasks.values()} - {itself}
        self._tasks = {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stopped = self._stopped - {itself}
        if stopped:  # they clean up: a child process is killed, and waited for
            await asyncio.wait(stopped, timeout=CLEAN_UP_SECONDS)

    async def _work_off(self) -> None:
        """Begin what waits, one after the other, until one of them waits itself: then this task is that step's."""
        task = self._worker
        assert task is not None
        try:
            while self._waiting and self._worker is task:
                intent, (publication, answered) = self._waiting.popitem(False)
                about = info.StepInfo.of(publication, self._outlet)
                coroutine = self._run(intent, publication.work, about, answered)
                self._tasks[intent] = task, about
                context = self._context.copy()
                try:
                    awaited = context.run(coroutine.send, None)
                except StopIteration:
                    continue
                self._hand_over()
                await _Driven(coroutine, context, awaited)
        finally:
            if self._worker is task:
                self._hand_over()

    def _hand_over(self) -> None:
        """Another task begins the rest."""
        self._worker = None
        if self._waiting:
            self._begin()

    def _begin(self) -> None:
        # A plain task whatever factory the loop has: one that begins at once would run steps within a turn.
        self._worker = asyncio.Task(self._work_off(), loop=self._loop)

    async def _run(self, intent: bytes, work: Any, about: info.StepInfo, answered: Answered) -> None:
        info.current.set(about)
        if work.asks:
            asking.current.set(partial(self._ask, about))
        try:
            receipt = info.ok(await work.function(*work.args, **work.kwargs), work.returns)
        except asyncio.CancelledError as error:
            if not self._runs(intent, about):  # stopped: no receipt is needed
                about.cancel()
                raise
            receipt = info.error(error)
        except BaseException as error:  # SystemExit too: a step cannot end the process
            if is_interrupt(error):
                if self._runs(intent, about):
                    del self._tasks[intent]
                    answered(intent, CUT)
                raise
            receipt = info.error(error)
        if self._runs(intent, about):
            del self._tasks[intent]
            answered(intent, receipt)

    def _runs(self, intent: bytes, about: info.StepInfo) -> bool:
        """Not stopped. A stopped call may end late, while its next delivery runs under the same intent."""
        found = self._tasks.get(intent)
        return found is not None and found[1] is about


class _Driven:
    """Drives a coroutine in a context of its own, from a task that has another. `awaited`: what it waits for."""

    __slots__ = ("_awaited", "_context", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, None], context: Context, awaited: Any) -> None:
        self._coroutine = coroutine
        self._context = context
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, None]:
        run, awaited = self._context.run, self._awaited
        try:
            while True:
                try:
                    yield awaited
                except BaseException as error:
                    awaited = run(self._coroutine.throw, error)
                else:
                    awaited = run(self._coroutine.send, None)
        except StopIteration:
            return
