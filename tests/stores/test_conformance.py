"""Both stores keep the contract: the shipped suite, bound to each."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
        connection.execute("UPDATE blobs SET body = flipped(body)")
        if not connection.changes():
            connection.execute("UPDATE journal SET body = flipped(body) WHERE seq = ?", (seq,))
        connection.close()

    def settle(self) -> None:
        pass

    def _write(self, sql: str) -> None:
        connection = apsw.Connection(str(self.path))
        connection.execute(sql)
        connection.close()


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
