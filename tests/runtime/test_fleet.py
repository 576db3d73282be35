"""The shards of a process come and go with their leases."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import perdure
from perdure.errors import LeaseLost
from perdure.executors.inline import InlineExecutor
from perdure.kernel.events import Ref
from perdure.ports.leases import LeaseStanding
from perdure.ports.store import Lease
from perdure.runtime.clock import SystemClock
from perdure.runtime.connections import FleetConnection
from perdure.runtime.fleet import Fleet
from perdure.runtime.handle import Handle
from perdure.runtime.shard import Shard
from perdure.stores.memory import MemoryStore
from tests.fleet.processes import until


class SlowLeases:
    """A database that has no shard free, and answers when it is told to."""

    shards = 4
    lease: float = 0.2

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[LeaseStanding] | None = None
        self.left = False
        self.told: list[Mapping[int, int]] = []

    def shard_of(self, ref: Ref) -> int:
        return 0

    async def renew(self, owner: str, held: Mapping[int, int]) -> LeaseStanding:
        self.told.append(held)
        if self.answer is None:
            return LeaseStanding({}, (), 1)
        self.asked.set()
        return await self.answer

    async def leave(self, owner: str) -> None:
        self.left = True

    def listen(self, heard: Callable[[str], None]) -> None:
        pass

    def hint(self, *words: str) -> None:
        pass


def no_shard(number: int) -> Shard:
    raise AssertionError("there is none to take")


async def test_a_close_ends_though_a_renewal_is_answered_in_the_same_moment() -> None:
    leases = SlowLeases()
    fleet = Fleet(leases, "test", no_shard)
    await fleet.open()
    leases.answer = asyncio.get_running_loop().create_future()
    await leases.asked.wait()

    leases.answer.set_result(LeaseStanding({}, (), 1))  # nobody has heard it yet when the close stops the renewals
    async with asyncio.timeout(30):
        await fleet.close(0, asyncio.Event())

    assert leases.left


class SlowStore(MemoryStore):
    """One whose lease is given when somebody says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    def acquire(self, owner: str, done: Callable[[Lease | Exception], None]) -> None:
        self.give = lambda: MemoryStore.acquire(self, owner, done)
        self.asked.set()


async def test_a_renewal_names_a_shard_that_is_being_taken_so_that_it_is_not_given_back() -> None:
    store = SlowStore()

    def make(number: int) -> Shard:
        clock = SystemClock(asyncio.get_running_loop())
        return Shard(store, clock, [InlineExecutor()], [], owner="test", listener=connection, number=number, shards=4)

    leases = SlowLeases()
    leases.lease = 600  # nothing is renewed by itself
    fleet = Fleet(leases, "test", make)
    connection = FleetConnection(store, lambda report: None, fleet)
    leases.answer = asyncio.get_running_loop().create_future()
    leases.answer.set_result(LeaseStanding({}, (2,), 4))
    opening = asyncio.create_task(fleet.open())
    async with asyncio.timeout(30):
        await store.asked.wait()
        await fleet._tick()
        store.give()
        await opening
        leases.answer = asyncio.get_running_loop().create_future()
        leases.answer.set_result(LeaseStanding({2: 1}, (), 4))
        await fleet._tick()
        await fleet.close(0, asyncio.Event())

    assert leases.told == [{}, {}, {2: 0}, {2: 1}]


def numbers(*engines: perdure.Engine) -> list[int]:
    """Of the shards that run."""
    return sorted(shard.number for each in engines for shard in each._running.shards if shard.takes)


async def test_shards_that_fell_run_again_though_the_lease_of_their_engine_has_not_expired(postgres: str) -> None:
    async with perdure.open(postgres) as engine:
        fallen = engine._running.shards
        assert len(fallen) == 16
        for shard in fallen:
            shard.fall(LeaseLost("for a test"))

        await until(lambda: numbers(engine) == list(range(16)))

        assert {shard.epoch for shard in engine._running.shards} == {2}


async def test_shards_that_fell_are_shared_with_an_engine_that_comes_meanwhile(postgres: str) -> None:
    async with perdure.open(postgres) as first:
        for shard in first._running.shards:
            shard.fall(LeaseLost("for a test"))
        async with perdure.open(postgres) as second:
            await until(lambda: len(numbers(first)) == len(numbers(second)) == 8)
            assert numbers(first, second) == list(range(16))


async def test_a_list_of_a_fleet_is_newest_first_over_all_shards(postgres: str) -> None:
    @perdure.flow
    async def waits(ctx: perdure.Context) -> None:
        await ctx.receive("go")

    async with perdure.open(postgres, workflows=[waits]) as engine:
        for n in range(24):
            await engine.start(waits, key=str(n), tags={"parity": str(n % 2)})
        newest = [str(n) for n in reversed(range(24))]
        found = await engine.instances()

        assert len({each.id >> 48 for each in found}) > 4, "instances of many shards"
        assert [each.key for each in found] == newest
        assert [each.key for each in await engine.instances(workflow=waits, before=found[9].id)] == newest[10:]
        assert [each.key for each in await engine.instances(tags={"parity": "1"}, limit=5)] == newest[:10:2]
        assert await engine.queries.check() == []


async def test_callers_hear_of_instances_whose_shard_goes_to_another_engine_and_comes_back(postgres: str) -> None:
    @perdure.flow
    async def waits(ctx: perdure.Context) -> str:
        await ctx.receive("go")
        ctx.publish("state", "gone on")
        await ctx.receive("end")
        return "done"

    async with perdure.open(postgres, workflows=[waits]) as first:
        handles = [await first.start(waits, key=str(n)) for n in range(8)]
        watched = [handle.watch("state") for handle in handles]
        values = asyncio.gather(*map(anext, watched))
        results = asyncio.gather(*(handle.result(120) for handle in handles))
        async with perdure.open(postgres, workflows=[waits]) as second:
            await until(lambda: len(numbers(first)) == len(numbers(second)) == 8)
            for handle in handles:
                await handle.send("go")
            assert await asyncio.wait_for(values, 60) == ["gone on"] * 8
            ends = asyncio.gather(*(anext(each, "no more") for each in watched))
            for handle in handles[:4]:
                await handle.send("end")
        for handle in handles[4:]:
            await handle.send("end")
        assert await results == ["done"] * 8
        assert await asyncio.wait_for(ends, 60) == ["no more"] * 8


async def test_steps_of_a_fleet_tell_how_far_they_are(postgres: str) -> None:
    """The executor of effects performs on the loop and in threads, as steps do: each shard hears its own calls."""
    go = threading.Event()

    async def on_loop() -> None:
        await asyncio.to_thread(go.wait)
        perdure.emit("on the loop")

    def in_a_thread() -> None:
        perdure.emit("in a thread")

    @perdure.flow
    async def tells(ctx: perdure.Context) -> None:
        await ctx.step("on_loop", on_loop)
        await ctx.step("in_a_thread", in_a_thread)

    async def chunks(handle: Handle[None]) -> list[Any]:
        return [frame.chunk async for frame in handle.stream()]

    async with perdure.open(postgres, workflows=[tells]) as engine:
        handles = [await engine.start(tells, key=str(n)) for n in range(4)]
        heard = asyncio.gather(*map(chunks, handles))
        await until(lambda: len(engine._connection.streams) == 4)
        go.set()
        assert await asyncio.wait_for(heard, 60) == [["on the loop", "in a thread"]] * 4


async def test_frames_reach_a_process_that_runs_nothing(postgres: str) -> None:
    """In their order, from the newest progress on; nothing is sent as long as nobody watches."""
    go = threading.Event()

    async def step() -> None:
        perdure.progress(1, 2, "half")
        await asyncio.to_thread(go.wait)
        for n in range(20):
            perdure.emit(n)

    @perdure.flow
    async def tells(ctx: perdure.Context) -> None:
        await ctx.step("step", step)

    async with perdure.open(postgres, workflows=[tells]) as engine, perdure.connect(postgres) as client:
        streams: Any = engine._connection.streams
        quiet = await engine.start(tells, key="quiet")
        told = await engine.start(tells, key="told")
        stream = client.handle("tells", "told").stream()
        first = await asyncio.wait_for(anext(stream), 60)
        go.set()
        rest = [frame async for frame in stream]
        await quiet.result(60)
        await told.result(60)
        watched = [*streams._relay._watched]

    assert (first.kind, first.done, first.note) == ("progress", 1, "half")
    chunks = [frame.chunk for frame in rest if frame.kind == "chunk"]
    assert chunks == list(range(len(chunks)))
    assert len(watched) == 1


async def test_an_engine_of_a_fleet_runs_so_many_steps_at_once_as_it_was_told(postgres: str) -> None:
    running: set[object] = set()
    most = [0]

    async def step() -> None:
        me = object()
        running.add(me)
        most[0] = max(most[0], len(running))
        await asyncio.sleep(0.01)
        running.remove(me)

    @perdure.flow
    async def walks(ctx: perdure.Context) -> None:
        await asyncio.gather(*(ctx.step(f"step{n}", step) for n in range(3)))

    async with perdure.open(postgres, workflows=[walks], inline=2) as engine:
        handles = [await engine.start(walks, key=str(n)) for n in range(12)]
        await asyncio.gather(*(handle.result(60) for handle in handles))

    assert most == [2]


async def test_a_call_that_was_cut_and_asks_once_more_leaves_the_next_delivery_alone(postgres: str) -> None:
    begun, again, asked = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def last_words() -> None:
        about = perdure.step_info()
        await again.wait()
        asked.set()
        await about.ask("price", "of the first delivery")

    async def clerk() -> str:
        about = perdure.step_info()
        if about.delivery == 1:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await last_words()
        again.set()
        await asked.wait()
        for _ in range(50):  # so that what the first delivery asks comes first
            await asyncio.sleep(0)
        return str(await about.ask("price", "of the next"))

    @perdure.flow
    async def shop(ctx: perdure.Context) -> str:
        work = asyncio.create_task(ctx.step("clerk", clerk))
        message = await ctx.receive("price")
        message.complete(message.body)
        return await work

    async with perdure.open(postgres, workflows=[shop]) as engine:
        handle = await engine.start(shop, key="k")
        await begun.wait()
        for shard in engine._running.shards:
            shard.fall(LeaseLost("for a test"))
        assert await handle.result(60) == "of the next"
