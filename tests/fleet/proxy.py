"""A network that fails on request: a TCP proxy between an engine and PostgreSQL.

It reads what clients say just well enough to know a commit when it passes: a Bind of a statement whose text writes the
journal, up to the Sync after it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

COMMITS = (b".commit(", b".journal (seq")
"""What the statements of a commit have in them."""


class Proxy:
    """Made by `proxied`. `url` leads through it."""

    def __init__(self, url: str) -> None:
        self._target = url
        self.url = ""
        self.delay = 0.0  # seconds before anything is passed on, either way
        self.refusing = False  # whoever connects is turned away
        self.refused = 0
        self.cuts_wanted = 0  # so many commits will be made whose answer is lost
        self.cuts = 0
        self.commits = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._links: set[Link] = set()

    def drop(self) -> None:
        """All connections are gone."""
        for link in list(self._links):
            link.cut()

    def hold(self) -> None:
        """Nothing arrives any more, and nobody is told. What is sent waits."""
        self._flowing.clear()

    def release(self) -> None:
        """What waits arrives."""
        self._flowing.set()

    async def flowing(self) -> None:
        await self._flowing.wait()
        if self.delay:
            await asyncio.sleep(self.delay)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            self.refused += 1
            writer.transport.abort()
            return
        try:
            there = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        link = Link(self, (reader, writer), there)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._target)
        directory = dict(parse_qsl(parts.query)).get("host", "")
        if directory.startswith("/"):
            return await asyncio.open_unix_connection(f"{directory}/.s.PGSQL.{parts.port or 5432}")
        return await asyncio.open_connection(parts.hostname, parts.port or 5432)

    def listens_at(self, port: int) -> None:
        parts = urlsplit(self._target)
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        query = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("host", "sslmode")]
        netloc = f"{user}127.0.0.1:{port}"
        self.url = urlunsplit(parts._replace(netloc=netloc, query=urlencode([*query, ("sslmode", "disable")])))


class Link:
    """One connection through a proxy."""

    def __init__(
        self,
        proxy: Proxy,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._statements: dict[bytes, bool] = {}  # whether they are commits
        self._unread = b""
        self._greeted = False  # the first message has no letter
        self._bound = False  # to a commit that has not been sent off yet
        self._doomed = False  # a commit is under way whose answer will be lost

    async def run(self) -> None:
        ways = [
            asyncio.ensure_future(self._pass_on(self._client[0], self._server[1], self._hear)),
            asyncio.ensure_future(self._pass_on(self._server[0], self._client[1], lambda _: None)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cut()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def cut(self) -> None:
        for _, writer in (self._client, self._server):
            writer.transport.abort()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hear: Callable[[bytes], None]
    ) -> None:
        with suppress(OSError):
            while said := await reader.read(65536):
                await self._proxy.flowing()
                hear(said)
                if self._doomed and reader is self._server[0]:
                    self._proxy.cuts += 1
                    return
                writer.write(said)
                await writer.drain()

    def _hear(self, said: bytes) -> None:
        self._unread += said
        while (message := self._next()) is not None:
            kind, body = message
            if kind == b"P":
                name, text = body.split(b"\0")[:2]
                self._statements[name] = any(word in text for word in COMMITS)
            elif kind == b"B":
                self._bound = self._statements.get(body.split(b"\0")[1], False)
            elif kind == b"S" and self._bound:
                self._bound = False
                self._proxy.commits += 1
                if self._proxy.cuts_wanted:
                    self._proxy.cuts_wanted -= 1
                    self._doomed = True

    def _next(self) -> tuple[bytes, bytes] | None:
        """A whole message, if there is one: a letter, the length with itself, the rest. The first has no letter."""
        letter = 1 if self._greeted else 0
        if len(self._unread) < letter + 4:
            return None
        end = letter + int.from_bytes(self._unread[letter : letter + 4], "big")
        if len(self._unread) < end:
            return None
        kind, body = self._unread[:letter], self._unread[letter + 4 : end]
        self._unread = self._unread[end:]
        self._greeted = True
        return kind, body


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(url)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.listens_at(server.sockets[0].getsockname()[1])
    try:
        yield proxy
    finally:
        proxy.release()
        proxy.drop()
        server.close()
