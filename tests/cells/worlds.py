"""A small world that has everything: effects, timers, emitted events, cells that end, a cell that gets stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import perdure
from perdure.cells.effects import Alarm, BlobPut
from perdure.cells.index import CellIndex

SECOND = 1_000_000_000


class Put(perdure.Record, name="test/Put@1"):
    account: str
    cents: perdure.Nat


class Closed(perdure.Record, name="test/Closed@1"):
    account: str


class Noted(perdure.Record, name="test/Noted@1"):
    account: str
    cents: perdure.Nat


class Spoil(perdure.Record, name="test/Spoil@1"):
    account: str


class Keep(perdure.Record, name="test/Keep@1"):
    account: str
    data: bytes


class Wait(perdure.Record, name="test/Wait@1"):
    account: str
    seconds: perdure.Nat


class Receipted(perdure.Effect, name="test/print@1"):
    cents: perdure.Nat

    class Receipt(perdure.Record):
        number: str


class Account(perdure.Record, name="test/Account@1"):
    cents: perdure.Nat = 0
    printed: perdure.Nat = 0
    blobs: list[perdure.Hash] = []  # noqa: RUF012  # a struct copies it


class Total(perdure.Record, name="test/Total@1"):
    cents: perdure.Nat = 0


@perdure.cell("test/account@1", key="account", effects=[Receipted, Alarm, BlobPut])
def account(
    state: Account | None,
    event: Put
    | Closed
    | Spoil
    | Keep
    | Wait
    | perdure.ReceiptOf[Receipted]
    | perdure.ReceiptOf[Alarm]
    | perdure.ReceiptOf[BlobPut],
    ctx: perdure.CellContext,
) -> perdure.Next:
    state = state or Account()
    match event:
        case Put(cents=cents):
            state = Account(state.cents + cents, state.printed, state.blobs)
            effects = [Receipted(cents)] if cents % 5 == 0 else []
            return perdure.Next(state, events=[Noted(ctx.key, cents)], effects=effects)
        case Closed():
            return perdure.Next(None)
        case Spoil():
            raise RuntimeError("spoiled")
        case Keep(data=data):
            return perdure.Next(state, effects=[BlobPut(data)])
        case Wait(seconds=seconds):
            return perdure.Next(state, effects=[Alarm(after=seconds * SECOND)])
        case _:
            blobs = state.blobs
            if event.effect is BlobPut and event.value is not None:
                blobs = [*blobs, event.value.hash]
            return perdure.Next(Account(state.cents, state.printed + 1, blobs))


@perdure.cell("test/total@1", effects=[])
def total(state: Total | None, event: Noted) -> perdure.Next:
    return perdure.Next(Total((state.cents if state is not None else 0) + event.cents))


@perdure.effect_handler(Receipted)
async def print_it(params: Receipted, call: perdure.Call) -> Receipted.Receipt:
    return Receipted.Receipt(f"n-{params.cents}")


@perdure.flow
async def side(ctx: perdure.Context, times: int) -> int:
    for n in range(times):
        await ctx.receive(f"go-{n}")
    return times


CELLS = [account, total, side]


def keeping(queries: Callable[[], Any]) -> Any:
    """A handler that puts blobs into the store of the engine under test."""

    @perdure.effect_handler(BlobPut)
    async def keep(params: BlobPut, call: perdure.Call) -> BlobPut.Receipt:
        (digest,) = await queries().put_blobs([params.data], 1)
        return BlobPut.Receipt(f"sha256:{digest.hex()}", len(params.data))

    return keep


async def settled(engine: perdure.Engine) -> None:
    """Everything is recorded, and no effect is being performed."""
    shard = engine._shard
    async with asyncio.timeout(60):
        while True:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            shard.when_settled(partial(reached.set_result, None))
            await reached
            if not shard.running and not shard._calls.receipts:
                return
            await asyncio.sleep(0)


Story = Callable[[perdure.Engine], Awaitable[None]]


async def busy(engine: perdure.Engine, begin: int = 0, rounds: int = 30) -> None:
    for n in range(begin, begin + rounds):
        await engine.send(Put(f"a-{n % 7}", n), id=f"put-{n}")
        if n % 11 == 10:
            await engine.send(Closed(f"a-{n % 7}"))
    await settled(engine)


def cells_of(blobs: Any, roots: dict[str, bytes]) -> dict[str, int]:
    return {workflow: CellIndex(blobs, root).count() for workflow, root in roots.items()}
