"""`perdure serve`: an engine with a server, or a server alone, until a signal."""

from __future__ import annotations

import asyncio
import getpass
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from perdure.app import connect, run_async
from perdure.app import open as open_engine
from perdure.runtime.client import Client

from ..console import Console, define
from ..exits import Stopped
from ..load import served_by

if TYPE_CHECKING:
    from perdure.app import Engine
    from perdure.server import ServerApp

LISTEN = "127.0.0.1:7373"


@define("serve")
@click.argument("modules", metavar="MODULE", nargs=-1)
@click.option("--listen", default=LISTEN, show_default=True, metavar="HOST:PORT", help="Port 0 takes a free one.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name under which browsers come; repeatable.")
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="The certificate, a PEM file.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Its key, a PEM file.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front speaks TLS.")
@click.option("--queue", "queues", multiple=True, metavar="NAME=N", help="Serve a queue, N steps at once; repeatable.")
@click.option("--connect", "connecting", is_flag=True, help="No engine: the server reads and asks another process.")
@click.option("--read-only", is_flag=True, help="Refuse every verb that changes something.")
@click.option("--no-ui", is_flag=True, help="The API alone.")
def serve(  # noqa: PLR0917
    console: Console,
    modules: tuple[str, ...],
    listen: str,
    hosts: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    behind_proxy: bool,
    queues: tuple[str, ...],
    connecting: bool,
    read_only: bool,
    no_ui: bool,
) -> None:
    """The engine runs the workflows of the modules. Without a module the server runs no workflow and needs no code.

    It prints a link that logs you in once. Whoever can write the database is admin. Ctrl-C or SIGTERM: streams end,
    open requests get 5 seconds, running steps drain; the second one: at once.
    """
    try:
        import uvicorn  # noqa: F401
    except ImportError:
        raise Stopped("a server needs uvicorn: pip install 'perdure[server]'") from None
    from perdure.server.auth.origins import LOOPBACK, name_of
    from perdure.server.serve import bind
    from perdure.server.settings import Settings

    host, port = address_of(listen)
    local = name_of(host) in LOOPBACK
    if (tls_cert is None) != (tls_key is None):
        raise Stopped("--tls-cert and --tls-key go together")
    if not local and tls_cert is None and not behind_proxy:
        text = f"{host} is reached from elsewhere: give --tls-cert and --tls-key, or --behind-proxy with a TLS proxy"
        raise Stopped(f"{text}; 127.0.0.1 needs neither")
    code = [served_by(module) for module in modules]
    listening = bind(host, port)
    port = listening.getsockname()[1]
    settings = Settings(
        hosts=tuple(dict.fromkeys([*LOOPBACK, name_of(host), *(name_of(each) for each in hosts)])),
        secure=tls_cert is not None or behind_proxy,
        read_only=read_only,
        ui=not no_ui,
        database=without_password(console.db),
        cookie=f"perdure-{port}",
        connect=connecting or not modules,
    )
    scheme, shown = "https" if tls_cert else "http", hosts[0] if hosts else f"{_shown(host)}:{port}"
    tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    serving = Serving(console, listening, settings, f"{scheme}://{shown}", tls)
    workflows, handlers = [each for found, _ in code for each in found], [each for _, found in code for each in found]
    run_async(lambda: serving.run(workflows, handlers, _queues(queues)))


class Serving:
    """`ready` is called with the app when requests are answered; else the login link is printed."""

    def __init__(  # noqa: PLR0917
        self,
        console: Console,
        listening: socket.socket,
        settings: Any,
        url: str,
        tls: tuple[str, str] | None,
        ready: Callable[[ServerApp], None] | None = None,
    ) -> None:
        self._console, self._listening, self._settings, self._url = console, listening, settings, url
        self._tls, self._ready = tls, ready

    async def run(
        self,
        workflows: list[Any],
        handlers: list[Any],
        queues: dict[str, int],
        began: Callable[[Engine], Awaitable[None]] | None = None,
    ) -> None:
        from perdure.server.serve import signals

        with signals() as (stop, hurry):
            if self._settings.connect:
                async with connect(self._console.db) as client:
                    await self._answer(client, stop)
                return
            opened = open_engine(self._console.db, workflows=workflows, handlers=handlers, queues=queues or None)
            async with opened as engine:
                engine.hurry = hurry
                if began is not None:
                    await began(engine)
                await self._answer(engine, stop)

    async def _answer(self, client: Client, stop: asyncio.Event) -> None:
        from perdure.server import app
        from perdure.server.serve import serve as answer

        made = app(client, settings=self._settings)

        def ready() -> None:
            if self._ready is not None:
                self._ready(made)
                return
            link = f"{self._url}/login#{made.accesses.own_link(_user())}"
            if self._console.json:
                self._console.answer({"url": self._url, "login": link}, "")
            else:
                self._console.note(f"serving {self._settings.database} at {self._url}")
                click.echo(f"log in once: {link}")
            sys.stdout.flush()

        await answer(made, self._listening, stop=stop, ready=ready, tls=self._tls)


def without_password(url: str) -> str:
    """A URL as people may see it."""
    scheme, found, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}@{place}" if found and at else url


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "owner"


def address_of(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise Stopped(f"--listen is HOST:PORT such as {LISTEN}, found {listen!r}")
    return host, int(port)


def _shown(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "[::1]"}.get(host, host)


def _queues(given: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for each in given:
        name, _, count = each.partition("=")
        if not name or not count.isdigit() or int(count) < 1:
            raise Stopped(f"--queue is NAME=N such as images=8, found {each!r}")
        found[name] = int(count)
    return found
