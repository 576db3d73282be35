"""What the parts of a shard share: its kernel, its batches, and in which state of its life it is.

A life begins when memory is loaded, and ends when memory is dropped. Callbacks of an earlier life are void: a part that
asks the store or the clock keeps the number of the life, and compares it when the answer comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from perdure.kernel.batch import Batch
from perdure.kernel.kernel import Kernel
from perdure.kernel.mailbox import Offer
from perdure.ports.clock import Clock
from perdure.ports.store import Store

from .listener import Listener


class Core:
    """`crash` drops memory and begins again from what is durable. The loop sets `turn`."""

    def __init__(
        self, store: Store, clock: Clock, listener: Listener, kernel: Kernel, crash: Callable[[Exception], None]
    ) -> None:
        self.store = store
        self.clock = clock
        self.listener = listener
        self.kernel = kernel
        self.crash = crash
        self.turn: Callable[[], None]
        self.counts: Counter[str] = Counter()
        self.life = 0
        self.away = True  # memory is not there: not yet, or not any more
        self.closing = False
        self.closed = False
        self.building = Batch()
        self.committing: Batch | None = None
        self.durable_seq = 0
        self.early: list[Offer] = []  # came while memory was being loaded again
        self.settled: list[Callable[[], None]] = []  # wait until everything that is known by now is recorded
        self.idle: Callable[[], None] | None = None  # waits until all calls have ended, too
        self.scheduled = False
        self.failures = 0  # crashes since the last commit

    def schedule(self) -> None:
        """Ask for a turn."""
        if not self.scheduled:
            self.scheduled = True
            self.clock.call_soon(self.turn)

    def offer(self, offer: Offer) -> None:
        """Give an event to the kernel."""
        self.kernel.offer(offer)
        self.schedule()

    def is_over(self, life: int) -> bool:
        """Whether what was asked in a life is void."""
        return life != self.life or self.closed

    def take_early(self) -> list[Offer]:
        early, self.early = self.early, []
        return early

    def not_durable(self) -> int:
        """Entries that the store does not know yet."""
        return sum(len(batch.journal) for batch in (self.building, self.committing) if batch is not None)
