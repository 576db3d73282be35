"""What running calls say before their receipts: progress, and values that are events.

Frames of a call are numbered from 1. What is missing is counted, and what does not belong is dropped and counted: see
`counts` of a shard.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.codec import encode
from perdure.kernel.effects import attempt_of
from perdure.kernel.events import Streamed
from perdure.kernel.mailbox import Offer
from perdure.ports.frame import Frame

from .calls import Calls, RunningCall
from .core import Core
from .log import log

TOLD_MAX: Final = 10_000
"""Calls with workers that are kept in mind because they said something, also after their end: a frame may be late."""


class WorkerCall(msgspec.Struct, eq=False):
    """What is known of a call that is with a worker: only what it says."""

    instance: int
    claim: int  # which claim of the job
    progress: Frame | None = None
    frames: int = 0
    ended: bool = False


class Frames:
    def __init__(self, core: Core, calls: Calls) -> None:
        self._core = core
        self._calls = calls
        self._told: dict[bytes, WorkerCall] = {}  # by jobs that are with workers

    def framed(self, intent: bytes, frame: Frame) -> None:
        """A call says something before its receipt. After that, or after a stop, it is dropped.

        A frame that is an event is kept like a receipt, until it is durable.
        """
        counts = self._core.counts
        running = self._calls.running.get(intent)
        if running is None:
            counts["frames_unknown"] += 1
            return
        effect = running.effect
        if (frame.location, frame.attempt) != (effect.location, effect.attempt) or frame.instance != str(
            running.address
        ):
            counts["frames_mismatched"] += 1
            return
        if self._hear(running, frame) and frame.number and effect.frames and not self._core.closed:
            ticket = intent + frame.number.to_bytes(8, "big")
            event = Streamed(intent, frame.number, encode(frame.chunk))
            self._calls.keep(ticket, Offer(running.instance, event, ticket))

    def framed_by_worker(self, instance: int, intent: bytes, claim: int, frame: Frame) -> None:
        """The same of a worker's call. While its instance sleeps, what it was asked for is the worker's word."""
        counts = self._core.counts
        told = self._told.get(intent)
        awake = self._core.kernel.instances().get(instance)
        open = None if awake is None else awake.open.get(intent)
        if (told is not None and told.ended) or (awake is not None and open is None):
            counts["frames_unknown"] += 1
            return
        if awake is not None and open is not None:
            asked = str(awake.address), open.effect.location, attempt_of(open.effect)
            if (frame.instance, frame.location, frame.attempt) != asked:
                counts["frames_mismatched"] += 1
                return
        if told is None or told.claim < claim:
            if len(self._told) >= TOLD_MAX:
                del self._told[next(iter(self._told))]
            told = self._told[intent] = WorkerCall(instance, claim)
        elif told.claim > claim:  # its claim is lost: the job is with another one
            counts["frames_mismatched"] += 1
            return
        self._hear(told, frame)

    def _hear(self, call: RunningCall | WorkerCall, frame: Frame) -> bool:
        """Tell who listens. False: the frame was heard before."""
        counts = self._core.counts
        if frame.ordinal <= call.frames:
            counts["frames_repeated"] += 1
            return False
        counts["frames_heard"] += 1
        if frame.ordinal > call.frames + 1:
            counts["frames_missing"] += frame.ordinal - call.frames - 1
        call.frames = frame.ordinal
        if frame.kind == "progress":
            call.progress = frame
        try:
            self._core.listener.framed(call.instance, frame)
        except Exception:  # it would be raised in the step, which has no part in it
            log.exception("a listener failed at a frame of %s at %s", frame.instance, frame.location)
        return True

    def ended(self, jobs: Iterable[bytes]) -> None:
        """Jobs of workers are closed: what still comes of them is late."""
        if self._told:
            for intent in jobs:
                told = self._told.get(intent)
                if told is not None:
                    told.ended, told.progress = True, None

    def progress(self, instance: int) -> list[Frame]:
        """The newest progress of each call of an instance that is running."""
        calls: list[RunningCall | WorkerCall] = [*self._calls.running.values(), *self._told.values()]
        return [each.progress for each in calls if each.instance == instance and each.progress is not None]
