"""What the shards of a process have in common: made once for each engine, for one shard or for many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from perdure.kernel.machine import Workflow
from perdure.kernel.outside import Verify
from perdure.kernel.problem import Report
from perdure.kernel.retention import Retention
from perdure.kernel.workflows import Workflows
from perdure.ports.clock import Clock
from perdure.ports.executor import Executor
from perdure.ports.jobs import Jobs
from perdure.ports.store import Queries, Store

from .inbox import POLL
from .listener import Listener
from .meter import Meter
from .shard import Loader, Shard


class Serves(Protocol):
    """A worker, or a dispatcher."""

    async def run(self) -> None:
        """Until `drain` is called."""
        ...

    async def drain(self, seconds: float, hurry: asyncio.Event) -> None: ...


class QueueService(Protocol):
    """The queues that this engine serves itself."""

    def executors(self) -> list[Executor]:
        """Where no worker can: each queue is an executor of the shard."""
        ...

    def workers(self, jobs: Jobs) -> list[Serves]:
        """Where workers serve queues: in this process too, one for each queue."""
        ...


class Setup(msgspec.Struct):
    """`effects` makes the executor of named effects, which keeps blobs in the store. `failed`: who calls hooks."""

    owner: str
    workflows: Workflows[Workflow]
    clock: Clock
    executors: list[Executor]
    serving: QueueService
    effects: Callable[[Queries], Executor] | None
    failed: Callable[[Report], None]
    cache: int
    memory: int
    enclosure: AbstractContextManager[None]
    verify: Verify
    loader: Loader | None = None
    retention: Retention | None = None
    meter: Meter | None = None

    def __post_init__(self) -> None:
        self.meter = Meter(self.clock)

    def add_effects(self, queries: Queries) -> None:
        if self.effects is not None:
            self.executors.append(self.effects(queries))

    def shard(
        self,
        store: Store,
        executors: Iterable[Executor],
        listener: Listener,
        *,
        number: int = 0,
        shards: int = 1,
        poll: int = POLL,
    ) -> Shard:
        return Shard(
            store,
            self.clock,
            executors,
            self.workflows,
            owner=self.owner,
            listener=listener,
            cache=self.cache,
            memory=self.memory,
            enclosure=self.enclosure,
            verify=self.verify,
            retention=self.retention,
            number=number,
            shards=shards,
            poll=poll,
            loader=self.loader,
            meter=self.meter,
        )
