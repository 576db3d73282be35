"""An engine with purchases, for a test that kills it: `python -m tests.processes.till DATABASE CALLS COUNT`.

Every call is a line of the file CALLS, written and synced before it is answered.
"""

import asyncio
import os
import sys
from typing import Any

import perdure
from perdure.processes import (
    Activate,
    Call,
    Complete,
    Parallel,
    Process,
    Receive,
    Request,
    Task,
    result,
    service,
    start,
    transport,
)

CALLS = ""


@transport("shop")
async def shop(request: Request) -> Any:
    line = f"{request.instance} {request.command} {request.idempotency_key}\n"
    with open(CALLS, "a", encoding="utf-8") as file:  # noqa: ASYNC230  # a line, before the answer
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    return f"{request.command}-{request.instance}"


purchase = Process(
    "till",
    version="1.0.0",
    tasks=[Task("approve", roles=["manager"])],
    steps=[
        Parallel("checks", {name: [Call(name, service("shop", name), result=name)] for name in ("budget", "stock")}),
        Activate("approve"),
        Call("order", service("shop", "order"), {"n": start.n}, result="order"),
        Receive("delivery", "delivered"),
        Complete([result.budget, result.stock, result.order]),
    ],
)


async def main(database: str, calls: str, count: int) -> None:
    global CALLS  # noqa: PLW0603  # the transport is a plain function
    CALLS = calls
    ann = perdure.Actor("ann", ["manager"])
    async with perdure.open(database, workflows=[purchase], handlers=[shop]) as engine:
        handles = [await engine.start(purchase, n=number, key=str(number)) for number in range(count)]
        print("started", flush=True)
        done: set[str] = set()
        while len(done) < count:
            for task in await engine.tasks.list(limit=1000):
                await engine.tasks.complete(task.id, None, by=ann)
            for handle in handles:
                await handle.send("delivered", id="d") if handle.key not in done else None
                if (await handle.summary()).ended_at is not None:
                    done.add(handle.key)
        print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
