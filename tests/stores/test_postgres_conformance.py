"""The PostgreSQL store keeps the contract: the shipped suite, bound to it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from perdure.testing.stores import Harness, StoreConformance
from tests.postgres import Server
from tests.stores.postgres_harness import PostgresHarness


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def harness(self, postgres_server: Server) -> Iterator[Harness]:
        with postgres_server.schema(shards=1) as url:
            harness = PostgresHarness(url)
            yield harness
            harness.close()

    @contextmanager
    def fresh(self, harness: Harness) -> Iterator[Harness]:
        """Emptied tables are as good as new ones, and quicker."""
        assert isinstance(harness, PostgresHarness)
        harness.empty()
        yield harness
