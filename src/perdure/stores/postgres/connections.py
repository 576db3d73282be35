"""Connections to one server: some that are used again and again, made when they are needed.

asyncpg has a pool of its own, which asks the server to reset a connection after each use: a second round trip for every
commit. Nothing here changes a session, so nothing has to be reset.

A connection that is lost is replaced. A question that may be asked again waits meanwhile, with growing
pauses, and everybody can see it in the log.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import asyncpg

from perdure.errors import CannotOpen, StoreFailed

from .failures import FAILURES, failure, is_lost, may_pass, plain
from .statements import NAMESPACE, refuse_name, statements

T = TypeVar("T")

log = logging.getLogger("perdure")

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 20.0
"""A server that has not answered for so long, or at least half as long, is taken for lost: no question may
wait for ever for what a network dropped."""

PATIENCE_SECONDS: Final = 30.0
"""How long a question is asked again before it fails."""

PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0

SETTINGS: Final = {
    "jit": "off",  # compiling a plan costs more than any of ours takes
}

QUICK: Final = SETTINGS | {
    # The plans of the engine are by index, whatever the statistics of a table say that was empty a minute ago.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}


class DatabasePlace:
    """Where a database is: a URL, the namespace in it (`?schema=NAME`), and how to name it without its password."""

    def __init__(self, url: str, namespace: str | None = None) -> None:
        scheme, _, _ = url.partition("://")
        if scheme not in ("postgresql", "postgres"):
            raise CannotOpen(f"{url!r:.80} is not a URL of PostgreSQL: postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
        try:
            parts = urlsplit(url)
            query = parse_qsl(parts.query, keep_blank_values=True)
            user, host, port = parts.username, parts.hostname, parts.port
        except ValueError:  # its text may have a part of the password
            raise CannotOpen(
                "the host or port of this URL cannot be read: it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE, and "
                "what is special in a password is written as %2F and the like"
            ) from None
        named = [value for name, value in query if name == "schema"]
        self.namespace = namespace or (named[-1] if named else NAMESPACE)
        refuse_name(self.namespace)
        kept = [(name, value) for name, value in query if name not in ("schema", "password")]
        if self.namespace != NAMESPACE:
            kept.append(("schema", self.namespace))
        rest = [(name, value) for name, value in query if name != "schema"]
        self.dsn = urlunsplit(parts._replace(query=urlencode(rest)))
        address = (f"{quote(user)}@" if user else "") + (host or "") + (f":{port}" if port else "")
        self.name = urlunsplit((scheme, address, parts.path or "/", urlencode(kept, safe="/"), ""))
        """For people; it can be typed, too."""


async def connect(place: DatabasePlace, settings: dict[str, str] = SETTINGS) -> Any:
    """One connection, ready for use. Raises what asyncpg raises.

    The settings are made afterwards: PgBouncer refuses most of them as parameters of a connection.
    """
    async with asyncio.timeout(CONNECT_SECONDS):
        connection = await asyncpg.connect(
            place.dsn, server_settings={"application_name": "perdure"}, timeout=CONNECT_SECONDS
        )
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            made = [f"SET {name} = {value}" for name, value in settings.items()]
            await connection.execute(";\n".join([*made, statements(NAMESPACE).prepare_session]))
    except BaseException:
        connection.terminate()
        raise
    return connection


class Connections:
    def __init__(self, place: DatabasePlace, settings: dict[str, str], size: int) -> None:
        self._place = place
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._free = size
        self._idle: list[Any] = []
        self._busy: dict[Any, float] = {}  # since when
        self._watch: asyncio.TimerHandle | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._lost = False  # and told
        self.closed = False

    async def ask(self, question: Callable[[Any], Awaitable[T]], patience: float = PATIENCE_SECONDS) -> T:
        """The answer to a question that may be asked again: it is, on another connection, while that may help."""
        until = self._loop.time() + patience
        pauses = Pauses()
        while True:
            try:
                async with self.one() as connection:
                    return await question(connection)
            except FAILURES as error:
                if not may_pass(error) or self.closed or self._loop.time() > until:
                    raise failure(self._place.name, error) from error
                self.tell_lost(error)
            await pauses.next()

    def one(self) -> "Borrowed":
        """A connection for a moment. It is not used again if it was lost, or left in the middle of a question."""
        return Borrowed(self)

    def take_idle(self) -> Any | None:
        """One that can be used at once."""
        while self._idle and self._free:
            connection = self._idle.pop()
            if not connection.is_closed():
                self._free -= 1
                self._lend(connection)
                return connection
        return None

    async def take(self) -> Any:
        if self.closed:
            raise StoreFailed(f"{self._place.name} was closed")
        await self._take_place()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                self._lend(connection)
                return connection
        try:
            connection = await connect(self._place, self._settings)
        except BaseException:
            self._one_more()
            raise
        if self._lost:
            self._lost = False
            log.warning("%s answers again", self._place.name)
        self._lend(connection)
        return connection

    async def _take_place(self) -> None:
        """First come, first served: a place is handed on in the order of the requests."""
        if self._free:
            self._free -= 1
            return
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._one_more()
            raise

    def give_back(self, connection: Any, error: BaseException | None) -> None:
        del self._busy[connection]
        if self.closed or (error is not None and (is_lost(error) or isinstance(error, asyncio.CancelledError))):
            connection.terminate()
        elif not connection.is_closed():
            self._idle.append(connection)
        self._one_more()

    def _one_more(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    def _lend(self, connection: Any) -> None:
        """A timer for each question would cost as much as a tenth of a commit. So one looks after all of them."""
        self._busy[connection] = self._loop.time()
        if self._watch is None:
            self._watch = self._loop.call_later(ANSWER_SECONDS / 2, self._look)

    def _look(self) -> None:
        self._watch = None
        before = self._loop.time() - ANSWER_SECONDS / 2
        for connection in [connection for connection, since in self._busy.items() if since < before]:
            connection.terminate()  # the caller of its question hears that it was lost
        if self._busy:
            self._watch = self._loop.call_later(ANSWER_SECONDS / 2, self._look)

    def tell_lost(self, error: BaseException) -> None:
        if not self._lost:
            self._lost = True
            log.warning("%s does not answer (%s); trying again", self._place.name, plain(error))

    async def close(self) -> None:
        self.closed = True
        if self._watch is not None:
            self._watch.cancel()
        idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(*FAILURES):
                await connection.close(timeout=1)


class Borrowed:
    """`async with connections.one() as connection:`"""

    __slots__ = ("_connection", "_connections")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def __aenter__(self) -> Any:
        self._connection = self._connections.take_idle() or await self._connections.take()
        return self._connection

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._connections.give_back(self._connection, error)


class Pauses:
    """Growing pauses between attempts, uneven, so that a fleet does not come back in step."""

    def __init__(self) -> None:
        self._seconds = PAUSE_SECONDS

    async def next(self) -> None:
        await asyncio.sleep(self._seconds * random.uniform(0.5, 1))
        self._seconds = min(self._seconds * 2, PAUSE_SECONDS_MAX)
