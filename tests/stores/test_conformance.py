"""Both stores keep the contract: the shipped suite, bound to each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import pytest

from perdure.stores.sqlite import SqliteStore
from perdure.testing.stores import Harness, MemoryHarness, StoreConformance, flipped


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def harness(self) -> Harness:
        return MemoryHarness()

    @contextmanager
    def fresh(self, harness: Harness) -> Iterator[Harness]:
        yield MemoryHarness()


class SqliteHarness:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "test.db"

    def open(self) -> SqliteStore:
        return SqliteStore(self.path)

    def usurp(self) -> None:
        self._write("UPDATE shards SET epoch = epoch + 1, owner = 'usurper'")

    def damage(self, seq: int) -> None:
        connection = apsw.Connection(str(self.path))
        connection.create_scalar_function("flipped", flipped_value)
        connection.execute("UPDATE large_bodies SET body = flipped(body)")
        if not connection.changes():
            connection.execute("UPDATE journal SET body = flipped(body) WHERE seq = ?", (seq,))
        connection.close()

    def damage_blob(self, digest: bytes) -> None:
        connection = apsw.Connection(str(self.path))
        connection.create_scalar_function("flipped", flipped_value)
        connection.execute("UPDATE blobs SET body = flipped(body) WHERE digest = ?", (digest,))
        connection.close()

    def settle(self) -> None:
        pass

    def _write(self, sql: str) -> None:
        connection = apsw.Connection(str(self.path))
        connection.execute(sql)
        connection.close()


class LoopHarness(SqliteHarness):
    """As an engine has it: the disk is waited for in a thread when it is slow, and the loop hears of it."""

    def __init__(self, directory: Path, slow: bool) -> None:
        super().__init__(directory)
        self._slow = slow
        self._calls: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = SimpleQueue()
        self._stores: list[SqliteStore] = []

    def open(self) -> SqliteStore:
        store = SqliteStore(
            self.path, call_soon_threadsafe=lambda callback, *arguments: self._calls.put((callback, arguments))
        )
        store._pace.slow = self._slow
        self._stores.append(store)
        return store

    def settle(self) -> None:
        while any(store._committing for store in self._stores):
            callback, arguments = self._calls.get(timeout=30)
            callback(*arguments)


def flipped_value(*values: Any) -> bytes:
    (body,) = values
    return flipped(body)


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return SqliteHarness(tmp_path)

    @contextmanager
    def fresh(self, harness: Harness) -> Iterator[Harness]:
        with TemporaryDirectory() as directory:
            yield SqliteHarness(Path(directory))


@pytest.mark.parametrize("slow", [False, True], ids=["quick disk", "slow disk"])
class TestSqliteStoreOfALoop(StoreConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path, slow: bool) -> Harness:
        return LoopHarness(tmp_path, slow)

    @contextmanager
    def fresh(self, harness: Harness) -> Iterator[Harness]:
        assert isinstance(harness, LoopHarness)
        with TemporaryDirectory() as directory:
            yield LoopHarness(Path(directory), harness._slow)
