"""`perdure serve`: an engine with a server, or a server alone, until a signal."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from perdure.app import connect, run_async
from perdure.app import open as open_engine
from perdure.runtime.client import Client
from perdure.server.auth.oidc import OidcSettings
from perdure.server.configuration import OPTIONS, Configured, configured, without_password
from perdure.server.settings import Settings, checked

from ..console import Console, define
from ..exits import Stopped
from ..load import served_by

if TYPE_CHECKING:
    from perdure.app import Engine
    from perdure.server import ServerApp

LISTEN = "127.0.0.1:7373"


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """The flags of the settings, see `perdure.server.configuration`."""
    for option in reversed(OPTIONS):
        if option.flag and option.name != "db":
            more: dict[str, Any] = {"metavar": option.metavar or None, "help": option.help}
            if option.form == "switch":
                more["is_flag"] = True
            elif option.form == "texts":
                more["multiple"] = True
            elif option.default:
                more["help"] += f"  [default: {option.default}]"
            function = click.option(option.flag, option.name, **more)(function)
    return function


def settled(console: Console) -> dict[str, Configured]:
    """Each setting of a server, as flags, environment and files give it."""
    context = click.get_current_context()
    forms = {option.name: option for option in OPTIONS}
    flags = {
        name: forms[name].default is False if forms[name].form == "switch" else value
        for name, value in context.params.items()
        if name in forms and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    return configured(flags, os.environ, Path.cwd())


@define("serve", db="settings")
@click.argument("modules", metavar="[MODULE...]", nargs=-1)
@_options
def serve(console: Console, modules: tuple[str, ...], **flags: Any) -> None:
    """The engine runs the workflows of the modules. Without a module the server runs no workflow and needs no code.

    It prints a link that logs you in once. An actor that can write the database is admin. Ctrl-C or SIGTERM: streams
    end, open requests get 5 seconds, running steps drain; the second one: at once. `perdure config` tells where each
    setting comes from.
    """
    try:
        import uvicorn  # noqa: F401
    except ImportError:
        raise Stopped("a server needs uvicorn: pip install 'perdure[server]'") from None
    from perdure.server.auth.origins import LOOPBACK, name_of
    from perdure.server.serve import bind

    found = {name: each.value for name, each in settled(console).items()}
    if not found["db"]:
        raise Stopped("a server needs a database: --db URL, PERDURE_DB, or `db` of the settings")
    host, port = address_of(found["listen"])
    cert, key, proxied = found["tls_cert"], found["tls_key"], found["behind_proxy"]
    if bool(cert) != bool(key):
        raise Stopped("--tls-cert and --tls-key go together")
    if name_of(host) not in LOOPBACK and not cert and not proxied:
        text = f"{host} is reached from elsewhere: give --tls-cert and --tls-key, or --behind-proxy with a TLS proxy"
        raise Stopped(f"{text}; 127.0.0.1 needs neither")
    for file in filter(None, (cert, key)):
        if not Path(file).is_file():
            raise Stopped(f"there is no file {file}: --tls-cert and --tls-key name PEM files")
    code, queues = [served_by(module) for module in modules], _queues(found["queues"])
    settings = checked(_settings(found, host, connect=found["connect"] or not modules))
    listening = bind(host, port)
    port = listening.getsockname()[1]
    if not settings.secret:  # servers that share a secret share sessions; others have cookies of their own
        settings = replace(settings, cookie=f"perdure-{port}")
    url = _url(found["hosts"], host, port, tls=bool(cert), proxied=proxied)
    serving = Serving(console.at(found["db"]), listening, settings, url, (cert, key) if cert else None)
    workflows, handlers = [each for found, _ in code for each in found], [each for _, found in code for each in found]
    run_async(lambda: serving.run(workflows, handlers, queues))


def _url(hosts: list[str], host: str, port: int, *, tls: bool, proxied: bool) -> str:
    """What browsers call the server: a proxy in front has ports of its own."""
    name = hosts[0] if hosts else _shown(host)
    if not (proxied and hosts) and not name.rpartition("]")[2].partition(":")[1]:
        name = f"{name}:{port}"
    return f"{'https' if tls or (proxied and hosts) else 'http'}://{name}"


def _settings(found: dict[str, Any], host: str, *, connect: bool) -> Settings:
    from perdure.server.auth.origins import LOOPBACK, name_of

    return Settings(
        hosts=tuple(dict.fromkeys([*LOOPBACK, name_of(host), *(name_of(each) for each in found["hosts"])])),
        secret=found["secret"] or None,
        secure=bool(found["tls_cert"]) or found["behind_proxy"],
        read_only=found["read_only"],
        ui=found["ui"],
        redact=found["redact"],
        proxied=found["behind_proxy"],
        database=without_password(found["db"]),
        connect=connect,
        oidc=_oidc(found),
    )


def _oidc(found: dict[str, Any]) -> OidcSettings | None:
    if not found["oidc"]:
        return None
    return OidcSettings(
        issuer=found["oidc"],
        client=found["oidc_client"],
        secret=found["oidc_secret"],
        audience=found["oidc_audience"],
        actor=found["oidc_actor"],
        task_roles=found["oidc_task_roles"],
        grants=found["oidc_grants"],
    )


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
                    await self._answer(client, stop, hurry)
                return
            opened = open_engine(self._console.db, workflows=workflows, handlers=handlers, queues=queues or None)
            async with opened as engine:
                engine.hurry = hurry
                if began is not None:
                    await began(engine)
                await self._answer(engine, stop, hurry)

    async def _answer(self, client: Client, stop: asyncio.Event, hurry: asyncio.Event) -> None:
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

        await answer(made, self._listening, stop=stop, hurry=hurry, ready=ready, tls=self._tls)


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
