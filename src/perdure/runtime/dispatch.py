"""A dispatcher: it hands the open jobs of one queue to a cluster, whose machines claim and perform them.

    _submit   look for open jobs, and hand copies of them to the cluster, as long as it has free slots
    _check    forget copies of closed jobs; replace copies whose machine was lost, or that none has begun for long

The dispatcher holds no claim and decides nothing. It may die at any time, and several may serve one queue: the copies
that come too late end at the claim. What it remembers is which copies it has submitted, so that it need not submit them
again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from perdure.errors import PerdureError
from perdure.kernel.batch import JobRow
from perdure.kernel.job import job_of
from perdure.ports.cluster import Cluster, Copy, Ended
from perdure.ports.jobs import Jobs, OpenJob

from .log import log
from .worker import PAUSE_FIRST, PAUSE_MAX, first

T = TypeVar("T")

CHECK_SECONDS: Final = 1.0
GATHER_SECONDS: Final = 0.01
"""Between two submissions, so that the next one has several copies."""

PATIENCE_SECONDS: Final = 30.0
"""How long a copy may wait on the cluster before it is replaced: its machine may stand still. It doubles each time."""

TRIES: Final = 3
"""So many copies in a row that could not begin let their function rest."""

REST_SECONDS: Final = 60.0
REST_SECONDS_MAX: Final = 3600.0
"""How long a function rests, unless machines join the cluster. It doubles each time."""


class Submitted(msgspec.Struct):
    """A copy on the cluster. `number` counts the copies of one job since its last claim, `ended` those that ended."""

    copy: Copy
    taken: int
    number: int
    ended: int
    since: float


class Rest(msgspec.Struct):
    """A function whose copies could not begin, at least on some machines."""

    failed: int = 0  # copies in a row
    rests: int = 0
    error: str = ""
    until: float = 0.0
    avoid: frozenset[str] = frozenset()  # the machines that could not begin it
    machines: frozenset[str] | None = None  # of the cluster, when it was first looked at


def _resources(row: JobRow) -> Mapping[str, float]:
    """Of a job that cannot be read none are known; the worker that claims it says what is wrong with it."""
    try:
        return job_of(row).resources
    except (PerdureError, msgspec.MsgspecError):
        return {}


class Dispatcher:
    """`slots`: how many copies are on the cluster at once, those that run included."""

    def __init__(self, jobs: Jobs, cluster: Cluster, queue: str, slots: int) -> None:
        self._jobs = jobs
        self._cluster = cluster
        self._queue = queue
        self._slots = slots
        self.counts: Counter[str] = Counter()
        self.submitted: dict[bytes, Submitted] = {}  # by intent
        self._intents: dict[str, bytes] = {}  # of the copies, by their ids
        self._earlier: dict[bytes, Submitted] = {}  # the last copy of jobs that have none on the cluster now
        self._rests: dict[str, Rest] = {}  # by function
        self._woken = asyncio.Event()
        self._draining = False
        self._away = False  # the cluster, and that was told
        self._loop = asyncio.get_running_loop()
        cluster.listen(self._ended)

    async def run(self) -> None:
        """Until `drain` is called."""
        self._jobs.listen(self._woken.set)
        checking = self._loop.create_task(self._check())
        try:
            await self._submit()
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)
            with suppress(OSError):
                await self._cluster.cancel(list(self._intents))
            await self._cluster.close()

    async def serve(self, interrupted: asyncio.Event, hurry: asyncio.Event, drain: float) -> dict[str, int]:
        """Run until it is interrupted; the answer is what was done."""
        running = self._loop.create_task(self.run())
        await first(interrupted.wait(), asyncio.wait([running]))
        await self.drain(drain, hurry)
        await running
        return dict(self.counts)

    async def drain(self, seconds: float, hurry: asyncio.Event) -> None:
        """Submit nothing more. What runs on the cluster goes on: its machines answer by themselves."""
        self._draining = True
        self._woken.set()

    # ---- to the cluster ------------------------------------------------------------------------------------------

    async def _submit(self) -> None:
        pause = PAUSE_FIRST
        while not self._draining:
            self._woken.clear()
            free = self._slots - len(self.submitted)
            found = await self._look(free) if free > 0 else []
            if found and await self._hand_over([self._copy(job) for job in found]):
                pause = PAUSE_FIRST
                await asyncio.sleep(GATHER_SECONDS)
            else:
                heard = await first(self._woken.wait(), seconds=pause if free > 0 else None)
                pause = PAUSE_FIRST if heard and not self._away else min(2 * pause, PAUSE_MAX)

    async def _look(self, limit: int) -> list[OpenJob]:
        resting = [function for function, rest in self._rests.items() if self._is_resting(rest)]
        without = list(self.submitted)
        return await self._persist(lambda: self._jobs.open_jobs(self._queue, limit, without, resting))

    def _copy(self, found: OpenJob) -> Submitted:
        job, taken = found.job, found.taken
        before = self._earlier.pop(job.intent, None)
        number, ended = (before.number + 1, before.ended) if before is not None and before.taken == taken else (1, 0)
        if ended >= TRIES:
            self._failed(job.function, "its copies end, and the job is still open: do the machines use this database?")
        id = f"{job.function.rpartition(':')[2]}-{job.intent.hex()}-{taken}-{number}"
        rest = self._rests.get(job.function)
        avoid = rest.avoid if rest is not None else frozenset()
        copy = Copy(id, job.intent, job.queue, job.function, _resources(job), avoid)
        return Submitted(copy, taken, number, ended, self._loop.time())

    async def _hand_over(self, batch: list[Submitted]) -> bool:
        for each in batch:
            self.submitted[each.copy.intent] = each
            self._intents[each.copy.id] = each.copy.intent
        try:
            await self._cluster.submit([each.copy for each in batch])
        except OSError as error:
            for each in batch:
                self._forget(each)
                self._earlier[each.copy.intent] = each
            if not self._away:
                self._away = True
                log.warning("%s cannot be reached: %s; trying again", self._cluster.name, error)
            return False
        if self._away:
            self._away = False
            log.warning("%s answers again", self._cluster.name)
        self.counts["submitted"] += len(batch)
        return True

    def _forget(self, copy: Submitted) -> None:
        self._intents.pop(copy.copy.id, None)
        if self.submitted.get(copy.copy.intent) is copy:
            del self.submitted[copy.copy.intent]
        self._woken.set()

    # ---- from the cluster ----------------------------------------------------------------------------------------

    def _ended(self, id: str, end: Ended) -> None:
        intent = self._intents.get(id)
        if intent is None:
            return
        copy = self.submitted[intent]
        self._forget(copy)
        self._earlier[intent] = copy
        if end.lost:
            self.counts["lost"] += 1
            return
        if end.error:
            self._failed(copy.copy.function, end.error, end.machine)
            return
        self.counts["ended"] += 1
        copy.ended += 1
        rest = self._rests.get(copy.copy.function)
        if rest is not None and copy.ended <= TRIES:  # else the rest is because copies end like this
            rest.failed, rest.rests, rest.error = 0, 0, ""

    def _is_resting(self, rest: Rest) -> bool:
        return rest.failed >= TRIES and self._loop.time() < rest.until

    def _failed(self, function: str, error: str, machine: str = "") -> None:
        self.counts["failed"] += 1
        rest = self._rests.setdefault(function, Rest())
        rest.failed += 1
        rest.avoid |= {machine} - {""}
        rest.error = f"{self._cluster.name} cannot begin it: {error}"
        if rest.failed >= TRIES and not self._is_resting(rest):
            seconds = min(REST_SECONDS * 2**rest.rests, REST_SECONDS_MAX)
            rest.rests += 1
            rest.until = self._loop.time() + seconds
            log.error("jobs of %s rest for %g s, or until machines join: %s", function, seconds, rest.error)

    # ---- looking after -------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Compare what was submitted with what is open, and say which functions rest."""
        known = [*self.submitted, *self._earlier]
        waiting = await self._persist(lambda: self._jobs.waiting(known)) if known else {}
        for intent in [intent for intent in self._earlier if waiting.get(intent) is None]:
            del self._earlier[intent]
        if self._rests:
            await self._look_after_rests()
        closed = [copy for intent, copy in self.submitted.items() if intent in known and intent not in waiting]
        stale = [copy for intent, copy in self.submitted.items() if self._is_stale(copy, waiting.get(intent))]
        for copy in [*closed, *stale]:
            self._forget(copy)
        for copy in stale:
            self.counts["replaced"] += 1
            self._earlier[copy.copy.intent] = copy
        if closed or stale:
            with suppress(OSError):
                await self._cluster.cancel([copy.copy.id for copy in (*closed, *stale)])

    def _is_stale(self, copy: Submitted, taken: int | None) -> bool:
        """No worker has the job. It was claimed since this copy was submitted, or the copy has waited for long."""
        waited = self._loop.time() - copy.since
        return taken is not None and (taken > copy.taken or waited > PATIENCE_SECONDS * 2 ** (copy.number - 1))

    async def _look_after_rests(self) -> None:
        """A machine that joins may have other code: then the functions need not rest."""
        machines = None
        with suppress(OSError):
            machines = await self._cluster.machines()
        for function, rest in list(self._rests.items()):
            if rest.error:
                await self._persist(lambda: self._jobs.note(self._queue, function, rest.error))  # noqa: B023
            if machines is None:
                continue
            if rest.machines is not None and machines - rest.machines:
                rest.failed = 0
            rest.machines = machines
            rest.avoid &= machines
            if not rest.error and not rest.avoid:
                del self._rests[function]

    async def _persist(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask the database until it answers."""
        pause = PAUSE_FIRST
        while True:
            try:
                return await ask()
            except (PerdureError, OSError) as error:
                log.warning("the dispatcher of %s waits for the database: %s", self._queue, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX)
