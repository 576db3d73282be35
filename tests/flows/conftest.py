"""What the tests of flows share: a stage on which engines run, crash and are opened again.

`stage` is each store with a hot cache and with none at all (everything is evicted after every commit): a
replayed flow must behave exactly like a hot one. `disk` is the same on SQLite only, for tests that restart.
When an engine is closed, the whole history of each of its instances is replayed, and every decision compared; and
it is rebuilt as the kernel does it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure.kernel.events import Address, Rewound, Started
from perdure.kernel.moment import Moment
from perdure.kernel.replay import deliveries, fold, rebuild
from perdure.kernel.workflows import Workflows
from perdure.ports.store import Filter
from tests.entries import entries_of

SHORT, LONG = "memory, replayed; sqlite", "memory; memory, replayed; sqlite; sqlite, replayed; postgres"
STAGES = {"": SHORT, "long": LONG}.get(given := os.environ.get("PERDURE_TEST_STAGES", ""), given).split("; ")
"""A file that stays in memory and memory that is replayed show each way once. `make test-long` has all."""


class Stage:
    def __init__(self, url: str | Path, cache: int) -> None:
        self.url = url
        self.cache = cache
        self._crashes = 0

    @asynccontextmanager
    async def open(self, *workflows: Any, replay: bool = True, **options: Any) -> AsyncIterator[perdure.Engine]:
        async with perdure.open(
            self.url, workflows=workflows, cache=self.cache, drain=options.pop("drain", 0.0), **options
        ) as engine:
            yield engine
            if replay:
                await replays(engine, *workflows)

    async def result_of(self, flow: perdure.Flow[..., Any], *args: Any, sent: Iterable[tuple[str, Any]] = ()) -> Any:
        """What a flow gives in an engine of its own, which sends it messages while it runs."""
        async with self.open(flow) as engine:
            handle = await engine.start(flow, *args)
            for name, body in sent:
                await handle.send(name, body)
            return await handle.result(60)

    def crash(self) -> None:
        """What a dying process leaves on the disk becomes the database of the next engine."""
        assert isinstance(self.url, Path)
        self._crashes += 1
        image = self.url.with_name(f"crash{self._crashes}.db")
        for suffix in ("", "-wal"):
            if Path(f"{self.url}{suffix}").exists():
                shutil.copy(f"{self.url}{suffix}", f"{image}{suffix}")
        self.url = image


async def replays(engine: perdure.Engine, *workflows: Any) -> None:
    """Every history, replayed from its first entry, decides what it decided then."""
    known = Workflows(workflows)
    for head in await engine.queries.heads(Filter(limit=1000)):
        rows = await engine.queries.history(head.id)
        entries = entries_of(rows)
        started = entries[0].event
        assert isinstance(started, Started)
        workflow = known.of(head.workflow, head.version)
        assert workflow is not None
        machine = workflow.machine(f"{head.workflow}/{head.key}", None)
        for entry, event in deliveries(entries):
            moment = Moment(entry.clock, started.seed, entry.number, entry.decision)
            if isinstance(event, Rewound):
                machine.dispose()
                machine = workflow.machine(f"{head.workflow}/{head.key}", None)
            if not (entry.decision.outcome and event_is_cancel_of_stuck(entries)):
                decided = machine.deliver(event, moment)
                recorded = msgspec.structs.replace(decided, intents=())
                assert recorded == entry.decision, f"{head.workflow}/{head.key}, entry {entry.number}"
        machine.dispose()
        if not event_is_cancel_of_stuck(entries):
            rebuild(fold(Address(head.workflow, head.key), None, rows), workflow).dispose()


def event_is_cancel_of_stuck(entries: list[Any]) -> bool:
    """The kernel itself ends a stuck instance that is cancelled."""
    return len(entries) > 1 and entries[-2].decision.stuck is not None and entries[-2].decision.stuck.kept


async def until(condition: Callable[[], bool]) -> None:
    """Let everything else run until something has happened."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what is waited for lies in another engine's hands
            await asyncio.sleep(0.001)


async def becomes(handle: perdure.Handle[Any], status: str) -> None:
    async with asyncio.timeout(60):
        while await handle.status() != status:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    url: str | Path = ":memory:" if request.param.startswith("memory") else tmp_path / "flows.db"
    if request.param.startswith("postgres"):
        url = request.getfixturevalue("postgres")
    return Stage(url, 0 if request.param.endswith("replayed") else 4096)


@pytest.fixture(params=["hot", "replayed"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(tmp_path / "flows.db", 0 if request.param == "replayed" else 4096)


@pytest.fixture
def memory() -> Stage:
    return Stage(":memory:", 4096)
