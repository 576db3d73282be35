"""THE loop. One shard: one journal, one writer, one total order.

    _turn     build a batch from what was offered          (kernel: pure)
    _commit   make it durable, or this shard starts over    (store)
    _publish  only now may the world see it                 (executors, timers)
    _answer   only now does a caller hear that it happened

While a batch is being committed the next one is built. Nothing here awaits: the loop is a few callbacks, so that
production and simulation run the very same code, and so that flows are driven from plain callbacks (newer Pythons
refuse nested tasks).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

import msgspec

from perdure.codec import decode, encode
from perdure.errors import Corrupt, EngineClosed, Fenced, LeaseLost, PerdureError, StoreFailed
from perdure.kernel.batch import Batch, InboxRow, Publication, WorkflowRow, WorkRow
from perdure.kernel.decision import Outcome, Stuck
from perdure.kernel.effects import Call, attempt_of
from perdure.kernel.events import Address, Event, Message, Parked, Received, Redelivered, Ref, Requested, Streamed
from perdure.kernel.gate import Executors
from perdure.kernel.kernel import Kernel, full
from perdure.kernel.machine import Governed, Workflow
from perdure.kernel.mailbox import Answer, Offer, Stale
from perdure.kernel.outside import Verify, unsigned
from perdure.kernel.problem import Report
from perdure.kernel.receipt import Failure, Receipt
from perdure.kernel.rows import Loaded, fired, offer_of
from perdure.kernel.rules import RULER, decode_rules
from perdure.kernel.workflows import Workflows
from perdure.ports.clock import Alarm, Clock
from perdure.ports.executor import CUT, Askable, Executor
from perdure.ports.frame import Frame
from perdure.ports.store import Census, Lease, Position, Store

from . import collector
from .log import log
from .suspects import Suspects
from .timers import Timers

POLL: Final = 25_000_000
"""How often the inbox is looked at where nobody tells that something came. A look costs microseconds if nothing did."""

LIGHT_WAIT: Final = 50_000_000
"""How long the results of ephemeral calls may wait for something that is worth a commit."""

INBOX_AT_ONCE: Final = 1000

AHEAD_MAX: Final = 60_000_000_000
"""So far the journal's time may be ahead of the clock, in nanoseconds, before people are told."""

TOLD_MAX: Final = 10_000
"""Calls with workers that are kept in mind because they said something, also after their end: a frame may be late."""

TIMERS_WAITING_MAX: Final = 10_000
"""While so many instances are being loaded, timers wait in their rows: after a long pause a million may be due."""

MEMORY: Final = 256 * 1024 * 1024
"""Bytes of states that are values which stay in memory."""

LOST_POLL: Final = 1_000_000_000
"""How often is looked for workers that were lost."""

LOST_AT_ONCE: Final = 500
RECOVER_AT_ONCE: Final = 500
RESTART_FIRST: Final = 100_000_000
RESTART_MAX: Final = 30_000_000_000

NO_ENCLOSURE: Final = nullcontext()

Heard = Callable[[Answer | Exception], None]
"""How a caller hears: the kernel's answer once it is durable, or why there is none."""


class Listener(Protocol):
    """Who hears of what has become durable: the door for callers of this process, or a simulation."""

    def ended(self, instance: int, address: Address, outcome: Outcome) -> None: ...

    def stuck(self, instance: int, address: Address, stuck: Stuck) -> None: ...

    def published(self, instance: int, name: str) -> None:
        """The instance has published a value under a name."""
        ...

    def failed(self, report: Report) -> None:
        """A hook is to hear of a problem."""
        ...

    def committed(self, seq: int) -> None:
        """The journal is durable up to this entry."""
        ...

    def posted(self, rows: Sequence[InboxRow]) -> None:
        """Events for instances of other shards are in the inbox."""
        ...

    def framed(self, instance: int, frame: Frame) -> None:
        """A running step says something. Not durable, as the only thing here: see `ports/frame.py`."""
        ...

    def fallen(self, error: Exception) -> None:
        """Another owner took over: nothing will be heard from this shard any more."""
        ...

    def reloaded(self) -> None:
        """Memory was loaded again, or an instance cannot be read: look whether something ended meanwhile."""
        ...


class Running(msgspec.Struct, eq=False):
    """A call in the hands of an executor."""

    instance: int
    address: Address
    executor: Executor
    effect: Call
    started: bool  # False: the engine stops; recorded, but not begun
    alarm: Alarm | None = None
    progress: Frame | None = None  # the newest
    frames: int = 0  # the ordinal of the last frame
    requests: dict[str, Requested] = {}  # what it has asked and not heard yet


class Told(msgspec.Struct, eq=False):
    """What is known of a call that is with a worker: only what it says."""

    instance: int
    claim: int  # which claim of the job
    progress: Frame | None = None
    frames: int = 0
    ended: bool = False


Loader = Callable[[str, str, Callable[[Workflow | None], None]], None]
"""Finds the workflow of a name and version that the database itself defines, and calls back with it."""


class Shard:
    """`enclosure` is entered around all the deliveries of a turn: what machines of some dialect need around them.

    `verify` has the keys of those who answer from outside.
    """

    def __init__(  # noqa: PLR0915  # a field for each thing that a shard keeps in mind
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
    ) -> None:
        self._loader = loader
        self._asked_for: set[tuple[str, str]] = set()
        self.number = number
        self.epoch = 0
        self._shards = shards
        self._poll = poll
        self._store = store
        self._clock = clock
        self._executors: Mapping[str, Executor] = {executor.name: executor for executor in executors}
        self._workflows = Workflows(workflows)
        self._owner = owner
        self._cache = cache
        self._memory = memory
        self._listener = listener
        self._enclosure = enclosure
        self._verify = verify
        self.counts: Counter[str] = Counter()
        self._takes_counts = any(workflow.policy.counted for workflow in self._workflows)
        self.kernel = self._new_kernel(Position(0, 0, ()))
        self.running: dict[bytes, Running] = {}
        self._told: dict[bytes, Told] = {}  # by jobs that are with workers
        self._receipts: dict[bytes, Offer] = {}  # of executors, and frames that are events: not yet durable
        self._recovering: set[Ref] = set()
        self._away = True  # memory is not there: not yet, or not any more
        self._alarm_at = 0
        self._building = Batch()
        self._committing: Batch | None = None
        self._durable_seq = 0
        self._loading: set[Ref] = set()
        self._to_recover: deque[int] = deque()
        self._suspects = Suspects(clock, self._deliver_again)
        self._timers = Timers()
        self._asking = False  # what the inbox and the timers have
        self._look_again = False
        self._inbox_waits = False  # more rows than one look takes
        self._told_ahead = False
        self._alarm: Alarm | None = None
        self._inbox_held: set[bytes] = set()
        self._scheduled = False
        self._hurry = False  # what waits has waited long enough
        self._life = 0  # grows when memory is dropped: callbacks of an earlier life are void
        self._restart_delay = RESTART_FIRST
        self._closing = False
        self._closed = False
        self._idle: Callable[[], None] | None = None
        self._settled: list[Callable[[], None]] = []
        self.unreadable: dict[Ref, Exception] = {}  # instances that could not be loaded, and why
        self._early: list[Offer] = []  # came while memory was being loaded again
        for executor in self._executors.values():
            executor.listen(self._framed)
            if isinstance(executor, Askable):
                executor.hear(self._requested)
        if store.workers:
            store.listen(self._framed_by_worker)

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
            elif self._closed:  # too late: nobody wants it any more
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
            elif not self._closed:
                self._note_workflows(noted)

        def noted(error: Exception | None) -> None:
            if error is not None:
                opened(error)
            elif not self._closed:
                self._load(opened)

        self._store.acquire(self._owner, acquired)

    @property
    def closed(self) -> bool:
        """It is released, or another owner took over."""
        return self._closed

    @property
    def takes(self) -> bool:
        """Whether an event can be offered: memory is there, and it is not about to go."""
        return not (self._away or self._closing or self._closed)

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once everything that is known by now is recorded: after an open, what others had posted before."""
        if self._closed:  # nothing will be recorded any more
            callback()
            return
        self._settled.append(callback)
        self._schedule()

    def register(self, *workflows: Workflow) -> None:
        """Run more workflows from now on, or newer code of those that run: memory is dropped and loaded again."""
        for found in workflows:
            self._workflows.replace(found)
        self._takes_counts = any(workflow.policy.counted for workflow in self._workflows)
        self._note_workflows(lambda error: self._load(self._reload_failed) if error is None else self._crash(error))

    def use(self, workflows: Workflows[Workflow]) -> None:
        """Run these workflows, once it is open."""
        self._workflows = Workflows(workflows)
        self._takes_counts = any(workflow.policy.counted for workflow in self._workflows)

    def add(self, workflow: Workflow, active: str = "") -> None:
        """Run one more version from now on. Loaded instances stay. `active`: the version that new instances run on."""
        for workflows in (self._workflows, self.kernel.workflows):
            workflows.replace(workflow)
            if active:
                workflows.activate(workflow.name, active)
        for id, (name, _) in list(self.kernel.left.items()):  # the inbox is read again
            if name == workflow.name:
                del self.kernel.left[id]
                self._inbox_held.discard(id)
        self._note_workflows(lambda error: self.look() if error is None else self._crash(error))

    def _note_workflows(self, noted: Callable[[Exception | None], None]) -> None:
        rows = [
            WorkflowRow(found.name, found.version, found.parameters, found.policy.encode()) for found in self._workflows
        ]
        self._store.register(rows, noted)

    def _load(self, loaded: Callable[[Exception | None], None]) -> None:
        """Begin from what is durable, with empty memory. The only recovery path: an open and a crash both come here."""
        self._life += 1
        self._away = True
        self._stop_alarm()
        life = self._life

        def found(position: Position | Exception) -> None:
            if life != self._life:
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
        self.kernel.memory.dispose()
        self.kernel = self._new_kernel(position)
        self.kernel.closing = self._closing
        self._building = Batch()
        self._committing = None
        self._durable_seq = position.seq
        self._loading = set()
        self._to_recover = deque(position.running)
        self._recovering = set()
        self._suspects.clear()
        self._timers = Timers()
        self._inbox_held = set()
        self.unreadable = {}
        self._away = self._asking = False
        going_on = set(position.running)
        self._stop_calls(lambda running, _: running.instance not in going_on)
        early, self._early = self._early, []
        for offer in early:
            self.kernel.offer(offer)
        for running in self.running.values():
            for request in running.requests.values():  # it, or its answer, may have been lost with the memory
                self._offer_request(running, request)
        for intent, offer in self._receipts.items():
            self.kernel.offer(Offer(offer.to, offer.event, ticket=intent))
        self._look(self._life)
        if self._store.workers:
            self._look_for_lost(self._life)
        self._schedule()
        self._listener.reloaded()  # a commit that was reported as failed may have ended instances nobody heard of

    def _crash(self, error: Exception) -> None:
        """A failed commit: memory may be ahead of the journal, so it is dropped and loaded again."""
        self._tell_callers(error)
        if isinstance(error, Fenced | Corrupt):  # what is damaged stays so: to try again could damage more
            self._fall(error)
            return
        self.counts["crashes"] += 1
        self._away = True
        self._life += 1
        log.warning("%s; starting over from what is durable in %.1f s", error, self._restart_delay / 1e9)
        life = self._life
        self._clock.call_at(self._clock.now() + self._restart_delay, lambda: self._start_over(life))
        self._restart_delay = min(2 * self._restart_delay, RESTART_MAX)
        self._stop_alarm()
        settled, self._settled = self._settled, []
        for callback in settled:
            callback()

    def _start_over(self, life: int) -> None:
        if life == self._life and not self._closed:
            self._load(self._reload_failed)

    def fall(self, error: Exception) -> None:
        """The lease is lost, or may be: nothing is written and nothing is begun any more."""
        if not self._closed:
            self._tell_callers(error)
            self._fall(error)

    def _fall(self, error: Exception) -> None:
        """Another owner took over, or the database is damaged: nothing is written any more. Callers hear why."""
        log.error("%s", error)
        self._closed = True
        self._life += 1
        self._stop_alarm()
        self._suspects.clear()
        for intent in list(self.running):
            self._stop_call(intent)
        early, self._early = self._early, []
        for offer in early:  # they came while memory was being loaded
            _hear(offer.ticket, error)
        self._listener.fallen(error)
        waiting, self._settled = self._settled, []
        if self._idle is not None:
            waiting.append(self._idle)
        for callback in waiting:
            callback()

    def _tell_callers(self, error: Exception) -> None:
        self._suspects.clear()  # before they hear that their deliveries are off
        under_way = error
        if isinstance(error, LeaseLost):
            under_way = StoreFailed(f"{error}; whether this was recorded is not known")
        for ticket, _ in self._committing.answers if self._committing is not None else ():
            _hear(ticket, under_way)
        for ticket, _ in self._building.answers:
            _hear(ticket, error)
        for offer in list(self.kernel.undelivered()):  # who hears this may offer again at once
            _hear(offer.ticket, error)
        self._committing, self._building = None, Batch()

    # ---- in ------------------------------------------------------------------------------------------------------

    def offer(self, to: Ref, event: Event, heard: Heard | None = None, *, new: bool = False) -> None:
        """An event from a caller. `heard` is called when it is durable, or with the reason why it is not.

        `new`: the name was made up for this event and cannot exist.
        """
        if self._closing or self._closed:
            if heard is not None:
                heard(EngineClosed("the engine is closed"))
            return
        self._admit(Offer(to, event, heard, new=new))

    def _admit(self, offer: Offer, own: int = 0) -> None:
        """Give an offer to the kernel. `own`: how many inbox rows are the event itself."""
        if self._away:
            self._early.append(offer)
        elif self._takes_counts and type(offer.event) is Message and self._wants_counts(offer):
            self._admit_counted(offer, own)
        else:
            self.kernel.offer(offer)
            self._schedule()

    def lives(self, instance: int) -> bool:
        """Whether the end of an instance is still to be heard: it is in memory, has not ended, and is not stuck."""
        found = self.kernel.instances().get(instance)
        return found is not None and not found.ended and found.stuck is None and not self._away

    def _answered(self, intent: bytes, receipt: Receipt) -> None:
        """An executor's receipt. It is kept here until it is durable, so that a failed commit cannot lose it."""
        if receipt is CUT:
            self.leave(intent)
            return
        running = self.running.pop(intent, None)
        if running is None or self._closed:
            return
        if running.alarm is not None:
            running.alarm.cancel()
        if self._suspects.current is not None:
            self._suspects.cleared(intent)
        offer = self._receipts[intent] = Offer(running.instance, Received(intent, receipt), intent)
        self.kernel.offer(offer)
        self._schedule()

    def _requested(  # what a request consists of
        self, intent: bytes, delivery: int, id: str, name: str, body: bytes
    ) -> None:
        """A running call asks its instance for something. The request is kept here until its answer is durable."""
        running = self.running.get(intent)
        if running is None or self._closed:
            return
        request = running.requests[id] = Requested(intent, delivery, id, name, body)
        if not self._away:
            self._offer_request(running, request)
            self._schedule()

    def _offer_request(self, running: Running, request: Requested) -> None:
        def heard(answer: Answer | Exception) -> None:
            if isinstance(answer, Stale):  # of an earlier delivery, or of a call that is closed: it is cut
                self._stop_call(request.intent)

        self.kernel.offer(Offer(running.instance, request, heard))

    def _framed(self, intent: bytes, frame: Frame) -> None:
        """A call says something before its receipt. After that, or after a stop, nobody wants to hear it.

        Frames of a call are numbered from 1. What is missing is counted, and what does not belong is dropped and
        counted: see `counts`. A frame that is an event is kept like a receipt, until it is durable.
        """
        running = self.running.get(intent)
        if running is None:
            self.counts["frames_unknown"] += 1
            return
        effect = running.effect
        if (frame.location, frame.attempt) != (effect.location, effect.attempt) or frame.instance != str(
            running.address
        ):
            self.counts["frames_mismatched"] += 1
            return
        if self._hear(running, frame) and frame.number and effect.frames and not self._closed:
            ticket = intent + frame.number.to_bytes(8, "big")
            event = Streamed(intent, frame.number, encode(frame.chunk))
            offer = self._receipts[ticket] = Offer(running.instance, event, ticket)
            self.kernel.offer(offer)
            self._schedule()

    def _framed_by_worker(self, instance: int, intent: bytes, claim: int, frame: Frame) -> None:
        """The same of a worker's call. While its instance sleeps, what it was asked for is the worker's word."""
        told = self._told.get(intent)
        awake = self.kernel.instances().get(instance)
        open = None if awake is None else awake.open.get(intent)
        if (told is not None and told.ended) or (awake is not None and open is None):
            self.counts["frames_unknown"] += 1
            return
        if awake is not None and open is not None:
            asked = str(awake.address), open.effect.location, attempt_of(open.effect)
            if (frame.instance, frame.location, frame.attempt) != asked:
                self.counts["frames_mismatched"] += 1
                return
        if told is None or told.claim < claim:
            if len(self._told) >= TOLD_MAX:
                del self._told[next(iter(self._told))]
            told = self._told[intent] = Told(instance, claim)
        elif told.claim > claim:  # its claim is lost: the job is with another one
            self.counts["frames_mismatched"] += 1
            return
        self._hear(told, frame)

    def _hear(self, call: Running | Told, frame: Frame) -> bool:
        """Tell who listens. False: the frame was heard before."""
        if frame.ordinal <= call.frames:
            self.counts["frames_repeated"] += 1
            return False
        self.counts["frames_heard"] += 1
        if frame.ordinal > call.frames + 1:
            self.counts["frames_missing"] += frame.ordinal - call.frames - 1
        call.frames = frame.ordinal
        if frame.kind == "progress":
            call.progress = frame
        try:
            self._listener.framed(call.instance, frame)
        except Exception:  # it would be raised in the step, which has no part in it
            log.exception("a listener failed at a frame of %s at %s", frame.instance, frame.location)
        return True

    def progress(self, instance: int) -> list[Frame]:
        """The newest progress of each call of an instance that is running."""
        calls: list[Running | Told] = [*self.running.values(), *self._told.values()]
        return [each.progress for each in calls if each.instance == instance and each.progress is not None]

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.call_soon(self._turn)

    # ---- the loop ------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._scheduled = False
        if self._closed or self._away:
            return
        with collector.Paused():
            try:
                with self._enclosure:
                    self._build()
            except Exception as error:  # how far it came nobody knows: what is in memory is worth nothing
                self._crash(error)
                raise
            except KeyboardInterrupt:
                self._crash(EngineClosed("Ctrl-C interrupted the engine; this was not recorded"))
                raise
            if self._building.early:
                self._begin_early()
            if self._committing is None:
                if not self._building:  # what was refused leaves nothing to commit
                    self.kernel.memory.evict(self._cache, self._durable_seq, self._building)
                if self._building and not self._may_wait():
                    self._commit()
        if self._settled or self._idle is not None:
            self._tell_if_settled()

    def _build(self) -> None:
        """Advance the kernel, loading what it wants, until nobody is ready or the batch is full."""
        while True:
            if self.kernel.memory.wanted or self._to_recover:
                self._load_wanted()
            if self._recovering:
                return  # what ran before must be counted before the gate admits anything new
            if self._to_recover:
                continue
            if not self.kernel.ready or full(self._building):
                return
            self.kernel.advance(self._building, self._clock.now())
            if self.kernel.left and self._loader is not None:
                self._load_missing(self._loader)

    def _load_missing(self, loader: Loader) -> None:
        """Ask once for each version that the inbox has events for, and this engine has not."""
        for missing in set(self.kernel.left.values()) - self._asked_for:
            self._asked_for.add(missing)
            loader(*missing, lambda found: None if found is None or self._closed else self.add(found))

    def _begin_early(self) -> None:
        """Ephemeral calls are repeatable: they need not wait until they are durable."""
        early, self._building.early = self._building.early, []
        for publication in early:
            if publication.intent not in self.running:  # else a life before this one began it
                self._start_call(publication)

    def _may_wait(self) -> bool:
        """A batch of light entries alone waits for what comes next, a short while."""
        batch = self._building
        if batch.light == 0 or batch.light < len(batch.journal) or batch.answers or self._closing or self._hurry:
            return False
        life = self._life
        self._clock.call_at(self._clock.now() + LIGHT_WAIT, lambda: self._wait_no_longer(life, batch))
        return True

    def _wait_no_longer(self, life: int, batch: Batch) -> None:
        if life == self._life and batch is self._building:
            self._hurry = True
            self._schedule()

    def _commit(self) -> None:
        batch, self._building = self._building, Batch()
        self._hurry = False
        self.kernel.close(batch)
        if batch.inbox_added:
            self._inbox_held.update(batch.inbox_added)  # a look may find them in the table before we hear of the commit
        self._committing = batch
        if batch.writes:
            life = self._life
            self._store.commit(batch, lambda error: self._committed(life, error))
        else:
            self._committed(self._life, None)  # answers only, and nothing before them is undecided

    def _committed(self, life: int, error: Exception | None) -> None:
        if life != self._life or self._closed:
            return
        batch = self._committing
        assert batch is not None
        if error is not None:
            self._crash(error)
            return
        self._committing = None
        self._restart_delay = RESTART_FIRST
        if batch.journal:
            self._durable_seq = batch.journal[-1].seq
        self.counts["commits"] += batch.writes
        self.counts["entries"] += len(batch.journal)
        with collector.Paused():
            self._publish(batch)
            self._acknowledge(batch)
            if batch.journal:
                self._listener.committed(self._durable_seq)
            if batch.done_with:
                self.kernel.committed(batch)
            self.kernel.memory.evict(self._cache, self._durable_seq, self._building)
            self.kernel.memory.relieve(self._memory, self._durable_seq, self._building)
        # A step that waits for nothing has its receipt when the loop comes to the turn behind it.
        if batch.publications or self.kernel.ready or self.kernel.memory.wanted or self._building or self._to_recover:
            self._schedule()
        if self._settled or self._idle is not None:
            self._tell_if_settled()

    # ---- out -----------------------------------------------------------------------------------------------------

    def _publish(self, batch: Batch) -> None:
        for intent in batch.stops:
            self._stop_call(intent)
        for publication in batch.publications.values():
            self._start_call(publication)
        if self._told:
            for intent in batch.jobs_closed:
                told = self._told.get(intent)
                if told is not None:
                    told.ended, told.progress = True, None
        if batch.inbox_removed:
            self._inbox_held.difference_update(batch.inbox_removed)
        if batch.work_opened or batch.work_closed:
            self._timers.closed(batch.work_closed)
            self._timers.opened(batch.work_opened.values())
            self._watch()

    def _acknowledge(self, batch: Batch) -> None:
        if batch.outbox:
            self._listener.posted(batch.outbox)
        for intent in batch.receipts:
            self._receipts.pop(intent, None)
        for asker, request, value in batch.heard:
            running = self.running.get(asker)
            if running is not None and running.requests.pop(request, None) is not None:
                running.executor.answer(asker, request, value)  # type: ignore[attr-defined]  # it has asked
        for ticket, answer in batch.answers:
            _hear(ticket, answer)
        for id, name in batch.published:
            self._listener.published(id, name)
        for id, address, outcome in batch.ended:
            self._listener.ended(id, address, outcome)
        for id, address, stuck in batch.stuck:
            self._listener.stuck(id, address, stuck)
        for report in batch.reports:
            self._listener.failed(report)
        for audit in batch.audits:
            log.warning("%s", audit)

    def _start_call(self, publication: Publication) -> None:
        effect, intent = publication.effect, publication.intent
        executor = self._executors[effect.executor]
        running = self.running[intent] = Running(
            publication.instance, publication.address, executor, effect, not self._closing
        )
        if self._closing:
            return  # it is parked with the others
        timeout = effect.timeout
        if timeout is not None:
            running.alarm = self._clock.call_at(self._clock.now() + timeout, lambda: self._time_out(intent, timeout))
        executor.start(publication, self._answered)

    def _time_out(self, intent: bytes, timeout: int) -> None:
        running = self.running.get(intent)
        if running is None or self._closed:
            return
        failure = Failure("Timeout", f"no answer within {timeout / 1e9:g} s")
        running.executor.stop(intent)
        self._answered(intent, Receipt("timeout", error=failure))

    def _stop_call(self, intent: bytes) -> None:
        running = self.running.pop(intent, None)
        if running is not None:
            if running.alarm is not None:
                running.alarm.cancel()
            running.executor.stop(intent)
            self._suspects.cleared(intent)

    # ---- loading and recovery ------------------------------------------------------------------------------------

    def _load_wanted(self) -> None:
        wanted = [ref for ref in self.kernel.memory.wanted if ref not in self._loading]
        while self._to_recover and len(wanted) < RECOVER_AT_ONCE:
            wanted.append(self._to_recover.popleft())
            self._recovering.add(wanted[-1])
        if wanted:
            self._loading.update(wanted)
            life, asked = self._life, self._durable_seq
            self._store.load(wanted, lambda ref, record: self._loaded(life, asked, ref, record))

    def _loaded(self, life: int, asked: int, ref: Ref, record: Loaded | Exception | None) -> None:
        if life != self._life:
            return
        damaged = type(record) is Corrupt  # rows of this instance, not of the file
        if isinstance(record, Exception) and not damaged:
            self._crash(record)
            return
        self._loading.discard(ref)
        if self.kernel.memory.forgotten_seq > asked:  # it may have gone on and been evicted since: this may be its past
            if ref in self._recovering and isinstance(ref, int):
                self._recovering.discard(ref)
                self._to_recover.append(ref)
            self._schedule()
            return
        try:
            if isinstance(record, Exception):
                raise record
            self.kernel.adopt(ref, record)
            if self.unreadable:
                self.unreadable.pop(ref, None)
        except (PerdureError, msgspec.MsgspecError) as error:  # its rows are damaged, or newer: that is its own affair
            log.error("%s cannot be read: %s", ref, error)
            for offer in self.kernel.memory.give_up(ref):  # what is in the inbox, or caused here, waits there
                _hear(offer.ticket, error)
            self.unreadable[ref] = error
            self._listener.reloaded()  # who waits for its end must not wait for ever
        if ref in self._recovering and isinstance(ref, int):
            self._recovering.discard(ref)
            self._suspects.add(self.kernel.recover(ref, self.running.keys() | self._receipts.keys()))
            if not self._recovering and not self._to_recover:
                self._stop_calls(self._is_closed)
                self._suspects.begin()
        self._schedule()

    def _is_closed(self, running: Running, intent: bytes) -> bool:
        instance = self.kernel.instances().get(running.instance)
        return instance is not None and intent not in instance.open

    def _stop_calls(self, unwanted: Callable[[Running, bytes], bool]) -> None:
        """Cut what a commit had closed of which nobody heard. An ephemeral call may not be recorded as open yet."""
        for intent, running in list(self.running.items()):
            if not running.effect.ephemeral and unwanted(running, intent):
                self._stop_call(intent)

    def _deliver_again(self, instance: int, intent: bytes, alone: bool) -> None:
        def heard(answer: Answer | Exception) -> None:
            if intent not in self.running:  # not handed out: it had been asked as often as it may be, or is stale
                self._suspects.cleared(intent)

        self.kernel.offer(Offer(instance, Redelivered(intent, alone), heard))
        self._schedule()

    # ---- timers and the inbox ------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Set the alarm for whatever comes first: a timer, or the next look into the inbox."""
        now = self._clock.now()
        when = now + self._poll
        if len(self.kernel.memory.wanted) < TIMERS_WAITING_MAX and not self._inbox_waits:
            when = min(when, self._timers.next())
        if self._alarm is None or when < self._alarm_at:
            self._stop_alarm()
            self._alarm_at = when
            life = self._life
            self._alarm = self._clock.call_at(when, lambda: self._look(life))

    def look(self) -> None:
        """Look into the inbox now: somebody says that something came."""
        self._look(self._life)

    @property
    def looking(self) -> Alarm | None:
        """The alarm of the next look. A clock whose owner knows that nothing is due may let it come late."""
        return self._alarm

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _look(self, life: int) -> None:
        self._alarm = None
        if life != self._life or self._away or self._closed or self._closing:
            return
        if self._asking:
            self._look_again = True
            return
        self._asking = True
        now, limit = self._clock.now(), INBOX_AT_ONCE + len(self._inbox_held)
        self._store.inbox(limit, lambda rows: self._found_inbox(life, now, limit, rows))

    def _found_inbox(self, life: int, now: int, limit: int, rows: list[InboxRow] | Exception) -> None:
        """First the inbox, then the timers: a message that came before a deadline wins over the deadline.

        `now` is when the inbox was asked: what was posted since is not among the rows, so no later timer fires. While
        the inbox has more rows than were asked for, only those timers fire that were due before the last row.
        """
        if life != self._life or self._closed:
            return
        if isinstance(rows, Exception):
            self._crash(rows)
            return
        for row in rows:
            if row.id not in self._inbox_held:
                self._inbox_held.add(row.id)
                try:
                    offer = offer_of(row)
                except (msgspec.ValidationError, PerdureError) as error:  # of a client with other code, say
                    log.error("an event in the inbox cannot be read and is left alone: %s", error)
                    continue
                self._admit(offer, own=1)
        self._tell_if_ahead(now)
        self._inbox_waits = len(rows) >= limit
        if self._inbox_waits:
            now = min(now, rows[-1].at)
        if len(self.kernel.memory.wanted) >= TIMERS_WAITING_MAX:
            self._looked()
        elif self._timers.exhausted(now):
            self._store.due(*self._timers.window(now), lambda found: self._found_timers(life, now, found))
        else:
            self._fire(now)

    def _found_timers(self, life: int, now: int, rows: list[WorkRow] | Exception) -> None:
        if life != self._life or self._closed:
            return
        if isinstance(rows, Exception):
            self._crash(rows)
            return
        self._timers.fill(now, rows)
        self._fire(now)

    def _fire(self, now: int) -> None:
        for row in self._timers.due(now):
            self.kernel.offer(Offer(row.instance, fired(row)))
            self._schedule()
        self._looked()

    def _looked(self) -> None:
        self._asking = False
        if self._look_again:
            self._look_again = False
            self._clock.call_soon(self.look)
        self._watch()
        if self._settled or self._idle is not None:
            self._schedule()

    def _tell_if_ahead(self, now: int) -> None:
        ahead = self.kernel.at - now
        if ahead > AHEAD_MAX and not self._told_ahead:
            log.warning(
                "the journal is %.0f s ahead of the clock: an engine wrote to it while its clock was ahead, or this "
                "clock is behind. New timers go by the clock; the journal's time stands still until it is reached",
                ahead / 1e9,
            )
        self._told_ahead = ahead > AHEAD_MAX

    # ---- workers -------------------------------------------------------------------------------------------------

    def _look_for_lost(self, life: int) -> None:
        if life == self._life and not self._closing and not self._closed:
            self._store.lost(LOST_AT_ONCE, lambda lost: self._found_lost(life, lost))

    def _found_lost(self, life: int, lost: list[tuple[int, bytes]] | Exception) -> None:
        """Each is delivered again, or its outcome is unknown. None counts twice: the next look waits for that."""
        if life != self._life or self._closed:
            return
        if isinstance(lost, Exception):
            self._crash(lost)
            return
        undecided = {intent for _, intent in lost}

        def heard(intent: bytes) -> Heard:
            def hear(answer: Answer | Exception) -> None:
                undecided.discard(intent)
                if not undecided:
                    self._look_later(life)

            return hear

        for instance, intent in lost:
            self.counts["jobs_lost"] += 1
            self.kernel.offer(Offer(instance, Redelivered(intent), heard(intent)))
            self._schedule()
        if not lost:
            self._look_later(life)

    def _look_later(self, life: int) -> None:
        self._clock.call_at(self._clock.now() + LOST_POLL, lambda: self._look_for_lost(life))

    def _wants_counts(self, offer: Offer) -> bool:
        to = offer.to
        workflow = self.kernel.workflows.newest(to.workflow) if isinstance(to, Address) else None
        return workflow is not None and offer.event.name == workflow.policy.counted  # type: ignore[union-attr]

    def _admit_counted(self, offer: Offer, own: int) -> None:
        """The receiver hears how much there is at this very moment: `Policy.counted`."""
        life = self._life

        def counted(census: Census | Exception) -> None:
            if life != self._life:
                self._early.append(offer)
            elif isinstance(census, Exception):
                if own:
                    self._crash(census)
                else:
                    _hear(offer.ticket, census)
            else:
                offer.event = self._counted(offer.event, census, own)
                self.kernel.offer(offer)
                self._schedule()

        self._store.census(counted)

    def _counted(self, event: Event, census: Census, own: int) -> Event:
        assert type(event) is Message
        rules = self.kernel.router.rules
        governed = [row for row in census.instances if self._may_be_governed(row[0], row[1])]
        left: Counter[str] = Counter()
        for workflow, version, _, count in governed:
            left[workflow] += count if rules.outdated(workflow, version) else 0
        counts = {
            "instances": sum(count for *_, count in governed),
            "intents": census.work + len(self.running),
            "queued": census.inbox - own + sum(1 for _ in self.kernel.undelivered()) + self._not_durable(),
            "left": dict(+left),
        }
        try:
            body = {**decode(event.body), "counts": counts, "counted": rules.hash}
        except (PerdureError, TypeError):
            return event  # the receiver will say what is wrong with it
        return msgspec.structs.replace(event, body=encode(body))

    def _may_be_governed(self, workflow: str, version: str) -> bool:
        """Also what earlier rules made, and those in force do not name: it lives on, with or without code."""
        known = self.kernel.workflows.of(workflow, version) or self.kernel.workflows.newest(workflow)
        return workflow != RULER.workflow and (known is None or isinstance(known, Governed))

    def _not_durable(self) -> int:
        """Entries that the store does not know yet."""
        return sum(len(batch.journal) for batch in (self._building, self._committing) if batch is not None)

    # ---- stopping ------------------------------------------------------------------------------------------------

    def drain(self, idle: Callable[[], None]) -> None:
        """Take nothing new and begin no call; call `idle` when those that ran have ended and everything is durable.

        What instances tell each other from now on waits in the inbox for the next engine.
        """
        self._closing = self.kernel.closing = True
        if self._closed:
            idle()
            return
        self._stop_alarm()
        self._suspects.clear()
        self._idle = idle
        self._schedule()

    def park(self) -> None:
        """Cut what still runs, and record that and what was never begun: neither has used up an attempt.

        What may run once only and had begun is different: nobody knows what it has done.
        """
        for intent, running in list(self.running.items()):
            self.leave(intent)
            running.executor.stop(intent)

    def leave(self, intent: bytes) -> None:
        """Park one call, if it runs here, and let it run: it ends with the engine, or Ctrl-C has ended it."""
        running = self.running.pop(intent, None)
        if running is None or self._closed:
            return
        if running.alarm is not None:
            running.alarm.cancel()
        self._suspects.cleared(intent)
        event: Event = Parked(intent)
        if running.started and running.effect.deliveries_max == 1:
            failure = Failure("Cut", "the engine was stopped while it ran", retry=False)
            event = Received(intent, Receipt("unknown", error=failure))
        self.kernel.offer(Offer(running.instance, event))
        self._schedule()

    def release(self) -> None:
        """The end: nothing is written any more, and the next owner may come."""
        self._closed = True
        self._life += 1
        self._stop_alarm()
        for offer in [*self._early, *self.kernel.undelivered()]:
            _hear(offer.ticket, EngineClosed("the engine was closed before this was recorded"))
        self.kernel.memory.dispose()
        self._store.release()

    def _tell_if_settled(self) -> None:
        if self._building or self._committing or self.kernel.ready or self.kernel.memory.wanted or self._to_recover:
            return
        if self._away or (self._asking and not self._closing):
            return
        settled, self._settled = self._settled, []
        for callback in settled:
            callback()
        working = self._receipts or any(running.started for running in self.running.values())
        if self._idle is not None and not working:
            idle, self._idle = self._idle, None
            idle()


def _hear(ticket: object, answer: Answer | Exception) -> None:
    if callable(ticket):
        ticket(answer)
