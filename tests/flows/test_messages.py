"""Messages: durable when acknowledged, first in first out among the names asked for, never lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

import perdure
from perdure import Context, ReceiveTimeout

from .conftest import Stage, becomes, until
from .cost import calls
from .rig import SECOND, Rig, same_in_every_rebuild


async def echo(value: Any) -> Any:
    return value


async def test_before_during_and_after(stage: Stage) -> None:
    gate = asyncio.Event()

    async def hold() -> None:
        await gate.wait()

    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        await ctx.step("hold", hold)
        return [(await ctx.receive("m")).body for _ in range(3)]

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        await handle.send("m", "before")
        gate.set()
        await handle.send("m", "during")
        await becomes(handle, "waiting")
        await handle.send("m", "after")

        assert await handle.result(60) == ["before", "during", "after"]


@perdure.flow
async def takes(ctx: Context) -> list[Any]:
    """By one name, by several, by any."""
    await ctx.receive("go")
    found = []
    for names in (("b",), ("a", "c"), (), ("c", "c"), (), ()):
        message = await ctx.receive(*names)
        found.append(f"{message.name}{message.body}")
    return found


LETTERS = [*((name, n) for n, name in enumerate("abcabc")), ("go", None)]
TAKEN = ["b1", "a0", "c2", "c5", "a3", "b4"]


def test_fifo_by_name_set() -> None:
    def drive(rig: Rig) -> Any:
        for name, body in LETTERS:
            rig.send(name, body)
        return rig.result

    assert same_in_every_rebuild(takes, drive=drive).result == TAKEN


async def test_fifo_by_name_set_in_an_engine(stage: Stage) -> None:
    assert await stage.result_of(takes, sent=LETTERS) == TAKEN


def test_the_oldest_receive_gets_the_message() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> dict[str, Any]:
        async def take(*names: str) -> Any:
            return (await ctx.receive(*names)).body

        return await ctx.join(
            "all",
            {
                "any": take,
                "b": lambda: take("b"),
                "ab": lambda: take("a", "b"),
                "a": lambda: take("a"),
            },
        )

    def drive(rig: Rig) -> Any:
        for n, name in enumerate("baab"):
            rig.send(name, n)
        rig.send("b", 4)
        return rig.result

    assert same_in_every_rebuild(flow, drive=drive).result == {"any": 0, "ab": 1, "a": 2, "b": 3}


@perdure.flow
async def listens(ctx: Context, *seconds: float) -> list[Any]:
    found = []
    for timeout in seconds:
        try:
            found.append((await ctx.receive("a", "b", timeout=timeout)).body)
        except ReceiveTimeout as error:
            found.append(str(error))
    return found


HEARD = ["in time", "no message 'a' or 'b' came in time"]


def test_timeout() -> None:
    def drive(rig: Rig) -> Any:
        rig.pass_time(4)
        rig.send("b", "in time")
        rig.pass_time(5)
        return rig.result

    assert same_in_every_rebuild(listens, 5, 5, drive=drive).result == HEARD


async def test_timeout_in_an_engine(stage: Stage) -> None:
    assert await stage.result_of(listens, 60, 0.01, sent=[("c", "unwanted"), ("b", "in time")]) == HEARD


async def test_arrived_before_deadline_wins(disk: Stage) -> None:
    async with disk.open(listens) as engine:
        handle = await engine.start(listens, 0.5, key="k")
        [waiting] = await handle.waiting()
        disk.crash()
    async with perdure.connect(disk.url) as client:
        await client.handle("listens", "k").send("a", "in time")
    await until(lambda: waiting.due is not None and datetime.now(UTC) > waiting.due)
    async with disk.open(listens) as engine:
        assert await engine.handle(listens, "k").result(60) == ["in time"]


async def test_arrived_before_deadline_wins_though_nobody_looked_until_then(disk: Stage) -> None:
    async with disk.open(listens) as engine:
        engine._shard._inbox._poll = 60 * SECOND
        handle = await engine.start(listens, 0.5, key="k")
        async with perdure.connect(disk.url) as client:
            await client.handle("listens", "k").send("a", "in time")

        assert await handle.result(60) == ["in time"]


async def test_dedupe_by_id(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        return [(await ctx.receive("m")).body, (await ctx.receive("m")).body]

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        await handle.send("m", 1, id="one")
        await handle.send("m", 1, id="one")
        await handle.send("m", 2, id="two")

        assert await handle.result(60) == [1, 2]
        assert [line.event for line in await handle.history()] == ["started", "message", "message"]


@dataclass
class Order:
    number: int


async def test_a_body_is_converted_by_the_type_that_is_asked_for(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        order: perdure.Message[Order] = await ctx.receive("order", type=Order)
        plain = await ctx.receive("order")
        try:
            await ctx.receive("order", type=Order)
        except perdure.NotConvertible as error:
            return [order.body.number, plain.body, error.path]
        return []

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        await handle.send("order", Order(7))
        await handle.send("order", Order(8))
        await handle.send("order", {"number": "nine"})

        assert await handle.result(60) == [7, {"number": 8}, "$.number"]


async def test_never_lost_at_a_crash(disk: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        return [(await ctx.receive("n")).body for _ in range(12)]

    async with disk.open(flow) as engine:
        await engine.start(flow, key="k")
        disk.crash()
    for life in range(6):
        async with disk.open(flow) as engine:
            for n in (0, 1):
                await engine.handle(flow, "k").send("n", 2 * life + n)
            disk.crash()
    async with disk.open(flow) as engine:
        assert await engine.handle(flow, "k").result(60) == list(range(12))


async def test_a_flow_sends_to_another_instance_once(stage: Stage) -> None:
    @perdure.flow
    async def receiver(ctx: Context) -> list[Any]:
        found = []
        while True:
            message = await ctx.receive()
            found.append([message.name, message.body, message.sender])
            if message.name == "end":
                return found

    @perdure.flow
    async def sender(ctx: Context) -> None:
        ctx.send("receiver/r", "one", 1)
        ctx.send("receiver/r", "two", {"x": 2})
        await ctx.step("s", echo, None)
        ctx.send("receiver/nobody", "lost")
        if ctx.key == "end":
            ctx.send("receiver/r", "end")

    async with stage.open(receiver, sender) as engine:
        handle = await engine.start(receiver, key="r")
        await (await engine.start(sender, key="s")).result(60)
        await (await engine.start(sender, key="s", reuse="always")).result(60)
        await (await engine.start(sender, key="end")).result(60)
        result = await handle.result(60)

    assert [row[0] for row in result] == ["one", "two"] * 3 + ["end"]
    assert result[0] == ["one", 1, "sender/s"]


def test_a_message_to_a_receive_that_is_cancelled_in_the_same_moment_goes_to_the_next() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        first: asyncio.Task[Any] = asyncio.create_task(take(ctx, "go"))
        doomed = asyncio.create_task(take(ctx, "go"))
        heir = asyncio.create_task(take(ctx, "go"))
        first.add_done_callback(lambda _: doomed.cancel())
        await first
        await asyncio.wait([doomed])
        return [doomed.cancelled(), await heir, (await ctx.receive("go")).body]

    async def take(ctx: Context, name: str) -> Any:
        return (await ctx.receive(name)).body

    def drive(rig: Rig) -> Any:
        for n in range(3):
            rig.send("go", n)
        return rig.result

    assert same_in_every_rebuild(flow, drive=drive).result == [True, 1, 2]


@pytest.mark.parametrize("second", ["waits", "does not wait"])
def test_a_message_that_loses_a_race_in_its_own_delivery_is_not_lost(second: str) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        event = asyncio.Event()

        async def trigger() -> str:
            message = await ctx.receive("a")
            event.set()
            victim.cancel()
            return str(message.body)

        async def receive_b() -> Any:
            await event.wait()
            return (await ctx.receive("b")).body

        async def plain() -> Any:
            return (await ctx.receive("b")).body

        victim = asyncio.create_task(receive_b())
        other = asyncio.create_task(plain()) if second == "waits" else None
        first = await trigger()
        await asyncio.wait([victim])
        rest = await other if other is not None else (await ctx.receive("b")).body
        return [first, rest]

    def drive(rig: Rig) -> Any:
        rig.send("a", "x")
        rig.send("b", "y")
        return rig.result

    assert same_in_every_rebuild(flow, drive=drive).result == ["x", "y"]


def test_10_000_messages_in_the_mailbox_cost_the_same_each() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        await ctx.step("hold", echo, None)
        total = 0
        for n in range(9_999, -1, -1):
            total += (await ctx.receive(f"name {n}")).body
        return total

    rig = Rig(flow)

    def send(first: int, last: int) -> None:
        for n in range(first, last):
            rig.send(f"name {n}", n)

    send(0, 1_000)
    few = calls(lambda: send(1_000, 2_000))
    send(2_000, 9_000)
    many = calls(lambda: send(9_000, 10_000))

    assert many <= few * 1.1
    assert rig.run() == sum(range(10_000))


def test_5_000_receives_at_once() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        results = await ctx.map("all", lambda n: ctx.receive(f"name {n}"), range(5_000))
        return sum(message.body for message in results)

    rig = Rig(flow)
    for n in range(4_999, -1, -1):
        rig.send(f"name {n}", n)

    assert rig.result == sum(range(5_000))
