"""One PostgreSQL database as a process sees it: its connections, its leases, and the hints that go to and fro."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

import msgspec

from perdure.errors import CallerError, StoreError
from perdure.kernel.placement import SHARDS_MAX

from . import schema
from .connections import QUICK, SETTINGS, Connections, Place, connect, log
from .failures import FAILURES, open_error
from .listener import Listener, channel
from .queries import PostgresQueries
from .statements import statements
from .store import PostgresStore

LEASE_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.5
"""How often it is looked for what no hint told of."""

ENGINE_CONNECTIONS: Final = 8
CLIENT_CONNECTIONS: Final = 4

INBOX: Final = "inbox "


class Shard(msgspec.Struct, frozen=True):
    """How a shard stands. `free`: nobody has it, or the lease of its owner has expired."""

    number: int
    owner: str
    epoch: int
    free: bool


class Standing(msgspec.Struct, frozen=True):
    """The answer to `renew`: what is still ours, by shard; all shards; how many engines live, this one included."""

    ours: dict[int, int]
    shards: tuple[Shard, ...]
    engines: int


class PostgresDatabase:
    """Made by `open`, on the loop that it is used on."""

    def __init__(self, place: Place, shards: int, lease_seconds: float) -> None:
        self.place = place
        self.shards = shards
        self.lease_seconds = lease_seconds
        self.sql = statements(place.namespace)
        self.host = socket.gethostname()
        self.engine = Connections(place, QUICK, ENGINE_CONNECTIONS)
        self.clients = Connections(place, SETTINGS, CLIENT_CONNECTIONS)
        self.queries = PostgresQueries(self)
        self.held: set[int] = set()
        """The shards whose leases are held here: they need no hint from outside."""
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hints = [0] * shards
        self._unsaid: set[int] = set()
        self._speaking = False
        self._listener: Listener | None = None
        self._heard: Callable[[str], None] | None = None

    @classmethod
    async def open(
        cls, url: str, schema: str | None = None, *, lease_seconds: float = LEASE_SECONDS
    ) -> "PostgresDatabase":
        """A URL may name its schema, too: `?schema=NAME`. Raises `CannotOpen` or `NewerSchema`, with the reason."""
        place = Place(url, schema)
        shards = await _checked(place)
        return cls(place, shards, lease_seconds)

    @staticmethod
    async def upgrade(url: str, namespace: str | None = None, *, shards: int | None = None) -> tuple[int, int]:
        """Make the schema, or bring it up to date: the version it had (0: none), and the one it has."""
        place = Place(url, namespace)
        checked_shards(shards)
        async with _first_connection(place) as connection:
            return await schema.upgrade(connection, place.name, place.namespace, shards)

    @staticmethod
    async def upgrade_script(url: str, namespace: str | None = None, *, shards: int | None = None) -> str:
        """The SQL that `upgrade` would execute; empty if there is nothing to do."""
        place = Place(url, namespace)
        checked_shards(shards)
        async with _first_connection(place) as connection:
            before = await schema.version_of(connection, place.namespace)
        return schema.script(place.namespace, before, shards) if before < schema.VERSION else ""

    def store(self, shard: int) -> PostgresStore:
        assert 0 <= shard < self.shards, f"there are {self.shards} shards"
        return PostgresStore(self, shard)

    async def close(self) -> None:
        """What is under way comes to its end first."""
        if self._listener is not None:
            await self._listener.close()
        await self.rest()
        await self.engine.close()
        await self.clients.close()

    async def rest(self) -> None:
        """Return when nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Something that goes on by itself; a close waits for it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- leases --------------------------------------------------------------------------------------------

    async def renew(self, owner: str, shards: Mapping[int, int]) -> Standing:
        """Renew the leases of these shards, by epoch, as far as they are still the owner's, and say that he lives."""
        arguments = owner, list(shards), list(shards.values()), self.lease_seconds
        rows = await self.engine.ask(lambda connection: connection.fetch(self.sql.renew, *arguments), self.lease_seconds)
        ours = {number: shards[number] for number, _, _, _, kept, _ in rows if kept}
        return Standing(ours, tuple(Shard(*row[:4]) for row in rows), rows[0][5] + 1)

    async def leave(self, owner: str) -> None:
        """Give all leases of an engine back, and take it from the living."""
        await self.engine.ask(lambda connection: connection.execute(self.sql.leave, owner), self.lease_seconds)

    # ---- hints ---------------------------------------------------------------------------------------------

    def listen(self, callback: Callable[[str], None]) -> None:
        """Call back with each hint that is heard, from here or from elsewhere; "": anything may have happened."""
        self._heard = callback
        if self._listener is None:
            self._listener = Listener(self.place, self._hear)

    async def listening(self) -> None:
        """Return when hints from elsewhere are heard."""
        assert self._listener is not None
        await self._listener.ready.wait()

    async def notify(self, payload: str) -> None:
        """Give a hint to every process that listens. It costs the server a lock that all such commits share: say
        many things at once."""
        arguments = channel(self.place), payload
        await self.clients.ask(lambda connection: connection.execute(self.sql.notify, *arguments), 0)

    def hint(self, shards: Iterable[int]) -> None:
        """Something is in the inbox of these shards. While one hint is on its way, others are gathered."""
        shards = list(shards)
        self._raise(shards)
        if self._heard is not None:
            self._heard(INBOX + ",".join(map(str, shards)))
        self._unsaid.update(shard for shard in shards if shard not in self.held)
        if self._unsaid and not self._speaking:
            self._speaking = True
            self.spawn(self._speak())

    async def _speak(self) -> None:
        try:
            while self._unsaid:
                shards, self._unsaid = self._unsaid, set()
                await self.notify(INBOX + ",".join(map(str, sorted(shards))))
        except StoreError as error:
            log.debug("a hint was not given: %s", error)  # the poll finds it
        finally:
            self._speaking = False

    def _hear(self, payload: str) -> None:
        if payload.startswith(INBOX):
            self._raise(int(text) for text in payload.removeprefix(INBOX).split(",") if text.isdecimal())
        else:
            self._raise(range(self.shards))
        if self._heard is not None:
            self._heard(payload)

    def _raise(self, shards: Iterable[int]) -> None:
        for shard in shards:
            if 0 <= shard < self.shards:
                self._hints[shard] += 1

    def hints(self, shard: int) -> int:
        """A number that rises whenever a shard's inbox may have got something; and at each poll."""
        return self._hints[shard] + self._polls()

    def changes(self) -> int:
        """The same for all shards."""
        return sum(self._hints) + self._polls()

    def _polls(self) -> int:
        return int(self._loop.time() / POLL_SECONDS)


class _first_connection:
    """The connection by which a database is opened: every failure is told in words."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._connection: Any = None

    async def __aenter__(self) -> Any:
        try:
            self._connection = await connect(self._place)
        except (*FAILURES, ValueError) as error:
            raise open_error(self._place.name, error) from error
        return self._connection

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._connection.terminate()
        if isinstance(error, FAILURES):
            raise open_error(self._place.name, error) from error


async def _checked(place: Place) -> int:
    """The number of shards of a database that has the schema it should have."""
    async with _first_connection(place) as connection:
        await schema.check(connection, place.name, place.namespace)
        return int(await connection.fetchval(statements(place.namespace).shard_count))


def checked_shards(shards: int | None) -> None:
    if shards is not None and not 0 < shards <= SHARDS_MAX:
        raise CallerError(f"a database has 1 to {SHARDS_MAX} shards, not {shards}")
