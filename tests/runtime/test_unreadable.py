"""An instance whose rows cannot be read, and a turn that fails: whoever waits is told, and all others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import Corrupt
from perdure.testing.stores import flipped

SECONDS = 20


@perdure.flow
async def waits(ctx: perdure.Context) -> Any:
    return (await ctx.receive("go")).body


async def stand_still() -> None:
    await asyncio.Event().wait()


@perdure.flow
async def busy(ctx: perdure.Context) -> None:
    await ctx.step("work", stand_still)


def damage(path: Path, key: str) -> None:
    connection = apsw.Connection(str(path))
    row = "SELECT seq, body FROM journal WHERE instance = (SELECT id FROM instances WHERE key = ?) LIMIT 1"
    ((seq, body),) = connection.execute(row, (key,))
    connection.execute("UPDATE journal SET body = ? WHERE seq = ?", (flipped(body), seq))
    connection.close()


async def test_who_sends_to_an_instance_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "waits.db"
    async with perdure.open(path, workflows=[waits]) as engine:
        for key in ("a", "b"):
            await engine.start(waits, key=key)
    damage(path, "a")

    async with perdure.open(path, workflows=[waits]) as engine:
        for _ in range(2):
            with pytest.raises(Corrupt, match="checksum"):
                await asyncio.wait_for(engine.handle(waits, "a").send("go", 1), SECONDS)
        await engine.handle(waits, "b").send("go", 2)
        assert await engine.handle(waits, "b").result(timeout=SECONDS) == 2


async def test_who_waits_for_the_end_of_an_instance_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "waits.db"
    async with perdure.open(path, workflows=[waits]) as engine:
        await engine.start(waits, key="a")
    damage(path, "a")

    async with asyncio.timeout(SECONDS), perdure.open(path, workflows=[waits]) as engine:
        waiting = asyncio.ensure_future(engine.handle(waits, "a").result())
        await asyncio.sleep(0)
        with pytest.raises(Corrupt):
            await engine.handle(waits, "a").send("go", 1)
        with pytest.raises(Corrupt):
            await waiting
        with pytest.raises(Corrupt):  # also who comes later
            await engine.handle(waits, "a").result()


async def test_an_instance_that_was_running_and_cannot_be_read_keeps_no_engine_from_its_work(tmp_path: Path) -> None:
    path = tmp_path / "busy.db"
    async with perdure.open(path, workflows=[waits, busy], drain=0) as engine:
        await engine.start(busy, key="a")
        await engine.start(waits, key="b")
    damage(path, "a")

    async with perdure.open(path, workflows=[waits, busy]) as engine:
        await asyncio.wait_for(engine.handle(waits, "b").send("go", 2), SECONDS)
        assert await engine.handle(waits, "b").result(timeout=SECONDS) == 2
        assert "crashes" not in engine.counts


class Charge(perdure.Effect, name="test/charge@1", outside="psp"):
    cents: perdure.Nat

    class Receipt(perdure.Record):
        auth: str


class Bought(perdure.Record, name="test/Bought@1"):
    key: str


class Sale(perdure.Record, name="test/Sale@1"):
    auth: str = ""


@perdure.cell("test/sale@1", key="key", effects=[Charge])
def sale(state: Sale | None, event: Bought | perdure.ReceiptOf[Charge]) -> perdure.Next:
    if isinstance(event, Bought):
        return perdure.Next(Sale(), effects=[Charge(4200)])
    return perdure.Next(Sale(event.value.auth if event.value else ""))


class BrokenKeys:
    """Somebody's own keys, with an error in them."""

    @property
    def judge(self) -> Callable[..., str]:
        def verify(*arguments: Any) -> str:
            raise ZeroDivisionError("an error of the keys")

        return verify


async def test_a_turn_that_fails_is_a_crash_of_the_shard_and_its_callers_are_told(tmp_path: Path) -> None:
    keys: Any = BrokenKeys()
    async with perdure.open(tmp_path / "sales.db", workflows=[sale], keys=keys) as engine:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # where it is told in full
        await engine.send(Bought("a"))
        await engine.state(sale, "a", at_least=await engine.queries.height())
        (effect,) = await engine.open_effects("psp")

        with pytest.raises(ZeroDivisionError, match="an error of the keys"):
            await asyncio.wait_for(engine.answer(effect, executor="psp", ok=Charge.Receipt("x")), SECONDS)

        assert engine.counts["crashes"] == 1
        await asyncio.wait_for(engine.send(Bought("b")), SECONDS)  # it has started over
        assert len(await engine.open_effects("psp")) >= 1
