"""Engines and clients of a PostgreSQL server: the wiring that `app` does for files. Imported when a URL asks for it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from perdure.executors.shared import Shared
from perdure.ports.store import Queries
from perdure.runtime.connections import FleetConnection, RemoteConnection
from perdure.runtime.fleet import Fleet
from perdure.runtime.setup import Serves, Setup
from perdure.runtime.shard import Shard
from perdure.stores.postgres import PostgresDatabase
from perdure.stores.postgres.database import POLL_SECONDS

POLL: Final = int(POLL_SECONDS * 1e9)
"""Hints tell at once that something came; this is for those that were lost. Many shards need not look all the time."""


class Member:
    """This process, as one of those that run the shards of a database."""

    def __init__(self, fleet: Fleet, connection: FleetConnection, workers: list[Serves]) -> None:
        self._fleet = fleet
        self.connection = connection
        self._workers = workers
        self._working = [asyncio.create_task(worker.run()) for worker in workers]

    @property
    def shards(self) -> list[Shard]:
        return self._fleet.shards

    @property
    def past(self) -> Counter[str]:
        return self._fleet.past

    async def stop(self, drain: float, hurry: asyncio.Event) -> None:
        await asyncio.gather(*(worker.drain(drain, hurry) for worker in self._workers), *self._working)
        await self._fleet.close(drain, hurry)


@asynccontextmanager
async def joined(url: str, setup: Setup, prepare: Callable[[Queries], Awaitable[None]]) -> AsyncIterator[Member]:
    """Run a fair share of the shards of a database, for as long as this is entered."""
    database = await PostgresDatabase.open(url)
    try:
        await prepare(database.queries)
        setup.add_effects(database.queries)
        setup.owner = f"{setup.owner} {socket.gethostname()}:{os.getpid()}:{os.urandom(3).hex()}"
        shared = Shared(setup.executors)

        def make(number: int) -> Shard:
            store, shards = database.store(number), database.shards
            return setup.shard(store, shared.faces(), connection, number=number, shards=shards, poll=POLL)

        fleet = Fleet(database, setup.owner, make)
        connection = FleetConnection(database.queries, setup.failed, fleet, database.relay)
        database.listen(fleet.hinted)
        await fleet.open()
        yield Member(fleet, connection, setup.serving.workers(database.jobs))
    finally:
        await database.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RemoteConnection]:
    database = await PostgresDatabase.open(url)
    try:
        database.listen(lambda word: None)  # what it hears counts as a change
        yield RemoteConnection(database.queries, database.relay)
    finally:
        await database.close()
