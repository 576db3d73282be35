"""What the tests of cells share: a stage on which engines with cells run, crash and are opened again.

`stage` is each store with a hot cache and with none at all (everything is evicted after every commit): a rebuilt cell
must behave exactly like a hot one. `disk` is the same on SQLite only, for tests that restart. When an engine is
closed, the whole history of each instance is replayed, every decision and every state compared, and the store checks
its indexes against its journal.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.app.dialects import gather
from perdure.cells.bound_manifest import Definition
from perdure.cells.machine import CellMachine
from perdure.codec import decode, encode
from perdure.kernel.batch import HeadRow
from perdure.kernel.entry import Entry
from perdure.kernel.events import Address, ReceiptArrived
from perdure.kernel.instance import Intent
from perdure.kernel.receipt import Receipt, ReceiptStatus
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.rules import key_text
from perdure.kernel.status import TERMINAL
from perdure.kernel.workflows import Workflows
from perdure.ports.store import Filter
from tests.entries import entries_of

SHORT, LONG = "memory, evicted; sqlite", "memory; memory, evicted; sqlite; sqlite, evicted; postgres"
STAGES = {"": SHORT, "long": LONG}.get(given := os.environ.get("PERDURE_TEST_STAGES", ""), given).split("; ")
"""A file that stays in memory and memory that is evicted show each way once. `make test-long` has all."""


class Live:
    """An engine with cells, and what a test asks of it. `rest` lets everything be recorded that is under way."""

    def __init__(self, engine: perdure.Engine, workflows: Workflows[Any]) -> None:
        self.engine = engine
        self._workflows = workflows

    async def send(self, event: Any, **options: Any) -> None:
        await self.engine.send(event, **options)
        await self.rest()

    async def rest(self) -> None:
        while True:
            for shard in self.engine._running.shards:
                settled = asyncio.get_running_loop().create_future()
                shard.when_settled(lambda settled=settled: None if settled.done() else settled.set_result(None))  # type: ignore[misc]
                await settled
            if len(self.engine._running.shards) == 1 or not await self.engine.queries.undelivered():
                return  # nothing is on its way from one shard to another

    async def until(self, cell: Any, key: object, state: Any) -> None:
        """Wait until a cell has this state, or one of which this is true."""
        good: Callable[[Any], bool] = state if callable(state) else lambda found: bool(found == state)
        async with asyncio.timeout(60):
            while not good(await self.state(cell, key)):  # noqa: ASYNC110  # what it waits for is done by handlers
                await asyncio.sleep(0.001)

    async def state(self, cell: Any, key: object = "") -> Any:
        head = await self.head(cell, key)
        if head is None or head.status in TERMINAL:
            return None
        workflow = self._workflows.of(head.workflow, head.version)
        assert isinstance(workflow, Definition)
        rows = await self.engine.queries.history(head.id)
        machine = rebuild(fold(Address(head.workflow, head.key), None, rows), workflow)
        assert isinstance(machine, CellMachine)
        return workflow.state.build(decode(machine.state)) if machine.state else None

    async def head(self, cell: Any, key: object = "") -> HeadRow | None:
        return await self.engine.queries.head(Address(cell.name.partition("@")[0], key_text(key) or ""))

    async def status(self, cell: Any, key: object = "") -> str:
        head = await self.head(cell, key)
        return "" if head is None else head.status

    async def entries(self, cell: Any, key: object = "") -> list[Entry]:
        """The history of a cell; of its last generation."""
        head = await self.head(cell, key)
        return [] if head is None else entries_of(await self.engine.queries.history(head.id))

    async def open(self, cell: Any, key: object = "") -> list[Intent]:
        head = await self.head(cell, key)
        assert head is not None
        rows = await self.engine.queries.history(head.id)
        return list(fold(Address(head.workflow, head.key), None, rows).open.values())

    async def answer(
        self, cell: Any, key: object, value: Any = None, *, status: ReceiptStatus = "ok", payload: bytes | None = None
    ) -> bytes:
        """What somebody outside says to the first effect that a cell has open; gives its intent."""
        intent = (await self.open(cell, key))[0].id
        await self.receipt(cell, key, intent, value, status=status, payload=payload)
        return intent

    async def receipt(
        self,
        cell: Any,
        key: object,
        intent: bytes,
        value: Any = None,
        *,
        status: ReceiptStatus = "ok",
        payload: bytes | None = None,
    ) -> None:
        head = await self.head(cell, key)
        assert head is not None
        data = payload if payload is not None else encode(value) if status == "ok" else None
        await self.engine._connection.put(head.id, ReceiptArrived(intent, Receipt(status, data)))
        await self.rest()

    async def journal(self) -> list[Any]:
        await self.rest()
        return await self.engine.queries.journal(0, 100_000)

    async def facts(self) -> list[tuple[str, Any]]:
        """Every domain event that was announced, in the order of the journal."""
        rows = await self.journal()
        found = []
        for instance in {row.instance for row in rows}:
            for entry in entries_of([row for row in rows if row.instance == instance]):
                found += [(entry.seq, fact.name, decode(fact.body)) for fact in entry.decision.announce]
        return [(name, body) for _, name, body in sorted(found, key=lambda each: each[0])]


class Stage:
    def __init__(self, url: str | Path, cache: int) -> None:
        self.url = url
        self.cache = cache
        self._crashes = 0

    @asynccontextmanager
    async def open(self, *workflows: Any, replay: bool = True, **options: Any) -> AsyncIterator[Live]:
        found, _ = gather(workflows)
        options = {"drain": 0.0, "cache": self.cache, **options}
        async with perdure.open(self.url, workflows=workflows, **options) as engine:
            live = Live(engine, Workflows(found))
            yield live
            await live.rest()
            if replay:
                await replays(engine, Workflows(found))
            assert await engine.queries.check() == []

    def crash(self) -> None:
        """What a dying process leaves on the disk becomes the database of the next engine."""
        assert isinstance(self.url, Path)
        self._crashes += 1
        image = self.url.with_name(f"crash{self._crashes}.db")
        for suffix in ("", "-wal"):
            if Path(f"{self.url}{suffix}").exists():
                shutil.copy(f"{self.url}{suffix}", f"{image}{suffix}")
        self.url = image


async def replays(engine: perdure.Engine, workflows: Workflows[Any]) -> None:
    """Every history, replayed from its first entry, decides what it decided then."""
    for head in await engine.queries.heads(Filter(limit=5000)):
        workflow = workflows.of(head.workflow, head.version)
        assert workflow is not None
        rows = await engine.queries.history(head.id)
        rebuild(fold(Address(head.workflow, head.key), None, rows), workflow).dispose()


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    if request.param.startswith("postgres"):
        with request.getfixturevalue("postgres_server").schema(shards=1) as server:  # shadow runs need one journal
            yield Stage(server, 4096)
        return
    url: str | Path = ":memory:" if request.param.startswith("memory") else tmp_path / "cells.db"
    yield Stage(url, 0 if request.param.endswith("evicted") else 4096)


@pytest.fixture(params=["hot", "evicted"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(tmp_path / "cells.db", 0 if request.param == "evicted" else 4096)
