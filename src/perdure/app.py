"""The only wiring: a URL and workflows in, an engine out."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from perdure.errors import CallerError, CannotOpen
from perdure.executors.hooks import Hooks
from perdure.executors.inline import InlineExecutor
from perdure.executors.process import ProcessExecutor
from perdure.executors.thread import ThreadExecutor
from perdure.flows.author import Flow
from perdure.flows.loop import Enclosure
from perdure.kernel.machine import Workflow
from perdure.kernel.outside import unsigned
from perdure.kernel.workflows import Workflows
from perdure.ports.executor import Executor
from perdure.ports.secrets import Secrets
from perdure.ports.store import Queries, Store
from perdure.runtime import collector
from perdure.runtime.client import Client
from perdure.runtime.clock import SystemClock
from perdure.runtime.doors import LocalDoor, RemoteDoor
from perdure.runtime.shard import MEMORY, Shard
from perdure.runtime.startable import Startable
from perdure.stores.answers import asked
from perdure.workers import serving

if TYPE_CHECKING:
    from perdure.cells.bind import Bound, Catalog
    from perdure.executors.signatures import Keyring

SETTLE: Final = 5.0
"""Seconds that what was there before gets to be dealt with, until an open returns all the same."""


class Engine(Client):
    """A client of an engine that runs in this process. Made by `perdure.open`."""

    def __init__(self, door: LocalDoor, shard: Shard, workflows: Workflows[Startable[Any]]) -> None:
        super().__init__(door, workflows, _read_catalog)
        self._shard = shard
        self.hurry = asyncio.Event()
        """Set it to end the drain of a close at once: what still runs is parked, and loses no attempt."""

    @property
    def counts(self) -> dict[str, int]:
        """How many commits, entries, stale receipts and the like there were since the engine was opened."""
        return dict(self._shard.counts + self._shard.kernel.counts)


@asynccontextmanager
async def open(
    url: str | os.PathLike[str],
    *,
    workflows: Iterable[Any] = (),
    cache: int = 4096,
    memory: int = MEMORY,
    inline: int | None = None,
    threads: int = 32,
    processes: int | None = None,
    queues: Mapping[str, int] | None = None,
    drain: float = 5.0,
    handlers: Iterable[Any] = (),
    lenient: bool = False,
    allow: Iterable[str] = (),
    secrets: Secrets | Mapping[str, str] | None = None,
    keys: Keyring | None = None,
) -> AsyncIterator[Engine]:
    """Run workflows on a database: a path of a SQLite file, or ":memory:".

    workflows: also several versions of one name. New instances run on the newest, others on the one they started with.
    handlers: what performs the effects of cells. A declared effect that has none is refused here; lenient: it is
    answered with an error when it is asked for. allow: addresses, networks and hosts that HTTP requests of cells may go
    to, besides public ones. secrets: where the values of `perdure.Secret` come from, a mapping or a source; without it
    the environment, `PERDURE_SECRET_...`. keys: of the executors outside that sign their receipts.
    cache: how many instances stay in memory; memory: how many bytes of states of cells. Above that the least recently
    used are dropped until three quarters are left, and read again when they are needed. inline, threads, processes: how
    many steps of each kind run at once (None: no bound for inline steps, one process per core). queues: names of queues
    that this engine serves itself, and how many steps of each run at once. drain: seconds that
    running steps and hooks get to end when the engine is closed; what still runs then is cut, and a step runs again at
    the next open.
    """
    known, world = _registered(workflows)
    for workflow in known:
        if isinstance(workflow, Flow):
            workflow.registered()
    loop = asyncio.get_running_loop()
    clock = SystemClock(loop)
    performers = None
    handlers, allow = list(handlers), list(allow)
    if world is not None or handlers or allow:
        from perdure import worlds

        performers = worlds.Performers(world, handlers, lenient=lenient, allow=allow, secrets=secrets)
    store = _open_store(url, loop)
    on_loop, in_threads = InlineExecutor(inline), ThreadExecutor(threads)
    executors: list[Executor] = [on_loop, in_threads, ProcessExecutor(processes), *serving(queues)]
    if performers is not None:
        executors.append(performers.executor(cast(Queries, store), clock, on_loop, in_threads))
    hooks = Hooks()
    try:
        door = LocalDoor(cast(Queries, store), hooks.tell)
        shard = Shard(
            store,
            clock,
            executors,
            known,
            owner=f"{os.path.basename(sys.argv[0]) or 'python'}",
            listener=door,
            cache=cache,
            memory=memory,
            enclosure=Enclosure(),
            verify=unsigned if keys is None else keys.judge,
        )
        door.lead_to(shard)
        await asked(shard.open)
        settled = loop.create_future()
        shard.when_settled(lambda: None if settled.done() else settled.set_result(None))
        await asyncio.wait([settled], timeout=SETTLE)  # cells that answer each other for ever never come to rest
        engine = Engine(door, shard, cast(Workflows[Startable[Any]], known))
        try:
            if world is not None:
                await worlds.begin(door, world, known)
            with collector.seldom():
                yield engine
        finally:
            await _stop(shard, door, hooks, drain, engine.hurry)
    finally:
        await hooks.close()
        for executor in executors:
            await executor.close()
        store.close()


@asynccontextmanager
async def connect(url: str | os.PathLike[str], *, workflows: Iterable[Any] = ()) -> AsyncIterator[Client]:
    """Talk to the engine of another process: start, send, cancel, read. Needs no code; `workflows` converts types."""
    store = _connect_store(url)
    try:
        known, _ = _registered(workflows)
        yield Client(RemoteDoor(store), cast(Workflows[Startable[Any]], known), _read_catalog)
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
    """The one synchronous door: open, start, wait for the result, close."""
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


async def _stop(shard: Shard, door: LocalDoor, hooks: Hooks, drain: float, hurry: asyncio.Event) -> None:
    """Let running steps end, cut the rest, let hooks end, and give the lease back."""
    loop = asyncio.get_running_loop()
    idle: asyncio.Future[None] = loop.create_future()
    shard.drain(lambda: None if idle.done() else idle.set_result(None))
    await _drained(idle, drain, hurry)
    shard.park()
    parked: asyncio.Future[None] = loop.create_future()
    shard.when_settled(lambda: None if parked.done() else parked.set_result(None))
    await asyncio.wait([parked], timeout=10)  # a store that does not answer: the rest is found as after a crash
    await _drained(asyncio.ensure_future(hooks.ended()), drain, hurry)
    shard.release()
    door.close()


async def _drained(waited_for: asyncio.Future[None], drain: float, hurry: asyncio.Event) -> None:
    """Wait for something, for as long as a drain may take."""
    hurried = asyncio.ensure_future(hurry.wait())
    either: list[asyncio.Future[Any]] = [waited_for, hurried]
    await asyncio.wait(either, timeout=drain, return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    waited_for.cancel()


def _registered(workflows: Iterable[Any]) -> tuple[Workflows[Workflow], Bound | None]:
    if hasattr(workflows, "machine") or isinstance(workflows, str):
        raise CallerError(f"workflows is a list of workflows, found {workflows!r}: write workflows=[...]")
    found, world = list(workflows), None
    if "perdure.cells.author" in sys.modules:  # else nobody can have made a cell
        from perdure.worlds import gather

        found, world = gather(found)
    for workflow in found:
        if not hasattr(workflow, "machine") or not hasattr(workflow, "encode_input"):
            raise CallerError(f"{workflow!r} is not a workflow; did you forget @perdure.flow?")
    return Workflows(found), world


def _read_catalog(definitions: bytes) -> Catalog:
    from perdure.cells.bind import Catalog

    return Catalog.read(definitions)


def _open_store(url: str | os.PathLike[str], loop: asyncio.AbstractEventLoop) -> Store:
    path = _path(url)
    if path == ":memory:":
        from perdure.stores.memory import MemoryStore

        return MemoryStore()
    from perdure.stores.sqlite import SqliteStore

    return SqliteStore(path, call_soon_threadsafe=loop.call_soon_threadsafe)


def _connect_store(url: str | os.PathLike[str]) -> Any:
    path = _path(url)
    if path == ":memory:":
        raise CannotOpen("a :memory: database lives in one process; nobody else can connect to it")
    from perdure.stores.sqlite import SqliteStore

    return SqliteStore.open_client(path)


def _path(url: str | os.PathLike[str]) -> str:
    text = os.fspath(url)
    scheme, found, rest = text.partition("://")
    if not found:
        return text
    if scheme == "sqlite":
        return rest.removeprefix("/") or ":memory:"  # as elsewhere: sqlite:///relative, sqlite:////absolute
    raise CannotOpen(f"{scheme}:// databases are not supported by this version; use a path or sqlite:///path")
