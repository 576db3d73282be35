"""A fan-out on Dask while processes are killed and paused and the network is cut: no step is lost or counted twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import perdure
from tests.clusters.processes import Cluster, Wire, nannied
from tests.clusters.steps import fan_out
from tests.fleet.processes import until
from tests.stages import LONG

pytestmark = pytest.mark.slow

STEPS = 2000 if LONG else 300
"""`make test-long` has the long form."""


class FanOut:
    """Steps on the cluster, each of which leaves a line when it runs."""

    def __init__(self, handle: perdure.Handle[int], place: Path, count: int) -> None:
        self.handle = handle
        self.place = place
        self.count = count

    def runs(self) -> list[tuple[int, ...]]:
        """The number, the attempt and the delivery of each run so far."""
        lines = self.place.read_text().splitlines() if self.place.exists() else []
        return [tuple(map(int, line.split())) for line in lines]

    async def reaches(self, runs: int) -> None:
        await until(lambda: len(self.runs()) >= runs, 240)

    async def ends(self) -> None:
        """Every step has ended, with one receipt."""
        assert await self.handle.result(240) == sum(range(self.count))
        receipts = Counter(line.location for line in await self.handle.history() if line.event == "receipt")
        assert len([location for location in receipts if "backoff" not in location]) == self.count
        assert set(receipts.values()) == {1}
        assert {n for n, *_ in self.runs()} == set(range(self.count))

    def no_delivery_ran_twice(self) -> None:
        """Each run has a claim of its own. It holds until a machine ends in good order and gives its jobs back."""
        assert [run for run, times in Counter(self.runs()).items() if times > 1] == []


@asynccontextmanager
async def fanned_out(cluster: Cluster, place: Path, count: int) -> AsyncIterator[FanOut]:
    async with perdure.open(cluster.url, workflows=[fan_out]) as engine:
        handle = await engine.start(fan_out, str(place), count)
        yield FanOut(handle, place, count)
        assert await engine.queries.check() == []


async def test_a_fan_out_survives_the_kill_of_each_kind_of_process(cluster: Cluster, tmp_path: Path) -> None:
    nannies = [cluster.worker(nanny=True), cluster.worker(nanny=True)]
    dispatcher = cluster.dispatcher()
    async with fanned_out(cluster, tmp_path / "runs", STEPS) as work:
        await work.reaches(STEPS // 7)
        os.kill(await nannied(nannies[0]), signal.SIGKILL)  # its nanny starts another
        await work.reaches(2 * STEPS // 7)
        nannies[1].kill()
        nannies[1] = cluster.worker(nanny=True)
        await work.reaches(3 * STEPS // 7)
        dispatcher.kill()
        dispatcher = cluster.dispatcher()
        await work.reaches(4 * STEPS // 7)
        work.no_delivery_ran_twice()
        cluster.scheduler.kill()
        for nanny in nannies:
            nanny.kill()
        cluster.start_scheduler()
        cluster.worker(nanny=True)
        cluster.worker(nanny=True)
        await work.reaches(5 * STEPS // 7)
        dispatcher.kill()
        cluster.dispatcher()

        await work.ends()


async def test_a_fan_out_survives_the_pause_of_each_kind_of_process(cluster: Cluster, tmp_path: Path) -> None:
    nanny = cluster.worker(nanny=True)
    cluster.worker()
    dispatcher = cluster.dispatcher()
    async with fanned_out(cluster, tmp_path / "runs", 400) as work:
        await work.reaches(50)
        worker = await nannied(nanny)
        os.kill(worker, signal.SIGSTOP)
        await work.reaches(150)  # the other one goes on
        os.kill(worker, signal.SIGCONT)
        nanny.stop()
        await work.reaches(200)
        nanny.go_on()
        dispatcher.stop()
        await asyncio.sleep(1)
        dispatcher.go_on()
        await work.reaches(250)
        cluster.scheduler.stop()
        await asyncio.sleep(1)
        cluster.scheduler.go_on()

        await work.ends()


async def test_a_fan_out_survives_cuts_of_the_network_to_the_scheduler(cluster: Cluster, tmp_path: Path) -> None:
    async with Wire(cluster.address) as wire:
        worker = cluster.worker(nanny=True, address=wire.address)
        cluster.worker()
        cluster.dispatcher(address=wire.address)
        async with fanned_out(cluster, tmp_path / "runs", 400) as work:
            await work.reaches(50)
            wire.stand_still()
            await asyncio.sleep(1)
            wire.mend()
            await work.reaches(150)
            wire.cut()
            await asyncio.sleep(1)
            wire.mend()
            if not worker.running:
                cluster.worker(nanny=True, address=wire.address)

            await work.ends()
