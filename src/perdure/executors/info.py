"""What a step may know about itself while it runs, and how its result becomes a receipt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, Protocol

import msgspec

from perdure.codec import decode, encode, to_plain
from perdure.errors import (
    CallerError,
    Denied,
    Fatal,
    NotConvertible,
    NotInRun,
    NotInStep,
    RollBack,
    TooLarge,
    TooManyFrames,
)
from perdure.kernel.batch import Publication
from perdure.kernel.events import Address
from perdure.kernel.identity import Identity
from perdure.kernel.limits import FRAMES_MAX, VALUE_MAX
from perdure.kernel.location import unescape
from perdure.kernel.receipt import DONE, Failure, Receipt, failure_of
from perdure.ports.frame import Kind

News = tuple[Kind, float, float | None, str, Any]
"""What a step says of itself; the rest of a `Frame` is known."""


OutletAsk = Callable[["StepInfo", str, str, bytes], Awaitable[bytes]]
"""Carries a request of a step, with its id, name and body, to its instance; gives the answer."""


class Outlet(Protocol):
    """Where a step's news go: to the loop's thread, or into the pipe to another process."""

    def send(self, about: StepInfo, news: News) -> None: ...


class StepInfo(msgspec.Struct, eq=False, gc=False):
    """The step that is running now. `attempt` counts from 1; `delivery` grows when a crash ran it again."""

    # Name and key are made when they are asked for; another process is told them as text.
    _instance: Address | str
    location: str
    attempt: int
    delivery: int
    _key: Identity | str
    _outlet: Outlet | None = None
    _life: int = 0
    intent: bytes = b""  # for executors; not known in another process
    _cancelled: bool = False  # a plain flag: read and written whole, also by two threads
    _frames: int = 0
    frame: Callable[[Any], Any] | None = None  # checks a chunk that a cell takes as an event
    _chunks: int = 0  # such chunks: said
    _numbers: int = 0  # such chunks: numbered
    _asked: int = 0  # requests

    @classmethod
    def of(cls, publication: Publication, outlet: Outlet) -> StepInfo:
        effect = publication.effect
        return cls(
            publication.address,
            effect.location,
            effect.attempt,
            publication.delivery,
            publication.identity,
            outlet,
            effect.life,
            publication.intent,
        )

    @property
    def instance(self) -> str:
        return str(self._instance)

    @property
    def name(self) -> str:
        return unescape(self.location.rpartition("/")[2].partition("#")[0])

    @property
    def idempotency_key(self) -> str:
        """Equal for every attempt and re-execution of this step, different for any other."""
        key = self._key
        return key if isinstance(key, str) else key.idempotency_key(self.location, self._life)

    @property
    def cancelled(self) -> bool:
        """The result of this step is not needed any more. A thread cannot be stopped: long ones should look here."""
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True

    async def ask(self, name: str, body: object = None) -> Any:
        """Ask the instance of this step for something, and hear its answer when that is durable.

        A flow receives the request as a message of this name and answers with `message.complete(response)`. `Denied`
        if the instance takes no such request; `NotInRun` where a step cannot ask: in a thread, a process, a worker.
        """
        ask = getattr(self._outlet, "ask", None)
        if ask is None or self._cancelled:
            raise NotInRun("step_info().ask")
        self._asked += 1
        answer = decode(await ask(self, f"{name}#{self._asked}", name, encode(to_plain(body))))
        if "d" in answer:
            raise Denied(*answer["d"])
        return answer.get("v")

    # ---- for executors -----------------------------------------------------------------------------------------

    def tell(self, news: News) -> None:
        if self._outlet is not None and not self._cancelled:
            self._outlet.send(self, news)

    def next_frame(self) -> int:
        """The ordinal of the next frame. Counted on the loop's thread, where frames come in one after the other."""
        self._frames += 1
        return self._frames

    def next_number(self) -> int:
        """The number of the next chunk that a cell takes as an event."""
        self._numbers += 1
        return self._numbers

    def checked(self, chunk: Any) -> Any:
        """A chunk as plain data, if there may be one more of its type."""
        if self.frame is None:
            return to_plain(chunk)
        plain = self.frame(chunk)
        self._chunks += 1
        if self._chunks > FRAMES_MAX:
            raise TooManyFrames(self.instance, self.location, FRAMES_MAX)
        return plain


current: ContextVar[StepInfo] = ContextVar("perdure_step_info")


def step_info() -> StepInfo:
    """The step that is running now; `NotInStep` outside of steps."""
    try:
        return current.get()
    except LookupError:
        raise NotInStep from None


def ok(value: Any, returns: Any) -> Receipt:
    """The receipt of a result. A result that cannot be recorded is an error that no retry will mend."""
    if value is None and returns is None:
        return DONE
    try:
        data = encode(to_plain(value, returns))
        if len(data) > VALUE_MAX:
            raise TooLarge("the result of a step", len(data), VALUE_MAX)
        return Receipt("ok", data)
    except CallerError as unusable:
        error = unusable.of("the result") if isinstance(unusable, NotConvertible) else unusable
        return Receipt("error", error=failure_of(error, retry=False))


CALLERS: Final = ("perdure.executors.", "perdure.testing.")
"""Where steps are called."""

NO_WORK: Final = Receipt("error", error=Failure("NoWork", "the flow's code no longer asks for this step", retry=False))


def error(exception: BaseException) -> Receipt:
    final = isinstance(exception, Fatal | RollBack) or getattr(exception, "retry", None) is False
    retry = not final and not _is_of_the_call(exception)
    recorded = failure_of(exception, retry=retry)
    if isinstance(exception, RollBack):  # also a subclass: the flow gets it as what it is for perdure
        recorded = msgspec.structs.replace(recorded, type="RollBack")
    return Receipt("error", error=recorded)


def _is_of_the_call(exception: BaseException) -> bool:
    """Whether a function was called with other arguments than it takes: not a line of it ran, and none ever will."""
    at = exception.__traceback__
    if type(exception) is not TypeError or at is None:
        return False
    while at.tb_next is not None:
        at = at.tb_next
    return str(at.tb_frame.f_globals.get("__name__")).startswith(CALLERS)
