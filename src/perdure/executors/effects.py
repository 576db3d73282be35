"""The executor of effects that have handlers: it finds the handler, and lets the loop or a thread perform it.

Here, and nowhere before, secrets get their values: what is handed in has references, and from what comes out (receipts,
frames, logs) the values are taken again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from perdure.codec import decode
from perdure.errors import PerdureError
from perdure.kernel.batch import Publication
from perdure.kernel.receipt import Failure, Receipt
from perdure.ports.executor import CUT, Answered, Executor, Framed, Handler, Work
from perdure.ports.frame import Frame
from perdure.ports.secrets import Secrets

from . import info
from .redaction import Redaction, hide
from .secrets import EnvironmentSecrets, inject

OWN: Final = ("sys/", "perdure.")
"""How names begin that belong to perdure."""


class EffectsExecutor:
    """`inline` and `thread` are the engine's own: async handlers run on its loop, plain ones in its threads."""

    name = "effects"
    slots = None

    def __init__(
        self,
        handlers: Iterable[Handler],
        inline: Executor,
        thread: Executor,
        secrets: Secrets | None = None,
        find: Callable[[str], Handler | None] | None = None,
    ) -> None:
        """`find` makes handlers of names that none was given for: tools."""
        self._find = find
        self._handlers = {handler.effect: handler for handler in handlers}
        self._inline = inline
        self._thread = thread
        self._secrets = secrets or EnvironmentSecrets()
        self._redactions: dict[bytes, Redaction] = {}  # of the calls that run and know a secret

    def use(self, handlers: Iterable[Handler]) -> None:
        """Perform with these handlers from now on."""
        self._handlers = {handler.effect: handler for handler in handlers}

    def listen(self, framed: Framed) -> None:
        """Frames come from the executors that perform. Their listener hears them through this one."""

        def redacted(intent: bytes, frame: Frame) -> None:
            redaction = self._redactions.get(intent)
            if redaction is not None:
                note, chunk = redaction.text(frame.note), redaction.value(frame.chunk)
                frame = msgspec.structs.replace(frame, note=note, chunk=chunk)
            framed(intent, frame)

        self._inline.listen(redacted)
        self._thread.listen(redacted)

    def start(self, publication: Publication, answered: Answered) -> None:
        asked = decode(publication.effect.params or b"")
        name = asked.get("effect") or asked["call"]
        handler = self._handlers.get(name)
        if handler is None and self._find is not None:
            handler = self._find(name)
        if handler is None:
            known = ", ".join(sorted(name for name in self._handlers if not name.startswith(OWN))) or "none"
            text = f"this engine has no handler for {name}; it has: {known}; open it with handlers=[...]"
            answered(publication.intent, Receipt("error", error=Failure("NoHandler", text, retry=False)))
            return
        try:
            # A tool takes all that was asked: secrets and stored values stand beside its parameters.
            given = asked["params"] if "effect" in asked else asked
            work = handler.work(given, asked.get("key", ""), publication)
            (args, kwargs), redaction = inject((work.args, work.kwargs), self._secrets)
        except PerdureError as error:
            answered(publication.intent, info.error(error))
            return
        on_loop = handler.is_async or inspect.iscoroutinefunction(work.function)
        if redaction:
            self._redactions[publication.intent] = redaction
            work = Work(_hiding(work.function, redaction), args, kwargs, work.returns, work.frame)
        if work.frame is not None and publication.effect.frames:
            work = msgspec.structs.replace(work, function=_recording(work.function, work.frame))
        executor = self._inline if on_loop else self._thread
        started = msgspec.structs.replace(publication, work=work)
        executor.start(started, lambda intent, receipt: self._answered(intent, receipt, redaction, answered))

    def _answered(self, intent: bytes, receipt: Receipt, redaction: Redaction, answered: Answered) -> None:
        self._redactions.pop(intent, None)
        answered(intent, receipt if receipt is CUT else redaction.receipt(receipt))

    def stop(self, intent: bytes) -> None:
        self._redactions.pop(intent, None)
        self._inline.stop(intent)
        self._thread.stop(intent)

    async def close(self) -> None:
        pass  # the engine closes those that perform


def _recording(function: Callable[..., Any], frame: Callable[[Any], Any]) -> Callable[..., Any]:
    """The same function; its chunks are events of the cell that asked."""

    def call(*args: Any, **kwargs: Any) -> Any:
        info.step_info().frame = frame
        given = function(*args, **kwargs)
        return later(given) if inspect.isawaitable(given) else given

    async def later(given: Awaitable[Any]) -> Any:
        info.step_info().frame = frame
        return await given

    return call


def _hiding(function: Callable[..., Any], redaction: Redaction) -> Callable[..., Any]:
    """The same function; what it logs does not have the secrets. It has a context of its own."""

    def call(*args: Any, **kwargs: Any) -> Any:
        hide(redaction)
        given = function(*args, **kwargs)
        return later(given) if inspect.isawaitable(given) else given

    async def later(given: Awaitable[Any]) -> Any:
        hide(redaction)  # what is begun in a thread is awaited on the loop, in another context
        return await given

    return call
