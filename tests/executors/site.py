"""A small web site on 127.0.0.1 for tests: real sockets, answers by path, and a list of what was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Asked(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


class Site:
    """`async with Site({"/": answer}) as site`: it listens while the block runs."""

    def __init__(self, answers: dict[str, Answer], tls: ssl.SSLContext | None = None) -> None:
        self._answers = answers
        self._tls = tls
        self.asked: list[Asked] = []
        self._serving: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self.left = asyncio.Event()
        """Set when the other side has gone."""

    async def __aenter__(self) -> Site:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task, writer in self._serving.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._serving)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        with suppress(asyncio.CancelledError):
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                await self._answer(reader, writer)
            writer.close()
            with suppress(ConnectionError):
                await reader.read()
            self.left.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.rstrip().split("\r\n")
        headers = dict(each.split(": ", 1) for each in rest)
        asked = Asked(line, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
        self.asked.append(asked)
        await self._answers[line.split(" ")[1].partition("?")[0]](asked, writer)
        await writer.drain()


def says(body: bytes, status: str = "200 OK", **headers: str) -> Answer:
    """A whole answer."""

    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{lines}\r\n".encode("latin-1") + body)

    return answer


def writes(data: bytes) -> Answer:
    """These bytes, and the end."""

    async def answer(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return answer


def certificate(directory: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server of this name, and for clients that trust it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    file = directory / "server.pem"
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(private + made.public_bytes(pem))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    client = ssl.create_default_context(cadata=made.public_bytes(pem).decode())
    return server, client
