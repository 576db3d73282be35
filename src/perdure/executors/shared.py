"""An executor that the shards of one process share: each sees it through a face of its own."""

from __future__ import annotations

from collections.abc import Awaitable

from perdure.kernel.batch import Publication
from perdure.kernel.receipt import Receipt
from perdure.ports.executor import Answered, Executor, Framed
from perdure.ports.frame import Frame


class Shared:
    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.hearers: dict[bytes, Framed] = {}  # of the calls that run
        inner.listen(self._framed)

    def face(self) -> Face:
        return Face(self)

    def _framed(self, intent: bytes, frame: Frame) -> None:
        hearer = self.hearers.get(intent)
        if hearer is not None:
            hearer(intent, frame)


class Face:
    """The executor of one shard. It is closed with the process, not with the shard."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._inner = shared.inner
        self.name = shared.inner.name
        self.slots = shared.inner.slots
        self._framed: Framed | None = None

    def listen(self, framed: Framed) -> None:
        self._framed = framed

    def start(self, publication: Publication, answered: Answered) -> None:
        hearers = self._shared.hearers
        if self._framed is not None:
            hearers[publication.intent] = self._framed

        def heard(intent: bytes, receipt: Receipt) -> None:
            hearers.pop(intent, None)
            answered(intent, receipt)

        self._inner.start(publication, heard)

    def stop(self, intent: bytes) -> None:
        self._shared.hearers.pop(intent, None)
        self._inner.stop(intent)

    def close(self) -> Awaitable[None]:
        return self._inner.close()
