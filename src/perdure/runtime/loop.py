"""THE loop. One shard: one journal, one writer, one total order.

    turn          build a batch from what was offered           (kernel: pure)
    _commit       make it durable, or this shard starts over    (store)
    _publish      only now may the world see it                 (executors, timers)
    _acknowledge  only now does a caller hear that it happened

While a batch is being committed the next one is built. Nothing here awaits: the loop is a few callbacks, so that
production and simulation run the very same code, and so that flows are driven from plain callbacks (newer Pythons
refuse nested tasks).

Around it: events come in by `admission.py` and `inbox.py`, instances by `loading.py`; calls run in `calls.py` and speak
in `frames.py`; `shard.py` opens all this, loads it again after a crash, and closes it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from perdure.errors import EngineClosed
from perdure.kernel.batch import Batch
from perdure.kernel.kernel import full

from . import collector
from .calls import Calls
from .core import Core
from .frames import Frames
from .inbox import Inbox
from .listener import tell
from .loading import Loading
from .log import log
from .meter import Meter

LIGHT_WAIT: Final = 50_000_000
"""How long the results of ephemeral calls may wait for something that is worth a commit."""


class Loop:
    """`cache` and `memory` are how many instances, and bytes of their states, may stay in memory after a commit."""

    def __init__(
        self,
        core: Core,
        calls: Calls,
        frames: Frames,
        loading: Loading,
        inbox: Inbox,
        *,
        enclosure: AbstractContextManager[None],
        cache: int,
        memory: int,
        meter: Meter,
    ) -> None:
        self._core = core
        self._calls = calls
        self._frames = frames
        self._loading = loading
        self._inbox = inbox
        self._enclosure = enclosure
        self._cache = cache
        self._memory = memory
        self._meter = meter
        self._asked = 0  # when the commit that is under way was asked for
        self._hurry = False  # what waits has waited long enough
        self.missing: Callable[[], None] | None = None
        """Called when the inbox has events that this engine has no workflow for."""
        core.turn = self.turn

    def turn(self) -> None:
        core = self._core
        core.scheduled = False
        if core.closed or core.away:
            return
        with collector.Paused():
            try:
                with self._enclosure:
                    self._build()
            except Exception as error:  # how far it came is unknown: what is in memory is worth nothing
                core.crash(error)
                raise
            except KeyboardInterrupt:
                core.crash(EngineClosed("Ctrl-C interrupted the engine; this was not recorded"))
                raise
            if core.building.early:
                self._calls.begin_early(core.building)
            if core.committing is None:
                if not core.building:  # what was refused leaves nothing to commit
                    core.kernel.cache.evict(self._cache, core.durable_seq, core.building)
                if core.building and not self._may_wait():
                    self._commit()
        if core.settled or core.idle is not None:
            self.tell_if_at_rest()

    def _build(self) -> None:
        """Advance the kernel, loading what it wants, until no instance is ready or the batch is full."""
        core, loading = self._core, self._loading
        kernel = core.kernel
        while True:
            if kernel.cache.wanted or loading.to_recover:
                loading.load_wanted()
            if loading.recovering:
                return  # what ran before must be counted before the gate admits anything new
            if loading.to_recover:
                continue
            if not kernel.ready or full(core.building):
                return
            kernel.advance(core.building, core.clock.now())
            if kernel.left and self.missing is not None:
                self.missing()

    def _commit(self) -> None:
        core = self._core
        batch, core.building = core.building, Batch()
        self._hurry = False
        core.kernel.close(batch)
        if batch.inbox_added:
            self._inbox.hold(batch.inbox_added)
        core.committing = batch
        if batch.writes:
            life = core.life
            self._asked = self._meter.now()
            core.store.commit(batch, lambda error: self._committed(life, error))
        else:
            self._committed(core.life, None)  # answers only, and nothing before them is undecided

    def _committed(self, life: int, error: Exception | None) -> None:
        core = self._core
        if core.is_over(life):
            return
        batch = core.committing
        assert batch is not None
        if error is not None:
            core.crash(error)
            return
        core.committing = None
        core.failures = 0
        if batch.journal:
            core.durable_seq = batch.journal[-1].seq
        if batch.writes:
            core.counts["commits"] += 1
            self._meter.committed(self._meter.now() - self._asked, filter(None, batch.jobs_closed.values()))
        core.counts["entries"] += len(batch.journal)
        kernel = core.kernel
        with collector.Paused():
            self._publish(batch)
            self._acknowledge(batch)
            if batch.journal:
                core.listener.committed(core.durable_seq)
            if batch.done_with:
                kernel.committed(batch)
            kernel.cache.evict(self._cache, core.durable_seq, core.building)
            kernel.cache.relieve(self._memory, core.durable_seq, core.building)
        # A step that waits for nothing has its receipt when the loop comes to the turn behind it.
        if batch.publications or kernel.ready or kernel.cache.wanted or core.building or self._loading.to_recover:
            core.schedule()
        if core.settled or core.idle is not None:
            self.tell_if_at_rest()

    def _publish(self, batch: Batch) -> None:
        for intent in batch.stops:
            self._calls.stop(intent)
        for publication in batch.publications.values():
            self._calls.start(publication)
        if batch.jobs_closed:
            self._frames.ended(batch.jobs_closed)
        if batch.inbox_removed or batch.work_opened or batch.work_closed:
            self._inbox.committed(batch)

    def _acknowledge(self, batch: Batch) -> None:
        listener = self._core.listener
        if batch.outbox:
            listener.posted(batch.outbox)
        for intent in batch.receipts:
            self._calls.receipts.pop(intent, None)
        for asker, request, value in batch.heard:
            self._calls.hear(asker, request, value)
        for ticket, answer in batch.answers:
            tell(ticket, answer)
        for id, name in batch.published:
            listener.published(id, name)
        for id, address, outcome in batch.ended:
            listener.ended(id, address, outcome)
        for id, address, stuck in batch.stuck:
            listener.stuck(id, address, stuck)
        for report in batch.reports:
            listener.failed(report)
        for audit in batch.audits:
            log.warning("%s", audit)

    # ---- light batches, and rest ---------------------------------------------------------------------------------

    def _may_wait(self) -> bool:
        """A batch of light entries alone waits for what comes next, a short while."""
        core = self._core
        batch = core.building
        if batch.light == 0 or batch.light < len(batch.journal) or batch.answers or core.closing or self._hurry:
            return False
        life = core.life
        core.clock.call_at(core.clock.now() + LIGHT_WAIT, lambda: self._wait_no_longer(life, batch))
        return True

    def _wait_no_longer(self, life: int, batch: Batch) -> None:
        if life == self._core.life and batch is self._core.building:
            self._hurry = True
            self._core.schedule()

    def tell_if_at_rest(self) -> None:
        """Tell who waits until everything is recorded, and who waits until no call runs either."""
        core = self._core
        if core.building or core.committing or core.kernel.ready or core.kernel.cache.wanted:
            return
        if self._loading.to_recover or core.away or (self._inbox.asking and not core.closing):
            return
        settled, core.settled = core.settled, []
        for callback in settled:
            callback()
        if core.idle is not None and not self._calls.working:
            idle, core.idle = core.idle, None
            idle()
