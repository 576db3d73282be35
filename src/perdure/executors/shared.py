"""Executors that the shards of one process share: each shard sees them through faces of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from perdure.kernel.batch import Publication
from perdure.kernel.receipt import Receipt
from perdure.ports.executor import Answered, Askable, Executor, Framed, Requests
from perdure.ports.frame import Frame


class Shared:
    """Which shard hears a running call, by intent. One for all executors: that of effects performs on the others."""

    def __init__(self, executors: Iterable[Executor]) -> None:
        self._executors = list(executors)
        self.hearers: dict[bytes, Framed] = {}
        self.asked: dict[bytes, Requests] = {}
        for executor in self._executors:
            executor.listen(self._framed)
            if isinstance(executor, Askable):
                executor.hear(self._requested)

    def faces(self) -> list[Face]:
        """The executors of one more shard."""
        return [Face(self, executor) for executor in self._executors]

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


class Face:
    """The executor of one shard. It is closed with the process, not with the shard."""

    def __init__(self, shared: Shared, inner: Executor) -> None:
        self._shared = shared
        self._inner = inner
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

        def heard(intent: bytes, receipt: Receipt) -> None:
            shared.forget(intent)
            answered(intent, receipt)

        self._inner.start(publication, heard)

    def stop(self, intent: bytes) -> None:
        self._shared.forget(intent)
        self._inner.stop(intent)

    def close(self) -> Awaitable[None]:
        return self._inner.close()
