"""Versions that come while an engine runs: a loader is asked once, what waited is read again, memory stays."""

import asyncio
from collections.abc import Callable
from typing import Any

import perdure
from perdure.kernel.events import Address, Started
from perdure.kernel.rows import inbox_row
from perdure.runtime.clock import SystemClock
from perdure.runtime.connections import LocalConnection
from perdure.runtime.shard import Shard
from perdure.stores.memory import MemoryStore


def version(number: str) -> Any:
    @perdure.flow(name="shop", version=number)
    async def shop(ctx: perdure.Context) -> str:
        await ctx.receive("go")
        return number

    return shop


class Place:
    """A shard that runs version 1. `asked`: which versions its loader was asked for."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.asked: list[tuple[str, str]] = []
        self.found: Callable[[Any], None] = lambda workflow: None
        connection = LocalConnection(self.store, lambda report: None)
        clock = SystemClock(asyncio.get_running_loop())
        self.shard = Shard(store=self.store, clock=clock, executors=[], workflows=[version("1")], owner="test",
                           listener=connection, loader=self._load)  # fmt: skip
        connection.lead_to(lambda ref: self.shard)

    def _load(self, name: str, version: str, found: Callable[[Any], None]) -> None:
        self.asked.append((name, version))
        self.found = found

    async def open(self) -> None:
        opened: list[Exception | None] = []
        self.shard.open(opened.append)
        assert opened == [None]
        await self.settled()

    async def post(self, key: str, number: str) -> None:
        """What a client has posted that knows this version from another engine, and the look that a hint causes."""
        start = Started("shop", key, version(number).encode_input((), {}), b"seed", number)
        self.store.database.add_to_inbox(inbox_row(key.encode(), Address("shop", key), start, 1))
        self.store.database.written += 1
        self.shard.look()
        await self.settled()

    async def settled(self) -> None:
        done = asyncio.Event()
        self.shard.when_settled(done.set)
        await done.wait()

    @property
    def running(self) -> dict[str, str]:
        return {head.key: head.version for head in self.store.database.heads.values()}


async def test_a_missing_version_is_asked_for_once_and_what_waited_for_it_is_read_again():
    place = Place()
    await place.open()
    for key in ("a", "b"):
        await place.post(key, "2")
    await place.post("old", "1")
    assert place.asked == [("shop", "2")]
    assert place.running == {"old": "1"} and len(place.store.database.inbox) == 2

    place.found(version("2"))
    await place.settled()
    await place.post("c", "2")

    assert place.running == {"old": "1", "a": "2", "b": "2", "c": "2"}
    assert place.asked == [("shop", "2")] and place.store.database.inbox == {}


async def test_a_version_that_is_added_evicts_no_loaded_instance():
    place = Place()
    await place.open()
    await place.post("a", "1")
    (id,) = place.store.database.heads
    loaded = place.shard.kernel.cache.get(id)
    assert loaded is not None and loaded.machine is not None
    machine = loaded.machine

    place.shard.add(version("2"), active="2")
    await place.settled()

    assert place.shard.kernel.cache.get(id) is loaded and loaded.machine is machine
    assert place.shard.kernel.workflows.actives == {"shop": "2"}
