"""One simulated world: a database, processes that come and go, clients that do not give up, and a clock.

Everything in it runs on one thread and is decided by one seed. The processes run the very same `Shard` as
production, on a store that fails on purpose and with executors that are only pretended. An auditor looks
at every durable row and every visible act, and raises `Violation` at the first broken rule.

    world = Simulation([order], seed=7)
    handle = world.start(order, "o-17", 4200, key="o-17")
    world.advance(0.5)
    world.run()
    assert handle.result == "charged"
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from perdure.app.dialects import built_in, gather
from perdure.cells.bound_manifest import BoundManifest, Catalog
from perdure.cells.dialect import world_of
from perdure.cells.world import WorldWorkflow
from perdure.codec import decode, encode, to_plain
from perdure.executors.effects import EffectsExecutor
from perdure.kernel.apply import input_hash
from perdure.kernel.batch import InboxRow
from perdure.kernel.decision import Outcome, Stuck
from perdure.kernel.events import Address, CancelAsked, Event, Message, ReceiptArrived, Ref, Retried, Settled, Started
from perdure.kernel.mailbox import Accepted, Answer, Refused
from perdure.kernel.outside import Verify, unsigned
from perdure.kernel.past import Behind
from perdure.kernel.problem import Report
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.rows import inbox_row
from perdure.kernel.rules import RULER
from perdure.kernel.status import TERMINAL, Status
from perdure.kernel.workflows import Workflows
from perdure.ports.frame import Frame
from perdure.runtime.shard import Shard
from perdure.runtime.virtual_clock import SECOND, Life, ProcessClock, VirtualAlarm, VirtualClock

from .auditor import Auditor, Violation
from .disks import Disk
from .executor import FakeExecutor
from .faults import MILLISECOND, Faults, FaultyStore, SimulatedProcess
from .processes import performers

PATIENCE: Final = 400 * MILLISECOND
"""How long a client waits for an answer before it asks again."""

QUIET_MAX: Final = 240 * SECOND
"""How long everything may take to come to its end once the faults have stopped."""


STEPS_MAX: Final = 50_000
"""Steps of one `advance` or `run`. More is a loop without end, in which time may stand still."""


class Process:
    """One engine process: a shard with its own memory, its own connection and its own executors."""

    def __init__(self, world: Simulation, number: int) -> None:
        self.world = world
        self.number = number
        self.life = Life()
        self.closing = False
        around = SimulatedProcess(
            number, world.clock, self.life, world.dice, world.faults, world.counts, self.crash, self.tell
        )
        self.store = FaultyStore(world.disk.connect(self.life), around, world.auditor, world.spawn)
        steps = {name: world.make_executor(name, slots, around) for name, slots in world.slots.items()}
        self.effects = world.make_effects(number, steps)
        self.shard = Shard(
            self.store,
            ProcessClock(world.clock, self.life),
            [*steps.values(), self.effects],
            world.workflows,
            owner=f"process {number}",
            listener=self,
            cache=world.faults.cache,
            verify=world.verify,
        )

    def tell(self, text: str) -> None:
        if self.world.story is not None:
            self.world.tell(f"process {self.number} {text}")

    def open(self) -> bool:
        failed = False

        def opened(error: Exception | None) -> None:
            nonlocal failed
            if error is None:
                self.tell("opens")
            else:
                self.tell(f"cannot open: {error}")
                self.die()
                failed = True

        self.shard.open(opened)
        return not failed

    def crash(self, where: str) -> None:
        """The end without a goodbye."""
        self.tell(f"dies {where}")
        self.die()
        self.world.process_died(self)

    def die(self) -> None:
        self.life.alive = False
        self.shard.kernel.cache.dispose()

    def stop(self) -> None:
        """Good order: drain, then cut what still runs, then give the lease back."""
        self.closing = True
        self.tell("is stopped")
        clock, shard = self.world.clock, self.shard
        finished: list[bool] = []

        def release() -> None:
            if not finished:
                finished.append(True)
                shard.release()
                self.tell("has stopped")
                self.die()
                self.world.process_died(self)

        def settled() -> None:
            clock.after(0, release, self.life)

        def idle() -> None:
            shard.park()
            shard.when_settled(settled)

        shard.drain(idle)
        clock.after(30 * MILLISECOND, shard.park, self.life)
        clock.after(300 * MILLISECOND, release, self.life)

    def ended(self, instance: int, address: Address, outcome: Outcome) -> None:
        self.tell(f"says that {address} has {outcome.status}")
        self.world.auditor.told_end(instance, address, outcome.status)

    def stuck(self, instance: int, address: Address, stuck: Stuck) -> None:
        self.tell(f"says that {address} is stuck: {stuck.error}")

    def published(self, instance: int, name: str) -> None:
        self.tell(f"says that instance {instance} has published something")

    def committed(self, seq: int) -> None:
        pass  # the auditor reads the journal itself

    def failed(self, report: Report) -> None:
        self.tell(f"says that {report.problem}")
        self.world.failed(self, report)

    def framed(self, instance: int, frame: Frame) -> None:
        self.world.counts["frames"] += 1

    def posted(self, rows: Sequence[InboxRow]) -> None:
        pass  # one shard

    def reloaded(self) -> None:
        self.tell("has loaded everything")

    def fallen(self, error: Exception) -> None:
        self.tell("has fallen")
        self.world.counts["zombies fallen"] += 1
        self.die()
        self.world.process_died(self)


class SimulatedRequest:
    """What a client wants recorded. It asks again until it has an answer, as a real client would."""

    __slots__ = ("after", "again", "event", "name", "settled", "to")

    def __init__(self, to: Ref, event: Event, name: str, after: Callable[[], None] | None) -> None:
        self.to = to
        self.event = event
        self.name = name
        self.settled: Answer | None = None
        self.after = after
        self.again: VirtualAlarm | None = None  # when its patience ends


class Handle:
    """An instance as a test sees it: only what is durable."""

    def __init__(self, world: Simulation, address: Address, workflow: Any) -> None:
        self._world = world
        self.address = address
        self._workflow = workflow

    @property
    def status(self) -> str:
        """The durable status, or an empty text before the start is recorded."""
        id = self._world.database.names.get((self.address.workflow, self.address.key))
        return "" if id is None else self._world.database.heads[id].status

    @property
    def outcome(self) -> Outcome | None:
        found: Outcome | None = self._world.auditor.outcome(self.address)
        return found

    @property
    def result(self) -> Any:
        """The value of a completed instance; `AssertionError` otherwise."""
        outcome = self.outcome
        if outcome is None or outcome.status is not Status.COMPLETED:
            raise AssertionError(f"{self.address} has no result: {outcome or self.status}")
        if outcome.value is None:
            return None
        return self._workflow.decode_result(outcome.value)

    def send(self, name: str, body: object = None, *, id: str = "") -> None:
        """Send a message. The client asks until it is acknowledged: give an `id` where twice would matter."""
        self._world.request(self.address, Message(name, encode(to_plain(body)), id), f"message {name} {id}")

    def cancel(self, reason: str = "") -> None:
        self._world.request(self.address, CancelAsked(reason), "cancel")

    def retry(self) -> None:
        self._world.request(self.address, Retried(), "retry")


class Simulation:
    """See the module. Without `faults` it is calm: the same code, on a clock that you advance.

    `workflows` may have cells among them: their world begins by itself. `handlers` perform their effects, `verify` has
    the keys of those who answer from outside. `ours`: see `Auditor`. The caller closes `disk`.
    """

    steps_max = STEPS_MAX

    def __init__(
        self,
        workflows: Iterable[Any],
        *,
        seed: int = 0,
        faults: Faults | None = None,
        slots: dict[str, int | None] | None = None,
        story: Callable[[str], None] | None = None,
        ours: bool = True,
        disk: Disk | None = None,
        handlers: Iterable[Any] = (),
        verify: Verify = unsigned,
    ) -> None:
        self.seed = seed
        self.verify = verify
        self.dice = random.Random(seed)
        self.faults = faults if faults is not None else Faults()
        self.slots = slots if slots is not None else {"inline": None, "thread": None}
        self.story = story
        found, self.cells = self.gathered(workflows)
        self.workflows: Workflows[Any] = Workflows(found)
        self.handlers = performers(handlers)
        self.clock = VirtualClock(random.Random(seed ^ 0x5EED))
        self.disk = disk if disk is not None else Disk()
        self.database = self.disk.rows
        self.auditor = Auditor(self.database, self.workflows, self.slots, ours=ours, verify=verify)
        self.counts: Counter[str] = Counter()
        self.steps = 0
        self._steps_before = 0
        self.processes: list[Process] = []
        self.requests: list[SimulatedRequest] = []
        self._spawned = 0
        self.watched = False  # a person looks after what has failed, and is not done yet
        self._coming = False
        self._failure: BaseException | None = None
        self.calm = False  # no more faults
        self.spawn()
        if self.cells is not None:
            self._begin(self.cells)

    def gathered(self, workflows: Iterable[Any]) -> tuple[list[Any], BoundManifest | None]:
        workflows = list(workflows)
        return [*gather(workflows)[0], *built_in()], world_of(workflows)

    def _begin(self, cells: BoundManifest) -> None:
        """A world of cells begins with its manifest, as `perdure.open` does it."""
        self.cells = cells
        self.auditor.cells |= {RULER.workflow, *(cell.name for cell in cells.cells)}
        seed, version = self.clock.entropy(16), WorldWorkflow.version
        self.request(RULER, Started(RULER.workflow, RULER.key, cells.manifest.bytes, seed, version), "begin the world")

    # ---- what a test does ------------------------------------------------------------------------------

    def start(
        self,
        workflow: Any,
        *args: Any,
        key: str = "1",
        reuse: str = "",
        after: Callable[[], None] | None = None,
        **kwargs: Any,
    ) -> Handle:
        """Ask for an instance. It exists once the clock has moved; `after` is called when it does."""
        address = Address(workflow.name, key)
        value = workflow.encode_input(args, kwargs)
        event = Started(workflow.name, key, value, self.clock.entropy(16), workflow.version, reuse=reuse)
        self.request(address, event, "start", after)
        return Handle(self, address, workflow)

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything that is due in it happen."""
        until = self.clock.steady + round(seconds * SECOND)
        self._steps_before = self.steps
        while self._step(until):
            pass

    def run(self) -> None:
        """No more faults: let time pass until every instance has ended and nothing is under way."""
        self.faults.off()
        self.calm = True
        self._one_healthy_process()
        until = self.clock.steady + QUIET_MAX
        self._steps_before = self.steps
        while not self.quiet and self._step(until):
            pass
        self.auditor.finish()
        if self.auditor.audits:
            self.counts["receipts refused and recorded"] = self.auditor.audits.total()
        unsettled = [request for request in self.requests if request.settled is None]
        if unsettled:
            raise Violation(f"never answered: {unsettled[0].name} to {unsettled[0].to}")

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something after a while."""
        self.clock.after(round(seconds * SECOND), action)

    def tell(self, text: str) -> None:
        if self.story is not None:
            self.story(f"{self.clock.steady / SECOND:9.3f}  {text}")

    @property
    def quiet(self) -> bool:
        """All instances have ended or are cells at rest, all requests are answered, no row waits, nothing will act."""
        database = self.database
        return (
            not self.watched
            and not database.inbox
            and not database.work
            and not database.jobs
            and all(request.settled is not None for request in self.requests)
            and all(head.status in TERMINAL or self.auditor.rests(head) for head in database.heads.values())
        )

    # ---- steps -----------------------------------------------------------------------------------------

    def _step(self, until: int) -> bool:
        going = self.clock.step(until)
        self.steps += 1
        if self.steps - self._steps_before > self.steps_max:
            raise self._spins()
        if self.auditor.touched:
            owner = self.owner
            if owner is not None:
                self.auditor.compare(owner.shard.kernel)
        return going

    def _spins(self) -> Exception:
        return Violation(f"the world spins: {self.steps_max:,} steps in one call")

    # ---- processes -------------------------------------------------------------------------------------

    @property
    def owner(self) -> Process | None:
        """The process that may write, if it lives."""
        last = self.processes[-1] if self.processes else None
        return last if last is not None and last.number == self._spawned else None

    def spawn(self) -> None:
        """A new process comes and takes the lease from any other."""
        self._coming = False
        self._spawned += 1
        process = Process(self, self._spawned)
        self.processes.append(process)
        if not process.open():
            self.process_died(process)

    def failed(self, process: Process, report: Report) -> None:
        """A failure is durable."""

    def process_died(self, process: Process) -> None:
        if process in self.processes:
            self.processes.remove(process)
        if process.number == self._spawned and not self._coming:
            self._coming = True
            self.clock.after(self._pause(), self.spawn)

    def _pause(self) -> int:
        """How long no process runs after a death."""
        return self.dice.randrange(1, 60) * MILLISECOND

    def make_executor(self, name: str, slots: int | None, around: SimulatedProcess) -> FakeExecutor:
        return FakeExecutor(name, slots, around, self)

    def make_effects(self, process: int, steps: dict[str, FakeExecutor]) -> EffectsExecutor:
        """What performs the effects of cells: the real one, with handlers that run where steps do."""
        return EffectsExecutor(self.handlers.values(), steps["inline"], steps["thread"])

    def _one_healthy_process(self) -> None:
        for process in self.processes[:-1]:
            process.die()
        self.processes = self.processes[-1:]

    def mischief(self) -> None:
        """One moment in which something may go wrong from outside."""
        faults, dice = self.faults, self.dice
        owner = self.owner
        roll = dice.random()
        if roll < faults.kill:
            if owner is not None:
                self.counts["processes killed"] += 1
                owner.crash("of a kill")
            return
        roll -= faults.kill
        if roll < faults.zombie:
            if owner is not None and len(self.processes) < 3:
                self.counts["zombies made"] += 1
                owner.tell("is a zombie now")
                self.spawn()
            return
        roll -= faults.zombie
        if roll < faults.restart:
            if owner is not None and not owner.closing:
                self.counts["restarts in good order"] += 1
                owner.stop()
            return
        roll -= faults.restart
        if roll < faults.jump:
            self.counts["clock jumps"] += 1
            by = dice.choice((-1, 1)) * dice.randrange(1, 1500) * MILLISECOND
            self.tell(f"the clock jumps by {by / SECOND} s")
            self.clock.jump(by if by > 0 or dice.random() < 0.5 else -by * 100)

    # ---- clients ---------------------------------------------------------------------------------------

    def request(self, to: Ref, event: Event, name: str, after: Callable[[], None] | None = None) -> SimulatedRequest:
        """A client asks for something until it is answered; sometimes twice, sometimes late."""
        request = SimulatedRequest(to, event, name, after)
        self.requests.append(request)
        faults, dice = self.faults, self.dice
        delay = 0
        if faults.delay and dice.random() < faults.delay:
            self.counts["messages delayed"] += 1
            delay = dice.randrange(1, 200) * MILLISECOND
        self.clock.after(delay, lambda: self._ask(request))
        if faults.duplicate and not isinstance(event, Retried | Settled) and dice.random() < faults.duplicate:
            self.counts["messages duplicated"] += 1
            self.clock.after(dice.randrange(0, 200) * MILLISECOND, lambda: self._offer(request))
        return request

    def asks(self, name: str) -> bool:
        """Whether a request of this name is not answered yet. A refusal by a process that is no owner may be wrong."""
        return any(request.name == name and request.settled is None for request in self.requests)

    def _ask(self, request: SimulatedRequest) -> None:
        if request.settled is None:
            request.again = self.clock.after(PATIENCE, lambda: self._ask(request))
            self._offer(request)

    def _offer(self, request: SimulatedRequest) -> None:
        if isinstance(request.event, ReceiptArrived):
            self.auditor.offered[request.event.intent] += 1
        if self.faults.remote and self.dice.random() < self.faults.remote:
            self._post(request)
            return
        if not self.processes:
            return
        process = self.dice.choice(self.processes)
        self.tell(f"a client asks process {process.number}: {request.name} to {request.to}")
        process.shard.offer(request.to, request.event, lambda answer: self._heard(process, request, answer))

    def _post(self, request: SimulatedRequest) -> None:
        """Another process writes into the inbox table."""
        event = request.event
        start = input_hash(event.input) if isinstance(event, Started) else None
        reuse = event.reuse if isinstance(event, Started) else ""
        row = inbox_row(self.clock.entropy(16), request.to, event, self.clock.now())
        posted = self.disk.post(row, start=start, reuse=reuse)
        self.counts["posted into the inbox"] += 1
        self.tell(f"a client posts: {request.name} to {request.to}: {posted.refused or 'taken'}")
        if not posted.refused:
            self.auditor.posted(request.to, event)
            self._settle(request, Accepted(0, Address("", "")))
        elif posted.refused == "ended":
            self._settle(request, Refused("ended", posted.reason))

    def _heard(self, process: Process, request: SimulatedRequest, answer: Answer | Exception) -> None:
        if not process.life.alive or isinstance(answer, Exception):
            return  # not heard, or not recorded: the client asks again
        self.auditor.acknowledge(request.to, request.event, answer)
        if isinstance(answer, Refused) and answer.code == "unknown-instance":
            return
        self._settle(request, answer)

    def _settle(self, request: SimulatedRequest, answer: Answer) -> None:
        if request.settled is None:
            self.tell(f"answered: {request.name} to {request.to}")
            request.settled = answer
            if request.again is not None:
                request.again.cancel()
            if request.after is not None:
                self._when_known(request.to, request.after)

    def _when_known(self, to: Ref, action: Callable[[], None]) -> None:
        """A posted start is acknowledged before the instance exists."""
        if isinstance(to, Address) and (to.workflow, to.key) not in self.database.names:
            self.clock.after(10 * MILLISECOND, lambda: self._when_known(to, action))
        else:
            action()

    # ---- for the executors -----------------------------------------------------------------------------

    def executing(self, process: int, publication: Any) -> None:
        if self.story is not None:
            effect = publication.effect
            self.tell(
                f"process {process} executes {publication.address} {effect.location} "
                f"attempt {effect.attempt} delivery {publication.delivery}"
            )
        self.auditor.executing(process, publication)

    def executed(self, execution: Any) -> None:
        self.auditor.executed(execution)

    def post_receipt(self, instance: int, intent: bytes, receipt: Receipt) -> None:
        row = inbox_row(self.clock.entropy(16), instance, ReceiptArrived(intent, receipt), self.clock.now())
        self.auditor.offered[intent] += 1
        self.disk.post(row)

    def send(self, to: Address, name: str, body: object, id: str) -> None:
        self.request(to, Message(name, encode(to_plain(body)), id), f"send {name}")

    def announce(self, event: Any, *, id: str, correlation: str = "") -> None:
        """An event from outside, for whichever cells hear of it."""
        assert self.cells is not None, "a world without cells hears no events"
        catalog = Catalog(self.cells.manifest)
        name, body = catalog.encode(event)
        self.request(RULER, Message(name, body, id, catalog.hash, correlation), f"event {name} {id}")

    def behind(self, address: Address) -> Behind:
        """What an instance has behind it, as far as that is durable."""
        return Behind(address, self.database.histories[self.database.names[address.workflow, address.key]])

    def retry(self, workflow: str, key: str) -> None:
        """A person says: try again."""
        self.request(Address(workflow, key), Retried(), "retry")

    def settle(self, workflow: str, key: str, location: str, value: object) -> None:
        """A person answers for the effect at which an instance is stuck."""
        receipt = Receipt("ok", encode(to_plain(value)))
        self.request(Address(workflow, key), Settled(location, receipt), "settle")

    def published(self, address: Address, name: str) -> Any:
        id = self.database.names[address.workflow, address.key]
        value = self.database.published.get((id, name))
        return None if value is None else decode(value)


@contextmanager
def quiet_log() -> Iterator[None]:
    """Crashes are the point here: a warning for each would only disturb."""
    log = logging.getLogger("perdure")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


__all__ = ["Failure", "Faults", "Handle", "Simulation", "Violation"]
