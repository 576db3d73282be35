"""Steps that workers of the queue `far` perform in processes of their own. They leave traces and wait for files."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import perdure


@perdure.step
async def price(sku: str, count: int) -> dict[str, object]:
    return {"sku": sku, "sum": 3 * count, "pid": os.getpid()}


@perdure.step
async def wait(place: str, go: str) -> str:
    with Path(place).open("a") as file:  # noqa: ASYNC230
        file.write(f"{perdure.step_info().idempotency_key}\n")
    while not Path(go).exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.01)
    return "done"


@perdure.step
async def refuse() -> None:
    raise ValueError("no such part")


@perdure.step
async def thread() -> int:
    return threading.get_ident()


@perdure.step
async def kill(ledger: str) -> None:
    with Path(ledger).open("a") as file:  # noqa: ASYNC230
        file.write(f"{perdure.step_info().idempotency_key}\n")
    os.kill(os.getpid(), signal.SIGKILL)
