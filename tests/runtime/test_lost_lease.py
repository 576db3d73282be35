"""A lease is lost while callers wait: each hears what is known about its event, and nothing is recorded twice."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

import perdure
from perdure.errors import LeaseLost
from perdure.executors.inline import InlineExecutor
from perdure.kernel.batch import Batch, InboxRow
from perdure.kernel.events import Address, Ref, Started
from perdure.runtime.clock import SystemClock
from perdure.runtime.connections import FleetConnection
from perdure.runtime.shard import Shard
from perdure.stores.memory import MemoryStore

LOST = LeaseLost("the lease of shard 0 was not renewed in time: another may own it now")


@perdure.flow
async def nothing(ctx: perdure.Context) -> None:
    pass


class SilentStore(MemoryStore):
    """A store whose answers to commits are lost: nobody hears whether the rows were written."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = False

    def commit(self, batch: Batch, done: Callable[[Exception | None], None]) -> None:
        if not self.silent:
            super().commit(batch, done)


class OneShard:
    """A fleet of one shard; others look after themselves."""

    def __init__(self) -> None:
        self.shard: Shard | None = None
        self.moved: Callable[[], None] = lambda: None
        self.redefined: Callable[[], None] = lambda: None

    def shard_of(self, ref: Ref) -> Shard | None:
        return self.shard

    def posted(self, rows: Sequence[InboxRow]) -> None:
        pass

    def hint_others(self) -> None:
        pass

    def hint_redefined(self) -> None:
        pass

    def sweep(self) -> None:
        self.shard = None
        self.moved()


def opened() -> tuple[SilentStore, Shard, FleetConnection]:
    store, fleet = SilentStore(), OneShard()
    connection = FleetConnection(store, lambda report: None, fleet)
    clock = SystemClock(asyncio.get_running_loop())
    shard = Shard(store, clock, [InlineExecutor()], [nothing], owner="test", listener=connection)
    fleet.shard = shard
    shard.open(lambda error: None)
    return store, shard, connection


def start(connection: FleetConnection, key: str) -> asyncio.Task[int]:
    event = Started("nothing", key, nothing.encode_input((), {}), b"seed")
    return asyncio.create_task(connection.put(Address("nothing", key), event))


async def turns(count: int = 5) -> None:
    """Let the loop go round, as often as a start needs to come into a batch."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_whose_commit_is_under_way_hears_that_nobody_knows() -> None:
    store, shard, connection = opened()
    store.silent = True
    under_way = start(connection, "under way")
    await turns()

    shard.fall(LOST)

    with pytest.raises(perdure.StoreFailed, match="whether this was recorded is not known"):
        await under_way
    assert not store.database.inbox, "it may be recorded already: sent again, it could begin twice"


async def test_what_was_in_no_commit_yet_goes_to_the_new_owner_by_the_inbox() -> None:
    store, shard, connection = opened()
    store.silent = True
    under_way = start(connection, "under way")
    await turns()
    behind = start(connection, "behind")
    await turns()

    shard.fall(LOST)

    await behind
    assert [row.key for _, row in store.database.inbox.values()] == ["behind"]
    with pytest.raises(perdure.StoreFailed):
        await under_way
