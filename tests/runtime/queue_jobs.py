"""What the fleet tests run: steps of the queue `work` that leave traces in a file, and wait for files to come."""

import asyncio
import os
import time
from pathlib import Path

import perdure
from perdure import Context, OutcomeUnknown


def trace(place: str, word: str) -> None:
    with Path(place).open("a") as file:
        file.write(f"{word} {os.getpid()}\n")


@perdure.step(executor="work", retries=0)
async def double(n: int) -> int:
    return 2 * n


@perdure.step(executor="work")
async def waits(place: str, go: str) -> str:
    trace(place, f"begun:{perdure.step_info().delivery}")
    perdure.progress(1, 2, "waiting")
    try:
        while not Path(go).exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        trace(place, "cut")
        raise
    trace(place, "ended")
    return "done"


@perdure.step(executor="work", once=True, unknown="raise")
def once(place: str) -> str:
    trace(place, "begun:1")
    time.sleep(60)
    return "done"


@perdure.flow
async def doubling(ctx: Context, n: int) -> int:
    return await ctx.step("double", double, n)


@perdure.flow
async def waiting(ctx: Context, place: str, go: str) -> str:
    return await ctx.step("wait", waits, place, go)


@perdure.flow
async def careful(ctx: Context, place: str) -> str:
    try:
        return await ctx.step("pay", once, place)
    except OutcomeUnknown:
        return "unknown"
