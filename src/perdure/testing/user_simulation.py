"""The simulation as users need it for workflows of their own: their steps run, and time is skipped.

A `UserSimulation` differs from the simulation that we test perdure with in what happens by chance. Nothing does here
unless faults are asked for: steps take no time of their own, a process that dies is replaced at once, and
who had asked it asks the next one. So a crash leaves no trace in recorded time, and what comes out with a
crash can be held against what comes out without.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from perdure.app.dialects import gather
from perdure.cells.bound_manifest import BoundManifest
from perdure.cells.dialect import world_of
from perdure.errors import CallerError
from perdure.kernel.mailbox import Answer
from perdure.kernel.outside import Verify, unsigned
from perdure.kernel.problem import Report
from perdure.runtime.virtual_clock import Life

from .disks import Disk
from .executor import FakeExecutor
from .faults import MILLISECOND, Faults, SimulatedProcess
from .processes import performers
from .simulation import Process, SimulatedRequest, Simulation
from .steps import OpenEffects, Run, Script, StepExecutor, StepLoop
from .tools import StubBlobs, stubs

LEASE: Final = 100 * MILLISECOND
"""How long a process goes on, steps and all, that another one has taken over from."""

EXECUTORS: Final = ("inline", "thread", "process")


class UserSimulation(Simulation):
    """`deaths` has how many commits and side effects there had been when each process died."""

    steps_max = 500_000
    hooks = False
    """Whether hooks are called. A crash may lose a call, so crash tests, which compare what is left, do without."""

    def __init__(
        self,
        *workflows: Any,
        seed: int = 0,
        faults: Faults | None = None,
        story: Callable[[str], None] | None = None,
        disk: Disk | None = None,
        handlers: Iterable[Any] = (),
        ours: bool = False,
        verify: Verify = unsigned,
        scripts: dict[str, Script] | None = None,
    ) -> None:
        self.scripts: dict[str, Script] = {} if scripts is None else scripts
        self.runs: list[Run] = []
        self.deaths: list[tuple[int, int]] = []
        self._loops: dict[int, StepLoop] = {}
        self.blobs = StubBlobs()
        slots: dict[str, int | None] = dict.fromkeys(EXECUTORS)
        super().__init__(
            workflows,
            seed=seed,
            faults=faults,
            slots=slots,
            story=story,
            ours=ours,
            disk=disk,
            handlers=handlers,
            verify=verify,
        )
        self._alone()

    # ---- workflows -------------------------------------------------------------------------------------

    def gathered(self, workflows: Iterable[Any]) -> tuple[list[Any], BoundManifest | None]:
        """With those that their code can name."""
        given, cells = super().gathered(workflows)
        found = {(near.name, near.version): near for workflow in given for near in _taken_up(workflow)}
        found |= {(workflow.name, workflow.version): workflow for workflow in given}
        return list(found.values()), cells

    def register(self, workflows: Iterable[Any], handlers: Iterable[Any] = ()) -> None:
        """Run workflows from now on, and those that their code can name, if their names are free."""
        workflows = list(workflows)
        given, cells = gather(workflows)[0], world_of(workflows)
        if cells is not None and self.cells is not None and cells.manifest.hash != self.cells.manifest.hash:
            raise CallerError("this world runs another manifest already: its cells stand in one, so make one of all")
        found = {each.name: each for near in given for each in _taken_up(near) if each.name not in self.workflows}
        found |= {each.name: each for each in given}
        self.handlers |= performers(handlers)
        for each in found.values():
            self.workflows.replace(each)
        for process in self.processes:
            process.shard.register(*found.values())
        if cells is not None and self.cells is None:
            self._begin(cells)

    # ---- time ------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Let everything happen that needs no time."""
        self.pass_until(self.clock.steady)

    def pass_until(self, until: int | None) -> None:
        """Let time pass until then, in steady time, or (None) until nothing moves by itself any more."""
        self._alone()
        self._steps_before = self.steps
        while True:
            while self._step(self.clock.steady):
                pass
            when = self.next_at()
            if when is None or (until is not None and when > until):
                break
            self.clock.skip(when)
        if until is not None:
            self.clock.skip(until)

    def _alone(self) -> None:
        """Steps run on loops of their own, inside the call of the test: there cannot be another loop around it."""
        if asyncio._get_running_loop() is not None:
            raise CallerError("a world is for plain `def` tests, and here an event loop runs: nothing is to be awaited")

    def step_on(self) -> bool:
        """The next thing that happens, whenever that is. False: nothing moves by itself any more."""
        if not self._step(self.clock.steady):
            when = self.next_at()
            if when is None:
                return False
            self.clock.skip(when)
        return True

    def _spins(self) -> Exception:
        return CallerError(
            f"this never comes to rest: {self.steps_max:,} things happened in one call; "
            "a workflow that goes on for ever is tested with world.advance(...), a piece at a time"
        )

    def next_at(self) -> int | None:
        """When, in steady time, something will happen by itself. Looks at what is not due do not count."""
        clock, order = self.clock, self.database.work_order
        looks = [process.shard.looking for process in self.processes]
        times = [clock.next(looks)]
        place = bisect_left(order, (clock.now() + 1, b""))
        if place < len(order):
            times.append(clock.steady + order[place][0] - clock.now())
        return min((when for when in times if when is not None), default=None)

    # ---- processes -------------------------------------------------------------------------------------

    def make_executor(self, name: str, slots: int | None, around: SimulatedProcess) -> FakeExecutor:
        loop = partial(self._loop, around.process, around.life)
        return StepExecutor(name, around, self, loop=loop, scripts=self.scripts, runs=self.runs)

    def _loop(self, number: int, life: Life) -> StepLoop:
        if number not in self._loops:
            self._loops[number] = StepLoop(self.clock, life)
        return self._loops[number]

    def failed(self, process: Process, report: Report) -> None:
        if self.hooks:
            self.clock.after(0, partial(self._loop(process.number, process.life).tell, report), process.life)

    def make_effects(self, process: int, steps: dict[str, FakeExecutor]) -> OpenEffects:
        began = partial(self.executing, process)
        return OpenEffects(self.handlers, steps["inline"], steps["thread"], began, stubs(self.blobs))

    def spawn(self) -> None:
        for zombie in self.processes:
            self.clock.after(LEASE, partial(zombie.crash, "because it cannot renew its lease"), zombie.life)
        super().spawn()
        for request in self.requests:
            if request.settled is None and request.again is not None:
                request.again.cancel()
                self._ask(request)

    def process_died(self, process: Process) -> None:
        self.deaths.append((self.counts["commits"], self.counts["executions"]))
        super().process_died(process)

    def _pause(self) -> int:
        return 0

    @property
    def owners(self) -> int:
        """How many processes there have been."""
        return self._spawned

    def one_healthy_process(self) -> None:
        """The faults are over."""
        self.faults.off()
        self._one_healthy_process()

    def close(self) -> None:
        for process in self.processes:
            process.die()
        for loop in self._loops.values():
            loop.end()
        self._loops.clear()

    # ---- clients ---------------------------------------------------------------------------------------

    def _heard(self, process: Process, request: SimulatedRequest, answer: Answer | Exception) -> None:
        if process.life.alive and not isinstance(answer, Exception):
            self.auditor.acknowledge(request.to, request.event, answer)
            self._settle(request, answer)


def _taken_up(workflow: Any) -> list[Any]:
    """A workflow, after those that its code has at hand: its children are among them."""
    if not hasattr(workflow, "machine"):
        raise CallerError(f"{workflow!r} is not a workflow; did you forget @perdure.flow?")
    if hasattr(workflow, "registered"):
        workflow.registered()  # warns of what a replay would not repeat
    return [*_near(workflow), workflow]


def _near(workflow: Any) -> Iterator[Any]:
    """The workflows in its module, and around it in a function."""
    for child in getattr(workflow, "children", ()):
        yield from _taken_up(child)
    function = getattr(workflow, "function", None)
    cells = getattr(function, "__closure__", None) or ()
    around = [cell.cell_contents for cell in cells if _filled(cell)]
    for found in [*around, *getattr(function, "__globals__", {}).values()]:
        if hasattr(type(found), "machine") and hasattr(type(found), "encode_input"):
            yield found


def _filled(cell: Any) -> bool:
    try:
        return bool(cell.cell_contents is not None)
    except ValueError:  # a name that is assigned later
        return False
