"""The executor of a queue: it performs calls by the name of their function, on the loop or in threads.

An engine has one for each queue that it serves itself, a worker has one for each of its queues. So a step of a queue
gets the same wherever it runs: its arguments as they were recorded, converted by the annotations of its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import msgspec

from perdure.codec import decode
from perdure.errors import BadCall
from perdure.kernel.batch import Publication
from perdure.kernel.receipt import Receipt, failure_of
from perdure.ports.executor import Answered, Framed, Handler, Work
from perdure.ports.secrets import Secrets

from . import child
from .effects import EffectsExecutor
from .inline import InlineExecutor
from .thread import ThreadExecutor


class FoundFunction(msgspec.Struct, frozen=True):
    """A function that a queue may call. `returns` is the annotation of its result."""

    function: Callable[..., Any]
    returns: Any
    is_async: bool


TOOLS: Final = "tools/"
"""What the name of a call begins with that a tool performs."""


class Tools(msgspec.Struct, frozen=True):
    """What performs the tools of a queue: their handlers by name, and where secrets come from."""

    find: Callable[[str], Handler | None]
    secrets: Secrets | None = None


Find = Callable[[str], FoundFunction]
"""The function of a name, `module:name`. Raises when there is none."""


def work_of(found: FoundFunction, asked: Mapping[str, Any]) -> Work:
    """The work of a recorded call. With `through` a function of perdure calls the author's, and takes plain data."""
    through = asked.get("through")
    if through is None:
        args, kwargs = child.arguments(found.function, asked["args"], asked["kwargs"])
        return Work(found.function, tuple(args), kwargs, found.returns)
    module, _, name = through.partition(":")
    if not module.startswith("perdure."):
        raise BadCall(f"a call goes through a function of perdure, found {through!r:.80}")
    return Work(getattr(import_module(module), name), (found.function, *asked["args"]), asked["kwargs"], None)


class QueueExecutor:
    def __init__(self, name: str, slots: int, find: Find, tools: Tools | None = None) -> None:
        self.name = name
        self.slots = slots
        self._find = find
        self._inline = InlineExecutor()
        self._thread = ThreadExecutor(slots)
        self._tools: EffectsExecutor | None = None
        if tools is not None:
            self._tools = EffectsExecutor((), self._inline, self._thread, tools.secrets, tools.find)

    def listen(self, framed: Framed) -> None:
        if self._tools is not None:
            self._tools.listen(framed)
            return
        self._inline.listen(framed)
        self._thread.listen(framed)

    def start(self, publication: Publication, answered: Answered) -> None:
        try:
            asked = decode(publication.effect.params or b"")
            if self._tools is not None and asked["call"].startswith(TOOLS):
                self._tools.start(publication, answered)
                return
            found = self._find(asked["call"])
            work = work_of(found, asked)
        except Exception as error:  # not a line of the step ran, and none ever will
            answered(publication.intent, Receipt("error", error=failure_of(error, retry=False)))
            return
        executor = self._inline if found.is_async else self._thread
        executor.start(msgspec.structs.replace(publication, work=work), answered)

    def stop(self, intent: bytes) -> None:
        if self._tools is not None:
            self._tools.stop(intent)
            return
        self._inline.stop(intent)
        self._thread.stop(intent)

    async def close(self) -> None:
        await self._inline.close()
        await self._thread.close()
