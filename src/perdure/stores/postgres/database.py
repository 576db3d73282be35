"""One PostgreSQL database as a process sees it: its connections, its leases, and the hints that go to and fro."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from perdure.errors import StoreError
from perdure.kernel.batch import WorkflowRow
from perdure.kernel.events import Ref
from perdure.kernel.placement import place
from perdure.kernel.policy import decode_policy
from perdure.ports.frame import FramedByWorker
from perdure.ports.leases import LeaseStanding
from perdure.ports.shards import Figures, write_figures

from . import schema
from .connections import QUICK, SETTINGS, Connections, DatabasePlace, log
from .jobs import FRAME, PostgresJobs, heard_frame
from .listener import PostgresListener, channel
from .queries import PostgresQueries
from .relay import PostgresRelay
from .statements import statements
from .store import PostgresStore
from .survey import Survey
from .upgrade import checked

T = TypeVar("T")

LEASE_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.5
"""How often it is looked for what no hint told of."""

CLOSE_SECONDS: Final = 5.0

ENGINE_CONNECTIONS: Final = 8
CLIENT_CONNECTIONS: Final = 4

SHARD: Final = "shard "
"""A hint that begins so has the number of a shard, in whose inbox something is."""

PAYLOAD_MAX: Final = 4000
"""Characters in one notification. PostgreSQL takes 8,000 bytes."""


class PostgresDatabase:
    """Made by `open`, on the loop that it is used on."""

    def __init__(self, place: DatabasePlace, shards: int, lease: float) -> None:
        self.place = place
        self.shards = shards
        self.lease = lease
        self.sql = statements(place.namespace)
        self.host = socket.gethostname()
        self.engine = Connections(place, QUICK, ENGINE_CONNECTIONS)
        self.clients = Connections(place, SETTINGS, CLIENT_CONNECTIONS)
        self._renewals = Connections(place, QUICK, 1)  # of its own: a lease must not wait for commits that do not end
        self.queries = PostgresQueries(self)
        self.survey = Survey(self)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._hints = [0] * shards
        self._other = 0  # hints that are about no shard
        self._news: asyncio.Future[None] | None = None  # set while a caller waits for the next hint
        self._unsaid: dict[str, None] = {}
        self._speaking = False
        self._listener: PostgresListener | None = None
        self._heard: list[Callable[[str], None]] = []
        self._fixed: set[str] = set()  # workflows whose instances are all on the first shard
        self.frames: dict[int, FramedByWorker] = {}  # by shard, who hears those of workers
        self.figures: Callable[[], Figures] = Figures  # of the engine of this process
        self.relay = PostgresRelay(self)

    @classmethod
    async def open(cls, url: str, schema: str | None = None, *, lease: float = LEASE_SECONDS) -> "PostgresDatabase":
        """A URL may name its schema, too: `?schema=NAME`. Raises `CannotOpen` or `NewerSchema`, with the reason."""
        place = DatabasePlace(url, schema)
        shards = await checked(place)
        return cls(place, shards, lease)

    def learn(self, workflows: Iterable[WorkflowRow]) -> None:
        """Know where the instances of these workflows are."""
        self._fixed.update(row.name for row in workflows if decode_policy(row.policy).place == "fixed")

    def shard_of(self, ref: Ref) -> int:
        """On which shard an instance is, or will be."""
        return place(ref, self.shards, self._fixed)

    def store(self, shard: int) -> PostgresStore:
        assert 0 <= shard < self.shards, f"there are {self.shards} shards"
        return PostgresStore(self, shard)

    @property
    def jobs(self) -> PostgresJobs:
        return PostgresJobs(self)

    async def close(self) -> None:
        """What is under way may come to its end first, if that does not take long."""
        if self._listener is not None:
            await self._listener.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await self.rest()
        await self.engine.close()
        await self.clients.close()
        await self._renewals.close()

    async def rest(self) -> None:
        """Return when nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Something that goes on by itself; a close waits for it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def mark_unfinished(self, unfinished: bool) -> None:
        """While it is marked, no other process can open it."""
        await self.clients.ask(
            lambda connection: schema.mark_unfinished(connection, self.place.namespace, unfinished), self.lease
        )

    # ---- leases --------------------------------------------------------------------------------------------

    async def renew(self, owner: str, held: Mapping[int, int]) -> LeaseStanding:
        """Extend the lease of an engine, and tell which of its shards are still its own. It waits for no commit."""

        async def renewed(connection: Any) -> LeaseStanding:
            rows = await connection.fetch(self.sql.renew, owner, float(self.lease), write_figures(self.figures()))
            mine = {row["shard"]: row["epoch"] for row in rows if row["mine"]}
            free = [row["shard"] for row in rows if row["free"]]
            # The engine fell there, or never heard that it has it. As long as it lives, no time will free them.
            strays = [shard for shard in mine if shard not in held]
            if strays:
                epochs = [mine[shard] for shard in strays]
                free += [shard for (shard,) in await connection.fetch(self.sql.let_go, strays, epochs)]
            kept = {shard: epoch for shard, epoch in mine.items() if held.get(shard) == epoch}
            return LeaseStanding(kept, tuple(sorted(free)), rows[0]["others"] + 1)

        return await self._renewals.ask(renewed, self.lease)

    async def leave(self, owner: str) -> None:
        """Give back the lease of an engine with all its shards, and take it from the living."""
        await self._renewals.ask(lambda connection: connection.execute(self.sql.leave, owner), self.lease)

    # ---- hints ---------------------------------------------------------------------------------------------

    def listen(self, heard: Callable[[str], None]) -> None:
        """Who hears hints, those of this process too. Hints may be lost: look now and then all the same."""
        self._heard.append(heard)
        if self._listener is None:
            self._listener = PostgresListener(self.place, self._hear, self._hear_anything)

    async def listening(self) -> None:
        """Return when hints are heard."""
        assert self._listener is not None
        await self._listener.ready.wait()

    def hint(self, *words: str) -> None:
        """Tell every process that listens that it is worth a look.

        A notification costs the server a lock that all commits with one share. So while one is on its way, the next
        are gathered.
        """
        for word in words:
            self._raise(word)
            self._unsaid[word] = None
        if not self._speaking:
            self._speaking = True
            self.spawn(self._speak())

    async def _speak(self) -> None:
        try:
            while self._unsaid:
                payload = ""
                while self._unsaid and len(payload) < PAYLOAD_MAX:
                    word = next(iter(self._unsaid))
                    del self._unsaid[word]
                    payload += f",{word}" if payload else word
                await self.notify(payload)
        except StoreError as error:
            log.debug("a hint was not given: %s", error)  # waiting processes look now and then
        finally:
            self._speaking = False

    async def notify(self, payload: str) -> None:
        arguments = channel(self.place), payload
        await self.clients.ask(lambda connection: connection.execute(self.sql.notify, *arguments), 0)

    def _hear(self, payload: str) -> None:
        if payload.startswith(FRAME):
            self._hear_frame(payload)
            return
        if self.relay.hear(payload):
            return
        for word in payload.split(","):
            self._raise(word)
            for heard in self._heard:
                heard(word)

    def _hear_frame(self, payload: str) -> None:
        instance, intent, claim, frame = heard_frame(payload)
        framed = self.frames.get(self.shard_of(instance))
        if framed is not None:
            framed(instance, intent, claim, frame)

    def _hear_anything(self) -> None:
        """What was said before this process listened, or while it did not."""
        for shard in range(self.shards):
            self._hear(f"{SHARD}{shard}")

    def time(self) -> float:
        return self._loop.time()

    async def news(self, seen: int) -> None:
        """Return when `changes` gives another number than this one."""
        while self.changes() == seen:
            if self._news is None:
                self._news = self._loop.create_future()
                self._loop.call_later(POLL_SECONDS, self._wake)
            await asyncio.shield(self._news)

    def _wake(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            news.set_result(None)

    def _raise(self, word: str) -> None:
        number = word.removeprefix(SHARD)
        if number != word and number.isdecimal() and int(number) < self.shards:
            self._hints[int(number)] += 1
        else:
            self._other += 1
        self._wake()

    def tell_shards(self, shards: Iterable[int]) -> None:
        """Something is in the inbox of these shards, for their owners to see."""
        self.hint(*(f"{SHARD}{shard}" for shard in shards))

    def arrived(self, shards: Iterable[int]) -> None:
        """Something of this process is in the inbox of these shards."""
        for shard in shards:
            self._hints[shard] += 1

    def hints(self, shard: int) -> int:
        """A number that rises whenever a shard's inbox may have got something."""
        return self._hints[shard]

    def changes(self) -> int:
        """The same for all shards, and for whatever else is told; and at each poll."""
        return sum(self._hints) + self._other + self.polls()

    def polls(self) -> int:
        """A number that rises when it is time to look for what no hint told of."""
        return int(self._loop.time() / POLL_SECONDS)
