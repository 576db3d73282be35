"""What the server costs: `python -m bench.web`. Requests go over a real socket to uvicorn; ratios are of one run.

The floor is a bare Starlette handler on the same uvicorn. See section 10 of the server's specification for the bars.
"""

from __future__ import annotations

import asyncio
import gzip
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import perdure
from perdure.server import Grant, Login, Settings, app
from perdure.server.serve import bind, serve
from perdure.server.static import Static

SECONDS = 1.5


async def one(n: int) -> int:
    return n


@perdure.flow
async def waiting(ctx: perdure.Context, n: int = 0) -> None:
    await ctx.receive("never")


@perdure.flow
async def counting(ctx: perdure.Context, n: int) -> None:
    for each in range(n):
        await ctx.step("count", one, each)


def anyone(scope: Any) -> Login:
    return Login(perdure.Actor("bench"), (Grant("admin"),))


@asynccontextmanager
async def bare() -> Any:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def answer(request: Any) -> Any:
        return JSONResponse({"ok": True})

    listening = bind("127.0.0.1", 0)
    config = uvicorn.Config(Starlette(routes=[Route("/", answer)]), log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    running = asyncio.ensure_future(server.serve(sockets=[listening]))
    yield listening.getsockname()[1]
    server.should_exit = True
    await running


@asynccontextmanager
async def served(engine: Any) -> Any:
    listening, stop = bind("127.0.0.1", 0), asyncio.Event()
    made = app(engine, actor=anyone, settings=Settings(secret="a secret of the bench"))
    made._buckets._rate = made._buckets._burst = 1e12
    running = asyncio.ensure_future(serve(made, listening, stop=stop))
    yield listening.getsockname()[1]
    stop.set()
    await running


class Connection:
    """One kept connection: a request, and its answer."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.close()

    async def ask(self, path: str, body: bytes = b"") -> bytes:
        method = "POST" if body else "GET"
        media = "content-type: application/json"
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{media}\r\n\r\n"
        self._writer.write(head.encode() + body)
        found = await self._reader.readuntil(b"\r\n\r\n")
        length = int(found.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        answer = await self._reader.readexactly(length)
        assert found.split(b" ")[1] in (b"200", b"201"), answer
        return answer


async def rate(port: int, path: Callable[[int], tuple[str, bytes]]) -> tuple[float, float]:
    """Requests a second of one connection, and the median in milliseconds."""
    times: list[float] = []
    async with Connection(port) as connection:
        for n in range(20):
            await connection.ask(*path(-n - 1))
        begin = time.perf_counter()
        while (now := time.perf_counter()) - begin < SECONDS:
            await connection.ask(*path(len(times)))
            times.append(time.perf_counter() - now)
    return len(times) / sum(times), median(times) * 1000


async def filled(engine: Any, number: int) -> None:
    for first in range(0, number, 500):
        keys = range(first, min(first + 500, number))
        await asyncio.gather(*[engine.start(waiting, n, key=f"k-{number}-{n}") for n in keys])


async def main() -> None:
    base = "/api/v1/instances"
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        opened = perdure.open(folder / "web.db", workflows=[waiting, counting], cache=100_000)
        engine = await stack.enter_async_context(opened)
        ground = await stack.enter_async_context(bare())
        port = await stack.enter_async_context(served(engine))
        await filled(engine, 1000)
        floor, floor_ms = await rate(ground, lambda n: ("/", b""))
        print(f"bare Starlette handler: {floor:,.0f}/s, p50 {floor_ms:.2f} ms")
        lists = {"list of 50": f"{base}?limit=50", "by status": f"{base}?limit=50&status=waiting&workflow=waiting"}
        first: dict[str, float] = {}
        for name, path in {**lists, "one instance": f"{base}/waiting/k-1000-7"}.items():
            found, ms = await rate(port, lambda n, path=path: (path, b""))  # type: ignore[misc]
            first[name] = ms
            print(f"{name}: {found:,.0f}/s, {found / floor:.2f} of the floor, p50 {ms:.2f} ms, {ms / floor_ms:.1f} x")
        start = lambda n: (base, b'{"workflow": "waiting", "key": "s%d"}' % n)  # noqa: E731
        found, ms = await rate(port, start)
        print(f"start: {found:,.0f}/s, {found / floor:.2f} of the floor, p50 {ms:.2f} ms")
        await filled(engine, 10_000)
        for name, path in lists.items():
            _, ms = await rate(port, lambda n, path=path: (path, b""))  # type: ignore[misc]
            print(f"{name} among 11,000 against 1,000: {ms / first[name]:.2f} x")
        await (await engine.start(counting, 5000, key="c")).result()
        async with Connection(port) as connection:
            for path in ("history?limit=500", "history?limit=500&after=3000", "at/2500"):
                begin = time.perf_counter()
                await connection.ask(f"{base}/counting/c/-/{path}")
                print(f"5,000 entries, {path}: {(time.perf_counter() - begin) * 1000:.0f} ms")
    files = Static().files
    wanted = [name for name in files if name.endswith((".js", ".css", "index.html")) and "pages/" not in name]
    size = sum(len(gzip.compress(files[name], 9)) for name in [*wanted, "pages/dashboard.js"])
    print(f"first visit: {size / 1000:.0f} kB gzip")


if __name__ == "__main__":
    asyncio.run(main())
