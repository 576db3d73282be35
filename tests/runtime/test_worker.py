"""Workers: they claim, beat and answer; what they leave undone is delivered again, or unknown; zombies are fenced."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

import perdure
from perdure import Context, OutcomeUnknown, StepTimeout
from perdure.app.dialects import read_catalog
from perdure.app.workers import known, worker
from perdure.executors.inline import InlineExecutor
from perdure.executors.signatures import Key, Keyring
from perdure.executors.thread import ThreadExecutor
from perdure.flows.loop import Enclosure
from perdure.kernel.events import ReceiptArrived
from perdure.kernel.outside import unsigned
from perdure.kernel.receipt import Receipt
from perdure.kernel.rows import inbox_row
from perdure.kernel.workflows import Workflows
from perdure.ports.executor import Executor
from perdure.ports.frame import Frame
from perdure.ports.jobs import CLAIM, Claim
from perdure.ports.store import Queries
from perdure.runtime.client import Client
from perdure.runtime.clock import SystemClock
from perdure.runtime.connections import LocalConnection
from perdure.runtime.shard import Shard
from perdure.runtime.worker import Worker
from perdure.stores.answers import asked
from perdure.stores.memory import MemoryDatabase, MemoryJobs, MemoryStore
from tests.flows.conftest import until

from . import queue_jobs
from .queue_jobs import trace

HERE = [sys.modules[__name__]]

ran: list[Any] = []
gates: dict[str, asyncio.Event] = {}


@perdure.step(executor="work", retries=0)
async def double(n: int) -> int:
    ran.append(n)
    return 2 * n


@perdure.step(executor="work", retries=0)
async def waits(name: str) -> str:
    ran.append((name, perdure.step_info().delivery))
    try:
        await gates.setdefault(name, asyncio.Event()).wait()
    except asyncio.CancelledError:
        ran.append(f"{name} was cut")
        raise
    return name


@perdure.step(executor="work", once=True, unknown="raise")
async def once(name: str) -> str:
    return await waits.function(name)


@perdure.step(executor="work")
async def tells() -> str:
    perdure.progress(1, 2, "half")
    await gates.setdefault("tells", asyncio.Event()).wait()
    return "told"


@perdure.flow
async def doubling(ctx: Context, n: int) -> int:
    return await ctx.step("double", double, n)


@perdure.flow
async def waiting(ctx: Context, name: str) -> str:
    return await ctx.step("wait", waits, name)


@perdure.flow
async def careful(ctx: Context) -> str:
    try:
        return await ctx.step("pay", once, "pay")
    except OutcomeUnknown:
        return "unknown"


@perdure.flow
async def impatient(ctx: Context) -> str:
    try:
        return await ctx.step.options(timeout=0.02)("wait", waits, "slow")
    except StepTimeout:
        return "too long"


@perdure.flow
async def telling(ctx: Context) -> str:
    return await ctx.step("tell", tells)


@perdure.flow
async def borrowing(ctx: Context, place: str) -> int:
    await ctx.step.options(executor="work")("trace", trace, place, "borrowed")
    return await ctx.step("double", queue_jobs.double, 4)


FLOWS = [doubling, waiting, careful, impatient, telling, borrowing]


class Place:
    """One database in memory, its clock, and the engines and workers that a test opens on it."""

    def __init__(self) -> None:
        self.passed = 0
        self.database = MemoryDatabase(workers=True, now=lambda: self.passed)
        self.hurry = asyncio.Event()

    @asynccontextmanager
    async def engine(self, keys: Keyring | None = None) -> AsyncIterator[Client]:
        store, loop = MemoryStore(self.database), asyncio.get_running_loop()
        workflows: Workflows[Any] = Workflows(FLOWS)
        connection = LocalConnection(cast(Queries, store), lambda report: None)
        executors: list[Executor] = [InlineExecutor(), ThreadExecutor()]
        self.shard = Shard(
            store,
            SystemClock(loop),
            executors,
            workflows,
            owner="engine",
            listener=connection,
            enclosure=Enclosure(),
            verify=unsigned if keys is None else keys.judge,
        )
        connection.lead_to(lambda ref: self.shard)
        await asked(self.shard.open)
        yield Client(connection, workflows, read_catalog)
        idle: asyncio.Future[None] = loop.create_future()
        self.shard.drain(lambda: idle.set_result(None))
        await idle
        self.shard.release()
        connection.close()
        for executor in executors:
            await executor.close()
        assert await store.check() == []

    @asynccontextmanager
    async def worker(
        self, queues: Iterable[str] = ("work",), *, concurrency: int = 10, drain: float = 0.0, **options: Any
    ) -> AsyncIterator[Worker]:
        made = worker(MemoryJobs(self.database), HERE, queues, concurrency=concurrency, **options)
        task = asyncio.create_task(made.run())
        yield made
        await made.drain(drain, self.hurry)
        await task

    async def lose(self) -> None:
        """Let so much time pass that every claim runs out, and the owner look for that."""
        self.passed += CLAIM
        self.shard._lost_jobs.look(self.shard._core.life)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()
    gates.clear()


async def test_a_worker_performs_what_is_queued() -> None:
    place = Place()
    async with place.engine() as client, place.worker() as made:
        handles = [await client.start(doubling, n) for n in range(50)]
        assert [await handle.result(60) for handle in handles] == [2 * n for n in range(50)]

        await until(lambda: made.counts["answered"] == 50)
        assert place.database.jobs == {} and place.database.claims == {}


async def test_a_worker_has_what_its_modules_import(tmp_path: Path) -> None:
    """One function of the flow is imported by name, the other is a step of a module that is imported."""
    place, traces = Place(), tmp_path / "traces"
    async with place.engine() as client, place.worker():
        handle = await client.start(borrowing, str(traces))

        assert await handle.result(60) == 8
        assert traces.read_text().startswith("borrowed")


def test_a_job_reaches_no_function_that_its_worker_has_for_itself() -> None:
    """Those of the standard library and of perdure, and what a module that is imported as such does not declare."""
    names = known(HERE)

    assert "tests.runtime.queue_jobs:trace" in names and "tests.runtime.queue_jobs:double" in names
    assert not {name for name in names if not name.startswith("tests.")}


async def test_what_was_queued_before_the_worker_came_is_done_when_it_comes() -> None:
    place = Place()
    async with place.engine() as client:
        handle = await client.start(doubling, 21)
        await until(lambda: len(place.database.jobs) == 1)
        async with place.worker():
            assert await handle.result(60) == 42


async def test_an_open_does_not_load_what_is_with_workers() -> None:
    place = Place()
    async with place.engine() as client:
        await client.start(doubling, 21, key="k")
        await until(lambda: len(place.database.jobs) == 1)

    async with place.engine() as client:
        assert not place.shard.kernel.instances()
        async with place.worker():
            assert await client.handle(doubling, "k").result(60) == 42


async def test_a_worker_takes_no_more_than_it_has_places_for() -> None:
    place = Place()
    async with place.engine() as client, place.worker(concurrency=2) as made:
        handles = [await client.start(waiting, name) for name in "abc"]
        await until(lambda: len(ran) == 2)
        assert len(made.running) == 2 and len(place.database.unclaimed["work"]) == 1

        gates["a"].set()

        await until(lambda: len(ran) == 3)
        for gate in gates.values():
            gate.set()
        assert [await handle.result(60) for handle in handles] == ["a", "b", "c"]


async def test_a_function_or_a_queue_that_a_worker_does_not_have_is_left_for_others() -> None:
    place = Place()
    async with place.engine() as client:
        handle = await client.start(doubling, 1)
        async with place.worker(["other"]), strange(place):
            await until(lambda: len(place.database.jobs) == 1)
            assert place.database.claims == {}
        async with place.worker():
            assert await handle.result(60) == 2


@asynccontextmanager
async def strange(place: Place) -> AsyncIterator[Worker]:
    """A worker of other code."""
    made = worker(MemoryJobs(place.database), [asyncio], ["work"], concurrency=1)
    task = asyncio.create_task(made.run())
    yield made
    await made.drain(0, place.hurry)
    await task


async def test_a_lost_worker_s_job_is_delivered_again_and_its_late_answer_is_fenced() -> None:
    place = Place()
    async with place.engine() as client:
        handle = await client.start(waiting, "a")
        jobs = MemoryJobs(place.database)
        await until(lambda: bool(place.database.jobs))
        [zombie] = jobs.claim_now("zombie", ["work"], [f"{__name__}:waits"], 5)
        await place.lose()
        async with place.worker():
            await until(lambda: ran == [("a", 2)])

            late = inbox_row(b"late", zombie.job.instance, ReceiptArrived(zombie.job.intent, Receipt("ok")), 7)
            assert jobs.answer_now([(zombie, late)]) == [zombie]
            assert jobs.beat_now([zombie]) == [zombie]

            gates["a"].set()
            assert await handle.result(60) == "a"


async def test_a_worker_that_claims_again_what_it_had_lost_cuts_the_first() -> None:
    place = Place()
    async with place.engine() as client, place.worker() as made:
        handle = await client.start(waiting, "a")
        await until(lambda: ran == [("a", 1)])

        await place.lose()

        await until(lambda: ("a", 2) in ran and "a was cut" in ran)
        gates["a"].set()
        assert await handle.result(60) == "a"
        assert made.counts["answered"] == 1


async def test_a_step_that_may_run_once_is_unknown_when_its_worker_is_lost() -> None:
    place = Place()
    async with place.engine() as client, place.worker() as made:
        handle = await client.start(careful)
        await until(lambda: ran == [("pay", 1)])

        await place.lose()

        assert await handle.result(60) == "unknown"
        await until(lambda: "pay was cut" in ran)  # at the next beat
        assert made.counts["stopped"] == 1


async def test_a_job_that_takes_every_worker_with_it_ends_as_unknown() -> None:
    place = Place()
    async with place.engine() as client:
        handle = await client.start(waiting, "a")
        jobs = MemoryJobs(place.database)
        for delivery in (1, 2):
            await until(lambda: bool(place.database.unclaimed.get("work")))
            [claim] = jobs.claim_now(f"dies {delivery}", ["work"], [f"{__name__}:waits"], 5)
            assert claim.job.delivery == delivery
            await place.lose()

        with pytest.raises(perdure.InstanceFailed, match="the worker was lost while it executed this, each of 2 times"):
            await handle.result(60)


async def test_cancelling_reaches_the_worker() -> None:
    place = Place()
    async with place.engine() as client, place.worker():
        handle = await client.start(waiting, "a")
        await until(lambda: ran == [("a", 1)])

        await handle.cancel()

        await until(lambda: "a was cut" in ran)


async def test_a_timeout_is_of_the_running_step_and_not_of_its_time_in_the_queue() -> None:
    place = Place()
    async with place.engine() as client:
        handle = await client.start(impatient)
        await until(lambda: len(place.database.jobs) == 1)
        await asyncio.sleep(0.05)  # longer than the timeout
        async with place.worker():
            assert await handle.result(60) == "too long"
    assert ran == [("slow", 1), "slow was cut"]


async def test_a_drained_worker_lets_what_runs_end() -> None:
    place = Place()
    async with place.engine() as client:
        handle = await client.start(waiting, "a")
        async with place.worker(drain=5.0):
            await until(lambda: ran == [("a", 1)])
            asyncio.get_running_loop().call_later(0.01, gates["a"].set)
        assert await handle.result(60) == "a"
        assert ran == [("a", 1)]


async def test_what_a_drained_worker_cuts_is_given_back_and_uses_up_nothing() -> None:
    place = Place()
    async with place.engine() as client:
        handle = await client.start(waiting, "a")
        for _ in range(5):
            async with place.worker() as made:
                await until(lambda: ("a", 1) in ran)
            assert made.counts["given_back"] == 1
            ran.clear()
            gates.clear()
        async with place.worker():
            await until(lambda: ran == [("a", 1)])
            gates["a"].set()
            assert await handle.result(60) == "a"


async def test_what_may_run_once_and_is_cut_by_a_drain_is_unknown() -> None:
    place = Place()
    async with place.engine() as client:
        handle = await client.start(careful)
        async with place.worker():
            await until(lambda: ran == [("pay", 1)])
        assert await handle.result(60) == "unknown"


async def test_progress_of_a_worker_s_step_is_seen_at_the_engine() -> None:
    place = Place()
    async with place.engine() as client, place.worker():
        handle = await client.start(telling)
        frames = []
        async for frame in handle.stream():
            frames.append(frame)
            gates["tells"].set()
        assert [(frame.done, frame.total, frame.note) for frame in frames] == [(1, 2, "half")]
        assert await handle.result(60) == "told"


async def test_frames_of_workers_are_judged_as_others_are_and_by_their_claims() -> None:
    place = Place()
    async with place.engine() as client:
        handle = await client.start(telling)
        jobs = MemoryJobs(place.database)
        await until(lambda: bool(place.database.jobs))
        [first] = jobs.claim_now("first", ["work"], [f"{__name__}:tells"], 5)
        [awake] = place.shard.kernel.instances().values()
        plain = Frame(str(awake.address), "tell", 1, 1, "progress")
        stray = Claim(first.job._replace(intent=b"nobody"), "first", 1)

        async def tell(claim: Claim, ordinal: int, done: float, **other: Any) -> None:
            await jobs.tell([(claim, replace(plain, ordinal=ordinal, done=done, **other))])

        async def seen() -> list[float]:
            return [frame.done for frame in await handle.progress()]

        await tell(first, 1, 1.0)
        await tell(first, 1, 1.1)  # a worker that got no answer says it again
        assert await seen() == [1.0]
        await tell(first, 3, 3.0)
        await tell(stray, 4, 4.1)
        await tell(first, 4, 4.2, instance="telling/other")
        await tell(first, 4, 4.3, location="another")
        await tell(first, 4, 4.4, attempt=2)
        assert await seen() == [3.0]
        await place.lose()
        await until(lambda: bool(place.database.unclaimed.get("work")))
        [second] = jobs.claim_now("second", ["work"], [f"{__name__}:tells"], 5)
        await tell(second, 1, 1.5)
        await tell(first, 4, 4.5)  # it has lost its claim, and does not know
        assert await seen() == [1.5]
        await handle.cancel()
        await until(lambda: not place.database.jobs)
        await tell(second, 2, 2.5)
        assert await seen() == []

        assert {name: count for name, count in place.shard.counts.items() if name.startswith("frames")} == {
            "frames_heard": 3,
            "frames_repeated": 1,
            "frames_missing": 1,
            "frames_unknown": 2,
            "frames_mismatched": 4,
        }


KEY = Key.hmac("k1", b"k" * 32)
OTHER = Key.hmac("k1", b"x" * 32)


async def test_an_engine_with_keys_of_a_queue_takes_signed_receipts_only() -> None:
    place = Place()
    async with place.engine(Keyring({"work": [KEY]})) as client:
        handle = await client.start(doubling, 4)
        for forged in (None, Keyring({"work": [OTHER]})):
            async with place.worker(keys=forged):
                await until(lambda: any(claimed.state == "answered" for claimed in place.database.claims.values()))
                await until(lambda: not place.database.inbox)
            assert place.shard.kernel.counts["receipts_refused"] >= 1
            place.database.open_job(next(iter(place.database.jobs.values())))
        async with place.worker(keys=Keyring({"work": [KEY]})):
            assert await handle.result(60) == 8
