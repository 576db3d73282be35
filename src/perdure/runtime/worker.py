"""A worker: it claims jobs of its queues, performs them, and answers. It owns no shard and writes no journal.

    _claim    take as many jobs as there are free places, whenever there may be some
    _beat     say that this worker lives; stop what is not its own any more
    _answer   put receipts and frames on their way, many at once

Each of these goes on by itself, and waits for the database as long as that takes. What a worker does not bring to its
end is not lost: its claims run out, and the owner of the instance decides what becomes of each job.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from perdure.errors import PerdureError
from perdure.kernel.batch import InboxRow, Publication
from perdure.kernel.events import ReceiptArrived
from perdure.kernel.job import publication
from perdure.kernel.receipt import Answerer, Failure, Receipt, failure_of
from perdure.kernel.rows import inbox_row
from perdure.ports.executor import CUT, Executor
from perdure.ports.frame import Frame
from perdure.ports.jobs import CLAIM, Claim, Jobs

from .log import log

T = TypeVar("T")

BEAT_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 5.0
PAUSE_FIRST: Final = 0.01
PAUSE_MAX: Final = 1.0
"""Between two looks for jobs that found none. A hint of the database ends a pause."""

ANSWERS_MAX: Final = 500
FRAMES_MAX: Final = 1000
"""Frames that wait to be sent. More are dropped, and counted: a frame is never needed."""

Sign = Callable[[Publication, Receipt], Answerer]
"""Who a receipt is from, with the proof, where the queue has a key."""


def unsigned(job: Publication, receipt: Receipt) -> Answerer:
    return Answerer(job.effect.executor)


class RunningJob(msgspec.Struct, eq=False):
    claim: Claim
    job: Publication
    executor: Executor
    timeout: asyncio.TimerHandle | None = None


class Worker:
    """`executors` are named as the queues that they serve; `functions` are the names of those that this worker has."""

    def __init__(
        self,
        jobs: Jobs,
        executors: Iterable[Executor],
        functions: Collection[str],
        *,
        name: str,
        concurrency: int,
        sign: Sign = unsigned,
    ) -> None:
        self._jobs = jobs
        self._executors = {executor.name: executor for executor in executors}
        self._functions = sorted(functions)
        self._name = name
        self._concurrency = concurrency
        self._sign = sign
        self.counts: Counter[str] = Counter()
        self.running: dict[bytes, RunningJob] = {}  # by the id of the claim, which is what executors know a job by
        self._answers: dict[bytes, tuple[Claim, InboxRow]] = {}  # not yet taken by the database; by the same
        self._interrupted: list[Claim] = []  # their steps were ended by Ctrl-C
        self._frames: list[tuple[Claim, Frame]] = []
        self._woken = asyncio.Event()  # there may be something to claim, or a place to claim for
        self._outgoing = asyncio.Event()
        self._ended = asyncio.Event()  # a job has
        self._draining = False
        self._done = False
        self._loop = asyncio.get_running_loop()
        for executor in self._executors.values():
            executor.listen(self._framed)

    async def run(self) -> None:
        """Until `drain` is called, and what runs then has come to its end or was cut."""
        others = [self._loop.create_task(self._beat()), self._loop.create_task(self._answer())]
        try:
            await self._claim()
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            for executor in self._executors.values():
                await executor.close()

    async def serve(self, interrupted: asyncio.Event, hurry: asyncio.Event, drain: float) -> dict[str, int]:
        """Run until it is interrupted; the answer is what was done."""
        running = self._loop.create_task(self.run())
        await first(interrupted.wait(), _ended(running))
        if not running.done():
            await self.drain(drain, hurry)
        await running
        return dict(self.counts)

    async def drain(self, seconds: float, hurry: asyncio.Event) -> None:
        """Claim nothing more; give what runs so long to end, then cut it. `hurry`: not even that.

        What has ended is told to the database in the time that is left, and in a few seconds at least. One that is away
        for longer will deliver it again, because the claims run out.
        """
        self._draining = True
        self._woken.set()
        until = self._loop.time() + seconds
        await first(hurry.wait(), self._idle(), seconds=seconds)
        await self._cut()
        left = 0.0 if hurry.is_set() else until - self._loop.time()
        await first(self._all_answered(), seconds=max(left, ANSWER_SECONDS))
        self._done = True
        self._woken.set()

    # ---- in ------------------------------------------------------------------------------------------------------

    async def _claim(self) -> None:
        pause = PAUSE_FIRST
        queues = list(self._executors)
        self._jobs.listen(self._woken.set)
        while not self._done:
            self._woken.clear()
            free = 0 if self._draining else self._concurrency - len(self.running)
            found = 0
            if free > 0:
                claims = await self._persist(lambda: self._jobs.claim(self._name, queues, self._functions, free))  # noqa: B023
                found = len(claims)
                await self._begin(claims)
            if found:
                pause = PAUSE_FIRST
            else:
                heard = await first(self._woken.wait(), seconds=pause if free > 0 else None)
                pause = PAUSE_FIRST if heard else min(2 * pause, PAUSE_MAX)

    async def _begin(self, claims: list[Claim]) -> None:
        if self._draining:
            if claims:
                await self._persist(lambda: self._jobs.give_back(claims))
            return
        self.counts["claimed"] += len(claims)
        for claim in claims:
            self._start(claim)

    def _start(self, claim: Claim) -> None:
        if claim.taken > 1:
            self._stop_earlier(claim.job.intent)
        try:
            job = publication(claim.job)
        except (
            PerdureError,
            msgspec.MsgspecError,
        ) as error:  # of an engine with other code, say: this worker cannot do it
            log.error("the job %s cannot be read: %s", claim.job.intent.hex(), error)
            self.counts["unreadable"] += 1
            return
        id = claim.id
        running = self.running[id] = RunningJob(claim, job, self._executors[claim.job.queue])
        timeout = job.effect.timeout
        if timeout is not None:
            running.timeout = self._loop.call_later(timeout / 1e9, self._time_out, id, timeout)
        try:
            running.executor.start(msgspec.structs.replace(job, intent=id), self._answered)
        except Exception as error:
            self._answered(id, Receipt("error", error=failure_of(error)))

    def _stop_earlier(self, intent: bytes) -> None:
        """A claim of the same job that was lost, which this worker did not know yet."""
        for id, running in list(self.running.items()):
            if running.claim.job.intent == intent:
                self._stop(id)

    # ---- out -----------------------------------------------------------------------------------------------------

    def _answered(self, id: bytes, receipt: Receipt) -> None:
        running = self._take(id)
        if running is None:
            return
        if receipt is CUT and running.job.effect.deliveries_max != 1:
            self._interrupted.append(running.claim)
            return
        signed = msgspec.structs.replace(receipt, by=self._sign(running.job, receipt))
        claim = running.claim
        event = ReceiptArrived(claim.job.intent, signed)
        row = inbox_row(id, claim.job.instance, event, time.time_ns())
        self._answers[id] = claim, row
        self._outgoing.set()

    def _take(self, id: bytes) -> RunningJob | None:
        """It runs no more: its place is free."""
        running = self.running.pop(id, None)
        if running is not None:
            if running.timeout is not None:
                running.timeout.cancel()
            self._woken.set()
            self._ended.set()
        return running

    def _time_out(self, id: bytes, timeout: int) -> None:
        running = self.running.get(id)
        if running is not None:
            running.executor.stop(id)
            failure = Failure("Timeout", f"no answer within {timeout / 1e9:g} s")
            self._answered(id, Receipt("timeout", error=failure))

    def _stop(self, id: bytes) -> None:
        running = self._take(id)
        if running is not None:
            self.counts["stopped"] += 1
            running.executor.stop(id)

    def _framed(self, id: bytes, frame: Frame) -> None:
        running = self.running.get(id)
        if running is None or len(self._frames) >= FRAMES_MAX:
            self.counts["frames_dropped"] += 1
            return
        self._frames.append((running.claim, frame))
        self._outgoing.set()

    async def _answer(self) -> None:
        while True:
            await self._outgoing.wait()
            self._outgoing.clear()
            if self._frames:
                frames, self._frames = self._frames, []
                await self._persist(lambda: self._jobs.tell(frames))  # noqa: B023
            while self._answers:
                answers = list(self._answers.values())[:ANSWERS_MAX]
                fenced = await self._persist(lambda: self._jobs.answer(answers))  # noqa: B023
                for claim, _ in answers:
                    del self._answers[claim.id]
                self.counts["answered"] += len(answers) - len(fenced)
                self.counts["fenced"] += len(fenced)
                self._ended.set()

    def held(self) -> list[Claim]:
        """The claims of what runs here, and of what the database has not taken the answer of yet."""
        return [*(running.claim for running in self.running.values()), *(claim for claim, _ in self._answers.values())]

    async def _beat(self) -> None:
        """A claim that could not be kept for so long is void: what it is for may run elsewhere, so it is cut here."""
        kept = self._loop.time()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            held = self.held()
            try:
                void = await self._jobs.beat(self._name, held) if held else []
                kept = self._loop.time()
            except (PerdureError, OSError) as error:
                log.warning("%s cannot say that it lives: %s", self._name, error)
                void = held if self._loop.time() - kept > CLAIM / 1e9 else []
            for claim in void:
                self._stop(claim.id)

    async def _persist(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask the database until it answers."""
        pause = PAUSE_FIRST
        while True:
            try:
                return await ask()
            except (PerdureError, OSError) as error:
                log.warning("%s waits for the database: %s", self._name, error)
                self.counts["failed"] += 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)

    # ---- stopping ------------------------------------------------------------------------------------------------

    async def _idle(self) -> None:
        while self.running:
            self._ended.clear()
            await self._ended.wait()

    async def _all_answered(self) -> None:
        while self._answers:
            self._ended.clear()
            await self._ended.wait()

    async def _cut(self) -> None:
        """What may run once only and had begun is different: what it has done is unknown."""
        back = self._interrupted
        for id, running in list(self.running.items()):
            running.executor.stop(id)
            if running.job.effect.deliveries_max == 1:
                failure = Failure("Cut", "the worker was stopped while it ran", retry=False)
                self._answered(id, Receipt("unknown", error=failure))
            else:
                self._take(id)
                back.append(running.claim)
        if back:
            self.counts["given_back"] += len(back)
            with suppress(PerdureError, OSError):  # the claims run out
                await self._jobs.give_back(back)


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


async def first(*waiting: Coroutine[Any, Any, Any], seconds: float | None = None) -> bool:
    """Wait for whichever comes first; False: for none of them so long."""
    tasks = [asyncio.ensure_future(each) for each in waiting]
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks:
            task.cancel()
