"""Between an engine and its database: a network that fails on request.

It reads what clients say just well enough to know a commit when it passes: a Bind of a statement whose text writes the
journal, up to the Sync after it.
"""

import asyncio
from contextlib import suppress
from typing import Final, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

COMMITS: Final = (b".commit(", b".journal (seq")
"""What the statements of a commit have in them."""

TAKES: Final = b".take("
"""What the statement has in it that takes a shard."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """`async with Proxy(url) as proxy:` and give `proxy.url` to whoever is to suffer."""

    def __init__(self, url: str) -> None:
        self._target = url
        self.url = ""
        self.lose_answers = False  # the next answer is lost, with its connection
        self.keep_back = False  # the next question is kept back, and its connection cut
        self.lose_commits = 0  # so many commits will be made whose answer is lost, with its connection
        self.delay = 0.0  # seconds before anything is passed on, either way
        self.deaf = False  # who listens for notifications from now on hears none
        self.refusing = False  # whoever connects is turned away
        self.stop_at = b""  # a statement that has this in it is the last thing that passes
        self.lost: list[bytes] = []  # the answers that were
        self.commits_lost = 0
        self.deafened = 0
        self.refused = 0
        self.waiting = 0  # questions and answers that stand still
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._links: set[_Link] = set()
        self._kept: list[tuple[_Link, bytes]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        parts = urlsplit(self._target)
        user, found, _ = parts.netloc.rpartition("@")
        netloc = f"{user}{found}127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        query = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("host", "port", "sslmode")]
        self.url = urlunsplit(parts._replace(netloc=netloc, query=urlencode([*query, ("sslmode", "disable")])))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        self.flow()
        self.cut()
        await asyncio.gather(*[link.task for link in self._links], return_exceptions=True)

    def close(self) -> None:
        """Nobody can connect any more."""
        self._server.close()

    def cut(self) -> None:
        """All connections that there are."""
        for link in list(self._links):
            link.cut()

    def stand_still(self) -> None:
        """Nothing arrives any more, and nobody is told. What is sent waits."""
        self._flowing.clear()

    def flow(self) -> None:
        """What waits arrives."""
        self._flowing.set()

    @property
    def still(self) -> bool:
        return not self._flowing.is_set()

    @property
    def kept(self) -> list[bytes]:
        """The questions that are kept back."""
        return [question for _, question in self._kept]

    async def release(self) -> None:
        """What was kept back arrives now; return when the server has dealt with it."""
        kept, self._kept = self._kept, []
        for link, question in kept:
            await link.ask(question)

    def keep(self, link: "_Link", question: bytes) -> None:
        self.keep_back = False
        self._kept.append((link, question))

    async def passing(self) -> None:
        """Wait for as long as the network makes everything wait."""
        self.waiting += 1
        try:
            await self._flowing.wait()
        finally:
            self.waiting -= 1
        if self.delay:
            await asyncio.sleep(self.delay)

    async def _serve(self, *client: *Streams) -> None:
        try:
            if self.refusing:
                self.refused += 1
                raise ConnectionRefusedError
            link = _Link(self, client, await self._connect())
        except OSError:
            client[1].transport.abort()
            return
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def _connect(self) -> Streams:
        parts = urlsplit(self._target)
        host = dict(parse_qsl(parts.query)).get("host", parts.hostname or "127.0.0.1")
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{parts.port or 5432}")
        return await asyncio.open_connection(host, parts.port or 5432)


class _Link:
    """One connection through a proxy."""

    def __init__(self, proxy: Proxy, client: Streams, server: Streams) -> None:
        self._proxy = proxy
        self._questions, self._client = client
        self._answers, self._server = server
        self._heard = Questions()
        self._doomed = False  # a commit is under way whose answer will be lost
        self._kept = False
        current = asyncio.current_task()
        assert current is not None
        self.task = current

    async def run(self) -> None:
        ways = [asyncio.ensure_future(self._ask()), asyncio.ensure_future(self._answer())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.cut()

    def cut(self) -> None:
        self._client.transport.abort()
        if not self._kept:
            self._server.transport.abort()

    async def ask(self, question: bytes) -> None:
        """A question that was kept back; return when the server has dealt with it."""
        self._server.write(question)
        self._server.write_eof()
        with suppress(OSError):
            while await self._answers.read(65536):
                pass
        self._server.transport.abort()

    async def _ask(self) -> None:
        proxy = self._proxy
        with suppress(OSError):
            while said := await self._questions.read(65536):
                await proxy.passing()
                if proxy.keep_back:
                    proxy.keep(self, said)
                    self._kept = True
                    return
                for statement in self._heard.asked(said):
                    if proxy.lose_commits and any(word in statement for word in COMMITS):
                        proxy.lose_commits -= 1
                        self._doomed = True
                    if proxy.stop_at and proxy.stop_at in statement:
                        proxy.stop_at = b""
                        proxy.stand_still()
                if proxy.deaf and b'LISTEN "' in said:
                    said = said.replace(b'LISTEN "test_', b'LISTEN "lost_')
                    proxy.deafened += 1
                self._server.write(said)
                await self._server.drain()

    async def _answer(self) -> None:
        proxy = self._proxy
        with suppress(OSError):
            while said := await self._answers.read(65536):
                await proxy.passing()
                if self._doomed or proxy.lose_answers:
                    proxy.commits_lost += self._doomed
                    proxy.lose_answers = False
                    proxy.lost.append(said)
                    return
                self._client.write(said)
                await self._client.drain()


class Questions:
    """What a client says, as far as one must know it to tell which statements it asks for."""

    def __init__(self) -> None:
        self._statements: dict[bytes, bytes] = {}
        self._unread = b""
        self._greeted = False
        self._bound: list[bytes] = []

    def asked(self, said: bytes) -> list[bytes]:
        """The texts of the statements that are complete with this: bound, and sent off with a Sync."""
        self._unread += said
        found: list[bytes] = []
        while (message := self._next()) is not None:
            kind, body = message
            if kind == b"P":
                name, text = body.split(b"\0")[:2]
                self._statements[name] = text
            elif kind == b"B":
                self._bound.append(self._statements.get(body.split(b"\0")[1], b""))
            elif kind == b"S":
                found += self._bound
                self._bound = []
        return found

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
