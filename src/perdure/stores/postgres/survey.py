"""One look for all shards: which have something in their inbox, and which have claims of workers that ran out.

Hints tell at once that something came; polling is for hints that were lost. Sixteen shards that poll one by one are
fifty statements a second of an engine that has nothing to do. So the first question is asked for all shards, and the
others take their part of that answer, each once: a second question of a shard is a new survey.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from .database import PostgresDatabase

FRESH_SECONDS: Final = 0.25
"""An older answer is not given to a shard."""


class Surveyed(NamedTuple):
    inbox: bool
    lost: bool


class Survey:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Task[dict[int, Surveyed]] | None = None
        self._asked = 0.0
        self._given: set[tuple[int, str]] = set()

    async def inbox(self, shard: int) -> bool:
        return (await self._found(shard, "inbox")).inbox

    async def lost(self, shard: int) -> bool:
        return (await self._found(shard, "lost")).lost

    async def _found(self, shard: int, what: str) -> Surveyed:
        now = self._loop.time()
        if self._answer is None or now - self._asked > FRESH_SECONDS or (shard, what) in self._given:
            self._answer = self._database.spawn(self._ask())
            self._asked = now
            self._given.clear()
        self._given.add((shard, what))
        return (await asyncio.shield(self._answer))[shard]

    async def _ask(self) -> dict[int, Surveyed]:
        database = self._database
        rows = await database.engine.ask(lambda connection: connection.fetch(database.sql.survey))
        return {shard: Surveyed(inbox, lost) for shard, inbox, lost in rows}
