"""A loop that may run for years: its state is recorded, and what is needed to rebuild the flow stays short.

Prints:
    started, 500 payments made
    opened again, balance after 1000 payments: 500500
    payments that were made twice: 0
"""

import asyncio
import tempfile
from pathlib import Path

import perdure

Turn = perdure.Continue[dict[str, int]] | perdure.Break[int]

paid: list[int] = []


async def pay(amount: int) -> int:
    paid.append(amount)
    return amount


@perdure.flow
async def account(ctx: perdure.Context, payments: int) -> int:
    async def one(ctx: perdure.Context, state: dict[str, int]) -> Turn:
        number = state["number"] + 1
        balance = state["balance"] + await ctx.step("pay", pay, number)
        if number == payments:
            return perdure.Break(balance)
        if number == payments // 2:
            await ctx.receive("go on")
        return perdure.Continue({"number": number, "balance": balance})

    return await ctx.loop("payments", one, {"number": 0, "balance": 0}, keep=10, prune_every=10)


async def main(database: Path) -> None:
    async with perdure.open(database, workflows=[account]) as engine:
        handle = await engine.start(account, 1000, key="a-1")
        await handle.until("waiting")
        print(f"started, {len(paid)} payments made")

    async with perdure.open(database, workflows=[account]) as engine:
        handle = engine.handle(account, "a-1")
        await handle.send("go on")
        print("opened again, balance after 1000 payments:", await handle.result())
        print("payments that were made twice:", len(paid) - len(set(paid)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory) / "account.db"))
