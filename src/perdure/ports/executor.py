"""Executors perform effects. One receipt per start; a receipt after a stop is allowed, and will be stale."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from perdure.kernel.batch import Publication
from perdure.kernel.receipt import Failure, Receipt

from .frame import Frame


class Work(msgspec.Struct, frozen=True):
    """The live work of a call that stays in this process. `returns` is the annotation of its result.

    `frame` checks a chunk of an effect that declares the type of its frames, and returns it as plain data.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    returns: Any
    frame: Callable[[Any], Any] | None = None
    asks: bool = False  # it may ask its instance: see `asking.py`
    scripted: Callable[[Callable[..., Any]], Work] | None = None  # the same with another function in the author's place


class Handler(Protocol):
    """Performs the effects of one name."""

    @property
    def effect(self) -> str: ...

    @property
    def is_async(self) -> bool: ...

    def work(self, params: Any, key: str, publication: Publication) -> Work:
        """What is to be run. `key` is the idempotency key that was asked for; empty: the derived one."""
        ...


Answered = Callable[[bytes, Receipt], None]
"""Called with the intent and its receipt, on the thread of the engine's loop."""


CUT: Final = Receipt("unknown", error=Failure("Cut", "it was stopped while it ran", retry=False))
"""An executor's answer when Ctrl-C ended a call. The call is parked, as at a close: that uses up no attempt."""

Framed = Callable[[bytes, Frame], None]
"""Called with an intent and a frame of its step, on the thread of the engine's loop. It does not raise."""


Requests = Callable[[bytes, int, str, str, bytes], None]
"""Called with the intent and the delivery of a call, and the id, name and body of its request, on the loop's thread."""


@runtime_checkable
class Askable(Protocol):
    """An executor whose calls may ask their instance for something, and hear the answer when that is durable."""

    def hear(self, requested: Requests) -> None:
        """Who takes the requests of all calls."""
        ...

    def answer(self, intent: bytes, id: str, value: bytes) -> None:
        """The answer to a request. One of a call that no longer runs is dropped."""
        ...


class Executor(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> int | None:
        """How many calls it takes at once; None: any number."""
        ...

    def listen(self, framed: Framed) -> None:
        """Who hears the frames of all calls. A frame comes before the receipt of its call, or it may be dropped."""
        ...

    def start(self, publication: Publication, answered: Answered) -> None: ...

    def stop(self, intent: bytes) -> None:
        """The answer is not needed any more: cut the call if it runs."""
        ...

    def close(self) -> Awaitable[None]:
        """Stop everything that still runs and let go of threads and processes."""
        ...
