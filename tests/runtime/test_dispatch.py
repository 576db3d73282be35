"""Dispatchers and runners, on a cluster that loses, doubles and delays what it is given: the claim is the fence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from perdure.app.workers import declared
from perdure.executors.queue import QueueExecutor
from perdure.kernel.batch import JobRow
from perdure.ports.cluster import Copy, Ended
from perdure.runtime.dispatch import TRIES, Dispatcher
from perdure.runtime.runner import Runner
from perdure.stores.memory import MemoryJobs
from tests.flows.conftest import until
from tests.runtime import test_worker
from tests.runtime.test_worker import Place, doubling, gates, ran, waiting

_numbers = count(1)

FUNCTION = f"{test_worker.__name__}:double"


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()
    gates.clear()


class Machine(Runner):
    """A process of the cluster, with a runner."""

    def __init__(self, place: Place, name: str) -> None:
        executors = [QueueExecutor("work", 100, declared)]
        super().__init__(MemoryJobs(place.database), executors, (), name=name, concurrency=100)
        self.task = asyncio.create_task(self.run())

    async def leave(self) -> None:
        await self.drain(0.0, asyncio.Event())
        await self.task


class FakeCluster:
    """`away`: nobody reaches it. `lose`: so many copies are lost. `copies`: how often each is run. `error`: of each."""

    name = "fake"

    def __init__(self, *machines: Machine) -> None:
        self.fleet = list(machines)
        self.away = False
        self.lose = 0
        self.copies = 1
        self.held: asyncio.Event | None = None
        self.error = ""
        self.broken = ""  # the name of a machine that begins nothing
        self.submitted: list[Copy] = []
        self.cancelled: list[str] = []
        self._ended: Any = None
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, ended: Any) -> None:
        self._ended = ended

    async def submit(self, copies: Sequence[Copy]) -> None:
        if self.away or not self.fleet:
            raise ConnectionError("no answer")
        for copy in copies:
            self.submitted.append(copy)
            if self.lose:
                self.lose -= 1
                asyncio.get_running_loop().call_soon(self._ended, copy.id, Ended(lost=True))
                continue
            fleet = [machine for machine in self.fleet if machine._name not in copy.avoid] or self.fleet
            for number in range(self.copies):
                task = asyncio.create_task(self._run(copy, fleet[number % len(fleet)]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run(self, copy: Copy, machine: Machine) -> None:
        if self.held is not None:
            await self.held.wait()
        error = self.error or ("no such module" if machine._name == self.broken else "")
        if not error:
            await machine.perform(copy.intent)
        self._ended(copy.id, Ended(error=error, machine=machine._name if error else ""))

    async def cancel(self, ids: Sequence[str]) -> None:
        self.cancelled += ids

    async def machines(self) -> frozenset[str]:
        return frozenset(machine._name for machine in self.fleet)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def cluster(place: Place, machines: int = 2) -> AsyncIterator[FakeCluster]:
    made = [Machine(place, f"machine {next(_numbers)}") for _ in range(machines)]
    yield FakeCluster(*made)
    for machine in made:
        await machine.leave()


@asynccontextmanager
async def dispatcher(place: Place, cluster: FakeCluster, slots: int = 10) -> AsyncIterator[Dispatcher]:
    made = Dispatcher(MemoryJobs(place.database), cluster, "work", slots)
    task = asyncio.create_task(made.run())
    yield made
    await made.drain(0.0, asyncio.Event())
    await task


async def test_open_jobs_go_to_the_cluster_and_no_more_than_it_has_slots_for() -> None:
    place = Place()
    async with place.engine() as client, cluster(place) as fake, dispatcher(place, fake, slots=3) as made:
        handles = [await client.start(waiting, name) for name in "abcde"]
        await until(lambda: len(ran) == 3)
        assert len(made.submitted) == 3
        for name in "abcde":
            gates.setdefault(name, asyncio.Event()).set()

        assert [await handle.result(60) for handle in handles] == list("abcde")
        assert [copy.resources for copy in fake.submitted] == [{}] * 5


@pytest.mark.parametrize("machines", [1, 2])
async def test_copies_that_run_twice_at_once_perform_the_step_once(machines: int) -> None:
    place = Place()
    async with place.engine() as client, cluster(place, machines) as fake, dispatcher(place, fake):
        fake.copies = 4
        handles = [await client.start(doubling, n) for n in range(50)]

        assert [await handle.result(60) for handle in handles] == [2 * n for n in range(50)]
    assert sorted(ran) == list(range(50))


async def test_two_dispatchers_of_one_queue_perform_each_step_once() -> None:
    place = Place()
    async with (
        place.engine() as client,
        cluster(place) as one,
        cluster(place) as two,
        dispatcher(place, one),
        dispatcher(place, two),
    ):
        handles = [await client.start(doubling, n) for n in range(50)]
        assert [await handle.result(60) for handle in handles] == [2 * n for n in range(50)]
    assert sorted(ran) == list(range(50))


async def test_lost_copies_are_submitted_again() -> None:
    place = Place()
    async with place.engine() as client, cluster(place) as fake, dispatcher(place, fake) as made:
        fake.lose = 30
        handles = [await client.start(doubling, n) for n in range(20)]

        assert [await handle.result(60) for handle in handles] == [2 * n for n in range(20)]
        assert made.counts["lost"] == 30
    assert sorted(ran) == list(range(20))
    assert len({copy.id for copy in fake.submitted}) == len(fake.submitted)


async def test_a_copy_that_comes_late_ends_at_the_claim() -> None:
    place = Place()
    async with place.engine() as client, cluster(place) as slow, cluster(place) as quick:
        slow.held = asyncio.Event()
        async with dispatcher(place, slow) as first:
            handle = await client.start(doubling, 4)
            await until(lambda: len(slow.submitted) == 1)
            async with dispatcher(place, quick):
                assert await handle.result(60) == 8
            slow.held.set()
            await until(lambda: not first.submitted)
    assert ran == [4]


async def test_what_a_dead_dispatcher_had_submitted_is_submitted_by_the_next() -> None:
    place = Place()
    async with place.engine() as client, cluster(place) as fake:
        fake.held = asyncio.Event()
        async with dispatcher(place, fake):
            handle = await client.start(doubling, 4)
            await until(lambda: len(fake.submitted) == 1)
        fake.held = None
        async with dispatcher(place, fake):
            assert await handle.result(60) == 8


async def test_a_cluster_that_cannot_be_reached_is_tried_again() -> None:
    place = Place()
    async with place.engine() as client, cluster(place) as fake, dispatcher(place, fake) as made:
        fake.away = True
        handle = await client.start(doubling, 4)
        await until(lambda: made._away)
        assert not made.submitted
        fake.away = False

        assert await handle.result(60) == 8


async def test_a_copy_that_no_machine_begins_is_replaced() -> None:
    place = Place()
    async with place.engine() as client, cluster(place) as fake, dispatcher(place, fake) as made:
        fake.held = asyncio.Event()
        handle = await client.start(doubling, 4)
        await until(lambda: len(made.submitted) == 1)
        [copy] = made.submitted.values()
        fake.held = None
        await made.check()
        assert list(made.submitted.values()) == [copy], "it has waited for a moment only"

        copy.since -= 31
        await made.check()

        assert await handle.result(60) == 8
        assert fake.cancelled == [copy.copy.id] and made.counts["replaced"] == 1


async def test_the_copy_of_a_cancelled_step_is_taken_from_the_cluster() -> None:
    place = Place()
    async with place.engine() as client, cluster(place) as fake, dispatcher(place, fake) as made:
        fake.held = asyncio.Event()
        handle = await client.start(doubling, 4)
        await until(lambda: len(made.submitted) == 1)

        await handle.cancel()
        await until(lambda: not place.database.jobs)
        await made.check()

        assert not made.submitted and fake.cancelled == [fake.submitted[0].id]


async def test_a_function_that_no_machine_can_import_rests_and_its_jobs_say_why() -> None:
    place = Place()
    async with place.engine() as client, cluster(place) as fake, dispatcher(place, fake) as made:
        fake.error = "No module named 'shop'"
        handles = [await client.start(doubling, n) for n in range(20)]
        await until(lambda: made.counts["failed"] >= TRIES and not made.submitted)
        before = len(fake.submitted)
        await made.check()

        others = await client.start(waiting, "a")
        await until(lambda: any(copy.function.endswith(":waits") for copy in fake.submitted))
        assert [copy.function for copy in fake.submitted[before:]].count(FUNCTION) == 0
        assert set(place.database.notes.values()) == {"fake cannot begin it: No module named 'shop'"}
        assert place.database.claims == {}, "no claim and no delivery is used up"

        fake.error = ""
        fake.fleet.append(Machine(place, "a machine with the module"))
        gates.setdefault("a", asyncio.Event()).set()
        await made.check()
        assert [await handle.result(60) for handle in handles] == [2 * n for n in range(20)]
        assert await others.result(60) == "a"
        await fake.fleet.pop().leave()
    assert place.database.notes == {}


async def test_a_machine_that_begins_nothing_is_avoided() -> None:
    place = Place()
    async with place.engine() as client, cluster(place) as fake, dispatcher(place, fake, slots=1) as made:
        fake.broken = fake.fleet[0]._name
        handles = [await client.start(doubling, n) for n in range(20)]

        assert [await handle.result(60) for handle in handles] == [2 * n for n in range(20)]
        assert made.counts["failed"] == 1


async def test_machines_that_use_another_database_are_no_endless_loop() -> None:
    place, elsewhere = Place(), Place()
    async with place.engine() as client, cluster(elsewhere) as fake, dispatcher(place, fake) as made:
        await client.start(doubling, 1)
        await until(lambda: bool(made.counts["failed"]))
        await until(lambda: len(fake.submitted) > TRIES and not made.submitted)
        submitted = len(fake.submitted)
        for _ in range(5):
            await made.check()

        assert len(fake.submitted) == submitted <= 2 * TRIES
        [note] = place.database.notes.values()
        assert "do the machines use this database?" in note


async def test_a_machine_that_leaves_gives_its_jobs_back() -> None:
    place = Place()
    async with place.engine() as client:
        handle = await client.start(waiting, "a")
        async with cluster(place, 1) as fake, dispatcher(place, fake):
            await until(lambda: ran == [("a", 1)])
            await fake.fleet.pop().leave()
            ran.clear()
            gates.clear()
            fake.fleet.append(Machine(place, "another"))
            await until(lambda: ran == [("a", 1)])
            gates["a"].set()
            assert await handle.result(60) == "a"
            await fake.fleet[0].leave()


async def test_a_copy_that_comes_before_the_receipt_of_another_is_durable_ends_at_once() -> None:
    place = Place()
    async with place.engine() as client, cluster(place, 1) as fake:
        [machine] = fake.fleet
        handle = await client.start(doubling, 4)
        await until(lambda: bool(place.database.jobs))
        [intent] = place.database.jobs

        assert await machine.perform(intent) is True
        assert machine.held() and await machine.perform(intent) is False

        assert await handle.result(60) == 8
    assert ran == [4]


async def test_a_job_that_cannot_be_read_does_not_stop_the_dispatcher() -> None:
    place = Place()
    async with place.engine() as client, cluster(place) as fake, dispatcher(place, fake, slots=1):
        place.database.open_job(JobRow(b"strange", 1, "work", FUNCTION, 1, 0, b"not a body"))
        handle = await client.start(doubling, 4)
        assert await handle.result(60) == 8
        place.database.close_job(b"strange")


async def test_a_machine_that_stood_still_is_fenced() -> None:
    place = Place()
    async with place.engine() as client, cluster(place) as fake, dispatcher(place, fake) as made:
        handle = await client.start(waiting, "a")
        await until(lambda: ran == [("a", 1)])
        first = fake.fleet.pop(0)
        await place.lose()
        await until(lambda: bool(place.database.unclaimed["work"]))
        await made.check()

        await until(lambda: ("a", 2) in ran)
        gates["a"].set()
        assert await handle.result(60) == "a"
        await until(lambda: first.counts["fenced"] + first.counts["stopped"] == 1)
        assert first.counts["answered"] == 0 and fake.fleet[0].counts["answered"] == 1
        fake.fleet.insert(0, first)
