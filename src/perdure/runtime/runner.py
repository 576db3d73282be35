"""A runner: a worker on a machine of a cluster. It claims the very jobs that it is asked to perform, and no others."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.ports.jobs import Claim

from .worker import RunningJob, Worker


class Runner(Worker):
    """The cluster calls `perform` once for each copy of a job. It calls so many at once as it has places."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._asked: dict[bytes, asyncio.Future[Claim | None]] = {}  # not yet claimed
        self._ends: dict[bytes, asyncio.Future[None]] = {}  # by the id of the claim

    async def perform(self, intent: bytes) -> bool:
        """Claim a job and perform it. False: the claim failed, because another worker has the job or it is closed."""
        if any(claim.job.intent == intent for claim in self.held()):
            return False  # a second copy, on the same machine
        claimed = self._asked.get(intent)
        if claimed is None:
            claimed = self._asked[intent] = self._loop.create_future()
            self._woken.set()
        claim = await claimed
        if claim is None:
            return False
        if claim.id in self.running:
            ended = self._ends.setdefault(claim.id, self._loop.create_future())
            await ended
        return True

    async def _claim(self) -> None:
        while not self._done:
            await self._woken.wait()
            self._woken.clear()
            asked = dict(self._asked)
            claims: list[Claim] = []
            if asked and not self._draining:
                claims = await self._persist(lambda: self._jobs.take(self._name, list(asked)))  # noqa: B023
                await self._begin(claims)
            by_intent = {claim.job.intent: claim for claim in claims}
            for intent, claimed in asked.items():
                del self._asked[intent]
                claimed.set_result(by_intent.get(intent))

    def _take(self, id: bytes) -> RunningJob | None:
        running = super()._take(id)
        ended = self._ends.pop(id, None)
        if ended is not None:
            ended.set_result(None)
        return running
