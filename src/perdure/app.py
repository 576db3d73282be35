"""The only wiring: a URL and workflows in, an engine out."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

from perdure.cells import load
from perdure.cells.author import Cell
from perdure.cells.bind import Bound, Catalog, manifest
from perdure.cells.manifest import Manifest
from perdure.cells.world import WorldWorkflow
from perdure.codec import digest
from perdure.errors import CallerError, CannotOpen, ManifestChanged, NoHandler
from perdure.executors.effects import EffectsExecutor
from perdure.executors.hooks import Hooks
from perdure.executors.inline import InlineExecutor
from perdure.executors.process import ProcessExecutor
from perdure.executors.thread import ThreadExecutor
from perdure.flows.author import Flow
from perdure.flows.loop import Enclosure
from perdure.kernel.events import Started
from perdure.kernel.machine import Workflow
from perdure.kernel.manifest import DEFINITIONS, MANIFEST, WORLD, decode_manifest
from perdure.kernel.workflows import Workflows
from perdure.ports.executor import Executor
from perdure.ports.store import Queries, Store
from perdure.runtime import collector
from perdure.runtime.client import Client, Startable
from perdure.runtime.clock import SystemClock
from perdure.runtime.doors import LocalDoor, RemoteDoor
from perdure.runtime.shard import Shard

log = logging.getLogger("perdure")

SETTLE: Final = 5.0
"""Seconds that what was there before gets to be dealt with, until an open returns all the same."""


class Engine(Client):
    """A client of an engine that runs in this process. Made by `perdure.open`."""

    def __init__(self, door: LocalDoor, shard: Shard, workflows: Workflows[Startable[Any]]) -> None:
        super().__init__(door, workflows, Catalog.read)
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
    inline: int | None = None,
    threads: int = 32,
    processes: int | None = None,
    drain: float = 5.0,
    handlers: Iterable[Any] = (),
    lenient: bool = False,
) -> AsyncIterator[Engine]:
    """Run workflows on a database: a path of a SQLite file, or ":memory:".

    workflows: also several versions of one name. New instances run on the newest, others on the one they started with.
    handlers: what performs the effects of cells. A declared effect that has none is refused here; lenient: it is
    answered with an error when it is asked for.
    cache: how many instances stay in memory. inline, threads, processes: how many steps of each kind run at once
    (None: no bound for inline steps, one process per core). drain: seconds that running steps and hooks get to end when
    the engine is closed; what still runs then is cut, and a step runs again at the next open.
    """
    known, world = _registered(workflows)
    for workflow in known:
        if isinstance(workflow, Flow):
            workflow.registered()
    performers = list(handlers) if world is None else [handler.bound(world.manifest) for handler in handlers]
    if world is not None and not lenient:
        _refuse_missing(world, performers)
    loop = asyncio.get_running_loop()
    store = _open_store(url, loop)
    on_loop, in_threads = InlineExecutor(inline), ThreadExecutor(threads)
    effects = EffectsExecutor(performers, on_loop, in_threads)
    executors: list[Executor] = [on_loop, in_threads, ProcessExecutor(processes), effects]
    hooks = Hooks()
    try:
        door = LocalDoor(cast(Queries, store), hooks.tell)
        shard = Shard(
            store,
            SystemClock(loop),
            executors,
            known,
            owner=f"{os.path.basename(sys.argv[0]) or 'python'}",
            listener=door,
            cache=cache,
            enclosure=Enclosure(),
        )
        door.lead_to(shard)
        shard.open()
        settled = loop.create_future()
        shard.when_settled(lambda: None if settled.done() else settled.set_result(None))
        await asyncio.wait([settled], timeout=SETTLE)  # cells that answer each other for ever never come to rest
        engine = Engine(door, shard, cast(Workflows[Startable[Any]], known))
        try:
            if world is not None:
                await _begin_world(engine, door, world)
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
        yield Client(RemoteDoor(store), cast(Workflows[Startable[Any]], known), Catalog.read)
    finally:
        store.close()


def load_manifest(path: str | os.PathLike[str]) -> Bound:
    """The world of a manifest file (JSON or YAML), ready to run: `perdure.open(url, workflows=[load_manifest(path)])`.

    Each cell names its reducer, `impl: module:function`, which is imported: a cell that agrees with the manifest, or a
    plain function that takes and returns `perdure.Datum`s.
    """
    return Bound(read_manifest(path))


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """What a manifest file says, checked; no code is imported."""
    source = os.fspath(path)
    forms = {".json": load.from_json, ".yaml": load.from_yaml, ".yml": load.from_yaml}
    read = forms.get(Path(source).suffix.lower())
    if read is None:
        raise CallerError(f"{source}: a manifest is a file that ends in .json, .yaml or .yml")
    try:
        text = Path(source).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise CallerError(f"{source} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise CallerError(f"{source} cannot be read: {error.strerror}") from None
    return read(text, source)


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


async def _begin_world(engine: Engine, door: LocalDoor, world: Bound) -> None:
    """A new database gets its first manifest; another manifest than the one in force is not applied by an open."""
    head = await engine.queries.head(WORLD)
    if head is None:
        started = Started(WORLD.workflow, WORLD.key, world.manifest.bytes, door.entropy(), WorldWorkflow.version)
        await door.put(WORLD, started)
        return
    now = await engine.queries.published(head.id, DEFINITIONS)
    if now is None or now == world.manifest.bytes:
        return
    in_force = decode_manifest(await engine.queries.published(head.id, MANIFEST))
    if all(engine._workflows.exactly(name, version) is not None for name, version in in_force.versions.items()):
        log.info("the manifest in force is %s, the code has %s too", digest(now)[:19], world.manifest.hash[:19])
    else:
        raise ManifestChanged(digest(now), world.manifest.hash)


def _refuse_missing(world: Bound, handlers: Iterable[Any]) -> None:
    known = {handler.effect for handler in handlers}
    for cell in [*world.cells, *world.earlier]:
        for effect in cell.effects.values():
            if effect.performed and effect.definition.name not in known:
                raise NoHandler(effect.definition.name, cell.cell.name)


def _registered(workflows: Iterable[Any]) -> tuple[Workflows[Workflow], Bound | None]:
    found, world = gather(workflows)
    return Workflows(found), world


def gather(workflows: Iterable[Any]) -> tuple[list[Any], Bound | None]:
    """All that the kernel runs of what was given, and the world that its cells are."""
    if hasattr(workflows, "machine") or isinstance(workflows, str):
        raise CallerError(f"workflows is a list of workflows, found {workflows!r}: write workflows=[...]")
    given = list(workflows)
    cells = [workflow for workflow in given if isinstance(workflow, Cell)]
    worlds = [workflow for workflow in given if isinstance(workflow, Bound)]
    if cells:
        worlds.append(manifest(*cells))
    if len(worlds) > 1:
        raise CallerError("a database has one world of cells: put all cells into one manifest, or list them all")
    found = [workflow for workflow in given if not isinstance(workflow, Cell | Bound)]
    for workflow in found:
        if not hasattr(workflow, "machine") or not hasattr(workflow, "encode_input"):
            raise CallerError(f"{workflow!r} is not a workflow; did you forget @perdure.flow?")
    for world in worlds:
        found += [WorldWorkflow(), *world.cells, *world.earlier]
    return found, worlds[0] if worlds else None


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
