"""Between an engine and its database: a TCP proxy that can lose answers, keep questions back, and cut connections."""

import asyncio
from contextlib import suppress
from typing import Self
from urllib.parse import parse_qs, urlsplit, urlunsplit


class Proxy:
    """`async with Proxy(url) as proxy:` and give `proxy.url` to whoever is to suffer."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._query = parse_qs(self._parts.query)
        self._pipes: set[asyncio.Task[None]] = set()
        self._clients: list[asyncio.StreamWriter] = []
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._ended: dict[asyncio.StreamWriter, asyncio.Event] = {}
        self.lose_answers = False  # the next answer is lost, with its connection
        self.keep_back = False  # the next question is kept back, and its connection cut
        self.lost: list[bytes] = []  # the answers that were

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user, found, _ = self._parts.netloc.rpartition("@")
        query = "&".join(f"{name}={value[0]}" for name, value in self._query.items() if name not in ("host", "port"))
        netloc = f"{user}{found}127.0.0.1:{port}"
        self.url = urlunsplit(self._parts._replace(netloc=netloc, query=query))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._pipes):
            task.cancel()
        if self._pipes:
            await asyncio.wait(self._pipes)
        for writer in self._clients:
            writer.close()

    @property
    def kept(self) -> list[bytes]:
        """The questions that are kept back."""
        return [question for _, question in self._held]

    async def release(self) -> None:
        """What was kept back arrives now; return when the server has dealt with it."""
        for server, question in self._held:
            server.write(question)
            server.write_eof()
            await server.drain()
            await self._ended[server].wait()
        self._held.clear()

    def cut(self) -> None:
        """All connections that there are."""
        for writer in self._clients:
            writer.transport.abort()
        self._clients.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        self._clients.append(writer)
        self._ended[server] = asyncio.Event()
        for pipe in (self._questions(reader, writer, server), self._answers(server_reader, writer, server)):
            task = asyncio.ensure_future(pipe)
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = self._query.get("host", [self._parts.hostname or "127.0.0.1"])[0]
        port = self._parts.port or 5432
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def _questions(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self.keep_back:
                    self.keep_back = False
                    self._held.append((server, data))
                    client.transport.abort()
                    return
                server.write(data)
                await server.drain()
            server.close()

    async def _answers(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self.lose_answers:
                    self.lose_answers = False
                    self.lost.append(data)
                    client.transport.abort()
                    server.close()
                    return
                if not client.is_closing():
                    client.write(data)
                    await client.drain()
            client.close()
        self._ended[server].set()
