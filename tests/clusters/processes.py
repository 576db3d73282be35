"""A Dask cluster of real processes that tests start, pause and kill: a scheduler, workers with a nanny or without one,
and dispatchers. What each prints goes to a file.
"""

import asyncio
import os
import random
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from tests.fleet.processes import Process, until

QUIET = {
    "DASK_LOGGING__DISTRIBUTED": "warning",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s",
}


class Cluster:
    """`with Cluster.started(url, tmp_path) as cluster:` gives a scheduler and nothing else yet."""

    def __init__(self, url: str, place: Path) -> None:
        self.url = url
        self._place = place
        self._processes: list[Process] = []
        self._port = free_port()
        self.address = f"tcp://127.0.0.1:{self._port}"
        self.scheduler = self.start_scheduler()

    @classmethod
    @contextmanager
    def started(cls, url: str, place: Path) -> Iterator["Cluster"]:
        cluster = cls(url, place)
        try:
            yield cluster
        finally:
            for process in cluster._processes:
                for pid in [*children(process.pid), process.pid]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.kill()
                print(f"---- {process.said.name}\n{process.words}")

    def start_scheduler(self) -> Process:
        options = "--host", "127.0.0.1", "--port", str(self._port), "--no-dashboard"
        self.scheduler = self._start("distributed.cli.dask_scheduler", *options)
        return self.scheduler

    def worker(self, *options: str, nanny: bool = False, address: str = "") -> Process:
        """One process with one thread, or a nanny that has one."""
        more = "--nthreads", "1", "--no-dashboard", "--memory-limit", "0", "--nanny" if nanny else "--no-nanny"
        where = "--host", "127.0.0.1", "--local-directory", str(self._place / f"dask{len(self._processes)}")
        arguments = address or self.address, *where, *more, *options
        return self._start("distributed.cli.dask_worker", *arguments)

    def dispatcher(self, *options: str, queue: str = "work", address: str = "") -> Process:
        arguments = "dispatch", queue, "--dask", address or self.address, "--db", self.url, *options
        return self._start("perdure.cli", *arguments)

    def _start(self, *arguments: str) -> Process:
        os.environ.update(QUIET)
        name = arguments[0].rpartition("_")[2].replace("perdure.cli", "dispatcher")
        process = Process(self._place / f"{name}{len(self._processes)}.log", *arguments)
        self._processes.append(process)
        return process


def free_port() -> int:
    """Below those that the system gives to connections: one of these could take it before the scheduler does."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


def children(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *children(child)]
    return found


async def nannied(nanny: Process) -> int:
    """The process of the worker that a nanny has."""
    found: list[int] = []

    def there() -> bool:
        found[:] = [pid for pid in children(nanny.pid) if b"spawn_main" in command_of(pid)]
        return bool(found)

    await until(there)
    return found[-1]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Wire:
    """A network between processes and a scheduler: it is cut, and it stands still, on request."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.removeprefix("tcp://").partition(":")
        self._port = int(port)
        self._links: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """All connections break, and no other is made until `mend`."""
        self._refusing = True
        for writer in self._links:
            writer.transport.abort()

    def stand_still(self) -> None:
        """Nothing passes until `mend`, and nothing breaks."""
        self._flowing.clear()

    def mend(self) -> None:
        self._refusing = False
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            other = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._links |= {writer, other[1]}
        await asyncio.gather(self._pass(reader, other[1]), self._pass(other[0], writer))
        self._links -= {writer, other[1]}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
