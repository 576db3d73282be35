"""Who listens to frames, and the queue of each: what a slow listener has not taken yet, and no more than that.

A frame that nobody listens to is gone. In a queue, progress that was not taken makes way for newer progress of the same
attempt, and of more than `WAITING_MAX` frames the oldest is dropped: a step is never held up by who looks at it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from perdure.ports.frame import Frame

WAITING_MAX: Final = 1000


class FrameStream:
    """The frames of one instance that one listener has not taken yet."""

    def __init__(self, frames: Iterable[Frame] = ()) -> None:
        self._waiting: OrderedDict[tuple[str, int, int], Frame] = OrderedDict()
        self._news = asyncio.Event()
        self._ended = False
        for frame in frames:
            self.put(frame)

    def put(self, frame: Frame) -> None:
        of_its_own = frame.ordinal if frame.kind == "chunk" else 0
        place = frame.location, frame.attempt, of_its_own
        self._waiting[place] = frame
        self._waiting.move_to_end(place)  # after what was said before it
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popitem(last=False)
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def take(self) -> Frame | None:
        """The next frame, or None after the last one."""
        while not self._waiting:
            if self._ended:
                return None
            self._news.clear()
            await self._news.wait()
        return self._waiting.popitem(last=False)[1]


class Streams:
    """All listeners of an engine, by instance."""

    def __init__(self) -> None:
        self._streams: dict[int, list[FrameStream]] = {}

    def open(self, instance: int, so_far: Iterable[Frame]) -> FrameStream:
        stream = FrameStream(so_far)
        self._streams.setdefault(instance, []).append(stream)
        return stream

    def close(self, instance: int, stream: FrameStream) -> None:
        streams = self._streams[instance]
        streams.remove(stream)
        if not streams:
            del self._streams[instance]

    def put(self, instance: int, frame: Frame) -> None:
        for stream in self._streams.get(instance, ()):
            stream.put(frame)

    def __len__(self) -> int:
        return sum(map(len, self._streams.values()))
