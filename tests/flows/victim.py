"""The process that `test_kill.py` kills."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import perdure
from perdure import Break, Context, Continue

MESSAGES = 150


def note(path: str, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


async def keep(ledger: str, number: int) -> int:
    note(ledger, f"{number} {perdure.step_info().idempotency_key}")
    await asyncio.sleep(0.002)
    return number


@perdure.flow
async def collect(ctx: Context, ledger: str) -> list[int]:
    async def body(ctx: Context, found: list[int]) -> Continue[list[int]] | Break[list[int]]:
        message = await ctx.receive("n")
        found.append(await ctx.step("keep", keep, ledger, message.body))
        await asyncio.sleep(0.001)
        return Break(found) if len(found) == MESSAGES else Continue(found)

    return await ctx.loop("loop", body, [], keep=2, prune_every=3)


async def kill(ledger: str) -> None:
    info = perdure.step_info()
    note(ledger, f"{info.attempt} {info.delivery}")
    os.kill(os.getpid(), signal.SIGKILL)


@perdure.flow
async def killer(ctx: Context, ledger: str) -> str:
    try:
        await ctx.step.options(retries=2)("kill", kill, ledger)
    except perdure.OutcomeUnknown:
        return "exhausted"
    return "survived"


async def main(url: str, ledger: str, workflow: Any) -> None:
    async with perdure.open(url, workflows=[workflow]) as engine:
        handle = await engine.start(workflow, ledger, key="k")
        print("ready", flush=True)
        if workflow is collect:
            for number in range(MESSAGES):
                await send(handle, number)
        await handle.result()


async def send(handle: perdure.Handle[Any], number: int) -> None:
    with suppress(perdure.InstanceEnded):
        await handle.send("n", number, id=str(number))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], killer if sys.argv[3:] else collect))
