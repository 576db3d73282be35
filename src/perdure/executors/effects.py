"""The executor of effects that have handlers: it finds the handler, and lets the loop or a thread perform it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.codec import decode
from perdure.errors import PerdureError
from perdure.kernel.batch import Publication
from perdure.kernel.receipt import Failure, Receipt
from perdure.ports.executor import Answered, Executor, Framed, Handler

from . import info


class EffectsExecutor:
    """`inline` and `thread` are the engine's own: async handlers run on its loop, plain ones in its threads."""

    name = "effects"
    slots = None

    def __init__(self, handlers: Iterable[Handler], inline: Executor, thread: Executor) -> None:
        self._handlers = {handler.effect: handler for handler in handlers}
        self._inline = inline
        self._thread = thread

    def listen(self, framed: Framed) -> None:
        pass  # frames come from the executors that perform

    def start(self, publication: Publication, answered: Answered) -> None:
        asked = decode(publication.effect.params or b"")
        handler = self._handlers.get(asked["effect"])
        if handler is None:
            known = ", ".join(sorted(self._handlers)) or "none"
            text = f"this engine has no handler for {asked['effect']}; it has: {known}; open it with handlers=[...]"
            answered(publication.intent, Receipt("error", error=Failure("NoHandler", text, retry=False)))
            return
        try:
            work = handler.work(asked["params"], asked["key"], publication)
        except PerdureError as error:
            answered(publication.intent, info.error(error))
            return
        executor = self._inline if handler.is_async else self._thread
        executor.start(msgspec.structs.replace(publication, work=work), answered)

    def stop(self, intent: bytes) -> None:
        self._inline.stop(intent)
        self._thread.stop(intent)

    async def close(self) -> None:
        pass  # the engine closes those that perform
