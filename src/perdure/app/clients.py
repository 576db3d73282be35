"""Callers without an engine of their own: clients of another process, and scripts without an event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

from perdure.errors import CallerError
from perdure.kernel.workflows import Workflows
from perdure.runtime.client import Client
from perdure.runtime.connection import Connection
from perdure.runtime.connections import RemoteConnection
from perdure.runtime.startable import Startable

from .definitions import stored_one
from .dialects import read_catalog, registered
from .engine import open
from .entrance import entrance
from .ours import SCHEMAS
from .urls import connect_store, is_server


@entrance
@asynccontextmanager
async def connect(url: str | os.PathLike[str], *, workflows: Iterable[Any] = ()) -> AsyncIterator[Client]:
    """Talk to the engine of another process: start, send, cancel, read. Needs no code; `workflows` converts types."""
    known, _ = registered(workflows)
    if is_server(url):
        from .fleets import connected

        async with connected(str(url)) as connection:
            yield _client(connection, known)
        return
    store = connect_store(url)
    try:
        yield _client(RemoteConnection(store), known)
    finally:
        store.close()


def run(
    workflow: Any,
    *args: Any,
    url: str | os.PathLike[str] = ":memory:",
    key: str | None = None,
    workflows: Iterable[Any] = (),
    **kwargs: Any,
) -> Any:
    """The one synchronous way in: open, start, wait for the result, close."""
    if asyncio._get_running_loop() is not None:
        raise CallerError("perdure.run(...) is for code without an event loop; here: async with perdure.open(...)")

    async def main() -> Any:
        async with open(url, workflows=[workflow, *workflows]) as engine:
            handle = await engine.start(workflow, *args, key=key, **kwargs)
            return await handle.result()

    return run_async(main)


def run_async(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run a coroutine function on a new loop, on uvloop where it is installed."""
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(main())  # type: ignore[arg-type]


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _client(connection: Connection, known: Workflows[Any]) -> Client:
    client = Client(connection, cast(Workflows[Startable[Any]], known), read_catalog, stored_one)
    client.processes.make_schema = SCHEMAS["process"]
    return client
