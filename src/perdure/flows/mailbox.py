"""The mailbox of a flow: messages that were not received yet, and receives that no message has answered.

Both sides are first in, first out, whatever the names. Everything is found by its name at once: the ten
thousandth message costs what the first one does.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from perdure.kernel.effects import Wait
from perdure.kernel.events import Message

if TYPE_CHECKING:
    from .operation import Operation

ANY: Final = ("",)
"""What stands for "any name". No message has an empty name."""


class Mail:
    """A message; `entry` is the number of the entry that brought it, `returns` how often one delivery gave it back."""

    __slots__ = ("completed", "entry", "message", "returns")

    def __init__(self, entry: int, message: Message) -> None:
        self.entry = entry
        self.message = message
        self.completed = False
        self.returns = 0


class Mailbox:
    def __init__(self) -> None:
        self._mail: OrderedDict[int, Mail] = OrderedDict()  # by entry, oldest first
        self._by_name: dict[str, deque[Mail]] = {}
        self._waits: dict[str, OrderedDict[bytes, tuple[int, Operation]]] = {}
        self._asked = 0

    # ---- messages ------------------------------------------------------------------------------------------

    def put(self, mail: Mail) -> None:
        """Keep a message: the newest, or one that was taken and comes back to its place."""
        newest = not self._mail or next(reversed(self._mail)) < mail.entry
        self._mail[mail.entry] = mail
        queue = self._by_name.setdefault(mail.message.name, deque())
        queue.append(mail)
        if not newest:
            self._mail = OrderedDict(sorted(self._mail.items()))
            self._by_name[mail.message.name] = deque(sorted(queue, key=lambda mail: mail.entry))

    def remove(self, mail: Mail) -> bool:
        """Take out this very message, wherever it stands."""
        if self._mail.pop(mail.entry, None) is None:
            return False
        queue = self._by_name[mail.message.name]
        queue.remove(mail)
        if not queue:
            del self._by_name[mail.message.name]
        return True

    def take(self, names: tuple[str, ...]) -> Mail | None:
        """The oldest message with one of these names (no names: any)."""
        if not self._mail:
            return None
        if names:
            heads = [queue[0] for name in names if (queue := self._by_name.get(name))]
            mail = min(heads, key=lambda mail: mail.entry) if heads else None
        else:
            mail = next(iter(self._mail.values()))
        if mail is not None:
            del self._mail[mail.entry]
            queue = self._by_name[mail.message.name]
            queue.popleft()  # the oldest of all is the oldest of its name
            if not queue:
                del self._by_name[mail.message.name]
        return mail

    def kept(self) -> list[Mail]:
        return list(self._mail.values())

    def entries(self) -> list[int]:
        return list(self._mail)

    # ---- receives ------------------------------------------------------------------------------------------

    def wait(self, operation: Operation, wait: Wait) -> None:
        self._asked += 1
        for name in wait.names or ANY:
            self._waits.setdefault(name, OrderedDict())[operation.id] = (self._asked, operation)

    def forget(self, operation: Operation, wait: Wait) -> None:
        for name in wait.names or ANY:
            waits = self._waits.get(name)
            if waits is not None:  # a name may stand twice in one receive
                waits.pop(operation.id, None)
                if not waits:
                    del self._waits[name]

    def waits_as(self, operation: Operation, wait: Wait, id: bytes) -> None:
        """A receive gets another id, and keeps its place."""
        for name in wait.names or ANY:
            waits = self._waits[name]
            renamed = ((id if old == operation.id else old, pair) for old, pair in waits.items())
            self._waits[name] = OrderedDict(list(renamed))

    def waiting_for(self, message: Message) -> Operation | None:
        """The receive that this message is meant for, or the oldest one that takes it."""
        if message.intent:
            for name in (message.name, *ANY):
                if message.intent in self._waits.get(name, ()):
                    return self._waits[name][message.intent][1]
        found = [next(iter(waits.values())) for name in (message.name, *ANY) if (waits := self._waits.get(name))]
        return min(found, key=lambda pair: pair[0])[1] if found else None
