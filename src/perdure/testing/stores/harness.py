"""What the suite is bound to: one database, empty at first, and what is asked of it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import pytest

from perdure.kernel.batch import Batch, InboxRow, WorkflowRow, WorkRow
from perdure.kernel.events import Address, Ref
from perdure.kernel.rows import Loaded
from perdure.ports.store import BEGINNING, Census, Filter, Lease, Place, Position, Queries, Store
from perdure.stores.memory import MemoryDatabase, MemoryStore

T = TypeVar("T")

BIG = 64 * 1024
"""Bodies beyond this size may be kept apart from their rows. Readers must not notice."""


class FullStore(Store, Queries, Protocol):
    """Both faces of a store."""


class Harness(Protocol):
    """One database, empty at first."""

    def open(self) -> FullStore:
        """A new connection to the same data."""
        ...

    def usurp(self) -> None:
        """Another engine takes over behind the back of the one that holds the lease: a new epoch."""
        ...

    def damage(self, seq: int) -> None:
        """Flip one bit in the stored body of a journal entry."""
        ...

    def damage_blob(self, digest: bytes) -> None:
        """Flip one bit in the stored body of a blob."""
        ...

    def settle(self) -> None:
        """Return when every callback that is due has been called."""
        ...


class MemoryHarness:
    def __init__(self) -> None:
        self.database = MemoryDatabase()

    def open(self) -> MemoryStore:
        return MemoryStore(self.database)

    def usurp(self) -> None:
        MemoryStore(self.database).acquire("usurper", lambda lease: None)

    def damage(self, seq: int) -> None:
        database = self.database
        place = next(n for n, row in enumerate(database.journal) if row.seq == seq)
        row = database.journal[place]
        broken = row._replace(body=flipped(row.body))
        database.journal[place] = broken
        history = database.histories[row.instance]
        history[history.index(row)] = broken

    def damage_blob(self, digest: bytes) -> None:
        at, body = self.database.blobs[digest]
        self.database.blobs[digest] = (at, flipped(body))

    def settle(self) -> None:
        pass


def flipped(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]


class Waiting:
    """A store whose answers are waited for: what a shard asks by callbacks, a test asks in one line."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._store = harness.open()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def acquire(self, owner: str) -> Lease:
        return self._answer(self._store.acquire, owner)  # type: ignore[no-any-return]

    def position(self) -> Position:
        return self._answer(self._store.position)  # type: ignore[no-any-return]

    def register(self, workflows: Sequence[WorkflowRow]) -> None:
        self._answer(self._store.register, workflows)

    def census(self) -> Census:
        return self._answer(self._store.census)  # type: ignore[no-any-return]

    def due(self, before: int, limit: int, after: Place = BEGINNING) -> list[WorkRow]:
        return self._answer(self._store.due, before, limit, after)  # type: ignore[no-any-return]

    def inbox(self, limit: int) -> list[InboxRow]:
        return self._answer(self._store.inbox, limit)  # type: ignore[no-any-return]

    def _answer(self, question: Callable[..., None], *args: Any) -> Any:
        answers: list[Any] = []
        question(*args, answers.append)
        self._harness.settle()
        assert len(answers) == 1, "a question is answered exactly once"
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]


class OneStore:
    """What every part of the suite stands on: a harness, and a store of it that has the lease."""

    @pytest.fixture
    def harness(self) -> Harness:
        raise NotImplementedError("derive a class and give it a harness")

    @contextmanager
    def fresh(self, harness: Harness) -> Iterator[Harness]:
        """Another empty database of the same kind, for tests that need many; override this too."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, harness: Harness) -> Iterator[Waiting]:
        store = Waiting(harness)
        store.acquire("first")
        store.register([WorkflowRow("puppet", "1", b"")])
        yield store
        store.close()


def ask(question: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(question)


def load(harness: Harness, store: Store | Waiting, refs: list[Ref]) -> dict[Ref, Loaded | None]:
    found: dict[Ref, Loaded | None] = {}

    def done(ref: Ref, record: Loaded | Exception | None) -> None:
        assert not isinstance(record, Exception), record
        found[ref] = record

    store.load(refs, done)
    harness.settle()
    assert found.keys() == set(refs), "`done` is called once for each reference"
    return found


def commit(harness: Harness, store: Store | Waiting, batch: Batch) -> Exception | None:
    answers: list[Exception | None] = []
    store.commit(batch, answers.append)
    harness.settle()
    assert len(answers) == 1, "`done` is called exactly once"
    return answers[0]


def everything(harness: Harness, store: Waiting) -> dict[str, object]:
    """All that readers can see, comparable between stores."""
    heads = ask(store.heads(Filter(limit=1000)))
    refs: list[Ref] = [row.id for row in heads]
    refs += [Address(row.workflow, row.key) for row in heads]
    position = store.position()
    return {
        "position": position,
        "journal": ask(store.journal(0, 10_000)),
        "heads": heads,
        "counts": ask(store.counts()),
        "tagged": [ask(store.heads(Filter(tags={"a": value}))) for value in "12"],
        "records": load(harness, store, refs),
        "histories": [ask(store.history(row.id)) for row in heads],
        "due": store.due(2**62, 10_000),
        "inbox": store.inbox(10_000),
        "published": [ask(store.published(row.id, "value")) for row in heads],
        "workflows": ask(store.workflows()),
    }
