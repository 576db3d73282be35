"""The engine as a whole: opening, stopping, clients, and what happens when the store fails."""

import asyncio
import gc
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.executors.inline import InlineExecutor
from perdure.kernel.batch import Batch
from perdure.kernel.decision import Outcome
from perdure.kernel.events import Address, Started
from perdure.kernel.mailbox import Accepted
from perdure.kernel.problem import Report
from perdure.kernel.status import Status
from perdure.ports.clock import Clock
from perdure.runtime.clock import SystemClock
from perdure.runtime.connections import LocalConnection
from perdure.runtime.shard import Shard
from perdure.stores.memory import MemoryDatabase, MemoryStore

ROOT = Path(__file__).parents[2]


async def echo(value: int) -> int:
    return value


@perdure.flow
async def one_step(ctx: perdure.Context, value: int) -> int:
    return await ctx.step("echo", echo, value)


@perdure.flow
async def until_told(ctx: perdure.Context) -> object:
    return (await ctx.receive("go")).body


# ---- stopping ---------------------------------------------------------------------------------------------------


async def test_closing_lets_a_running_step_end(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), []

    async def slow() -> str:
        begun.set()
        await asyncio.sleep(0.05)
        ended.append(True)
        return "done"

    @perdure.flow
    async def flow(ctx: perdure.Context) -> str:
        return await ctx.step("slow", slow)

    async with perdure.open(tmp_path / "a.db", workflows=[flow]) as engine:
        await engine.start(flow, key="k")
        await begun.wait()

    assert ended == [True]
    async with perdure.open(tmp_path / "a.db", workflows=[flow]) as engine:
        assert await engine.handle(flow, "k").result(60) == "done"
    assert ended == [True], "a step that ended before the close must not run again"


async def test_a_step_that_does_not_end_in_time_is_parked_and_loses_no_attempt(tmp_path: Path) -> None:
    runs: list[int] = []
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def endless() -> int:
        runs.append(perdure.step_info().delivery)
        begun.set()
        await let_go.wait()
        return len(runs)

    @perdure.flow
    async def flow(ctx: perdure.Context) -> int:
        return await ctx.step.options(retries=0)("endless", endless)

    for _ in range(5):  # more often than it may be delivered, if parked deliveries counted
        begun.clear()
        async with perdure.open(tmp_path / "a.db", workflows=[flow], drain=0.01) as engine:
            await engine.start(flow, key="k")
            await begun.wait()
    let_go.set()
    async with perdure.open(tmp_path / "a.db", workflows=[flow]) as engine:
        assert await engine.handle(flow, "k").result(60) == 6
    assert runs == sorted(runs)


async def test_a_step_that_asks_the_engine_while_that_closes_is_parked_and_made_again(tmp_path: Path) -> None:
    begun, closing, engines = asyncio.Event(), asyncio.Event(), list[perdure.Engine]()

    async def tell() -> str:
        begun.set()
        await closing.wait()
        await engines[-1].handle(until_told, "u").send("go", "told")
        return "sent"

    @perdure.flow
    async def teller(ctx: perdure.Context) -> str:
        return await ctx.step.options(retries=0)("tell", tell)

    async with perdure.open(tmp_path / "a.db", workflows=[teller, until_told]) as engine:
        engines.append(engine)
        await engine.start(until_told, key="u")
        await engine.start(teller, key="t")
        await begun.wait()
        asyncio.get_running_loop().call_soon(closing.set)  # within the close
    closing.clear()
    async with perdure.open(tmp_path / "a.db", workflows=[teller, until_told]) as engine:
        engines.append(engine)
        closing.set()
        told = await engine.handle(teller, "t").result(10), await engine.handle(until_told, "u").result(10)

    assert told == ("sent", "told")


async def test_a_hurried_close_parks_at_once(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    @perdure.flow
    async def flow(ctx: perdure.Context) -> None:
        await ctx.step("endless", endless)

    async with perdure.open(tmp_path / "a.db", workflows=[flow], drain=600) as engine:
        handle = await engine.start(flow, key="k")
        await begun.wait()
        engine.hurry.set()

    async with perdure.connect(tmp_path / "a.db") as client:
        assert [line.event for line in await client.handle(flow, handle.key).history()] == ["started", "parked"]


async def test_after_the_close_everybody_hears_that_it_is_closed() -> None:
    async with perdure.open(":memory:", workflows=[until_told]) as engine:
        handle = await engine.start(until_told, key="k")
        waiter = asyncio.create_task(handle.result())
        await asyncio.sleep(0)

    with pytest.raises(perdure.EngineClosed):
        await waiter
    with pytest.raises(perdure.EngineClosed):
        await handle.send("go")


async def test_each_who_hears_that_the_engine_is_closed_hears_it_by_an_error_of_its_own() -> None:
    async with perdure.open(":memory:", workflows=[until_told]) as engine:
        handle = await engine.start(until_told, key="k")

    errors = []
    for _ in range(3):
        with pytest.raises(perdure.EngineClosed) as raised:
            await handle.send("go")
        errors.append(raised.value)

    assert len({id(error) for error in errors}) == 3
    assert len({str(error) for error in errors}) == 1
    depths = [len(traceback.extract_tb(error.__traceback__)) for error in errors]
    assert depths[0] == depths[1] == depths[2]


async def test_a_published_value_wakes_those_who_wait_for_its_name() -> None:
    connection = LocalConnection(MemoryStore(MemoryDatabase()), print)
    a, b, both = connection.changes(1, "a"), connection.changes(1, "b"), connection.changes(1)
    for changes in (a, b, both):
        await anext(changes)  # the look at what is there
    told = {name: asyncio.create_task(anext(changes)) for name, changes in (("a", a), ("b", b), ("both", both))}
    await asyncio.sleep(0)

    connection.published(1, "a")
    await told["a"]
    await told["both"]
    assert not told["b"].done()

    connection.ended(1, Address("w", "k"), Outcome(Status.COMPLETED))
    await told["b"]
    for changes in (a, b, both):
        await changes.aclose()


# ---- one engine, many clients -----------------------------------------------------------------------------------


async def test_a_second_engine_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    async with perdure.open(tmp_path / "a.db", workflows=[one_step]):
        with pytest.raises(perdure.EngineRunning, match=str(os.getpid())):
            async with perdure.open(tmp_path / "a.db", workflows=[one_step]):
                pass
    async with perdure.open(tmp_path / "a.db", workflows=[one_step]) as engine:
        assert await (await engine.start(one_step, 3)).result(60) == 3


async def test_a_start_by_name_is_the_same_as_one_by_the_workflow_itself(tmp_path: Path) -> None:
    @perdure.flow
    async def order(ctx: perdure.Context, item: str, count: int = 2, *, price: Decimal = Decimal("1.50")) -> str:
        return f"{count} x {item} at {price}"

    async with (
        perdure.open(tmp_path / "a.db", workflows=[order]) as engine,
        perdure.connect(tmp_path / "a.db") as client,
    ):
        there = await engine.start(order, "tea", key="k")
        here = await client.start("order", item="tea", key="k")
        other = await client.start("order", item="tea", count=3, key="l")

        assert await here.result(60) == await there.result(60) == "2 x tea at 1.50"
        assert await other.result(60) == "3 x tea at 1.50"
        with pytest.raises(perdure.KeyInUse):
            await client.start("order", item="milk", key="k")


CLIENT = """
import asyncio, sys, perdure
async def main(url):
    async with perdure.connect(url) as client:
        handle = await client.start("until_told", key="from-outside")
        await handle.send("go", {"from": "another process"})
        print(await handle.result(60))
        lost = await client.start("until_told", key="cancelled")
        await lost.cancel("no longer wanted")
        try:
            await lost.result(60)
        except perdure.InstanceCancelled as error:
            print(error.reason)
asyncio.run(main(sys.argv[1]))
"""


async def test_another_process_starts_sends_cancels_and_reads_through_the_inbox(tmp_path: Path) -> None:
    url = str(tmp_path / "a.db")
    async with perdure.open(url, workflows=[until_told]):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, url, stdout=subprocess.PIPE, cwd=ROOT
        )
        out, _ = await asyncio.wait_for(process.communicate(), 30)

    assert out.decode().splitlines() == ["{'from': 'another process'}", "no longer wanted"]


async def test_what_a_client_posts_waits_for_the_next_engine(tmp_path: Path) -> None:
    url = tmp_path / "a.db"
    async with perdure.open(url, workflows=[until_told]):
        pass
    async with perdure.connect(url) as client:
        early = await client.start("until_told", key="k")
        await early.send("go", 7)
        with pytest.raises(perdure.ResultTimeout):
            await early.result(0)

    async with perdure.open(url, workflows=[until_told]) as engine:
        assert await engine.handle(until_told, "k").result(60) == 7


async def test_a_client_is_told_which_workflows_there_are(tmp_path: Path) -> None:
    async with perdure.open(tmp_path / "a.db", workflows=[until_told]):
        pass
    async with perdure.connect(tmp_path / "a.db") as client:
        with pytest.raises(perdure.UnknownWorkflow, match="did you mean 'until_told'"):
            await client.start("until_tolt")


# ---- keys -------------------------------------------------------------------------------------------------------


async def test_a_key_starts_one_instance_however_often_it_is_used() -> None:
    async with perdure.open(":memory:", workflows=[one_step]) as engine:
        handles = await asyncio.gather(*(engine.start(one_step, 1, key="k") for _ in range(10)))
        assert [await handle.result(60) for handle in handles] == [1] * 10
        assert len(await engine.instances()) == 1
        with pytest.raises(perdure.KeyInUse):
            await engine.start(one_step, 2, key="k")


async def test_reuse_starts_a_new_generation_of_an_ended_key() -> None:
    async with perdure.open(":memory:", workflows=[one_step]) as engine:
        first = await engine.start(one_step, 1, key="k")
        await first.result(60)
        with pytest.raises(perdure.KeyInUse):
            await engine.start(one_step, 2, key="k", reuse="failed")
        second = await engine.start(one_step, 2, key="k", reuse="always")
        assert await second.result(60) == 2
        assert await engine.handle(one_step, "k").result(60) == 2
        assert await first.result(60) == 1


# ---- what callers see of errors ---------------------------------------------------------------------------------


async def fail_here() -> None:
    raise LookupError("in the author's code")


@perdure.flow
async def failing(ctx: perdure.Context) -> None:
    await ctx.step.options(retries=0)("fail", fail_here)


async def test_the_error_of_a_failed_instance_shows_the_lines_of_the_flow_and_of_the_step() -> None:
    async with perdure.open(":memory:", workflows=[failing]) as engine:
        handle = await engine.start(failing)
        with pytest.raises(perdure.InstanceFailed) as failed:
            await handle.result(60)

    notes = "\n".join(failed.value.__notes__)
    assert "in failing" in notes and "in fail_here" in notes and "LookupError: in the author's code" in notes


async def test_a_swallowed_not_durable_still_fails_the_flow() -> None:
    @perdure.flow
    async def careless(ctx: perdure.Context) -> str:
        try:
            await asyncio.open_connection("localhost", 80)
        except Exception:
            return "the site is down"
        return "up"

    async with perdure.open(":memory:", workflows=[careless]) as engine:
        handle = await engine.start(careless)
        with pytest.raises(perdure.InstanceFailed, match="NotDurable"):
            await handle.result(60)


async def test_the_synchronous_door_says_where_it_does_not_lead() -> None:
    with pytest.raises(perdure.CallerError, match=r"async with perdure\.open"):
        perdure.run(one_step, 1)


# ---- a store that fails -----------------------------------------------------------------------------------------


class FailingStore(MemoryStore):
    """A store whose commits fail when told to, before or after the rows are written."""

    def __init__(self, database: MemoryDatabase | None = None) -> None:
        super().__init__(database)
        self.fail_before = 0
        self.fail_after = 0

    def commit(self, batch: Batch, done: Callable[[Exception | None], None]) -> None:
        if self.fail_before:
            self.fail_before -= 1
            done(perdure.StoreFailed("the disk is full"))
        elif self.fail_after:
            self.fail_after -= 1
            super().commit(batch, lambda error: done(error or perdure.StoreFailed("no answer to COMMIT")))
        else:
            super().commit(batch, done)


def shard_on(
    store: MemoryStore,
    *workflows: perdure.Flow,  # type: ignore[type-arg]
    failed: Callable[[Report], None] = lambda report: None,
    clock: Clock | None = None,
) -> tuple[Shard, LocalConnection]:
    connection = LocalConnection(store, failed)
    shard = Shard(
        store,
        clock or SystemClock(asyncio.get_running_loop()),
        [InlineExecutor()],
        workflows,
        owner="test",
        listener=connection,
    )
    connection.lead_to(lambda ref: shard)
    opened: list[Exception | None] = []
    shard.open(opened.append)
    assert opened == [None]
    return shard, connection


async def start_by_hand(connection: LocalConnection, key: str, value: int) -> int:
    address = Address("one_step", key)
    return await connection.put(address, Started("one_step", key, one_step.encode_input((value,), {}), b"seed"))


@pytest.mark.parametrize("when", ["fail_before", "fail_after"])
async def test_a_failed_commit_is_told_to_the_caller_and_repeating_the_call_is_harmless(when: str) -> None:
    store = FailingStore()
    shard, connection = shard_on(store, one_step)
    setattr(store, when, 1)

    with pytest.raises(perdure.StoreFailed):
        await start_by_hand(connection, "k", 5)
    instance = await start_by_hand(connection, "k", 5)

    outcome = await connection.outcome(Address("one_step", "k"), instance, 5)
    assert one_step.decode_result(outcome.value or b"") == 5
    assert len(store.database.heads) == 1
    shard.release()


@pytest.mark.parametrize("when", ["fail_before", "fail_after"])
async def test_a_receipt_survives_a_failed_commit_and_the_step_does_not_run_again(when: str) -> None:
    store = FailingStore()
    runs = []

    async def step() -> str:
        runs.append(perdure.step_info().delivery)
        setattr(store, when, 2)
        return "once"

    @perdure.flow
    async def flow(ctx: perdure.Context) -> str:
        return await ctx.step("step", step)

    shard, connection = shard_on(store, flow)
    address = Address("flow", "k")
    instance = await connection.put(address, Started("flow", "k", flow.encode_input((), {}), b"seed"))

    outcome = await connection.outcome(address, instance, 10)
    assert flow.decode_result(outcome.value or b"") == "once"
    assert runs == [1]
    shard.release()


@pytest.mark.parametrize(("when", "told"), [("fail_before", [2]), ("fail_after", [])])
async def test_a_hook_hears_of_a_failure_after_its_commit_and_at_most_once(when: str, told: list[int]) -> None:
    store = FailingStore()
    rows: list[int] = []

    @perdure.step(retries=0)
    async def step() -> None:
        setattr(store, when, 1)
        raise perdure.Fatal("no")

    @perdure.flow(on_error=print)
    async def flow(ctx: perdure.Context) -> str:
        await ctx.attempt("step", step)
        return "caught"

    shard, connection = shard_on(store, flow, failed=lambda report: rows.append(len(store.database.journal)))
    address = Address("flow", "k")
    instance = await connection.put(address, Started("flow", "k", flow.encode_input((), {}), b"seed"))

    outcome = await connection.outcome(address, instance, 10)
    assert flow.decode_result(outcome.value or b"") == "caught"
    assert rows == told, "the rows of the journal when the hook was told: its commit had failed first"
    shard.release()


class Impatient(SystemClock):
    """A clock that stands for a person in front of an engine that does nothing any more."""

    looks = 0

    def now(self) -> int:
        self.looks += 1
        assert self.looks < 10_000, "the engine spins"
        return super().now()


async def test_what_comes_at_once_may_be_larger_than_a_batch() -> None:
    @perdure.flow
    async def flow(ctx: perdure.Context, text: str) -> int:
        return len(text)

    shard, connection = shard_on(MemoryStore(), flow, clock=Impatient(asyncio.get_running_loop()))
    large = flow.encode_input(("x" * 5_000_000,), {})
    starts = [connection.put(Address("flow", key), Started("flow", key, large, b"seed")) for key in "abc"]

    async with asyncio.timeout(60):
        assert await asyncio.gather(*starts) == [1, 2, 3]
    shard.release()


async def test_a_zombie_writes_nothing_and_says_so() -> None:
    database = MemoryDatabase()
    _, old_door = shard_on(MemoryStore(database), one_step)
    new, new_door = shard_on(MemoryStore(database), one_step)

    with pytest.raises(perdure.Fenced):
        await start_by_hand(old_door, "k", 1)
    with pytest.raises(perdure.Fenced):
        await start_by_hand(old_door, "k", 1)

    assert not database.heads
    assert isinstance(await start_by_hand(new_door, "k", 1), int)
    new.release()


async def test_an_answer_waits_for_the_commit_even_when_nothing_is_recorded_for_it() -> None:
    """A duplicate of something that is not yet durable is not yet durable either."""

    class SlowStore(MemoryStore):
        held: Callable[[], None] | None = None

        def commit(self, batch: Batch, done: Callable[[Exception | None], None]) -> None:
            self.held = lambda: MemoryStore.commit(self, batch, done)

    store = SlowStore()
    shard, _ = shard_on(store, until_told)
    heard: list[object] = []
    start = Started("until_told", "k", until_told.encode_input((), {}), b"seed")
    shard.offer(Address("until_told", "k"), start, heard.append)
    shard.offer(Address("until_told", "k"), start, heard.append)
    for _ in range(5):
        await asyncio.sleep(0)
    assert heard == []

    assert store.held is not None
    store.held()
    for _ in range(5):
        await asyncio.sleep(0)
    assert [type(answer) for answer in heard] == [Accepted, Accepted]
    shard.release()


# ---- memory -----------------------------------------------------------------------------------------------------


@contextmanager
def at_most_one_flow_stays_in_memory(*, collect: bool) -> Iterator[None]:
    """`collect`: after the collector came. It does not look into everything, so it must be able to find these."""
    gc.collect()
    gc.disable()
    before = machines()
    try:
        yield
        if collect:
            gc.collect()
        assert machines() - before <= 1
    finally:
        gc.enable()


def machines() -> int:
    return sum(type(item).__name__ == "FlowMachine" for item in gc.get_objects())


async def number(n: int) -> int:
    return n


@perdure.flow
async def gathers(ctx: perdure.Context) -> int:
    first, second = await asyncio.gather(ctx.step("a", number, 1), ctx.step("b", lambda: number(2)))
    await ctx.sleep("nap", 0.001)
    return first + second


@perdure.flow
async def fails(ctx: perdure.Context) -> None:
    await ctx.step("a", number, 1)
    raise ValueError("no")


@perdure.flow
async def waits_in_a_task(ctx: perdure.Context) -> None:
    for ended in asyncio.as_completed([ctx.receive("a"), ctx.receive("b")]):
        await ended


@perdure.flow
async def holds_its_context(ctx: perdure.Context) -> None:
    async def wait() -> None:
        await asyncio.sleep(3600)
        await ctx.sleep("never", 1)

    await ctx.step("a", wait)


@pytest.mark.parametrize(("flow", "collect"), [(gathers, False), (fails, True)])
async def test_a_flow_that_ended_is_gone(flow: Any, collect: bool) -> None:
    async with perdure.open(":memory:", workflows=[flow]) as engine:
        with at_most_one_flow_stays_in_memory(collect=collect):
            for _ in range(20):
                handle = await engine.start(flow)
                with suppress(perdure.InstanceFailed):
                    await handle.result(60)


@pytest.mark.parametrize(("flow", "collect"), [(until_told, False), (waits_in_a_task, True)])
async def test_a_flow_that_was_evicted_is_gone(flow: Any, collect: bool) -> None:
    async with perdure.open(":memory:", workflows=[flow], cache=1) as engine:
        await engine.start(flow)
        with at_most_one_flow_stays_in_memory(collect=collect):
            for _ in range(20):
                await engine.start(flow)


async def test_flows_are_gone_when_their_engine_is_closed() -> None:
    with at_most_one_flow_stays_in_memory(collect=True):
        async with perdure.open(":memory:", workflows=[holds_its_context], drain=0) as engine:
            for _ in range(20):
                await engine.start(holds_its_context)
        del engine


async def test_the_collector_comes_less_often_while_an_engine_is_open() -> None:
    before = gc.get_threshold()

    async with perdure.open(":memory:", workflows=[one_step]):
        async with perdure.open(":memory:", workflows=[one_step]):
            assert gc.get_threshold()[0] > before[0]
        assert gc.get_threshold()[0] > before[0]

    assert gc.get_threshold() == before


async def test_a_threshold_of_the_users_own_is_left_alone() -> None:
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 5, 5)
    try:
        async with perdure.open(":memory:", workflows=[one_step]):
            assert gc.get_threshold() == (1_000_000, 5, 5)
        assert gc.get_threshold() == (1_000_000, 5, 5)
    finally:
        gc.set_threshold(*before)
