"""The life of a shard: it is opened, starts over after a crash, falls when another owner comes, and is closed.

What it does meanwhile is in `loop.py`; start there. The parts that stand around the loop are put together here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final

from perdure.errors import Corrupt, EngineClosed, Fenced, LeaseLost, StoreFailed
from perdure.kernel.batch import Batch, WorkflowRow
from perdure.kernel.events import Event, Ref
from perdure.kernel.gate import Executors
from perdure.kernel.kernel import Kernel
from perdure.kernel.machine import Workflow
from perdure.kernel.mailbox import Offer
from perdure.kernel.outside import Verify, unsigned
from perdure.kernel.retention import Retention
from perdure.kernel.rules import decode_rules
from perdure.kernel.workflows import Workflows
from perdure.ports.clock import Alarm, Clock
from perdure.ports.executor import Askable, Executor
from perdure.ports.frame import Frame
from perdure.ports.store import Lease, Position, Store

from .admission import Admission
from .calls import Calls, RunningCall
from .core import Core
from .frames import Frames
from .inbox import POLL, Inbox
from .listener import Heard, Listener, tell
from .loading import Loading
from .log import log
from .loop import Loop
from .lost_jobs import LostJobs
from .meter import Meter
from .retention import kept

MEMORY: Final = 256 * 1024 * 1024
"""Bytes of states that are values which stay in memory."""

RESTART_FIRST: Final = 100_000_000
RESTART_MAX: Final = 30_000_000_000
RESTARTS_DOUBLED: Final = 9  # so often the delay is doubled until it is the longest

NO_ENCLOSURE: Final = nullcontext()


Loader = Callable[[str, str, Callable[[Workflow | None], None]], None]
"""Finds the workflow of a name and version that the database itself defines, and calls back with it."""


class Shard:
    """`enclosure` is entered around all the deliveries of a turn: what machines of some dialect need around them.

    `verify` has the keys of those who answer from outside.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        executors: Iterable[Executor],
        workflows: Iterable[Workflow],
        *,
        owner: str,
        listener: Listener,
        cache: int = 4096,
        memory: int = MEMORY,
        enclosure: AbstractContextManager[None] = NO_ENCLOSURE,
        verify: Verify = unsigned,
        number: int = 0,
        shards: int = 1,
        poll: int = POLL,
        loader: Loader | None = None,
        retention: Retention | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._loader = loader
        self._retention = retention
        self._asked_for: set[tuple[str, str]] = set()
        self.number = number
        self.epoch = 0
        self._shards = shards
        self._store = store
        self._clock = clock
        self._executors: Mapping[str, Executor] = {executor.name: executor for executor in executors}
        self._workflows = Workflows(workflows)
        self._owner = owner
        self._verify = verify
        meter = meter or Meter(clock)
        store.measure(meter.figures)
        core = self._core = Core(store, clock, listener, self._new_kernel(Position(0, 0, ())), self._crash)
        self._calls = Calls(core, self._executors)
        self._frames = Frames(core, self._calls)
        self._loading = Loading(core, self._calls)
        self._admission = Admission(core, self._calls)
        self._inbox = Inbox(core, self._admission, poll)
        self._lost_jobs = LostJobs(core)
        self._loop = Loop(
            core,
            self._calls,
            self._frames,
            self._loading,
            self._inbox,
            enclosure=enclosure,
            cache=cache,
            memory=memory,
            meter=meter,
        )
        self._loop.missing = None if loader is None else self._load_missing
        for executor in self._executors.values():
            executor.listen(self._frames.framed)
            if isinstance(executor, Askable):
                executor.hear(self._calls.requested)
        if store.workers:
            store.listen(self._frames.framed_by_worker)

    def _new_kernel(self, position: Position) -> Kernel:
        slots = {name: executor.slots for name, executor in self._executors.items()}
        return Kernel(
            self._workflows,
            Executors(slots, workers=self._store.workers),
            seq=position.seq,
            at=position.at,
            salt=self._clock.entropy(8),
            rules=decode_rules(position.rules),
            verify=self._verify,
            shard=self.number,
            shards=self._shards,
        )

    # ---- what others may know of it ------------------------------------------------------------------------------

    @property
    def kernel(self) -> Kernel:
        return self._core.kernel

    @property
    def counts(self) -> Counter[str]:
        return self._core.counts

    @property
    def running(self) -> Mapping[bytes, RunningCall]:
        """The calls in the hands of executors."""
        return self._calls.running

    @property
    def unreadable(self) -> Mapping[Ref, Exception]:
        """Instances that could not be loaded, and why."""
        return self._loading.unreadable

    @property
    def closed(self) -> bool:
        """It is released, or another owner took over."""
        return self._core.closed

    @property
    def takes(self) -> bool:
        """Whether an event can be offered: memory is there, and it is not about to go."""
        core = self._core
        return not (core.away or core.closing or core.closed)

    @property
    def looking(self) -> Alarm | None:
        """The alarm of the next look. A clock whose owner knows that nothing is due may let it come late."""
        return self._inbox.alarm

    def lives(self, instance: int) -> bool:
        """Whether the end of an instance is still to be heard: it is in memory, has not ended, and is not stuck."""
        found = self._core.kernel.instances().get(instance)
        return found is not None and not found.ended and found.stuck is None and not self._core.away

    def progress(self, instance: int) -> list[Frame]:
        """The newest progress of each call of an instance that is running."""
        return self._frames.progress(instance)

    # ---- what others may ask of it -------------------------------------------------------------------------------

    def offer(self, to: Ref, event: Event, heard: Heard | None = None, *, new: bool = False) -> None:
        """An event from a caller. `heard` is called when it is durable, or with the reason why it is not.

        `new`: the name was made up for this event and cannot exist.
        """
        if self._core.closing or self._core.closed:
            if heard is not None:
                heard(EngineClosed("the engine is closed"))
            return
        self._admission.admit(Offer(to, event, heard, new=new))

    def look(self) -> None:
        """Look into the inbox now: there is a hint that something came."""
        self._inbox.look()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once everything that is known by now is recorded: after an open, what others had posted before."""
        if self._core.closed:  # nothing will be recorded any more
            callback()
            return
        self._core.settled.append(callback)
        self._core.schedule()

    def register(self, *workflows: Workflow) -> None:
        """Run more workflows from now on, or newer code of those that run: memory is dropped and loaded again."""
        for found in workflows:
            self._workflows.replace(found)
        self._note_workflows(lambda error: self._load(self._reload_failed) if error is None else self._crash(error))

    def use(self, workflows: Workflows[Workflow]) -> None:
        """Run these workflows, once it is open."""
        self._workflows = Workflows(workflows)

    def _load_missing(self) -> None:
        """Ask once for each version that the inbox has events for, and this engine has not."""
        assert self._loader is not None
        for missing in set(self.kernel.left.values()) - self._asked_for:
            self._asked_for.add(missing)
            self._loader(*missing, partial(self._found, missing))

    def _found(self, missing: tuple[str, str], found: Workflow | None) -> None:
        if self.closed:
            return
        if found is not None:
            self.add(found)
            return
        kernel = self.kernel
        for id in [each for each in kernel.sought if kernel.left[each] == missing]:
            kernel.nowhere.add(id)
            self._seek_again(id)
            self._asked_for.discard(missing)  # it may be put there later

    def _seek_again(self, id: bytes) -> None:
        del self.kernel.left[id]
        self._core.offer(self.kernel.sought.pop(id))

    def add(self, workflow: Workflow, active: str = "") -> None:
        """Run one more version from now on. Loaded instances stay. `active`: the version that new instances run on."""
        for workflows in (self._workflows, self.kernel.workflows):
            workflows.replace(workflow)
            if active:
                workflows.activate(workflow.name, active)
        waiting = [id for id, (name, _) in self.kernel.left.items() if name == workflow.name]
        left = [id for id in waiting if id not in self.kernel.sought]
        for id in waiting:
            if id in self.kernel.sought:
                self._seek_again(id)
            else:
                del self.kernel.left[id]
        self._note_workflows(lambda error: self._read_again(left) if error is None else self._crash(error))

    def _read_again(self, left: list[bytes]) -> None:
        """Look for what waited for a version. A store gives a row once, until it is asked for a position."""
        if not left:
            self.look()
            return
        self._inbox.read_again(left)
        life = self._core.life

        def found(position: Position | Exception) -> None:
            if self._core.is_over(life):
                return
            if isinstance(position, Exception):
                self._crash(position)
            else:
                self.look()

        self._store.position(found)

    # ---- opening and starting over -------------------------------------------------------------------------------

    def open(
        self,
        opened: Callable[[Exception | None], None],
        prepare: Callable[[Callable[[Exception | None], None]], None] | None = None,
    ) -> None:
        """Take the lease, then load. `opened` hears the error, if there is one: then nothing runs.

        `prepare` is called when the database can be read, and before anything runs; it calls back when it is done.
        """

        def acquired(lease: Lease | Exception) -> None:
            if isinstance(lease, Exception):
                opened(lease)
            elif self._core.closed:  # too late: the shard was closed meanwhile
                self._store.release()
            else:
                self.epoch = lease.epoch
                if prepare is None:
                    prepared(None)
                else:
                    prepare(prepared)

        def prepared(error: Exception | None) -> None:
            if error is not None:
                opened(error)
            elif not self._core.closed:
                self._note_workflows(noted)

        def noted(error: Exception | None) -> None:
            if error is not None:
                opened(error)
            elif not self._core.closed:
                self._load(opened)

        self._store.acquire(self._owner, acquired)

    def _note_workflows(self, noted: Callable[[Exception | None], None]) -> None:
        rows = [
            WorkflowRow(found.name, found.version, found.parameters, kept(found.policy, self._retention).encode())
            for found in self._workflows
        ]
        self._store.register(rows, noted)

    def _load(self, loaded: Callable[[Exception | None], None]) -> None:
        """Begin from what is durable, with empty memory. The only recovery path: an open and a crash both come here."""
        core = self._core
        core.life += 1
        core.away = True
        self._inbox.stop_alarm()
        life = core.life

        def found(position: Position | Exception) -> None:
            if life != core.life:
                return
            if isinstance(position, Exception):
                loaded(position)
            else:
                self._begin(position)
                loaded(None)

        self._store.position(found)

    def _reload_failed(self, error: Exception | None) -> None:
        if error is not None:
            self._crash(error)

    def _begin(self, position: Position) -> None:
        core = self._core
        core.kernel.cache.dispose()
        core.kernel = self._new_kernel(position)
        core.kernel.closing = core.closing
        core.kernel.seeks = self._loader is not None
        self._asked_for.clear()
        core.building = Batch()
        core.committing = None
        core.durable_seq = position.seq
        core.away = False
        self._loading.begin(position.running)
        self._calls.redelivery.clear()
        self._inbox.begin()
        self._calls.stop_where_ended(position.running)
        self._admission.begin()
        self._calls.offer_again()
        self._inbox.look()
        if self._store.workers:
            self._lost_jobs.look(core.life)
        core.schedule()
        core.listener.reloaded()  # a commit that was reported as failed may have ended instances, unheard

    def _crash(self, error: Exception) -> None:
        """A failed commit: memory may be ahead of the journal, so it is dropped and loaded again."""
        self._tell_callers(error)
        if isinstance(error, Fenced | Corrupt):  # what is damaged stays so: to try again could damage more
            self._fall(error)
            return
        core = self._core
        core.counts["crashes"] += 1
        core.away = True
        core.life += 1
        delay = min(RESTART_FIRST << core.failures, RESTART_MAX)
        core.failures = min(core.failures + 1, RESTARTS_DOUBLED)
        log.warning("%s; starting over from what is durable in %.1f s", error, delay / 1e9)
        life = core.life
        self._clock.call_at(self._clock.now() + delay, lambda: self._start_over(life))
        self._inbox.stop_alarm()
        settled, core.settled = core.settled, []
        for callback in settled:
            callback()

    def _start_over(self, life: int) -> None:
        if not self._core.is_over(life):
            self._load(self._reload_failed)

    def fall(self, error: Exception) -> None:
        """The lease is lost, or may be: nothing is written and nothing is begun any more."""
        if not self._core.closed:
            self._tell_callers(error)
            self._fall(error)

    def _fall(self, error: Exception) -> None:
        """Another owner took over, or the database is damaged: nothing is written any more. Callers hear why."""
        log.error("%s", error)
        core = self._core
        core.closed = True
        core.life += 1
        self._inbox.stop_alarm()
        self._calls.redelivery.clear()
        for intent in list(self._calls.running):
            self._calls.stop(intent)
        for offer in core.take_early():
            tell(offer.ticket, error)
        core.listener.fallen(error)
        waiting, core.settled = core.settled, []
        if core.idle is not None:
            waiting.append(core.idle)
        for callback in waiting:
            callback()

    def _tell_callers(self, error: Exception) -> None:
        core = self._core
        self._calls.redelivery.clear()  # before they hear that their deliveries are off
        under_way = error
        if isinstance(error, LeaseLost):
            under_way = StoreFailed(f"{error}; whether this was recorded is not known")
        for ticket, _ in core.committing.answers if core.committing is not None else ():
            tell(ticket, under_way)
        for ticket, _ in core.building.answers:
            tell(ticket, error)
        for offer in list(core.kernel.undelivered()):  # who hears this may offer again at once
            tell(offer.ticket, error)
        core.committing, core.building = None, Batch()

    # ---- stopping ------------------------------------------------------------------------------------------------

    def drain(self, idle: Callable[[], None]) -> None:
        """Take nothing new and begin no call; call `idle` when those that ran have ended and everything is durable.

        What instances tell each other from now on waits in the inbox for the next engine.
        """
        core = self._core
        core.closing = core.kernel.closing = True
        if core.closed:
            idle()
            return
        self._inbox.stop_alarm()
        self._calls.redelivery.clear()
        core.idle = idle
        core.schedule()

    def park(self) -> None:
        """Cut the calls that still run. They have not used up an attempt: see `Calls.park`."""
        self._calls.park()

    def leave(self, intent: bytes) -> None:
        """Park one call, if it runs here, and let it run."""
        self._calls.leave(intent)

    def release(self) -> None:
        """The end: nothing is written any more, and the next owner may come."""
        core = self._core
        core.closed = True
        core.life += 1
        self._inbox.stop_alarm()
        for offer in [*core.early, *core.kernel.undelivered()]:
            tell(offer.ticket, EngineClosed("the engine was closed before this was recorded"))
        core.kernel.cache.dispose()
        self._store.release()
