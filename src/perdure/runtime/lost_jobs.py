"""Jobs whose workers were lost: each is delivered again, or its outcome is unknown."""

from __future__ import annotations

from typing import Final

from perdure.kernel.events import Redelivered
from perdure.kernel.mailbox import Answer, Offer

from .core import Core
from .listener import Heard

LOST_POLL: Final = 1_000_000_000
"""How often is looked for workers that were lost."""

LOST_AT_ONCE: Final = 500


class LostJobs:
    def __init__(self, core: Core) -> None:
        self._core = core

    def look(self, life: int) -> None:
        core = self._core
        if not core.is_over(life) and not core.closing:
            core.store.lost(LOST_AT_ONCE, lambda lost: self._found(life, lost))

    def _found(self, life: int, lost: list[tuple[int, bytes]] | Exception) -> None:
        """None counts twice: the next look waits until all of these are decided."""
        core = self._core
        if core.is_over(life):
            return
        if isinstance(lost, Exception):
            core.crash(lost)
            return
        undecided = {intent for _, intent in lost}

        def heard(intent: bytes) -> Heard:
            def hear(answer: Answer | Exception) -> None:
                undecided.discard(intent)
                if not undecided:
                    self._look_later(life)

            return hear

        for instance, intent in lost:
            core.counts["jobs_lost"] += 1
            core.offer(Offer(instance, Redelivered(intent), heard(intent)))
        if not lost:
            self._look_later(life)

    def _look_later(self, life: int) -> None:
        clock = self._core.clock
        clock.call_at(clock.now() + LOST_POLL, lambda: self.look(life))
