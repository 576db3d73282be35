"""What a step may say while it runs, and the way of that to the loop's thread."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from perdure.codec import decode, encode, is_text
from perdure.errors import BadCall, TooLarge
from perdure.ports.executor import Framed
from perdure.ports.frame import Frame

from .info import News, OutletAsk, StepInfo, step_info

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop  # a child process has no loop, and need not import one

CHUNK_MAX: Final = 1024 * 1024
NUMBER_MAX: Final = 2**63


def progress(done: float, total: float | None = None, note: str = "") -> None:
    """Say how far the running step is. Seen live; never recorded. `NotInStep` outside of steps."""
    about = step_info()
    if not (_is_number(done) and (total is None or _is_number(total)) and is_text(note)):
        raise BadCall(
            f"progress(done, total=None, note='') takes numbers and a text, found {(done, total, note)!a:.200}"
        )
    about.tell(("progress", done, total, note, None))


def emit(chunk: object) -> None:
    """Send a piece of the running step's output ahead: plain data of up to 1 MiB. `NotInStep` outside of steps.

    It is seen live, and never recorded: what a flow needs is what the step returns. A cell that takes `FrameOf` an
    effect is different: what the handler emits is an event of the cell, of the effect's class `Frame`. One call has at
    most 1000 of them.
    """
    about = step_info()
    data = encode(about.checked(chunk))
    if len(data) > CHUNK_MAX:
        raise TooLarge("a chunk", len(data), CHUNK_MAX)
    about.tell(("chunk", 0, None, "", decode(data)))  # a copy: the step may go on to change its own


def _is_number(value: object) -> bool:
    """Whether it can be counted with: what is not finite cannot."""
    return isinstance(value, int | float) and -NUMBER_MAX < value < NUMBER_MAX


class LoopOutlet:
    """The way of the frames of one executor. Made on the loop's thread; steps send from any thread.

    What a thread sends comes before what it does next, so before the receipt: both go through the loop's queue.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self.framed: Framed | None = None
        self.ask: OutletAsk | None = None  # of an executor whose calls may ask their instance

    def close(self) -> None:
        """Let go of the listener. A cancelled timer of a step keeps the step's context, and so this, for long."""
        self.framed = None

    def send(self, about: StepInfo, news: News) -> None:
        if threading.get_ident() == self._thread:
            self._arrived(about, news)
        else:
            with suppress(RuntimeError):  # the loop is closed: no listener is left
                self._loop.call_soon_threadsafe(self._arrived, about, news)

    def _arrived(self, about: StepInfo, news: News) -> None:
        if self.framed is not None and not about.cancelled:
            self.framed(about.intent, frame_of(about, news))


def frame_of(about: StepInfo, news: News) -> Frame:
    number = about.next_number() if about.frame is not None and news[0] == "chunk" else 0
    return Frame(about.instance, about.location, about.attempt, about.next_frame(), *news, number)
