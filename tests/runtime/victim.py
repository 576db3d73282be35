"""The process that `test_kill.py` kills: it keeps fifty flows running."""

import asyncio
import itertools
import os
import sys

import perdure

STEPS = 40
RUNNING = 50


async def work(ledger: str, key: str, number: int) -> int:
    """Leaves a line for each execution; one `write` to a file opened for appending is atomic."""
    info = perdure.step_info()
    append(ledger, f"{key} {number} {info.delivery} {info.idempotency_key}\n")
    await asyncio.sleep(0.02)
    return number


def append(path: str, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@perdure.flow
async def walk(ctx: perdure.Context, ledger: str) -> int:
    total = 0
    for number in range(STEPS):
        # A kill from outside uses up an attempt of whatever it meets alone. A hundred within a minute want a few more.
        total += await ctx.step.options(retries=20)("work", work, ledger, ctx.key, number)
    return total


async def murder(ledger: str) -> None:
    append(ledger, "murder\n")
    os._exit(9)


@perdure.flow
async def killer(ctx: perdure.Context, ledger: str) -> str:
    try:
        await ctx.step.options(retries=3)("murder", murder, ledger)
    except perdure.OutcomeUnknown:
        return "given up"
    return "not reached"


async def company(url: str, ledger: str) -> None:
    """One flow whose step kills the process each time, and twenty that do nothing wrong."""
    async with perdure.open(url, workflows=[walk, killer]) as engine:
        walkers = [await engine.start(walk, ledger, key=f"w{number}") for number in range(20)]
        culprit = await engine.start(killer, ledger, key="k")
        assert await culprit.result() == "given up"
        assert [await walker.result() for walker in walkers] == [sum(range(STEPS))] * 20


async def main(url: str, ledger: str, *, more: bool) -> None:
    """Keep fifty flows running: those that an earlier life has left, and new ones for ever, or only the former."""
    async with perdure.open(url, workflows=[walk]) as engine:
        print("ready", flush=True)
        newest = await engine.instances(limit=1)
        following = itertools.count(int(newest[0].key[1:]) + 1 if newest else 0)
        left = [summary.key for summary in await engine.instances(status="running", limit=2 * RUNNING)]
        assert len(left) <= RUNNING

        async def keep_one(key: str | None) -> None:
            while key is not None or more:
                if key is None:
                    key = f"w{next(following)}"
                    await engine.start(walk, ledger, key=key)
                assert await engine.handle(walk, key).result() == sum(range(STEPS))
                key = None

        await asyncio.gather(*(keep_one(key) for key in [*left, *[None] * (RUNNING - len(left))]))


if __name__ == "__main__":
    url, ledger, what = sys.argv[1:]
    asyncio.run(company(url, ledger) if what == "company" else main(url, ledger, more=what == "for ever"))
