"""Who hears of a shard: a caller hears the answer to its event, a listener hears everything that has become durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from perdure.kernel.batch import InboxRow
from perdure.kernel.decision import Outcome, Stuck
from perdure.kernel.events import Address
from perdure.kernel.mailbox import Answer
from perdure.kernel.problem import Report
from perdure.ports.frame import Frame

Heard = Callable[[Answer | Exception], None]
"""How a caller hears: the kernel's answer once it is durable, or why there is none."""


def tell(ticket: object, answer: Answer | Exception) -> None:
    """Tell the caller of an offer, if it has one: the ticket of an offer without a caller cannot be called."""
    if callable(ticket):
        ticket(answer)


class Listener(Protocol):
    """Who hears of what has become durable: the connection for callers of this process, or a simulation."""

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
