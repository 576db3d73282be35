"""What a simulated world keeps its rows on. The auditor and the tests see the rows as a `MemoryDatabase`."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from perdure.kernel.batch import InboxRow
from perdure.ports.store import Posted, Queries, Store
from perdure.runtime.virtual_clock import Life
from perdure.stores.memory import MemoryDatabase, MemoryStore

T = TypeVar("T")


class Disk:
    """Memory, which every world has that is given nothing else. It outlives the processes of its world."""

    def __init__(self) -> None:
        self.rows = MemoryDatabase()

    def connect(self, life: Life) -> Store:
        """A new process begins. The process that had the lease loses it when this one acquires it."""
        return MemoryStore(self.rows)

    def post(self, row: InboxRow, *, start: bytes | None = None, reuse: str = "") -> Posted:
        """What a client writes into the inbox table."""
        return at_once(MemoryStore(self.rows).post(row, start=start, reuse=reuse))

    @contextmanager
    def queries(self) -> Iterator[Queries]:
        """What a client has that writes past the engine: blobs, and world snapshots."""
        yield MemoryStore(self.rows)

    def close(self) -> None:
        """The world is over."""


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing: the memory store's queries."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise RuntimeError("the memory store waited for something")
