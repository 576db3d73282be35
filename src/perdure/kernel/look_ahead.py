"""Look-ahead over recorded entries during replay."""

from __future__ import annotations

from collections.abc import Container, Iterable

from .entry import Entry
from .events import Event, ReceiptArrived
from .moment import Moment


class LookAhead:
    """Recorded deliveries, in order. `entry` is the one that was taken last."""

    __slots__ = ("_ahead", "_left", "_seed", "entry")

    entry: Entry

    def __init__(self, seed: bytes, deliveries: Iterable[tuple[Entry, Event]], *, ahead: bool = True) -> None:
        self._seed = seed
        self._ahead = self if ahead else None  # what machines may ask for the next receipt
        self._left = list(deliveries)
        self._left.reverse()

    def take(self) -> tuple[Event, Moment] | None:
        """The next delivery, with what was decided then; None: that was the last."""
        if not self._left:
            return None
        self.entry, event = self._left.pop()
        return event, self._moment()

    def answer(self, location: str, others: Container[bytes]) -> tuple[ReceiptArrived, Moment] | None:
        """The next delivery, if it is the receipt of a call that was just asked for at a location.

        Only if that call is all that is recorded of the last delivery. `others` are the intents that are open besides:
        a receipt that is of none of them is of this call. Anything else stays where it is.
        """
        if not self.entry.plain or self.entry.decision.open[0].location != location or not self._left:
            return None
        entry, event = self._left[-1]
        if type(event) is not ReceiptArrived or event.intent in others:
            return None
        self._left.pop()
        self.entry = entry
        return event, self._moment()

    def _moment(self) -> Moment:
        entry = self.entry
        return Moment(entry.clock, self._seed, entry.number, entry.decision, self._ahead, entry.seq, entry.at)
