"""A step that must not run twice: its process stops while it runs, and a person says what became of it.

Prints:
    the bank is asked to pay 4200
    stuck at: pay
    ada has looked at the statement: it was paid
    result: payment-7
"""

import asyncio
import logging
import tempfile
from pathlib import Path

import perdure

logging.getLogger("perdure").setLevel(logging.ERROR)  # the engine would also log that the instance is stuck
asked = asyncio.Event()


@perdure.step(once=True, retries=0)
async def pay(cents: int) -> str:
    print("the bank is asked to pay", cents)
    asked.set()
    await asyncio.sleep(60)  # the bank takes its time
    return "never seen"


@perdure.flow
async def payout(ctx: perdure.Context, cents: int) -> str:
    return await pay(cents)


async def main(database: Path) -> None:
    async with perdure.open(database, workflows=[payout], drain=0) as engine:
        await engine.start(payout, 4200, key="p-1")
        await asked.wait()  # and now the engine is closed, without waiting for the step

    async with perdure.open(database, workflows=[payout]) as engine:
        handle = engine.handle(payout, "p-1")
        try:
            await handle.result()
        except perdure.InstanceStuck as stuck:
            print("stuck at:", stuck.location)
        print("ada has looked at the statement: it was paid")
        await handle.settle("pay", "payment-7")  # or: perdure settle payout/p-1 pay ok '"payment-7"' --db ...
        print("result:", await handle.result())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory) / "bank.db"))
