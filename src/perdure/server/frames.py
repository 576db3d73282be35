"""Frames of one instance for a stream: taken as they come, shown as the login may see them, dropped when they are too
many. The recorded history has none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any, Final

from perdure.errors import PerdureError
from perdure.ports.frame import Frame
from perdure.runtime.client import Client

from .rendering import WITHHELD

WAITING_MAX: Final = 100
"""So many frames wait for the reader. Those behind wait in the engine's queue, which drops the oldest."""


class FrameChannel:
    """Frames of an instance, from `open` to `close`. It ends with the instance, and is opened again for a retry."""

    def __init__(self, client: Client, workflow: str, key: str, wake: Callable[[], None]) -> None:
        self._handle = client.handle(workflow, key)
        self._wake = wake
        self._queue: asyncio.Queue[Frame] = asyncio.Queue(WAITING_MAX)
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._pump())

    async def _pump(self) -> None:
        with suppress(PerdureError):  # the instance is forgotten, or the engine closes: the stream hears of it too
            async with aclosing(self._handle.stream()) as frames:
                async for frame in frames:
                    await self._queue.put(frame)
                    self._wake()

    def take(self) -> list[Frame]:
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


def frame_document(frame: Frame, values: bool) -> dict[str, Any]:
    """A frame as an event has it. What a step says is a recorded value: not every login sees it."""
    document: dict[str, Any] = {
        "id": frame.instance,
        "location": frame.location,
        "attempt": frame.attempt,
        "ordinal": frame.ordinal,
        "kind": frame.kind,
    }
    if frame.kind == "progress":
        return {**document, "done": frame.done, "total": frame.total, "note": frame.note if values else ""}
    return {**document, "chunk": frame.chunk if values else WITHHELD}
