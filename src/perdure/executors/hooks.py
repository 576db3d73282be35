"""Hooks: functions of the author that hear of failures. Whatever one does, it has no effect on what it hears of.

Each call is a task on the engine's loop, begun in the order of the failures; a plain function runs in a daemon thread,
so that a hook that blocks stalls no other. An error in a hook is logged. What runs when the engine closes is cut.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from contextvars import Context, copy_context
from typing import Any, Final

from perdure.kernel.problem import Hook, Report
from perdure.kernel.receipt import is_interrupt

from .thread import Threads

log = logging.getLogger("perdure")

AT_ONCE: Final = 32
"""How many hooks run at once. The others wait."""

WAITING_MAX: Final = 10_000
"""How many may wait. Hooks that are too slow for what fails must not fill the memory."""

CUT_SECONDS: Final = 1.0
"""How long a hook that is cut may take to end."""


class Hooks:
    def __init__(self, *, cut_seconds: float = CUT_SECONDS) -> None:
        self._cut_seconds = cut_seconds
        self._loop = asyncio.get_running_loop()
        self._context: Context = copy_context()  # of the code that opened the engine, as for steps
        self._threads = Threads("perdure-hook")
        self._waiting: deque[Report] = deque()
        self._running: dict[asyncio.Task[None], Report] = {}
        self._closed = False

    def tell(self, report: Report) -> None:
        """Call the hook soon."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(report)
            self._begin()
        else:
            log.error("too many hooks wait; %s does not hear that %s", _name(report.hook), report.problem)

    async def ended(self) -> None:
        """Wait until no hook runs."""
        while self._running:
            await asyncio.wait(list(self._running))

    async def close(self) -> None:
        """Cut what still runs."""
        self._closed = True
        for report in self._running.values():
            log.warning("the engine was closed while hook %s ran; it heard that %s", _name(report.hook), report.problem)
        if self._waiting:
            log.warning("the engine was closed while hooks were to hear of %d more problems", len(self._waiting))
        self._waiting.clear()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(list(self._running), timeout=self._cut_seconds)
        self._threads.close()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < AT_ONCE:
            report = self._waiting.popleft()
            task = self._loop.create_task(self._call(report), context=self._context.copy())
            self._running[task] = report
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._begin()

    async def _call(self, report: Report) -> None:
        hook = report.hook
        try:
            answer = hook(report.problem) if _is_async(hook) else await self._in_thread(report)
            if inspect.isawaitable(answer):
                await answer
        except GeneratorExit:
            raise
        except BaseException as error:  # SystemExit too: a hook cannot end the process
            if is_interrupt(error):
                raise
            if not (self._closed and isinstance(error, asyncio.CancelledError)):
                _log(report)

    def _in_thread(self, report: Report) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        context = copy_context()

        self._threads.run(
            lambda: context.run(perform, report), lambda found: None if answer.done() else answer.set_result(found)
        )
        return answer


def perform(report: Report) -> Any:
    """Call a plain function. What it raises is logged."""
    try:
        return report.hook(report.problem)
    except BaseException:
        _log(report)
        return None


def _is_async(hook: Hook) -> bool:
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(type(hook).__call__)


def _name(hook: Hook) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__qualname__))


def _log(report: Report) -> None:
    log.exception("hook %s raised, which has no effect; it heard that %s", _name(report.hook), report.problem)
