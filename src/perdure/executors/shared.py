"""Executors that the shards of one process share: each shard sees them through faces of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

import msgspec

from perdure.kernel.batch import Publication
from perdure.kernel.receipt import Receipt
from perdure.ports.executor import Answered, Askable, Executor, Framed, Requests
from perdure.ports.frame import Frame

from .thread import CallQueue


class Shared:
    """Which shard hears a running call, by intent. One for all executors: that of effects performs on the others."""

    def __init__(self, executors: Iterable[Executor]) -> None:
        self._executors = [(each, _queue(each)) for each in executors]
        self.hearers: dict[bytes, Framed] = {}
        self.asked: dict[bytes, Requests] = {}
        for executor, _ in self._executors:
            executor.listen(self._framed)
            if isinstance(executor, Askable):
                executor.hear(self._requested)

    def faces(self) -> list[Face]:
        """The executors of one more shard."""
        return [Face(self, executor, queue) for executor, queue in self._executors]

    def forget(self, intent: bytes) -> None:
        self.hearers.pop(intent, None)
        self.asked.pop(intent, None)

    def _framed(self, intent: bytes, frame: Frame) -> None:
        hearer = self.hearers.get(intent)
        if hearer is not None:
            hearer(intent, frame)

    def _requested(self, intent: bytes, delivery: int, id: str, name: str, body: bytes) -> None:
        asked = self.asked.get(intent)
        if asked is not None:
            asked(intent, delivery, id, name, body)


class _Call(msgspec.Struct, eq=False):
    publication: Publication
    answered: Answered


def _queue(executor: Executor) -> CallQueue[_Call] | None:
    """The gate of each shard knows its own calls alone: what all shards run at once is bounded here."""

    def begin(call: _Call) -> None:
        executor.start(call.publication, call.answered)

    return None if executor.slots is None else CallQueue(executor.slots, begin)


class Face:
    """The executor of one shard. It is closed with the process, not with the shard."""

    def __init__(self, shared: Shared, inner: Executor, queue: CallQueue[_Call] | None) -> None:
        self._shared = shared
        self._inner = inner
        self._queue = queue
        self.name = inner.name
        self.slots = inner.slots
        self._framed: Framed | None = None
        self._requested: Requests | None = None

    def listen(self, framed: Framed) -> None:
        self._framed = framed

    def hear(self, requested: Requests) -> None:
        self._requested = requested

    def answer(self, intent: bytes, id: str, value: bytes) -> None:
        if isinstance(self._inner, Askable):
            self._inner.answer(intent, id, value)

    def start(self, publication: Publication, answered: Answered) -> None:
        shared = self._shared
        if self._framed is not None:
            shared.hearers[publication.intent] = self._framed
        if self._requested is not None:
            shared.asked[publication.intent] = self._requested

        queue = self._queue

        def heard(intent: bytes, receipt: Receipt) -> None:
            shared.forget(intent)
            answered(intent, receipt)
            if queue is not None:
                queue.finish(intent, call)

        call = _Call(publication, heard)
        if queue is None:
            self._inner.start(publication, heard)
        else:
            queue.add(publication.intent, call)

    def stop(self, intent: bytes) -> None:
        self._shared.forget(intent)
        self._inner.stop(intent)
        if self._queue is not None:
            self._queue.remove(intent)

    def close(self) -> Awaitable[None]:
        return self._inner.close()
