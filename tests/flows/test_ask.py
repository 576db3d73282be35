"""Messages that are completed: asked, answered, and delivered again until then."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

import perdure
from perdure import AskTimeout, BadCall, Break, Context, Continue, NotAnswered
from perdure.kernel.events import Message

from .conftest import Stage, becomes, until
from .rig import Rig, same_in_every_rebuild, value_of


async def echo(value: Any) -> Any:
    return value


@perdure.flow
async def counter(ctx: Context) -> int:
    """A counter that is asked: each answer is its new value."""

    async def body(ctx: Context, total: int) -> Continue[int] | Break[int]:
        message = await ctx.receive("add", "stop", ack=True)
        if message.name == "stop":
            message.complete("stopped")
            return Break(total)
        total = await ctx.step("add", echo, total + message.body)
        message.complete(total)
        return Continue(total)

    return await ctx.loop("asked", body, 0, keep=2, prune_every=2)


async def test_ask_and_complete(stage: Stage) -> None:
    async with stage.open(counter) as engine:
        handle = await engine.start(counter)

        answers = [await handle.ask("add", n, 5) for n in range(1, 8)]

        assert answers == [1, 3, 6, 10, 15, 21, 28]
        assert await handle.ask("stop", timeout=5) == "stopped"
        assert await handle.result(60) == 28


async def test_the_same_id_again_hears_the_same_answer_even_after_the_end(stage: Stage) -> None:
    async with stage.open(counter) as engine:
        handle = await engine.start(counter)

        first = await handle.ask("add", 5, 5, id="a")
        second = await handle.ask("add", 5, 5, id="a")
        third = await handle.ask("add", 5, 5, id="b")

        assert (first, second, third) == (5, 5, 10)
        assert await handle.ask("stop", timeout=5) == "stopped"
        assert await handle.result(60) == 10
        assert await handle.ask("add", 5, 5, id="b") == 10
        with pytest.raises(perdure.InstanceEnded):
            await handle.ask("add", 5, 5, id="c")


async def test_another_process_asks_too(disk: Stage) -> None:
    async with disk.open(counter) as engine:
        await engine.start(counter, key="c")
        async with perdure.connect(disk.url) as client:
            handle = client.handle("counter", "c")

            assert [await handle.ask("add", n, 5) for n in (1, 2)] == [1, 3]


async def test_an_answer_survives_a_crash(disk: Stage) -> None:
    async with disk.open(counter, replay=False) as engine:
        handle = await engine.start(counter, key="c")
        assert await handle.ask("add", 4, 5, id="a") == 4
        disk.crash()

    async with disk.open(counter) as engine:
        handle = engine.handle(counter, "c")
        assert await handle.ask("add", 4, 5, id="a") == 4
        assert await handle.ask("add", 4, 5, id="b") == 8


async def test_nobody_answers(stage: Stage) -> None:
    @perdure.flow
    async def deaf(ctx: Context) -> None:
        await ctx.receive("question")
        await ctx.receive("end")

    async with stage.open(deaf) as engine:
        handle = await engine.start(deaf)
        with pytest.raises(AskTimeout, match="ask again with id='q'"):
            await handle.ask("question", timeout=0.01, id="q")
        asking = asyncio.create_task(handle.ask("question", id="q"))
        await until(lambda: bool(engine._connection._watchers))  # type: ignore[attr-defined]
        await handle.send("end")

        with pytest.raises(NotAnswered, match="has ended without an answer to 'question'"):
            await asking


@perdure.flow
async def forgets(ctx: Context) -> list[Any]:
    """It completes a message only when it has it for the second time."""
    found = []
    for _ in range(2):
        message = await ctx.receive("m", ack=True)
        found.append(message.body)
        await ctx.step("work", echo, message.body)
    message.complete()
    found.append((await ctx.receive("m")).body)
    return found


def test_redelivered_until_completed() -> None:
    def drive(rig: Rig) -> Any:
        rig.send("m", 1)
        rig.send("m", 2)
        return rig.run()

    assert same_in_every_rebuild(forgets, drive=drive).result == [1, 1, 2]


def test_a_message_that_is_not_completed_comes_again_at_once() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[int]:
        messages = [await ctx.receive("m", ack=True) for _ in range(3)]
        await messages[2].complete()
        return [message.body for message in (*messages, await ctx.receive("m"))]

    def drive(rig: Rig) -> Any:
        rig.send("m", 1)
        rig.send("m", 2)
        return rig.run()

    assert same_in_every_rebuild(flow, drive=drive).result == [1, 1, 1, 2]


async def test_redelivered_until_completed_in_an_engine(stage: Stage) -> None:
    assert await stage.result_of(forgets, sent=[("m", 1), ("m", 2)]) == [1, 1, 2]


def test_another_task_gets_it_when_the_one_that_took_it_has_ended() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        async def first() -> Any:
            message = await ctx.receive("m", ack=True)
            await ctx.step("break", echo, message.body)
            return f"first {message.body}"

        async def second() -> Any:
            message = await ctx.receive("m", ack=True)
            message.complete()
            return f"second {message.body}"

        return list(await asyncio.gather(first(), second()))

    def drive(rig: Rig) -> Any:
        rig.send("m", 1)
        assert [effect for effect in rig.locations if "receive" in effect] == ["&2/receive:m"], "the first task has it"
        return rig.run()

    assert same_in_every_rebuild(flow, drive=drive).result == ["first 1", "second 1"]


def test_what_comes_back_keeps_its_place() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        await ctx.step("first", echo, None)
        await ctx.receive("b", ack=True)
        await ctx.step("second", echo, None)
        found = [await ctx.receive() for _ in range(3)]
        return [message.body for message in found]

    def drive(rig: Rig) -> Any:
        for n, name in enumerate("abc"):
            rig.send(name, n)
        return rig.run()

    assert same_in_every_rebuild(flow, drive=drive).result == [0, 1, 2]


def test_a_message_is_completed_once() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> str:
        message = await ctx.receive("m", ack=True)
        message.complete("yes")
        with pytest.raises(BadCall, match="completed before"):
            message.complete("no")
        return "done"

    rig = Rig(flow)
    decision = rig.deliver(Message("m", b"\xd9\xd9\xf7\x01", "id-1"))

    assert rig.result == "done"
    assert [(id, value_of(value)) for id, value in decision.respond] == [("id-1", "yes")]


def test_a_message_that_no_flow_received_cannot_be_completed() -> None:
    with pytest.raises(BadCall, match="nobody can complete it"):
        perdure.Message("m", 1).complete()


def test_a_pruned_loop_forgets_completed_messages_and_no_others() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        kept = await ctx.receive("kept", ack=True)

        async def body(ctx: Context, n: int) -> Continue[int] | Break[int]:
            message = await ctx.receive("m", ack=True)
            await ctx.step("work", echo, n)
            message.complete()
            return Continue(n + 1) if n < 30 else Break(n)

        last = await ctx.loop("loop", body, 0, keep=2, prune_every=2)
        again = await ctx.receive("kept")
        return [kept.body, last, again.body]

    def drive(rig: Rig) -> Any:
        rig.send("kept", "me")
        for n in range(31):
            rig.send("m", n)
            rig.answer(rig.locations[0])
        return rig.run()

    rig = same_in_every_rebuild(flow, drive=drive)

    assert rig.result == ["me", 30, "me"]
    assert rig.replayed_max < 20


@perdure.flow
async def takes_many(ctx: Context, timeout: float) -> list[Any]:
    await ctx.receive("go")
    found = []
    for _ in range(3):
        found.append([message.body for message in await ctx.receive_many("m", limit=3)])
    found.append(await ctx.receive_many("m", limit=3, timeout=timeout))
    return found


MANY = [*(("m", n) for n in range(5)), ("go", None), ("other", 0), ("m", 5)]


def test_receive_many_takes_up_to_the_limit_as_soon_as_one_is_there() -> None:
    def drive(rig: Rig) -> Any:
        for name, body in MANY:
            rig.send(name, body)
        return rig.run()

    assert same_in_every_rebuild(takes_many, 1, drive=drive).result == [[0, 1, 2], [3, 4], [5], []]


async def test_receive_many_takes_up_to_the_limit_in_an_engine(stage: Stage) -> None:
    assert await stage.result_of(takes_many, 0.01, sent=MANY) == [[0, 1, 2], [3, 4], [5], []]


def test_receive_many_of_none_is_refused() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        with pytest.raises(BadCall, match="one message is the least"):
            await ctx.receive_many("m", limit=0)

    assert Rig(flow).result is None


async def test_watch_gives_each_new_value_until_the_end(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        for n in range(3):
            ctx.publish("n", n)
            await ctx.receive("next")
        ctx.publish("n", "last")

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        seen = []
        async for value in handle.watch("n"):
            seen.append(value)
            if value != "last":
                await handle.send("next")

        assert seen == [0, 1, 2, "last"]
        assert [value async for value in handle.watch("n")] == ["last"]
        assert [value async for value in handle.watch("other")] == []


async def test_a_watch_that_is_left_leaves_nothing_behind(memory: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        ctx.publish("n", 1)
        await ctx.receive("end")

    async with memory.open(flow) as engine:
        handle = await engine.start(flow)
        watch = handle.watch("n")
        assert await anext(watch) == 1
        assert engine._connection._watchers  # type: ignore[attr-defined]

        await watch.aclose()

        assert not engine._connection._watchers  # type: ignore[attr-defined]


def test_no_flow_can_publish_a_response() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        with pytest.raises(BadCall, match="begin with"):
            ctx.publish("&response/x", 1)

    assert Rig(flow).result is None


async def test_messages_are_completed_whatever_crashes(disk: Stage) -> None:
    """Killed after each of its commits, a counter still counts each question once."""
    for n in range(6):
        async with disk.open(counter, replay=False) as engine:
            handle = await engine.start(counter, key="c")
            await handle.send("add", 1, id=f"q{n}")
            await becomes(handle, "waiting")
            disk.crash()
    async with disk.open(counter) as engine:
        handle = engine.handle(counter, "c")
        answers = [await handle.ask("add", 1, 5, id=f"q{n}") for n in range(6)]

        assert sorted(answers) == [1, 2, 3, 4, 5, 6]


def test_a_forgotten_completion_is_told_and_does_not_spin() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        while True:
            await ctx.receive("m", ack=True)

    rig = Rig(flow)
    rig.send("m", 1)

    assert "call message.complete() before the next receive" in rig.result


def test_a_receive_of_other_names_leaves_what_a_task_holds_alone() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[Any]:
        async def first() -> Any:
            job = await ctx.receive("job", ack=True)
            await ctx.receive("approve")
            job.complete()
            return f"first {job.body}"

        async def second() -> Any:
            message = await ctx.receive("job", "end", ack=True)
            message.complete()
            return f"second {message.name}"

        return list(await asyncio.gather(first(), second()))

    def drive(rig: Rig) -> Any:
        rig.send("job", 1)
        rig.send("approve")
        rig.send("end")
        return rig.result

    assert same_in_every_rebuild(flow, drive=drive).result == ["first 1", "second end"]


async def test_only_the_flow_itself_can_ask_for_operations(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> list[str]:
        message = await ctx.receive("m", ack=True)
        found = []
        for name, act in (
            ("complete", message.complete),
            ("publish", lambda: ctx.publish("a", 1)),
            ("send", lambda: ctx.send("flow/k", "m")),
            ("version", lambda: ctx.version("v", 2)),
            ("random", lambda: ctx.random),
            ("step", lambda: ctx.step("inner", len, "")),
            ("sleep", lambda: ctx.sleep("inner", 1)),
            ("receive", lambda: ctx.receive("m")),
            ("child", lambda: ctx.child("flow")),
            ("join", lambda: ctx.join("inner", {})),
            ("map", lambda: ctx.map("inner", len, [])),  # type: ignore[arg-type]
            ("loop", lambda: ctx.loop("inner", len)),  # type: ignore[arg-type]
        ):

            async def step(act: Any = act) -> None:
                answer = act()
                if inspect.isawaitable(answer):
                    await answer

            answer = await ctx.attempt(name, perdure.step(retries=0)(step))
            assert isinstance(answer, perdure.Failed)
            assert answer.error.error.type == "BadCall"  # type: ignore[attr-defined]
            found.append(answer.error.error.message)  # type: ignore[attr-defined]
        message.complete()
        return found

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        await handle.send("m")
        told = await handle.result(60)

        assert len(told) == 12
        assert [each for each in told if "belongs in the flow itself" not in each] == []


async def test_who_asks_a_stuck_instance_is_told_so(memory: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.receive("go")
        await asyncio.get_running_loop().create_future()

    async with memory.open(flow, replay=False) as engine:
        handle = await engine.start(flow)
        await handle.send("go")
        with pytest.raises(perdure.InstanceStuck):
            await handle.ask("question")


async def test_an_answer_of_none_is_an_answer(stage: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        (await ctx.receive("q", ack=True)).complete()

    async with stage.open(flow) as engine:
        handle = await engine.start(flow)
        assert await handle.ask("q", timeout=5, id="a") is None
        await handle.result(60)
        assert await handle.ask("q", timeout=5, id="a") is None


def test_a_message_of_another_type_stays_for_another_receive() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> Any:
        await ctx.step("first", echo, None)
        with pytest.raises(perdure.NotConvertible):
            await ctx.receive_many("m", limit=2, type=int)
        return [message.body for message in await ctx.receive_many("m", limit=5)]

    def drive(rig: Rig) -> Any:
        rig.send("m", 1)
        rig.send("m", "two")
        return rig.run()

    assert same_in_every_rebuild(flow, drive=drive).result == [1, "two"]


def test_a_loop_that_completes_its_messages_does_not_keep_them() -> None:
    @perdure.flow
    async def flow(ctx: Context) -> int:
        async def body(ctx: Context, n: int) -> Continue[int] | Break[int]:
            (await ctx.receive("m", ack=True)).complete()
            return Continue(n + 1) if n < 50 else Break(n)

        return await ctx.loop("loop", body, 0, keep=1, prune_every=1)

    rig = Rig(flow)
    for n in range(40):
        rig.send("m", n)

    callbacks = rig.machine.main._callbacks or []
    assert len(callbacks) <= 2


async def test_who_asks_is_told_when_the_instance_becomes_stuck_later(memory: Stage) -> None:
    @perdure.flow
    async def flow(ctx: Context) -> None:
        await ctx.receive("go")
        await asyncio.get_running_loop().create_future()

    async with memory.open(flow, replay=False) as engine:
        handle = await engine.start(flow)
        asking = asyncio.create_task(handle.ask("question"))
        await until(lambda: bool(engine._connection._watchers))  # type: ignore[attr-defined]
        await handle.send("go")
        with pytest.raises(perdure.InstanceStuck):
            await asking
