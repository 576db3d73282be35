"""Faults: what may go wrong, how often, and the store on which it does.

`FaultyStore` stands between a shard and its database. It decides from the world's dice what becomes of
each commit: the process dies before, inside or after it, the write happens and an error is reported,
nothing happens and an error is reported, or the answer comes late, while the shard builds the next batch.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from perdure.errors import Fenced, StoreFailed
from perdure.kernel.batch import Batch, InboxRow, WorkflowRow, WorkRow
from perdure.kernel.events import Ref
from perdure.kernel.rows import Loaded
from perdure.ports.frame import FramedByWorker
from perdure.ports.shards import Figures
from perdure.ports.store import Census, Lease, Place, Position, Store
from perdure.runtime.virtual_clock import Life, VirtualClock

MILLISECOND = 1_000_000


class Faults(msgspec.Struct):
    """Chances (0 to 1) of what may go wrong. All zero: a calm world."""

    crash_before: float = 0.0  # of each commit: the process dies and nothing was written
    crash_after: float = 0.0  # of each commit: it was written, and no caller heard
    crash_inside: float = 0.0  # of each commit: the process dies while the answer is under way
    false_error: float = 0.0  # of each commit: it was written and reported as failed
    true_error: float = 0.0  # of each commit: it was not written and reported as failed
    read_error: float = 0.0  # of each look at the inbox or the timers
    late_commit: float = 0.0  # of each commit: the answer comes later
    late_load: float = 0.0  # of each load: the answers come later
    late_read: float = 0.0  # of every other read: the answer comes later
    commits: dict[int, str] = {}  # what befalls certain commits, counted from 1: one of FATES, or TAKE_OVER
    executions: frozenset[int] = frozenset()  # after which side effects, counted from 1, the process dies
    kill: float = 0.0  # of each moment of mischief: the process dies, whatever it does
    zombie: float = 0.0  # ... a second owner comes while the first goes on
    restart: float = 0.0  # ... the process is stopped in good order and started again
    jump: float = 0.0  # ... the wall clock jumps
    duplicate: float = 0.0  # of each receipt and each message: it comes twice
    remote: float = 0.0  # of each receipt and each message: it comes through the inbox table
    delay: float = 0.0  # of each receipt and each message: it comes late, so that others overtake it
    lost: float = 0.0  # of each execution: the process dies right after the side effect
    cache: int = 4096  # instances kept in memory; 0: evicted after every entry
    away: bool = False  # no load is answered before the commit that is under way: what it caused waits in the inbox
    snapshots: bool = False  # snapshots after every few entries instead of every few kilobytes

    def off(self) -> None:
        """The faults stop; from now on everything must come to its end."""
        for name in CHANCES:
            setattr(self, name, 0.0)
        self.commits, self.executions = {}, frozenset()


CHANCES = tuple(
    name for name in Faults.__struct_fields__ if name not in ("commits", "executions", "cache", "away", "snapshots")
)
TAKE_OVER = "take_over"  # right before the commit another process takes the lease; the old owner writes all the same
FATES = ("crash_before", "crash_after", "crash_inside", "false_error", "true_error", "late_commit")


class SimulatedProcess(NamedTuple):
    """What a process's store and executors have of their world. `crash` ends the process."""

    process: int
    clock: VirtualClock
    life: Life
    dice: random.Random
    faults: Faults
    counts: Counter[str]
    crash: Callable[[str], None]
    tell: Callable[[str], None]


class Watcher(Protocol):
    """Who is told what a store does. The auditor."""

    def wrote(self, process: int, epoch: int, batch: Batch) -> None: ...

    def refused(self, process: int, error: Exception) -> None: ...


class FaultyStore:
    """One connection of one process. Nothing here calls back after the process has crashed. `rival`: the next owner
    comes while this one lives."""

    def __init__(self, inner: Store, around: SimulatedProcess, watcher: Watcher, rival: Callable[[], None]) -> None:
        self._inner = inner
        self._rival = rival
        self._watcher = watcher
        self._process, self._clock, self._life, self._dice, self._faults, self._counts, self._crash, self._tell = around
        self._epoch = 0

    # ---- commits ---------------------------------------------------------------------------------------

    def commit(self, batch: Batch, done: Callable[[Exception | None], None]) -> None:
        self._counts["commits"] += 1
        fate = self._fate()
        if fate == "true_error":
            self._counts["commits refused by the disk"] += 1
            self._tell(f"the commit of {_entries(batch)} fails")
            self._later(done, StoreFailed("the disk is full; nothing was written"))
        elif fate == "crash_before":
            self._counts["crashes before a commit"] += 1
            self._crash(f"before the commit of {_entries(batch)}")
        elif fate == "late_commit":
            self._counts["late commits"] += 1
            delay = self._dice.randrange(1, 60) * MILLISECOND
            if self._dice.random() < 0.5:
                self._write(batch, lambda error: self._after(delay, lambda: done(error)))
            else:
                self._after(delay, lambda: self._write(batch, done))
        elif fate == TAKE_OVER:
            self._counts["take-overs before a commit"] += 1
            self._tell(f"has lost its lease, and does not know it, before the commit of {_entries(batch)}")
            self._rival()
            self._write(batch, done)
        else:
            self._write(batch, lambda error: self._written(fate, batch, error, done))

    def _fate(self) -> str:
        faults = self._faults
        planned = faults.commits.get(self._counts["commits"])
        if planned is not None:
            return planned
        roll = self._dice.random()
        for name in FATES:
            chance: float = getattr(faults, name)
            if roll < chance:
                return name
            roll -= chance
        return ""

    def _write(self, batch: Batch, done: Callable[[Exception | None], None]) -> None:
        def heard(error: Exception | None) -> None:
            if error is None:
                self._counts["entries"] += len(batch.journal)
                self._tell(f"commits {_entries(batch)}")
                self._watcher.wrote(self._process, self._epoch, batch)
            elif isinstance(error, Fenced):
                self._counts["zombie writes refused"] += 1
                self._tell(f"is fenced: {_entries(batch)} refused")
            else:
                self._watcher.refused(self._process, error)
            done(error)

        self._inner.commit(batch, heard)

    def _written(
        self, fate: str, batch: Batch, error: Exception | None, done: Callable[[Exception | None], None]
    ) -> None:
        if error is not None or not fate:
            done(error)
        elif fate == "crash_after":
            self._counts["crashes after a commit"] += 1
            self._crash(f"after the commit of {_entries(batch)}")
        elif fate == "crash_inside":
            self._counts["crashes inside a commit"] += 1
            self._after(self._dice.randrange(1, 20) * MILLISECOND, lambda: self._crash("inside a commit"))
        else:
            assert fate == "false_error"
            self._counts["commits written but reported failed"] += 1
            self._tell("is told that the commit failed, which is not true")
            self._later(done, StoreFailed("the connection was lost at COMMIT"))

    def _later(self, done: Callable[[Exception | None], None], error: Exception) -> None:
        if self._dice.random() < 0.5:
            done(error)
        else:
            self._after(self._dice.randrange(1, 10) * MILLISECOND, lambda: done(error))

    def _after(self, delay: int, callback: Callable[[], None]) -> None:
        self._clock.after(delay, callback, self._life)

    # ---- everything else -------------------------------------------------------------------------------

    def acquire(self, owner: str, done: Callable[[Lease | Exception], None]) -> None:
        def heard(lease: Lease | Exception) -> None:
            if isinstance(lease, Lease):
                self._epoch = lease.epoch
            done(lease)

        self._inner.acquire(owner, heard)

    def release(self) -> None:
        self._inner.release()

    def position(self, done: Callable[[Position | Exception], None]) -> None:
        self._inner.position(self._perhaps_late(done))

    def register(self, workflows: Sequence[WorkflowRow], done: Callable[[Exception | None], None]) -> None:
        self._inner.register(workflows, done)

    def load(self, refs: Sequence[Ref], done: Callable[[Ref, Loaded | Exception | None], None]) -> None:
        for ref in refs:
            if self._faults.late_load and self._dice.random() < self._faults.late_load:
                self._counts["late loads"] += 1
                self._load_late(ref, done)
            elif self._faults.away:
                self._inner.load([ref], lambda ref, record: self._after(0, lambda: done(ref, record)))
            else:
                self._inner.load([ref], done)

    def _load_late(self, ref: Ref, done: Callable[[Ref, Loaded | Exception | None], None]) -> None:
        """The database answers with what it knew when it was asked."""
        self._inner.load(
            [ref],
            lambda ref, record: self._after(self._dice.randrange(1, 40) * MILLISECOND, lambda: done(ref, record)),
        )

    def census(self, done: Callable[[Census | Exception], None]) -> None:
        if not self._unreadable(done):
            self._inner.census(self._perhaps_late(done))

    def due(self, before: int, limit: int, after: Place, done: Callable[[list[WorkRow] | Exception], None]) -> None:
        if not self._unreadable(done):
            self._inner.due(before, limit, after, self._perhaps_late(done))

    def inbox(self, limit: int, done: Callable[[list[InboxRow] | Exception], None]) -> None:
        if not self._unreadable(done):
            self._inner.inbox(limit, self._perhaps_late(done))

    def _unreadable(self, done: Callable[[Any], None]) -> bool:
        if self._faults.read_error and self._dice.random() < self._faults.read_error:
            self._counts["reads failed"] += 1
            done(StoreFailed("the database cannot be read"))
            return True
        return False

    def _perhaps_late(self, done: Callable[[Any], None]) -> Callable[[Any], None]:
        """What was true when it was asked, told later."""
        if not self._faults.late_read or self._dice.random() >= self._faults.late_read:
            return done
        self._counts["late reads"] += 1
        delay = self._dice.randrange(1, 40) * MILLISECOND
        return lambda found: self._after(delay, lambda: done(found))

    @property
    def workers(self) -> bool:
        return self._inner.workers

    def lost(self, limit: int, done: Callable[[list[tuple[int, bytes]] | Exception], None]) -> None:
        if not self._unreadable(done):
            self._inner.lost(limit, self._perhaps_late(done))

    def listen(self, framed: FramedByWorker) -> None:
        self._inner.listen(framed)

    def measure(self, figures: Callable[[], Figures]) -> None:
        self._inner.measure(figures)

    def close(self) -> None:
        self._inner.close()


def _entries(batch: Batch) -> str:
    seqs = [row.seq for row in batch.journal]
    if not seqs:
        return f"a batch of {len(batch.inbox_added)} added, {len(batch.inbox_removed)} removed inbox rows"
    return f"entry {seqs[0]}" if len(seqs) == 1 else f"entries {seqs[0]} to {seqs[-1]}"
