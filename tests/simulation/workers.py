"""Simulated workers, and a simulation that has some. They claim jobs of its database and fail as real ones do.

One worker dies in the middle of a job, another stands still until its claims are lost and then goes on, a third answers
twice. Each fault is drawn from the dice of the simulation. When the faults end, every worker wakes up and every dead
worker is replaced.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.kernel.batch import Publication
from perdure.kernel.events import ReceiptArrived
from perdure.kernel.job import publication
from perdure.kernel.receipt import Answerer, Receipt
from perdure.kernel.rows import inbox_row
from perdure.ports.jobs import CLAIM, Claim
from perdure.runtime.virtual_clock import Life
from perdure.stores.memory import MemoryJobs
from perdure.testing.disks import Disk
from perdure.testing.executor import Execution, FakeExecutor
from perdure.testing.faults import MILLISECOND, SimulatedProcess
from perdure.testing.simulation import Simulation

QUEUE: Final = "work"
HASTE: Final = 20
"""So much faster runs the clock of claims: they last half a second."""

PLACES: Final = 3


class WithWorkers(Simulation):
    """A simulation in memory whose queue `work` is served by so many workers."""

    def __init__(self, workflows: Any, *, workers: int, **options: Any) -> None:
        disk = Disk()
        disk.rows.workers, disk.rows.now = True, lambda: self.clock.steady * HASTE
        super().__init__(workflows, disk=disk, **options)
        self._hired = 0
        for _ in range(workers):
            self.hire()

    def hire(self) -> None:
        """A new worker comes."""
        self._hired += 1
        SimulatedWorker(self, self._hired)


class SimulatedWorker:
    def __init__(self, world: WithWorkers, number: int) -> None:
        self._world = world
        self._number = number
        self._name = f"worker {number}"
        self._life = Life()
        self._jobs = MemoryJobs(world.database)
        self._claims: dict[bytes, Claim] = {}
        self._asleep = False
        around = SimulatedProcess(
            -number, world.clock, self._life, world.dice, world.faults, world.counts, self._die, self._tell
        )
        self._executor = FakeExecutor(QUEUE, PLACES, around, self)
        self._tell("comes")
        self._act()

    def _tell(self, text: str) -> None:
        self._world.tell(f"{self._name} {text}")

    def _die(self, where: str) -> None:
        self._tell(f"dies {where}")
        self._world.counts["workers killed"] += 1
        self._life.alive = False
        self._world.clock.after(self._world.dice.randrange(1, 400) * MILLISECOND, self._world.hire)

    def _act(self) -> None:
        """Every now and then: beat, claim, begin; and sometimes something goes wrong."""
        world, dice = self._world, self._world.dice
        world.clock.after(dice.randrange(5, 60) * MILLISECOND, self._act, self._life)
        if self._asleep:
            return
        calm = world.calm
        if not calm and dice.random() < 0.01:
            self._die("of a kill")
            return
        if not calm and dice.random() < 0.02:
            self._sleep()
            return
        for claim in self._jobs.beat_now(list(self._claims.values())):
            world.counts["jobs stopped"] += 1
            self._stop(claim)
        free = PLACES - len(self._claims)
        functions = {job.function for job in world.database.jobs.values()}
        for claim in self._jobs.claim_now(self._name, [QUEUE], sorted(functions), free):
            if not calm and dice.random() < 0.1:
                world.counts["jobs given back"] += 1
                self._jobs.give_back_now([claim])
            else:
                self._begin(claim)

    def _sleep(self) -> None:
        """Nobody hears of it; what it executes goes on, and then it answers for claims that it has no more."""
        self._world.counts["workers paused"] += 1
        self._tell("stands still")
        self._asleep = True
        self._world.clock.after(self._world.dice.randrange(1, 3 * CLAIM // HASTE), self._wake, self._life)

    def _wake(self) -> None:
        self._tell("goes on")
        self._asleep = False

    def _begin(self, claim: Claim) -> None:
        for earlier in [each for each in self._claims.values() if each.job.intent == claim.job.intent]:
            self._stop(earlier)
        self._claims[claim.id] = claim
        job = msgspec.structs.replace(publication(claim.job), intent=claim.id)
        self._executor.start(job, self._answered)

    def _stop(self, claim: Claim) -> None:
        del self._claims[claim.id]
        self._executor.stop(claim.id)

    def _answered(self, id: bytes, receipt: Receipt) -> None:
        world, claim = self._world, self._claims.get(id)
        if claim is None:  # stopped, and it went on all the same; or it has answered before
            return
        if self._asleep:
            world.clock.after(20 * MILLISECOND, lambda: self._answered(id, receipt), self._life)
            return
        signed = msgspec.structs.replace(receipt, by=Answerer(QUEUE))
        row = inbox_row(id, claim.job.instance, ReceiptArrived(claim.job.intent, signed), world.clock.now())
        fenced = self._jobs.answer_now([(claim, row)])
        world.counts["answers of workers"] += 1
        world.counts["answers fenced"] += len(fenced)
        self._tell(f"answers{' in vain' if fenced else ''} for {claim.job.intent.hex()[:8]}")
        if world.faults.duplicate and world.dice.random() < world.faults.duplicate:
            world.counts["answers given twice"] += 1
            world.auditor.fenced_twice(self._jobs.answer_now([(claim, row)]))
        del self._claims[id]

    # ---- what its executor needs of the world --------------------------------------------------------------

    def executing(self, process: int, publication: Publication) -> None:
        self._world.executing(process, msgspec.structs.replace(publication, intent=publication.intent[:16]))

    def executed(self, execution: Execution) -> None:
        self._world.executed(execution._replace(intent=execution.intent[:16]))

    def post_receipt(self, instance: int, intent: bytes, receipt: Receipt) -> None:
        """Somebody who is no worker answers for one, and is refused."""
        self._world.post_receipt(instance, intent[:16], receipt)
