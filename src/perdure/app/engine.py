"""Engines: a URL and workflows in, an engine out. Executors are built here."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

from perdure.definitions.model import Register
from perdure.errors import CallerError
from perdure.executors import info
from perdure.executors.hooks import Hooks
from perdure.executors.inline import InlineExecutor
from perdure.executors.process import ProcessExecutor
from perdure.executors.secrets import EnvironmentSecrets, inject
from perdure.executors.thread import ThreadExecutor
from perdure.kernel.machine import Workflow
from perdure.kernel.outside import unsigned
from perdure.kernel.retention import Retention
from perdure.kernel.workflows import Workflows
from perdure.ports.dialect import Gathered, Stored
from perdure.ports.executor import Executor
from perdure.ports.secrets import Secret, Secrets
from perdure.ports.store import Queries
from perdure.runtime import collector
from perdure.runtime.bulk import Bulks
from perdure.runtime.client import Client
from perdure.runtime.clock import SystemClock
from perdure.runtime.connections import LocalConnection
from perdure.runtime.definitions import Definitions, activate, keep
from perdure.runtime.fleet import drained, stop
from perdure.runtime.retention import sweep_hourly
from perdure.runtime.setup import Setup
from perdure.runtime.shard import MEMORY, Shard
from perdure.runtime.startable import Startable
from perdure.stores.answers import asked
from perdure.tools import find as find_tool
from perdure.tools import names as tool_names
from perdure.tools.handler import enter

from .definitions import DefinitionFollower, DefinitionLoader, Restorer, restored, stored_one
from .dialects import begin, built_in, checked, enclosure_of, read_catalog, registered
from .dispatch import Dispatch, Dispatching
from .effects import Effects
from .entrance import entrance
from .ours import SCHEMAS
from .urls import is_server, open_store
from .workers import ServedQueues

if TYPE_CHECKING:
    from perdure.executors.signatures import Keyring

SETTLE: Final = 5.0
"""Seconds that what was there before gets to be dealt with, until an open returns all the same."""


class Engine(Client):
    """A client of an engine that runs in this process. Made by `perdure.open`."""

    def __init__(
        self,
        connection: LocalConnection,
        running: RunningShards,
        workflows: Workflows[Startable[Any]],
        restore: Restorer,
        secrets: Secrets | None = None,
    ) -> None:
        super().__init__(connection, workflows, read_catalog, stored_one)
        self._secrets = secrets or EnvironmentSecrets()
        self._running = running
        self._restore_one = restore
        self.processes = Definitions(connection, "process", self._added, restore.judge)
        self.playbooks = Definitions(connection, "playbook", self._added, restore.judge)
        self.processes.make_schema = SCHEMAS["process"]
        self.processes.code = self.playbooks.code = self.code
        self.follower = DefinitionFollower(connection.queries, workflows, self._add)
        self.hurry = asyncio.Event()
        """Set it to end the drain of a close at once: what still runs is parked, and loses no attempt."""

    @property
    def counts(self) -> dict[str, int]:
        """How many commits, entries, stale receipts and the like there were since the engine was opened."""
        return dict(sum((shard.counts + shard.kernel.counts for shard in self._running.shards), self._running.past))

    def kept(self, given: Stored, register: Register) -> None:
        """A definition of this engine is in the journal: which version is active may be another one now."""
        if self._workflows.actives.get(given.name) != register.active:
            self._added(given, register)

    def _added(self, given: Stored, register: Register) -> None:
        """A definition was put by a caller of this engine. What the follower has read is older."""
        self.follower.overtaken = True
        self._add(given, register)

    def _add(self, given: Stored, register: Register) -> None:
        """A definition came while this engine runs: it is run from now on, and nothing that is loaded goes."""
        workflow = self._workflows.exactly(given.name, given.version) or self._restore_one(given)
        if workflow is not None:
            self._workflows.replace(cast(Startable[Any], workflow))
            activate(self._workflows, given.name, register)
            for shard in self._running.shards:
                shard.add(cast(Workflow, workflow), register.active)

    def runnable(self, workflow: Any) -> Any:
        """A definition that came as data, as this engine would run it."""
        return self._restore_one(workflow.stored) or workflow

    async def _refuse_start(self, workflow: Startable[Any]) -> None:
        """`NotInstalled` or `SecretMissing`, before anything starts, for what a definition names and is not here."""
        for kind in getattr(workflow, "tools", ()):
            if kind in tool_names():
                find_tool(kind).require()
        if names := getattr(workflow, "secrets", ()):
            await asyncio.to_thread(inject, tuple(map(Secret, names)), self._secrets)

    @property
    def _shard(self) -> Shard:
        return self._running.shards[0]


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
    dispatch: Iterable[Dispatch] = (),
    drain: float = 5.0,
    handlers: Iterable[Any] = (),
    lenient: bool = False,
    allow: Iterable[str] = (),
    secrets: Secrets | Mapping[str, str] | None = None,
    connections: Mapping[str, Any] | None = None,
    keys: Keyring | None = None,
    functions: Iterable[Any] = (),
    check: Literal["strict", "warn"] = "strict",
    retention: Retention | None = None,
) -> AsyncIterator[Engine]:
    """Run workflows on a database: a path of a SQLite file, ":memory:", or "postgresql://...", which others may share.

    workflows: also several versions of one name. New instances run on the newest, others on the one they started with.
    handlers: what performs the effects of cells. A declared effect that has none is refused here; lenient: it is
    answered with an error when it is asked for. allow: addresses, networks and hosts that HTTP requests of cells may go
    to, besides public ones. secrets: where the values of `perdure.Secret` come from, a mapping or a source; without it
    the environment, `PERDURE_SECRET_...`. connections: what `auth: NAME` of a tool means: a text, a `Secret` or a dict
    of those, by name. keys: of the executors outside that sign their receipts. functions: what expressions of processes
    may call. check: with "strict" a process that has problems is `BadProcess`; with "warn" it is logged, and cannot be
    started.
    retention: how long ended instances are kept, of workflows that do not say it themselves; without it for ever.
    cache: how many instances stay in memory; memory: how many bytes of states of cells. Above that the least recently
    used are dropped until three quarters are left, and read again when they are needed. inline, threads, processes: how
    many steps of each kind run at once (None: no bound for inline steps, one process per core). queues: names of queues
    that this engine serves itself, and how many steps of each run at once. dispatch: queues that a cluster serves, each
    a `perdure.Dispatch`. drain: seconds that running steps and hooks
    get to end when the engine is closed; what still runs then is cut, and a step runs again at the next open.
    """
    _counted(cache=cache, memory=memory, inline=inline, threads=threads, processes=processes, drain=drain)
    known, gathered = registered([*_listed(workflows), *functions])
    bulks = Bulks()
    for own in built_in(bulks.perform):
        known.replace(own)
    for each in gathered:
        if each.opened is not None:
            each.opened()
    clock = SystemClock(asyncio.get_running_loop())
    if keys is not None and not hasattr(keys, "judge"):
        raise CallerError(f"keys= takes a perdure.Keyring({{executor: [key]}}), found {type(keys).__name__}")
    dispatchers = Dispatching(dispatch, url)
    effects = Effects(gathered, handlers, lenient=lenient, allow=allow, secrets=secrets, connections=connections)
    checked(gathered, known, effects.given, check)
    enter(effects.around)
    on_loop, in_threads = InlineExecutor(inline), ThreadExecutor(threads)
    executors: list[Executor] = [on_loop, in_threads, ProcessExecutor(processes)]
    hooks = Hooks()
    setup = Setup(
        owner=program(sys.argv),
        workflows=known,
        clock=clock,
        executors=executors,
        serving=ServedQueues(queues, known, keys, dispatchers, effects.tools),
        effects=lambda store: effects.executor(store, clock, on_loop, in_threads),
        failed=hooks.tell,
        cache=cache,
        memory=memory,
        enclosure=enclosure_of(gathered),
        verify=unsigned if keys is None else keys.judge,
        retention=retention,
    )

    async def prepare(queries: Queries) -> None:
        """What the database itself defines is known before anything runs."""
        before = len(gathered)
        await restored(queries, known, gathered)
        checked(gathered, known, effects.given, check, whole=True)
        effects.extend(gathered[before:])
        setup.loader = DefinitionLoader(queries, known, restore).load

    restore = Restorer(gathered, effects)
    try:
        async with _running(url, setup, prepare) as running:
            startable = cast(Workflows[Startable[Any]], known)
            engine = Engine(running.connection, running, startable, restore, effects.around.secrets)
            bulks.begin(engine)
            try:
                await _settled(running.shards)
                await _begun(engine, running.connection, gathered, known)
                with (
                    collector.seldom(),
                    _sweeping(engine, known, retention),
                    _following(running.connection, engine.follower),
                ):
                    yield engine
            finally:
                step = info.current.get(None)
                if step is not None:  # a step closes its own engine: the drain must not wait for it
                    for shard in running.shards:
                        shard.leave(step.intent)
                await running.stop(drain, engine.hurry)
                await drained(asyncio.ensure_future(hooks.ended()), drain, engine.hurry)
                running.connection.close()
    finally:
        await hooks.close()
        for executor in executors:
            await executor.close()


async def _begun(
    engine: Engine, connection: LocalConnection, gathered: Iterable[Gathered], known: Workflows[Workflow]
) -> None:
    """Start what dialects begin, and keep the definitions that can run here."""
    for each in gathered:
        await begin(connection, each.beginnings, known)
        for given in each.definitions:
            if known.exactly(given.name, given.version) is not None:
                engine.kept(given, await keep(connection, given))


@contextmanager
def _following(connection: LocalConnection, follower: DefinitionFollower) -> Iterator[None]:
    """While an engine runs, it hears of definitions that other processes put."""
    connection.when_redefined = follower.look
    task = asyncio.ensure_future(follower.run())
    try:
        yield
    finally:
        task.cancel()


@contextmanager
def _sweeping(engine: Engine, known: Iterable[Workflow], retention: Retention | None) -> Iterator[None]:
    """While an engine runs, it forgets what is due; without any retention nothing ever is."""
    if retention is None and all(each.policy.retention is None for each in known):
        yield
        return
    task = asyncio.ensure_future(sweep_hourly(engine.queries, time.time_ns))
    try:
        yield
    finally:
        task.cancel()


@asynccontextmanager
async def _running(
    url: str | os.PathLike[str], setup: Setup, prepare: Callable[[Queries], Awaitable[None]]
) -> AsyncIterator[RunningShards]:
    """The one shard of a file, or this process's share of a server's."""
    if is_server(url):
        from .fleets import joined

        async with joined(str(url), setup, prepare) as member:
            yield member
        return
    store = open_store(url, asyncio.get_running_loop())
    try:
        queries = cast(Queries, store)
        setup.add_effects(queries)
        setup.executors += setup.serving.executors()
        connection = LocalConnection(queries, setup.failed)
        shard = setup.shard(store, setup.executors, connection)
        connection.lead_to(lambda ref: shard)

        def prepared(done: Callable[[Exception | None], None]) -> None:
            def ended(task: asyncio.Task[None]) -> None:
                if task.cancelled():  # the loop ends while the engine is opened
                    return
                shard.use(setup.workflows)
                done(task.exception())  # type: ignore[arg-type]

            asyncio.ensure_future(prepare(queries)).add_done_callback(ended)

        try:
            await asked(lambda opened: shard.open(opened, prepared))
            yield Alone(shard, connection)
        except asyncio.CancelledError:  # while it opened, or for the second time while it stopped
            if not shard.closed:
                shard.release()  # nothing of it may run on a store that is closed
            raise
    finally:
        store.close()


def program(argv: list[str]) -> str:
    """What people call the process of an engine: its script or package; of our own command the verb, too."""
    path = Path(argv[0])
    name = path.parent.name if path.name == "__main__.py" else path.name
    return " ".join([name, *argv[1:2]]) if name == "perdure" else name or "python"


def _counted(**options: Any) -> None:
    """Refuse what would leave an engine that never begins a step, or that fails when it is closed."""
    for name, value in options.items():
        least = 1 if name in ("inline", "threads", "processes") else 0
        if value is None and name in ("inline", "processes"):
            continue
        kinds = (int, float) if name == "drain" else int
        if not isinstance(value, kinds) or isinstance(value, bool) or not value >= least:
            raise CallerError(
                f"{name}={value!r}: expected a {'' if name == 'drain' else 'whole '}number, {least} or more"
            )


def _listed(workflows: Any) -> list[Any]:
    if hasattr(workflows, "machine") or isinstance(workflows, str):
        raise CallerError(f"workflows is a list of workflows, found {workflows!r}: write workflows=[...]")
    return list(workflows)


class RunningShards(Protocol):
    """What runs in this process."""

    @property
    def connection(self) -> LocalConnection: ...

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

    def __init__(self, shard: Shard, connection: LocalConnection) -> None:
        self.shards = [shard]
        self.connection = connection
        self.past: Counter[str] = Counter()

    async def stop(self, drain: float, hurry: asyncio.Event) -> None:
        await stop(self.shards[0], drain, hurry)


async def _settled(shards: list[Shard]) -> None:
    """What was there before is dealt with; not for ever: instances that answer each other never come to rest."""
    loop = asyncio.get_running_loop()
    futures = []
    for shard in shards:
        settled = loop.create_future()
        shard.when_settled(lambda settled=settled: None if settled.done() else settled.set_result(None))  # type: ignore[misc]
        futures.append(settled)
    if futures:
        await asyncio.wait(futures, timeout=SETTLE)
