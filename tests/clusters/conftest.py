"""A scheduler of Dask for each test, and a PostgreSQL database beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.processes import Cluster


@pytest.fixture
def cluster(postgres: str, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.started(postgres, tmp_path) as cluster:
        yield cluster
