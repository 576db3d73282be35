"""Everything goes wrong at random: `make chaos`, or `python -m tests.fleet.chaos --minutes 10 --seed 7`.

Three engines, two workers and two clients use one PostgreSQL, mostly through proxies. For some minutes processes are
killed, stopped and sent home, connections are cut, delayed and held, and the server crashes. Then there is calm: all
that was begun must end, and then all that was acknowledged must be there, once.
"""

import argparse
import asyncio
import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import asyncpg
import msgspec

import perdure
from perdure.errors import PerdureError
from perdure.kernel.events import Address
from perdure.runtime.client import Client
from perdure.runtime.handle import Handle
from tests.fleet.engine import ENOUGH
from tests.fleet.flows import FLOWS, collect, errands, faint, family, walk
from tests.fleet.processes import EngineProcess, Process, WorkerProcess, until
from tests.fleet.verdict import Verdict, verdict
from tests.postgres import OwnServer, own_server
from tests.proxy import Proxy

P = TypeVar("P", bound=Process)

ENGINES = 3
WORKERS = 2
AT_ONCE = 2
"""Faults of engines and networks that overlap."""

LEASE = 5.0
CALM_SECONDS = 300.0


class Acknowledged(msgspec.Struct):
    """What was promised."""

    starts: set[tuple[str, str]] = msgspec.field(default_factory=set)
    items: set[tuple[str, int]] = msgspec.field(default_factory=set)

    def read(self, path: Path) -> None:
        """What an engine noted that was a client of itself. Its last line may not be whole."""
        whole, _, _ = path.read_text().rpartition("\n")
        for line in whole.splitlines():
            what, *rest = line.split()
            if what == "start":
                self.starts.add((rest[0], rest[1]))
            else:
                self.items.add((rest[0], int(rest[1])))


class Member(Generic[P]):
    """A place in the fleet: the processes that had it one after the other, and the network it has."""

    def __init__(self, make: Callable[[int], P], proxy: Proxy) -> None:
        self._make = make
        self.proxy = proxy
        self.busy = False  # a fault is at it
        self.lives: list[P] = [make(0)]

    def start(self) -> None:
        self.lives.append(self._make(len(self.lives)))

    @property
    def process(self) -> P:
        return self.lives[-1]

    def keep_alive(self) -> str | None:
        """Start it again if it has ended by itself. Without a database that is right at the start, and wrong later."""
        if self.busy or self.process.running:
            return None
        was_ready, words = self.process.ready in self.process.words, self.process.words
        self.start()
        return f"a process ended by itself:\n{words[-3000:]}" if was_ready else None


class Chaos:
    def __init__(self, server: OwnServer, url: str, directory: Path, seed: int) -> None:
        self.server = server
        self.url = url
        self.directory = directory
        self.ledger = directory / "ledger"
        self.dice = random.Random(seed)
        self.notes = directory / "acknowledged"
        self.engines: list[Member[EngineProcess]] = []
        self.workers: list[Member[WorkerProcess]] = []
        self.acknowledged = Acknowledged()
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []
        self.calm_seconds = 0.0
        self.verdict = Verdict()
        self._numbers = itertools.count()
        self._restarting = asyncio.Lock()
        self._client_proxy: Proxy | None = None

    # ---- the whole -------------------------------------------------------------------------------------------

    async def run(self, seconds: float) -> None:
        async with AsyncExitStack() as stack:
            for number in range(ENGINES):
                proxy = await stack.enter_async_context(Proxy(self.url))
                self.engines.append(Member(partial(self._engine, number, proxy), proxy))
            for number in range(WORKERS):
                proxy = await stack.enter_async_context(Proxy(self.url))
                self.workers.append(Member(partial(self._worker, number, proxy), proxy))
            stack.callback(self._kill_all)
            self._client_proxy = await stack.enter_async_context(Proxy(self.url))
            await until(lambda: all(member.process.is_ready for member in self.members))
            direct = await stack.enter_async_context(perdure.connect(self.url, workflows=FLOWS))
            through = await stack.enter_async_context(perdure.connect(self._client_proxy.url, workflows=FLOWS))
            load = [asyncio.create_task(self._load(client)) for client in [direct, through] for _ in range(4)]
            minding = asyncio.create_task(self._mind())
            try:
                await self._storm(time.monotonic() + seconds)
                await _cancelled(*load)
                await self._calm(direct)
            finally:
                await _cancelled(minding, *load)
            await self._judge(direct)

    @property
    def members(self) -> list[Member[Any]]:
        return [*self.engines, *self.workers]

    def _engine(self, number: int, proxy: Proxy, life: int) -> EngineProcess:
        url = self.url if number == 0 else proxy.url
        return EngineProcess(url, self.directory / f"engine{number}-{life}.log", self.ledger, self.notes)

    def _worker(self, number: int, proxy: Proxy, life: int) -> WorkerProcess:
        return WorkerProcess(proxy.url, self.directory / f"worker{number}-{life}.log")

    def _kill_all(self) -> None:
        for member in self.members:
            member.process.kill()

    async def _mind(self) -> None:
        while True:
            self.violations += [found for member in self.members if (found := member.keep_alive()) is not None]
            await asyncio.sleep(0.2)

    # ---- load ------------------------------------------------------------------------------------------------

    async def _load(self, client: Client) -> None:
        """One thing after the other. What fails is not acknowledged; it is not tried again."""
        while True:
            key, ledger = f"c{next(self._numbers)}", str(self.ledger)
            try:
                handle: Handle[Any]
                match self.dice.randrange(5):
                    case 0:
                        handle = await client.start(walk, ledger, 20, 0.02, key=key)
                        self.acknowledged.starts.add(("walk", key))
                        if self.dice.random() < 0.2:
                            await handle.cancel("chance")
                    case 1:
                        handle = await client.start(family, ledger, 5, 0.05, key=key)
                        self.acknowledged.starts.add(("family", key))
                    case 2:
                        handle = await client.start(errands, ledger, 10, key=key)
                        self.acknowledged.starts.add(("errands", key))
                    case _:
                        basket = await client.start(collect, ledger, key=key)
                        self.acknowledged.starts.add(("collect", key))
                        for value in range(self.dice.randrange(20)):
                            await basket.send("item", value)
                            self.acknowledged.items.add((key, value))
                        await basket.send("end")
                        handle = basket
                await handle.result(timeout=60)
            except PerdureError as error:
                self.faults[f"the load saw {type(error).__name__}"] += 1
                await asyncio.sleep(0.1)

    # ---- faults ----------------------------------------------------------------------------------------------

    async def _storm(self, until_then: float) -> None:
        faults: dict[Callable[[], Awaitable[None]], int] = {
            self._kill: 4,
            self._pause: 4,
            self._send_home: 2,
            self._terminate_backends: 4,
            self._crash_server: 2,
            self._drop: 3,
            self._delay: 2,
            self._cut_commits: 5,
            self._hold: 4,
            self._refuse: 2,
            self._faint: 1,
        }
        while not self.refusals and time.monotonic() < until_then:
            await self._faint()  # whatever chance brings: one write comes too late
        running: set[asyncio.Task[None]] = set()
        while time.monotonic() < until_then:
            (fault,) = self.dice.choices(list(faults), list(faults.values()))
            running.add(asyncio.ensure_future(fault()))
            while len(running) >= AT_ONCE:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            await asyncio.sleep(self.dice.uniform(0.2, 3.0))
        if running:
            await asyncio.gather(*running)

    def _victim(self) -> Member[Any] | None:
        free = [member for member in self.members if not member.busy and member.process.running]
        return self.dice.choice(free) if free else None

    async def _kill(self) -> None:
        if (member := self._victim()) is not None:
            self.faults["kill -9"] += 1
            member.busy = True
            member.process.kill()
            await asyncio.sleep(self.dice.choice([0.0, 1.0, 8.0]))
            member.start()
            member.busy = False

    async def _pause(self) -> None:
        if (member := self._victim()) is not None:
            self.faults["stopped and continued"] += 1
            member.busy = True
            member.process.stop()
            await asyncio.sleep(self.dice.choice([0.5, 3.0, LEASE + 2, LEASE + 6]))
            member.process.go_on()
            member.busy = False

    async def _faint(self) -> None:
        """Some engine stops just before a write, and wakes when its lease is over."""
        marker = self.directory / f"marker{next(self._numbers)}"
        try:
            async with perdure.connect(self.url, workflows=FLOWS) as client:
                await client.start(faint, str(self.ledger), str(marker), key=marker.name)
        except PerdureError:
            return  # the server is away
        self.acknowledged.starts.add(("faint", marker.name))
        self.faults["fainted before a write"] += 1
        with suppress(AssertionError):  # an engine that is stopped may have it
            await until(marker.exists, 2 * LEASE)
        await asyncio.sleep(LEASE + 3)
        for member in self.members:
            if not member.busy:
                member.process.go_on()

    async def _send_home(self) -> None:
        if (member := self._victim()) is not None:
            self.faults["asked to end"] += 1
            member.busy = True
            process = member.process
            process.terminate()
            try:
                await until(lambda: not process.running)
            except AssertionError:
                self.violations.append(f"a process did not end within a minute:\n{process.words[-3000:]}")
                process.kill()
            member.start()
            member.busy = False

    async def _terminate_backends(self) -> None:
        self.faults["backends terminated"] += 1
        with suppress(OSError, asyncpg.PostgresError):  # the server is away
            await self.server.terminate_backends()

    async def _crash_server(self) -> None:
        async with self._restarting:
            self.faults["server crashed"] += 1
            await asyncio.to_thread(self.server.restart)

    def _network(self) -> Proxy:
        assert self._client_proxy is not None
        return self.dice.choice([member.proxy for member in self.members[1:]] + [self._client_proxy])

    async def _drop(self) -> None:
        self.faults["connections dropped"] += 1
        self._network().cut()

    async def _delay(self) -> None:
        self.faults["network slow"] += 1
        proxy = self._network()
        proxy.delay = self.dice.uniform(0.01, 0.5)
        await asyncio.sleep(self.dice.uniform(1, 5))
        proxy.delay = 0.0

    async def _cut_commits(self) -> None:
        proxy = self._network()
        before, proxy.lose_commits = proxy.commits_lost, self.dice.randint(1, 10)
        await asyncio.sleep(self.dice.uniform(0.5, 3))
        proxy.lose_commits = 0
        self.faults["answers to commits lost"] += proxy.commits_lost - before

    async def _hold(self) -> None:
        self.faults["network stood still"] += 1
        proxy = self._network()
        proxy.stand_still()
        await asyncio.sleep(self.dice.choice([1.0, LEASE + 2, LEASE + 4, 20.0]))
        proxy.flow()

    async def _refuse(self) -> None:
        self.faults["connections refused"] += 1
        proxy = self._network()
        proxy.refusing = True
        proxy.cut()
        await asyncio.sleep(self.dice.choice([0.5, 2.0, LEASE + 2]))
        proxy.refusing = False

    # ---- afterwards ------------------------------------------------------------------------------------------

    async def _calm(self, client: Client) -> None:
        for member in self.members:
            if member.process.running:
                member.process.go_on()
        begun = time.monotonic()
        Path(f"{self.notes}{ENOUGH}").touch()  # noqa: ASYNC240
        # Nobody sends items any more before anybody says that this is all.
        await until(lambda: all("enough\n" in member.process.words for member in self.engines), CALM_SECONDS)
        while (left := await self._unfinished(client)) and time.monotonic() - begun < CALM_SECONDS:
            for key in {key for workflow, key in left if workflow == "collect"}:
                with suppress(PerdureError):  # it has just ended
                    await client.handle(collect, key).send("end", id="the end")
            await asyncio.sleep(0.5)
        self.calm_seconds = time.monotonic() - begun

    async def _unfinished(self, client: Client) -> list[tuple[str, str]]:
        found = [(row.workflow, row.key) for row in await client.queries.undelivered()]
        for status in ("running", "waiting", "stuck"):
            found += [(each.workflow, each.key) for each in await client.instances(status=status, limit=1000)]
        return found

    async def _judge(self, client: Client) -> None:
        for member in self.members:
            member.process.terminate()
        await until(lambda: not any(member.process.running for member in self.members))
        self.acknowledged.read(self.notes)
        self.verdict = await verdict(client.queries, self.ledger)
        self.violations += self.verdict.violations
        collected: dict[str, Counter[int]] = {}
        for workflow, key in sorted(self.acknowledged.starts):
            summary = await client.queries.head(Address(workflow, key))
            if summary is None:
                self.violations.append(f"{workflow}/{key} was acknowledged, and is not there")
            elif summary.status == "completed" and workflow == "collect":
                collected[key] = Counter(await client.handle(collect, key).result())
            elif summary.status != "completed" and (workflow, summary.status) != ("walk", "cancelled"):
                self.violations.append(f"{workflow}/{key} is {summary.status}")
        for key, found in collected.items():
            self.violations += [f"collect/{key} has {n} times item {item}" for item, n in found.items() if n > 1]
        for key, item in sorted(self.acknowledged.items):
            if key in collected and item not in collected[key]:
                self.violations.append(f"item {item} of collect/{key} was acknowledged, and is not there")
        if not self.refusals:
            self.violations.append("no write of an engine that had lost its shard was attempted: nothing is proved")
        for process in [process for member in self.members for process in member.lives]:
            _, found_there, traceback = process.words.partition("Traceback")
            if found_there:
                self.violations.append(f"a traceback in {process.said.name}:{traceback[:3000]}")

    @property
    def refusals(self) -> int:
        return sum(engine.refusals() for engine in self._engines())

    def _engines(self) -> list[EngineProcess]:
        return [engine for member in self.engines for engine in member.lives]

    def report(self) -> str:
        found = self.verdict
        counts = {
            **dict(sorted(self.faults.items())),
            "engine processes": len(self._engines()),
            "worker processes": sum(len(member.lives) for member in self.workers),
            "zombie writes refused": self.refusals,
            "starts acknowledged": len(self.acknowledged.starts),
            "messages acknowledged": len(self.acknowledged.items),
            "instances": found.instances,
            "entries in the journal": found.entries,
            "steps, none with two receipts": found.steps,
            "executions of steps": found.executions,
            "redelivered after a fault": found.redelivered,
            "seconds of calm until all had ended": round(self.calm_seconds),
            "violations": len(self.violations),
        }
        return "\n".join(f"{count:>9,} {name}" for name, count in counts.items())


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--keep", action="store_true", help="leave what the engines said, and say where")
    options = parser.parse_args()
    print(f"chaos for {options.minutes:g} minutes with seed {options.seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="perdure-chaos-"))
    server = own_server(Path(tempfile.gettempdir()) / f"perdure-chaos-server-{os.getpid()}")
    with server.schema() as url:
        chaos = Chaos(server, url, directory, options.seed)
        asyncio.run(chaos.run(60 * options.minutes))
    print(chaos.report())
    for violation in chaos.violations[:50]:
        print(f"VIOLATION {violation}")
    if options.keep or chaos.violations:
        print(f"what the engines said is in {directory}")
    else:
        shutil.rmtree(directory)
    sys.exit(1 if chaos.violations else 0)


if __name__ == "__main__":
    main()
