"""What workloads of the server share: a server in a process of its own, and a client that costs little.

    python -m bench.served bare             # a Starlette handler, for comparison
    python -m bench.served perdure FILE     # an engine with its server

Both are served by uvicorn with the settings of `perdure serve`, and obey lines on their input: see `orders`. The limits
of actors are lifted: one client asks for many.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

import perdure
from bench.measure import resident, verify

API: Final = "/api/v1"
INSTANCES: Final = f"{API}/instances"
FLOWS: Final = 1_000
STEPS: Final = 5


async def one(n: int) -> int:
    return n


@perdure.flow
async def waiting(ctx: perdure.Context, n: int = 0) -> None:
    await ctx.receive("never")


@perdure.flow
async def counting(ctx: perdure.Context, n: int) -> None:
    for each in range(n):
        await ctx.step("count", one, each)


@perdure.flow
async def spreading(ctx: perdure.Context, n: int) -> None:
    """Steps side by side: they share commits."""
    for first in range(0, n, 500):
        await asyncio.gather(*[ctx.step("count", one, each) for each in range(first, min(first + 500, n))])


# ---- in the process of the server ------------------------------------------------------------------------------------


async def bare() -> None:
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def answer(request: Any) -> Any:
        return JSONResponse({"ok": True})

    async with _uvicorn(Starlette(routes=[Route("/", answer)])) as port:
        tell({"port": port})
        await orders({})


@asynccontextmanager
async def _uvicorn(app: Any) -> AsyncIterator[int]:
    import uvicorn

    from perdure.server.serve import bind

    listening = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    running = asyncio.ensure_future(server.serve(sockets=[listening]))
    yield listening.getsockname()[1]
    server.should_exit = True
    await running


async def own(file: str) -> None:
    from perdure.server import Settings, app, limits
    from perdure.server.serve import bind, serve

    async with (
        perdure.open(file, workflows=[waiting, counting, spreading], cache=100_000) as engine,
        AsyncExitStack() as stack,
    ):
        asked, servers = [0], []
        _count_questions(engine.queries, asked)

        @asynccontextmanager
        async def served() -> AsyncIterator[dict[str, Any]]:
            listening, stop = bind("127.0.0.1", 0), asyncio.Event()
            made = app(engine, settings=Settings(secret="a secret of the bench", hosts=("127.0.0.1",)))
            made._buckets._rate = made._buckets._burst = limits.STREAMS_MAX = 10**9  # type: ignore[misc]
            running = asyncio.ensure_future(serve(made, listening, stop=stop))
            servers.append(made)
            yield {"port": listening.getsockname()[1], "token": made.accesses.own_link("bench")}
            stop.set()
            await running

        async def open_server() -> Any:
            return await stack.enter_async_context(served())

        async def close_server() -> None:
            await stack.aclose()

        async def link() -> str:
            return f"/login#{servers[-1].accesses.own_link('bench')}"

        async def fill(count: int) -> None:
            for first in range(0, count, 500):
                keys = range(first, min(first + 500, count))
                await asyncio.gather(*[engine.start(waiting, n, key=f"k-{n}") for n in keys])

        async def spread(n: int) -> None:
            await (await engine.start(spreading, n, key=f"c-{n}")).result()

        async def work(name: str) -> float:
            """Seconds that many flows take."""
            began = time.perf_counter()
            handles = await asyncio.gather(*[engine.start(counting, STEPS, key=f"{name}-{n}") for n in range(FLOWS)])
            await asyncio.gather(*[handle.result() for handle in handles])
            return time.perf_counter() - began

        async def questions() -> int:
            return asked[0]

        await orders({each.__name__: each for each in (open_server, close_server, link, fill, spread, work, questions)})


def _count_questions(queries: Any, asked: list[int]) -> None:
    """How often the database is read: each question of this class is one method."""
    for name in [name for name in dir(type(queries)) if not name.startswith("_") and name not in ("close", "change")]:
        method = getattr(queries, name)
        if asyncio.iscoroutinefunction(method):

            def counted(*args: Any, _method: Any = method, **kwargs: Any) -> Any:
                asked[0] += 1
                return _method(*args, **kwargs)

            setattr(queries, name, counted)


async def orders(known: dict[str, Callable[..., Awaitable[Any]]]) -> None:
    """Obey lines of JSON, `[NAME, ARGUMENT...]`, until the input ends; each is answered by a line."""
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        name, *arguments = json.loads(line)
        tell(await known[name](*arguments))


def tell(value: Any) -> None:
    print(json.dumps(value), flush=True)


# ---- in the process of the workload ----------------------------------------------------------------------------------


class Served:
    """A process with a server. `order` lets it do something and gives its answer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self.port = 0
        self.head = ""

    async def answer(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        verify(bool(line), "the server of the bench has ended")
        return json.loads(line)

    async def order(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        return await self.answer()

    async def open(self) -> None:
        """Open the server of an engine, and log in with an API key as programs do."""
        found = await self.order("open_server")
        self.port, self.head = found["port"], ""
        async with Connection(self) as connection:
            origin = f"origin: http://127.0.0.1:{self.port}\r\nx-perdure: 1\r\n"
            self.head = origin
            head, _ = await connection.exchange("POST", "/login", json.dumps({"token": found["token"]}).encode())
            cookie = head.lower().split(b"set-cookie: ")[1].split(b";")[0]
            cookie = head[head.lower().index(cookie) :][: len(cookie)]
            self.head = f"{origin}cookie: {cookie.decode()}\r\n"
            said = {"actor": "bench", "grants": [{"role": "admin"}]}
            _, made = await connection.exchange("POST", f"{API}/access/keys", json.dumps(said).encode())
        self.head = f"authorization: Bearer {json.loads(made)['key']}\r\n"


@asynccontextmanager
async def running(*words: str) -> AsyncIterator[Served]:
    allow_files()  # the process inherits it
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.served", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    found = Served(process)
    try:
        yield found
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


class Connection:
    """One kept connection: a request, and its answer."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def __aenter__(self) -> Connection:
        self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._served.port, limit=2**24)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.close()

    async def begin(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request; the head of its answer."""
        about = f"content-length: {len(body)}\r\ncontent-type: application/json\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self._served.port}\r\n{self._served.head}{about}\r\n"
        self._writer.write(head.encode() + body)
        found = await self.reader.readuntil(b"\r\n\r\n")
        verify(found.split(b" ")[1] in (b"200", b"201"), f"{method} {path}: {found[:400].decode()}")
        return found

    async def exchange(self, method: str, path: str, body: bytes = b"") -> tuple[bytes, bytes]:
        found = await self.begin(method, path, body)
        length = int(found.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return found, await self.reader.readexactly(length)

    async def ask(self, path: str, body: bytes = b"") -> bytes:
        return (await self.exchange("POST" if body else "GET", path, body))[1]


class Watcher:
    """A stream of one channel. `heard` has when each instance was told."""

    def __init__(self, served: Served, channel: str) -> None:
        self._connection, self._channel = Connection(served), channel
        self.heard: dict[str, list[float]] = {}
        self.live = asyncio.Event()
        self._task = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        async with self._connection as connection:
            await connection.begin("GET", f"{API}/stream?channels={self._channel}")
            while line := await connection.reader.readline():
                if line.startswith(b"event: live"):
                    self.live.set()
                elif line.startswith(b'data: {"id":'):
                    key = line[13 : line.index(b'"', 13)].decode()
                    self.heard.setdefault(key, []).append(time.perf_counter())

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@asynccontextmanager
async def watchers(served: Served, count: int, channel: str) -> AsyncIterator[list[Watcher]]:
    """So many, opened a hundred at a time."""
    found: list[Watcher] = []
    for first in range(0, count, 100):
        found += [Watcher(served, channel) for _ in range(first, min(first + 100, count))]
        await asyncio.gather(*[each.live.wait() for each in found[first:]])
    yield found
    await asyncio.gather(*[each.close() for each in found])


def allow_files() -> None:
    """As many open files as this process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def resident_of(served: Served) -> float:
    return resident(Path(f"/proc/{served.pid}/status").read_text())["rss"]


Asked = Callable[[int], tuple[str, bytes]]
"""The path and the body of the n-th request."""


async def rate(served: Served, asked: Asked, seconds: float, connections: int) -> tuple[float, float]:
    """Requests a second over so many connections, and the median of their times in seconds."""
    times: list[float] = []
    numbers = iter(range(10**9))

    async def ask(until: float) -> None:
        async with Connection(served) as connection:
            while (began := time.perf_counter()) < until:
                await connection.ask(*asked(next(numbers)))
                times.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*[ask(began + seconds) for _ in range(connections)])
    return len(times) / (time.perf_counter() - began), median(times)


if __name__ == "__main__":
    asyncio.run(bare() if sys.argv[1] == "bare" else own(str(Path(sys.argv[2]))))
