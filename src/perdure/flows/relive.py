"""Living again: what a machine keeps in mind while it is told another past, and after.

A retry needs to know what failed; `at` and `failed_at` are about that. `Lives` is about work that is done anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from perdure.errors import JoinFailed, OperationFailed, RaceFailed, RollBack
from perdure.kernel.decision import Decision, Send
from perdure.kernel.effects import Effect, attempt_of
from perdure.kernel.events import Address
from perdure.kernel.past import Item
from perdure.kernel.receipt import Receipt

if TYPE_CHECKING:
    from .operation import Operation

Place = tuple[str, int]
"""A location and an attempt."""

E = TypeVar("E", OperationFailed, RollBack)


def at(location: str, error: E) -> E:
    """The error of an operation, which remembers where that stands."""
    error.location = location
    return error


def failed_at(error: BaseException | None) -> set[str]:
    """The locations whose failure made a flow fail: what a retry does again."""
    match error:
        case None:
            return set()
        case JoinFailed(errors=errors) | RaceFailed(errors=errors):
            return set().union(*map(failed_at, errors.values()))
        case BaseExceptionGroup(exceptions=errors):
            return set().union(*map(failed_at, errors))
        case (OperationFailed() | RollBack()) as failed if failed.location:
            return {failed.location}
        case _:  # an error of the author's own: what it came from
            return failed_at(error.__cause__ or error.__context__)


class Lives:
    """Since which rewind the work at a location is other work than before: it has another idempotency key then."""

    def __init__(self) -> None:
        self._all = 0
        self._some: dict[str, int] = {}

    def of(self, location: str) -> int:
        return self._some.get(location, self._all)

    def renew(self, locations: tuple[str, ...] | None, life: int) -> None:
        """None: everything."""
        if locations is None:
            self._all = life
            self._some.clear()
        else:
            self._some.update(dict.fromkeys(locations, life))


class Anew:
    """What a flow says while its past is decided anew, and had not said then: that is said with the rewind.

    A fork has published nothing yet, so it publishes what there was before it, too.
    """

    def __init__(self, past: tuple[Item, ...], fork: bool) -> None:
        self.noted: list[str] = []
        self.sent: list[Send] = []
        self.published: dict[str, bytes] = {}
        self.tags: dict[str, str | None] = {}
        self.responded: list[tuple[str, bytes]] = []
        self._sent_then = Counter(
            [_content(send) for item in past if item.way != "same" for send in item.decision.send]
        )
        self._fork = fork

    def decided(self, item: Item, decision: Decision) -> None:
        again = item.way == "again"
        if again or self._fork:
            self.published.update(decision.publish)
            self.tags.update(decision.tags)
        if again:
            self.noted += decision.noted
            self.responded += decision.respond
        self.sent += self.not_sent(decision.send) if again else ()

    def not_sent(self, sends: Iterable[Send]) -> list[Send]:
        """Those among them that were not sent then. Each that was sent counts once."""
        fresh = []
        for send in sends:
            if self._sent_then[_content(send)]:
                self._sent_then[_content(send)] -= 1
            else:
                fresh.append(send)
        return fresh


def _content(send: Send) -> tuple[Address, str, bytes]:
    return send.to, send.name, send.body


class Reliving:
    """What is open by its place, and answers that came before the operation that they belong to was opened again."""

    def __init__(self) -> None:
        self.late: dict[Place, Item] = {}
        self._open: dict[Place, tuple[Operation, int]] = {}

    def opened(self, operation: Operation, at: int) -> None:
        self._open[_place(operation.effect)] = operation, at

    def at(self, item: Item) -> Operation | None:
        """The last operation that was opened where an item answers one."""
        found = self._open.get((item.location, item.attempt))
        return None if found is None else found[0]

    def opened_at(self, effect: Effect) -> int | None:
        found = self._open.get(_place(effect))
        return None if found is None else found[1]

    def answer(self, effect: Effect) -> Receipt | None:
        """What was answered long ago."""
        item = self.late.pop(_place(effect), None)
        return None if item is None else item.event.receipt  # type: ignore[union-attr]


def _place(effect: Effect) -> Place:
    return effect.location, attempt_of(effect)
