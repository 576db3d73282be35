"""A server that these tests have for themselves, because they cut its connections and restart it."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.processes import EngineProcess
from tests.postgres import OwnServer, own_server

StartEngine = Callable[..., EngineProcess]


@pytest.fixture(scope="session")
def own() -> OwnServer:
    return own_server(Path(tempfile.gettempdir()) / f"perdure-fleet-{os.getpid()}")


@pytest.fixture
def url(own: OwnServer) -> Iterator[str]:
    with own.schema() as url:
        yield url


@pytest.fixture
def engine(url: str, tmp_path: Path) -> Iterator[StartEngine]:
    """Starts engine processes. What still runs at the end is killed, and what they said is shown if the test failed."""
    started: list[EngineProcess] = []

    def start(through: str = url) -> EngineProcess:
        started.append(EngineProcess(through, tmp_path / f"engine{len(started)}.log"))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        print(f"---- engine {process.pid}\n{process.words}")
