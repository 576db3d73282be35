"""Who listens to frames, and the queue of each: what a slow listener has not taken yet, and no more than that.

A frame without a listener is gone. In a queue, progress that was not taken makes way for newer progress of the same
attempt, and of more than `WAITING_MAX` frames the oldest is dropped: a step is never held up by who looks at it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from perdure.ports.frame import Frame, FrameRelay

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

    linger_seconds = 0.0
    """How long a stream goes on after the end of its instance: frames may still be on their way."""

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


class RelayedStreams(Streams):
    """The same where instances may run in other processes: they are asked for frames as long as there are listeners."""

    linger_seconds = 2.0  # the end is read in the database, and may be known before the last frames are here

    def __init__(self, relay: FrameRelay, progress: Callable[[int], Iterable[Frame]] = lambda instance: ()) -> None:
        super().__init__()
        self._relay = relay
        self._loop = asyncio.get_running_loop()
        self._newest: dict[int, dict[str, Frame]] = {}  # progress that others told of instances that are watched

        def asked(instance: int) -> None:
            """Another process begins to watch: it hears how far the steps of this one are."""
            for frame in progress(instance):
                relay.tell(instance, frame)

        relay.listen(self._heard, asked)

    def open(self, instance: int, so_far: Iterable[Frame]) -> FrameStream:
        first = instance not in self._streams
        stream = super().open(instance, [*so_far, *self._newest.get(instance, {}).values()])
        if first:
            self._watch(instance)
        return stream

    def close(self, instance: int, stream: FrameStream) -> None:
        super().close(instance, stream)
        if instance not in self._streams:
            self._newest.pop(instance, None)

    def _heard(self, instance: int, frame: Frame) -> None:
        if instance in self._streams and frame.kind == "progress":
            self._newest.setdefault(instance, {})[frame.location] = frame
        super().put(instance, frame)

    def put(self, instance: int, frame: Frame) -> None:
        super().put(instance, frame)
        self._relay.tell(instance, frame)

    def _watch(self, instance: int) -> None:
        if instance in self._streams:
            self._relay.watch(instance)
            self._loop.call_later(self._relay.again, self._watch, instance)
