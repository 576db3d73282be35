"""Run the app on uvicorn until a signal: streams end first, open requests get a few seconds, then the engine drains."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from perdure.errors import CallerError

from . import limits
from .app import ServerApp

GRACE_SECONDS: Final = 5
BACKLOG: Final = 512


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY by this number
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host.strip("[]"), port))
    except OSError as error:
        found.close()
        raise CallerError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --listen") from None
    found.listen(BACKLOG)
    found.setblocking(False)
    return found


async def serve(
    app: ServerApp,
    listening: socket.socket,
    *,
    stop: asyncio.Event,
    hurry: asyncio.Event | None = None,
    ready: Callable[[], None] | None = None,
    tls: tuple[str, str] | None = None,
) -> None:
    """Answer until `stop` is set; open requests get a few seconds, unless `hurry` is set.

    `ready` is called when requests are answered.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        lifespan="off",
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=64 * 1024,
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
    )
    config.load()
    config.http_protocol_class = impatient(config.http_protocol_class)
    server = _server(config)
    running = asyncio.ensure_future(server.serve(sockets=[listening]))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while not server.started and not running.done():  # noqa: ASYNC110  # uvicorn has no event for it
            await asyncio.sleep(0.01)
        if ready is not None and not running.done():
            ready()
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await app.close()  # `ready` is 503 and streams say bye, before the door closes
        server.should_exit = True
        hurrying = asyncio.ensure_future((hurry or asyncio.Event()).wait())
        await asyncio.wait({running, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        server.force_exit = hurrying.done()
        hurrying.cancel()
        await running
    finally:
        stopping.cancel()
        if not running.done():
            server.force_exit = True
            server.should_exit = True
            with suppress(asyncio.CancelledError):
                await running


def impatient(protocol: Any) -> type[asyncio.Protocol]:
    """A protocol of uvicorn that closes connections on which no whole request comes in time: strangers could keep
    as many open as there are. A body has its own limit.
    """

    class Impatient(protocol):  # type: ignore[misc]  # which class it is depends on what is installed
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._late = self.loop.call_later(limits.READ_SECONDS, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # a request is under way
                self._stop_waiting()
            elif self._late is None:
                self._late = self.loop.call_later(limits.READ_SECONDS, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _stop_waiting(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Impatient


def _server(config: Any) -> Any:
    """uvicorn without signal handlers: the command has its own."""
    import uvicorn

    class Quiet(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Quiet(config)


@contextmanager
def signals() -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """The first SIGINT or SIGTERM stops, the second one hurries the drain."""
    stop, hurry, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

    def asked() -> None:
        (hurry if stop.is_set() else stop).set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, asked)
    try:
        yield stop, hurry
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
