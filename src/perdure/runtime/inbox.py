"""What is due in a shard: the inbox first, then the timers, so that a message wins over a deadline after it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.errors import PerdureError
from perdure.kernel.batch import Batch, InboxRow, WorkRow
from perdure.kernel.mailbox import Offer
from perdure.kernel.rows import fired, offer_of
from perdure.ports.clock import Alarm

from .admission import Admission
from .core import Core
from .log import log
from .timers import Timers

POLL: Final = 25_000_000
"""How often the inbox is looked at where no hint tells of new rows. A look costs microseconds if nothing did."""

INBOX_AT_ONCE: Final = 1000

AHEAD_MAX: Final = 60_000_000_000
"""So far the journal's time may be ahead of the clock, in nanoseconds, before people are told."""

TIMERS_WAITING_MAX: Final = 10_000
"""While so many instances are being loaded, timers wait in their rows: after a long pause a million may be due."""


class Inbox:
    def __init__(self, core: Core, admission: Admission, poll: int) -> None:
        self.asking = False  # what the inbox and the timers have
        self.alarm: Alarm | None = None
        self._core = core
        self._admission = admission
        self._poll = poll
        self._timers = Timers()
        self._held: set[bytes] = set()
        self._gone: set[bytes] = set()  # recorded since the store was asked: its answer may still have them
        self._alarm_at = 0
        self._look_again = False
        self._more = False  # more rows than one look takes
        self._told_ahead = False

    def begin(self) -> None:
        """A new life: nothing of the inbox is in memory."""
        self._timers = Timers()
        self._held = set()
        self._gone = set()
        self.asking = False

    # ---- the alarm -----------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Set the alarm for whatever comes first: a timer, or the next look into the inbox."""
        core = self._core
        when = core.clock.now() + self._poll
        if len(core.kernel.cache.wanted) < TIMERS_WAITING_MAX and not self._more:
            when = min(when, self._timers.next())
        if self.alarm is None or when < self._alarm_at:
            self.stop_alarm()
            self._alarm_at = when
            life = core.life
            self.alarm = core.clock.call_at(when, lambda: self._look(life))

    def stop_alarm(self) -> None:
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None

    # ---- a look --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Look into the inbox now: there is a hint that something came."""
        self._look(self._core.life)

    def _look(self, life: int) -> None:
        self.alarm = None
        core = self._core
        if life != core.life or core.away or core.closed or core.closing:
            return
        if self.asking:
            self._look_again = True
            return
        self.asking = True
        self._gone.clear()
        now, limit = core.clock.now(), INBOX_AT_ONCE + len(self._held)
        core.store.inbox(limit, lambda rows: self._found_inbox(life, now, limit, rows))

    def _found_inbox(self, life: int, now: int, limit: int, rows: list[InboxRow] | Exception) -> None:
        """First the inbox, then the timers: a message that came before a deadline wins over the deadline.

        `now` is when the inbox was asked: what was posted since is not among the rows, so no later timer fires. While
        the inbox has more rows than were asked for, only those timers fire that were due before the last row.
        """
        core = self._core
        if core.is_over(life):
            return
        if isinstance(rows, Exception):
            core.crash(rows)
            return
        for row in rows:
            if row.id not in self._held and row.id not in self._gone:
                self._held.add(row.id)
                try:
                    offer = offer_of(row)
                except (msgspec.ValidationError, PerdureError) as error:  # of a client with other code, say
                    log.error("an event in the inbox cannot be read and is left alone: %s", error)
                    continue
                self._admission.admit(offer, own=1)
        self._tell_if_ahead(now)
        self._more = len(rows) >= limit
        if self._more:
            now = min(now, rows[-1].at)
        if len(core.kernel.cache.wanted) >= TIMERS_WAITING_MAX:
            self._looked()
        elif self._timers.exhausted(now):
            core.store.due(*self._timers.window(now), lambda found: self._found_timers(life, now, found))
        else:
            self._fire(now)

    def _found_timers(self, life: int, now: int, rows: list[WorkRow] | Exception) -> None:
        if self._core.is_over(life):
            return
        if isinstance(rows, Exception):
            self._core.crash(rows)
            return
        self._timers.fill(now, rows)
        self._fire(now)

    def _fire(self, now: int) -> None:
        for row in self._timers.due(now):
            self._core.offer(Offer(row.instance, fired(row)))
        self._looked()

    def _looked(self) -> None:
        core = self._core
        self.asking = False
        if self._look_again:
            self._look_again = False
            core.clock.call_soon(self.look)
        self.watch()
        if core.settled or core.idle is not None:
            core.schedule()

    def _tell_if_ahead(self, now: int) -> None:
        ahead = self._core.kernel.at - now
        if ahead > AHEAD_MAX and not self._told_ahead:
            log.warning(
                "the journal is %.0f s ahead of the clock: an engine wrote to it while its clock was ahead, or this "
                "clock is behind. New timers go by the clock; the journal's time stands still until it is reached",
                ahead / 1e9,
            )
        self._told_ahead = ahead > AHEAD_MAX

    # ---- what a commit changes -----------------------------------------------------------------------------------

    def read_again(self, ids: Iterable[bytes]) -> None:
        """The next look offers these rows again."""
        self._held.difference_update(ids)

    def hold(self, rows: Iterable[bytes]) -> None:
        """The kernel has these rows in memory: a look may find them in the table before we hear of the commit."""
        self._held.update(rows)

    def committed(self, batch: Batch) -> None:
        if batch.inbox_removed:
            self._held.difference_update(batch.inbox_removed)
            if self.asking:
                self._gone.update(batch.inbox_removed)
        if batch.work_opened or batch.work_closed:
            self._timers.closed(batch.work_closed)
            self._timers.opened(batch.work_opened.values())
            self.watch()
