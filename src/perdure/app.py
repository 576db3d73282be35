"""The only wiring: a URL and workflows in, an engine out."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, ParamSpec, Protocol, TypeVar, cast

from perdure.errors import CallerError, CannotOpen, NotEntered
from perdure.executors import info
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
from perdure.runtime.fleet import drained, stop
from perdure.runtime.setup import Setup
from perdure.runtime.shard import MEMORY, Shard
from perdure.runtime.startable import Startable
from perdure.stores.answers import asked
from perdure.workers import Serving

if TYPE_CHECKING:
    from perdure.cells.bind import Bound, Catalog
    from perdure.executors.signatures import Keyring

SETTLE: Final = 5.0
"""Seconds that what was there before gets to be dealt with, until an open returns all the same."""


class Engine(Client):
    """A client of an engine that runs in this process. Made by `perdure.open`."""

    def __init__(self, door: LocalDoor, running: Running, workflows: Workflows[Startable[Any]]) -> None:
        super().__init__(door, workflows, _read_catalog)
        self._running = running
        self.hurry = asyncio.Event()
        """Set it to end the drain of a close at once: what still runs is parked, and loses no attempt."""

    @property
    def counts(self) -> dict[str, int]:
        """How many commits, entries, stale receipts and the like there were since the engine was opened."""
        return dict(sum((shard.counts + shard.kernel.counts for shard in self._running.shards), self._running.past))

    @property
    def _shard(self) -> Shard:
        return self._running.shards[0]


C = TypeVar("C")
P = ParamSpec("P")


class Entrance(Generic[C]):
    """What `perdure.open` and `perdure.connect` give: to be entered with `async with`. Any other use says so."""

    def __init__(self, call: str, inside: AbstractAsyncContextManager[C]) -> None:
        self._call = call
        self._inside = inside

    async def __aenter__(self) -> C:
        return await self._inside.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._inside.__aexit__(kind, error, traceback)

    if not TYPE_CHECKING:  # a type checker refuses these uses by itself

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):  # what Python itself asks for
                raise AttributeError(name)
            self._refuse(f"has no {name}: it was not entered")

        def __enter__(self) -> NoReturn:
            self._refuse("was entered with a plain `with`")

        def __exit__(self, *error: object) -> None: ...

        def __await__(self) -> NoReturn:
            self._refuse("was awaited")

    def _refuse(self, found: str) -> NoReturn:
        raise NotEntered(
            f"{self._call}(...) {found}; write `async with {self._call}(...) as engine:`, or in a script without an "
            "event loop perdure.run(workflow, ...)"
        )


def entrance(function: Callable[P, AbstractAsyncContextManager[C]]) -> Callable[P, Entrance[C]]:
    @functools.wraps(function)
    def opening(*args: P.args, **kwargs: P.kwargs) -> Entrance[C]:
        return Entrance(f"perdure.{function.__name__}", function(*args, **kwargs))

    return opening


@entrance
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
    """Run workflows on a database: a path of a SQLite file, ":memory:", or "postgresql://...", which others may share.

    workflows: also several versions of one name. New instances run on the newest, others on the one they started with.
    handlers: what performs the effects of cells. A declared effect that has none is refused here; lenient: it is
    answered with an error when it is asked for. allow: addresses, networks and hosts that HTTP requests of cells may go
    to, besides public ones. secrets: where the values of `perdure.Secret` come from, a mapping or a source; without it
    the environment, `PERDURE_SECRET_...`. keys: of the executors outside that sign their receipts.
    cache: how many instances stay in memory; memory: how many bytes of states of cells. Above that the least recently
    used are dropped until three quarters are left, and read again when they are needed. inline, threads, processes: how
    many steps of each kind run at once (None: no bound for inline steps, one process per core). queues: names of queues
    that this engine serves itself, and how many steps of each run at once. drain: seconds that running steps and hooks
    get to end when the engine is closed; what still runs then is cut, and a step runs again at the next open.
    """
    known, world = _registered(workflows)
    for workflow in known:
        if isinstance(workflow, Flow):
            workflow.registered()
    loop = asyncio.get_running_loop()
    clock = SystemClock(loop)
    performers = None
    if keys is not None and not hasattr(keys, "judge"):
        raise CallerError(f"keys= takes a perdure.Keyring({{executor: [key]}}), found {type(keys).__name__}")
    if world is not None or handlers or allow:
        from perdure import worlds

        performers = worlds.Performers(world, handlers, lenient=lenient, allow=allow, secrets=secrets)
    on_loop, in_threads = InlineExecutor(inline), ThreadExecutor(threads)
    executors: list[Executor] = [on_loop, in_threads, ProcessExecutor(processes)]
    hooks = Hooks()
    setup = Setup(
        owner=os.path.basename(sys.argv[0]) or "python",
        workflows=known,
        clock=clock,
        executors=executors,
        serving=Serving(queues, known, keys),
        effects=None if performers is None else lambda store: performers.executor(store, clock, on_loop, in_threads),
        failed=hooks.tell,
        cache=cache,
        memory=memory,
        enclosure=Enclosure(),
        verify=unsigned if keys is None else keys.judge,
    )
    try:
        async with _running(url, setup) as running:
            engine = Engine(running.door, running, cast(Workflows[Startable[Any]], known))
            try:
                await _settled(running.shards)
                if world is not None:
                    await worlds.begin(running.door, world, known)
                with collector.seldom():
                    yield engine
            finally:
                step = info.current.get(None)
                if step is not None:  # a step closes its own engine: the drain must not wait for it
                    for shard in running.shards:
                        shard.leave(step.intent)
                await running.stop(drain, engine.hurry)
                await drained(asyncio.ensure_future(hooks.ended()), drain, engine.hurry)
                running.door.close()
    finally:
        await hooks.close()
        for executor in executors:
            await executor.close()


@asynccontextmanager
async def _running(url: str | os.PathLike[str], setup: Setup) -> AsyncIterator[Running]:
    """The one shard of a file, or this process's share of a server's."""
    if is_server(url):
        from perdure.fleets import joined

        async with joined(str(url), setup) as member:
            yield member
        return
    store = _open_store(url, asyncio.get_running_loop())
    try:
        queries = cast(Queries, store)
        setup.add_effects(queries)
        setup.executors += setup.serving.executors()
        door = LocalDoor(queries, setup.failed)
        shard = setup.shard(store, setup.executors, door)
        door.lead_to(lambda ref: shard)
        await asked(shard.open)
        yield Alone(shard, door)
    finally:
        store.close()


class Running(Protocol):
    """What runs in this process."""

    @property
    def door(self) -> LocalDoor: ...

    @property
    def shards(self) -> list[Shard]: ...

    @property
    def past(self) -> Counter[str]:
        """Counts of shards that ran here and do not any more."""
        ...

    async def stop(self, drain: float, hurry: asyncio.Event) -> None:
        """Let running steps end, cut the rest, and give the lease back."""
        ...


class Alone:
    """One shard, as long as the process lives."""

    def __init__(self, shard: Shard, door: LocalDoor) -> None:
        self.shards = [shard]
        self.door = door
        self.past: Counter[str] = Counter()

    async def stop(self, drain: float, hurry: asyncio.Event) -> None:
        await stop(self.shards[0], drain, hurry)


async def _settled(shards: list[Shard]) -> None:
    """What was there before is dealt with; not for ever: cells that answer each other never come to rest."""
    loop = asyncio.get_running_loop()
    futures = []
    for shard in shards:
        settled = loop.create_future()
        shard.when_settled(lambda settled=settled: None if settled.done() else settled.set_result(None))  # type: ignore[misc]
        futures.append(settled)
    if futures:
        await asyncio.wait(futures, timeout=SETTLE)


@entrance
@asynccontextmanager
async def connect(url: str | os.PathLike[str], *, workflows: Iterable[Any] = ()) -> AsyncIterator[Client]:
    """Talk to the engine of another process: start, send, cancel, read. Needs no code; `workflows` converts types."""
    known, _ = _registered(workflows)
    if is_server(url):
        from perdure.fleets import connected

        async with connected(str(url)) as door:
            yield Client(door, cast(Workflows[Startable[Any]], known), _read_catalog)
        return
    store = _connect_store(url)
    try:
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


def is_server(url: str | os.PathLike[str]) -> bool:
    return str(url).startswith(("postgresql://", "postgres://"))


def _path(url: str | os.PathLike[str]) -> str:
    text = os.fspath(url)
    scheme, found, rest = text.partition("://")
    if not found:
        return text
    if scheme == "sqlite":
        return rest.removeprefix("/") or ":memory:"  # as elsewhere: sqlite:///relative, sqlite:////absolute
    raise CannotOpen(
        f"{scheme}:// databases are not supported by this version; use a path, sqlite:///path or postgresql://..."
    )
