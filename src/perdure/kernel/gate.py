"""The gate: the single admission point for effects. A pure function of the effect and of what runs now.

Allow: the intent is opened and published. Hand: it is opened, and a job for workers; it takes no place here. Defer: it
is opened and held until what `release` names has happened, then judged again, oldest first. Deny: it is opened and
answered at once with an error receipt, so the machine hears why.
"""

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from .effects import Call, Effect, is_queued


class Allow(msgspec.Struct, frozen=True):
    pass


class Hand(msgspec.Struct, frozen=True):
    pass


class Defer(msgspec.Struct, frozen=True):
    release: Literal["slot"]
    """`slot`: a running call has ended. Time and persons will join when a feature needs them."""


class Deny(msgspec.Struct, frozen=True):
    reason: str


Verdict = Allow | Hand | Defer | Deny

ALLOW = Allow()
HAND = Hand()
SLOT = Defer("slot")


class Gate(Protocol):
    def judge(self, effect: Effect, running: Mapping[str, int]) -> Verdict:
        """`running`: for each executor, how many calls are open and not held."""
        ...

    def performs(self, executor: str) -> bool:
        """Whether this engine itself has an executor of this name."""
        ...


class Executors:
    """The gate of an engine: calls go to executors that exist, and to each at most so many at once.

    `workers`: other processes serve queues on this database. Then any other name is that of a queue.
    """

    def __init__(self, slots: Mapping[str, int | None], *, workers: bool = False) -> None:
        self._slots = dict(slots)
        self._workers = workers

    def performs(self, executor: str) -> bool:
        return executor in self._slots

    def judge(self, effect: Effect, running: Mapping[str, int]) -> Verdict:
        if type(effect) is not Call:
            return ALLOW
        slots = self._slots.get(effect.executor, 0)
        if slots is None or running.get(effect.executor, 0) < slots:
            return ALLOW
        if effect.executor in self._slots:
            return SLOT
        if self._workers and is_queued(effect):
            return HAND
        known = ", ".join(sorted(self._slots))
        return Deny(f"no executor is named {effect.executor!r} in this engine; there are: {known}")
