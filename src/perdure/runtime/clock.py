"""The system's clock: wall time for the journal, the event loop for alarms."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextvars import Context


class SystemClock:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = Context()  # callbacks carry nothing over from the last caller of the engine

    def now(self) -> int:
        return time.time_ns()

    def entropy(self, size: int) -> bytes:
        return os.urandom(size)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback, context=self._context)

    def call_at(self, when: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        delay = (when - time.time_ns()) / 1e9
        return self._loop.call_later(max(0.0, delay), callback, context=self._context)
