"""A web application with an engine inside: one per process, opened and closed with it. Needs fastapi and httpx.

Prints:
    202 {'id': 'order/o-17'}
    202 {'id': 'order/o-17'}
    200 {'status': 'waiting', 'result': None}
    202 taken
    200 {'status': 'completed', 'result': 'o-17 is paid'}
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

import perdure


@perdure.flow
async def order(ctx: perdure.Context, number: str) -> str:
    await ctx.receive("paid", timeout=7 * 86400)
    return f"{number} is paid"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with perdure.open(":memory:", workflows=[order]) as app.state.engine:  # a file, or postgresql://...
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}", status_code=202)
async def begin(number: str) -> dict[str, str]:
    return {"id": (await app.state.engine.start(order, number, key=number)).id}  # posted twice: one order


@app.post("/paid/{id:path}", status_code=202)
async def paid(id: str, payment: str) -> str:
    await app.state.engine.handle(id).send("paid", id=payment)  # posted twice: taken once
    return "taken"


@app.get("/instances/{id:path}")
async def show(id: str) -> dict[str, Any]:
    handle = app.state.engine.handle(id)
    status = await handle.status()
    return {"status": status, "result": await handle.result() if status == "completed" else None}


async def visitor() -> None:  # what a browser would ask; in life a server such as uvicorn runs `app`
    async with lifespan(app), httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as web:
        look = "GET", "/instances/order/o-17"
        new = "POST", "/orders/o-17"
        for method, path in (new, new, look, ("POST", "/paid/order/o-17?payment=p-1"), look):
            answer = await web.request(method, path)
            print(answer.status_code, answer.json())


if __name__ == "__main__":
    asyncio.run(visitor())
