"""What the fleets of these tests run. Every execution of a step leaves a line in a ledger, with its idempotency key."""

import asyncio
import os
import signal
from pathlib import Path
from typing import NamedTuple

import perdure

QUEUE = "errands"

RETRIES = 50
"""A death uses up a delivery of whatever it meets alone, and there are many deaths here."""


class Line(NamedTuple):
    """One execution of a step."""

    key: str
    instance: str
    step: str
    pid: int


def ledger_of(path: Path) -> list[Line]:
    if not path.exists():
        return []
    rows = (line.split() for line in path.read_text().splitlines())
    return [Line(key, instance, step, int(pid)) for key, instance, step, pid in rows]


def note(ledger: str) -> None:
    """One `write` to a file opened for appending is atomic."""
    about = perdure.step_info()
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{about.idempotency_key} {about.instance} {about.name} {os.getpid()}\n".encode())
    finally:
        os.close(file)


async def work(ledger: str, seconds: float, value: int) -> int:
    note(ledger)
    await asyncio.sleep(seconds)
    return value


async def wait_for(ledger: str, gate: str) -> None:
    """Ends when somebody makes a file of this name."""
    note(ledger)
    while not is_there(gate):  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.02)


def is_there(path: str) -> bool:
    return os.path.exists(path)


def stop_once(marker: str) -> None:
    if not is_there(marker):
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGSTOP)


@perdure.flow
async def walk(ctx: perdure.Context, ledger: str, steps: int, seconds: float = 0.0) -> int:
    total = 0
    for number in range(steps):
        total += await ctx.step.options(retries=RETRIES)(f"work{number}", work, ledger, seconds, number)
    return total


@perdure.flow
async def gated(ctx: perdure.Context, ledger: str, gate: str) -> str:
    await ctx.step.options(retries=RETRIES)("before", work, ledger, 0.0, 0)
    await ctx.step.options(retries=RETRIES)("gate", wait_for, ledger, gate)
    await ctx.step.options(retries=RETRIES)("after", work, ledger, 0.0, 0)
    return "through"


@perdure.flow
async def collect(ctx: perdure.Context, ledger: str) -> list[int]:
    """What was sent to it, in the order of its arrival, until somebody says that this is all."""
    found: list[int] = []
    while (message := await ctx.receive("item", "end")).name == "item":
        found.append(message.body)
        await ctx.step.options(retries=RETRIES)(f"item{len(found)}", work, ledger, 0.0, 0)
    return found


@perdure.flow
async def family(ctx: perdure.Context, ledger: str, steps: int, seconds: float) -> int:
    """Children by other names, which live on other shards, and a timer."""
    total: int = await ctx.child(walk, ledger, steps, seconds, key=f"{ctx.key}-older")
    await ctx.sleep("rest", seconds)
    total += await ctx.child(walk, ledger, steps, seconds, key=f"{ctx.key}-younger")
    total += await ctx.step.options(retries=RETRIES)("own", work, ledger, seconds, 1)
    return total


@perdure.flow
async def faint(ctx: perdure.Context, ledger: str, marker: str) -> str:
    """Stops its own process, once, just before what it decides next is written. No honest flow does this."""
    await ctx.step.options(retries=RETRIES)("before", work, ledger, 0.0, 0)
    stop_once(marker)
    await ctx.step.options(retries=RETRIES)("after", work, ledger, 0.0, 0)
    return "awake"


@perdure.step(executor=QUEUE, retries=RETRIES)
async def run(ledger: str, value: int) -> int:
    return await work(ledger, 0.01, value)


@perdure.flow
async def errands(ctx: perdure.Context, ledger: str, count: int) -> int:
    """Steps that workers perform."""
    total = 0
    for number in range(count):
        total += await ctx.step(f"errand{number}", run, ledger, number)
    return total


FLOWS = [walk, gated, collect, family, faint, errands]
