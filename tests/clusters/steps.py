"""What the cluster tests run: steps of the queue `work` that leave traces in a file."""

import asyncio
import time
from pathlib import Path

import perdure
from perdure import Context, StepTimeout


@perdure.step(executor="work", retries=20, backoff=perdure.Backoff(base=0.01, max=0.1))
def mark(place: str, n: int) -> int:
    info = perdure.step_info()
    with Path(place).open("a") as file:
        file.write(f"{n} {info.attempt} {info.delivery}\n")
    time.sleep(0.002)
    return n


@perdure.step(executor="work", resources={"GPU": 1, "CITY": 0})
def where() -> str:
    from distributed import get_worker

    return str(get_worker().name)


@perdure.step(executor="work", timeout=0.5, retries=0)
async def endless(place: str) -> None:
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        Path(place).write_text("cut")  # noqa: ASYNC240
        raise


@perdure.flow
async def impatient(ctx: Context, place: str) -> str:
    try:
        await ctx.step("endless", endless, place)
    except StepTimeout:
        return "too long"
    return "never"


@perdure.flow
async def fan_out(ctx: Context, place: str, count: int) -> int:
    return sum(await ctx.map("all", lambda n: ctx.step("mark", mark, place, n), range(count)))


@perdure.flow
async def placed(ctx: Context) -> str:
    return await ctx.step("where", where)
