"""What all tests share: an `async def` test is run on a loop of its own, no example is held to a time, files are in
memory, and there is a PostgreSQL for those that want one.
"""

import asyncio
import gc
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.stages import LONG

if TYPE_CHECKING:
    from perdure.testing.disks import Disk
    from tests.postgres import Server
    from tests.postgres_disk import PostgresDisk

# The same examples in every run: chance decides no verdict. `make test-long` tries others each time, and twice as many.
settings.register_profile("perdure", deadline=None, derandomize=not LONG, max_examples=100 if LONG else 50)
settings.load_profile("perdure")


MEMORY, ROOM_BYTES = "/dev/shm", 4 << 30


def pytest_configure() -> None:
    """Temporary files wait for no disk, where there is room in memory: no test cuts the power. TMPDIR has the say."""
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY
    gc.set_threshold(5_000, *gc.get_threshold()[1:])  # syntax trees and tests make few cycles and very many objects


def pytest_collection_finish() -> None:
    """From here on no bytecode is kept: a module that a test writes twice in a second would stay the first one.

    And the garbage collector no longer looks at what is there: nine thousand tests and all that they import.
    """
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(scope="session")
def postgres_server() -> "Server":
    from tests.postgres import server

    return server()


@pytest.fixture
def postgres(postgres_server: "Server") -> Iterator[str]:
    """The URL of an empty perdure database on PostgreSQL, with 16 shards."""
    with postgres_server.schema() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_disk(postgres_server: "Server") -> Iterator["PostgresDisk"]:
    """PostgreSQL for simulated worlds."""
    from tests.postgres_disk import PostgresDisk

    with postgres_server.schema(shards=1) as url:
        disk = PostgresDisk(url)
        yield disk
        disk.close()


@pytest.fixture
def new_disk(request: pytest.FixtureRequest) -> "Callable[[], AbstractContextManager[Disk]]":
    """An empty disk for a simulated world: see `everywhere` in tests/disks.py."""
    from tests.disks import sqlite_disk

    if request.param == "sqlite":
        return sqlite_disk
    disk: PostgresDisk = request.getfixturevalue("postgres_disk")
    return disk.emptied
