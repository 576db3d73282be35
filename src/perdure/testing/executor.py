"""Fake executors: they run real step functions at once, and let the world decide when, how often and
whether it hears.

The side effect of an execution is the call of its function. The receipt comes later in virtual time,
perhaps twice, perhaps through the inbox table, perhaps never because the process died right after the
side effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextvars import Context, copy_context
from typing import Any, NamedTuple, Protocol

from perdure.app.workers import imported
from perdure.codec import decode
from perdure.executors import info
from perdure.executors.frames import frame_of
from perdure.executors.queue import work_of
from perdure.kernel.batch import Publication
from perdure.kernel.receipt import Receipt, is_interrupt
from perdure.ports import asking
from perdure.ports.executor import Answered, Framed, Requests, Work

from .faults import MILLISECOND, SimulatedProcess


class Execution(NamedTuple):
    """One side effect, as the outside world saw it."""

    key: str
    intent: bytes
    location: str
    attempt: int
    delivery: int
    process: int
    at: int


class Site(Protocol):
    """What an executor needs of its world."""

    def executing(self, process: int, publication: Publication) -> None: ...

    def executed(self, execution: Execution) -> None: ...

    def post_receipt(self, instance: int, intent: bytes, receipt: Receipt) -> None: ...


class _Asked:
    """What a simulated call awaits when it asks its instance."""

    def __init__(self, id: str, name: str, body: bytes) -> None:
        self.id, self.name, self.body = id, name, body

    def __await__(self) -> Generator[Any, Any, bytes]:
        answer: bytes = yield self
        return answer


class _Live:
    """A call that may ask, between two of its requests."""

    def __init__(self, publication: Publication, coroutine: Any, context: Context, answered: Answered) -> None:
        self.publication, self.coroutine, self.context, self.answered = publication, coroutine, context, answered
        self.waits_for = ""


class FakeExecutor:
    """See the module. `slots`: how many calls it takes at once, which the gate must respect."""

    def __init__(self, name: str, slots: int | None, around: SimulatedProcess, site: Site) -> None:
        self.name = name
        self.slots = slots
        self._site = site
        self._process, self._clock, self._life, self._dice, self._faults, self._counts, self._crash, self._tell = around
        self.running: dict[bytes, Publication] = {}
        self._framed: Framed | None = None
        self._live: dict[bytes, _Live] = {}  # calls that have asked and not ended
        self._take_request: Requests | None = None

    def listen(self, framed: Framed) -> None:
        self._framed = framed

    def send(self, about: info.StepInfo, news: info.News) -> None:
        """It is the outlet of its steps: they run on the thread of the world."""
        if self._framed is not None:
            self._framed(about.intent, frame_of(about, news))

    def start(self, publication: Publication, answered: Answered) -> None:
        self._site.executing(self._process, publication)
        self.running[publication.intent] = publication
        self._clock.after(self._duration() // 2, lambda: self._perform(publication, answered), self._life)

    def stop(self, intent: bytes) -> None:
        """Cut the call. A function in a thread cannot be cut: sometimes its receipt comes all the same."""
        live = self._live.pop(intent, None)
        if live is not None:
            self.running.pop(intent, None)
            live.coroutine.close()
            return
        if self._dice.random() < 0.5:
            self.running.pop(intent, None)

    async def close(self) -> None:
        self.running.clear()

    # ---- one execution ---------------------------------------------------------------------------------

    def _duration(self) -> int:
        return self._dice.randrange(0, 30) * MILLISECOND

    def _perform(self, publication: Publication, answered: Answered) -> None:
        if publication.intent not in self.running:
            return
        if isinstance(publication.work, Work) and publication.work.asks:
            self._begin_asking(publication, publication.work, answered)
        else:
            self._performed(publication, self._call(publication), answered)

    # ---- calls that ask their instance -----------------------------------------------------------------

    def hear(self, requested: Requests) -> None:
        self._take_request = requested

    def answer(self, intent: bytes, id: str, value: bytes) -> None:
        live = self._live.get(intent)
        if live is not None and live.waits_for == id:
            live.waits_for = ""
            self._clock.after(self._duration() // 2, lambda: self._go_on(live, value), self._life)

    def _begin_asking(self, publication: Publication, work: Work, answered: Answered) -> None:
        about = info.StepInfo.of(publication, self)
        self._execute(publication, about)
        context = copy_context()
        context.run(info.current.set, about)
        context.run(asking.current.set, _Asked)
        coroutine = context.run(work.function, *work.args, **work.kwargs)
        live = self._live[publication.intent] = _Live(publication, coroutine, context, answered)
        self._go_on(live, None)

    def _go_on(self, live: _Live, value: bytes | None) -> None:
        intent = live.publication.intent
        if self._live.get(intent) is not live:
            return
        try:
            asked = live.context.run(live.coroutine.send, value)
        except BaseException as error:
            if is_interrupt(error):
                raise
            del self._live[intent]
            ended = isinstance(error, StopIteration)
            receipt = info.ok(error.value, None) if isinstance(error, StopIteration) else info.error(error)
            assert ended or receipt.status == "error"
            self._performed(live.publication, receipt, live.answered)
            return
        live.waits_for = asked.id
        request = (intent, live.publication.delivery, asked.id, asked.name, asked.body)
        self._clock.after(self._duration() // 2, lambda: self._ask(live, request), self._life)

    def _ask(self, live: _Live, request: tuple[bytes, int, str, str, bytes]) -> None:
        if self._take_request is not None and self._live.get(request[0]) is live:
            self._take_request(*request)

    def _performed(self, publication: Publication, receipt: Receipt, answered: Answered) -> None:
        """The side effect has happened; what becomes of its receipt is a matter of luck."""
        self._counts["executions"] += 1
        faults, dice = self._faults, self._dice
        lost = faults.lost and dice.random() < faults.lost
        if lost or self._counts["executions"] in faults.executions:
            self._counts["crashes after a side effect"] += 1
            self._crash(f"right after executing {publication.effect.location}")
            return
        delay = self._duration() // 2
        if faults.delay and dice.random() < faults.delay:
            self._counts["receipts delayed"] += 1
            delay += dice.randrange(50, 300) * MILLISECOND
        self._clock.after(delay, lambda: self._answer(publication, receipt, answered), self._life)
        if faults.remote and dice.random() < faults.remote:
            self._counts["receipts through the inbox"] += 1
            self._clock.after(
                dice.randrange(0, 200) * MILLISECOND,
                lambda: self._site.post_receipt(publication.instance, publication.intent, receipt),
            )

    def _answer(self, publication: Publication, receipt: Receipt, answered: Answered) -> None:
        if self.running.pop(publication.intent, None) is None:
            return
        answered(publication.intent, receipt)
        if self._faults.duplicate and self._dice.random() < self._faults.duplicate:
            self._counts["receipts duplicated"] += 1
            self._clock.after(self._duration(), lambda: answered(publication.intent, receipt), self._life)

    def _call(self, publication: Publication) -> Receipt:
        about = info.StepInfo.of(publication, self)
        self._execute(publication, about)
        work = publication.work
        if publication.effect.params is not None and work is None:
            work = _by_name(publication.effect.params)
        if not isinstance(work, Work):
            return info.NO_WORK
        return copy_context().run(perform, work, about)

    def _execute(self, publication: Publication, about: info.StepInfo) -> None:
        """The world sees that the call is executed now."""
        effect = publication.effect
        self._site.executed(
            Execution(
                about.idempotency_key,
                publication.intent,
                effect.location,
                effect.attempt,
                publication.delivery,
                self._process,
                self._clock.now(),
            )
        )


def _by_name(params: bytes) -> Work:
    """The work of a queue, as its workers find it."""
    asked = decode(params)
    found = imported(asked["call"])
    return work_of(found, asked)


def perform(work: Work, about: info.StepInfo) -> Receipt:
    """Run a step to its end, at once. An `async def` step may await nothing that takes time."""
    info.current.set(about)
    try:
        return info.ok(_finished(work.function(*work.args, **work.kwargs)), work.returns)
    except BaseException as error:
        if is_interrupt(error):
            raise
        return info.error(error)


def _finished(value: Any) -> Any:
    if not asyncio.iscoroutine(value):
        return value
    try:
        value.send(None)
    except StopIteration as end:
        return end.value
    value.close()
    raise RuntimeError("in a simulated world a step may not wait for real input or output: use a fake")
