"""Reading cells: their state now, at an entry and at least at one; their handles and histories."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import perdure
from perdure.kernel.events import Address
from tests.cells.till import Charge, Order, OrderCancelled, OrderCreated, Total, charge, order, total


class Word(perdure.Record, name="a/Word@1"):
    text: str


@perdure.cell("a/words@1", effects=[])
def words(state: Word | None, event: Word) -> perdure.Next:
    return perdure.Next(Word(event.text))


def in_engine(story: Callable[[perdure.Engine], Awaitable[Any]], url: Any = ":memory:") -> Any:
    async def main() -> Any:
        async with perdure.open(url, workflows=[order, total], handlers=[charge]) as engine:
            return await story(engine)

    return asyncio.run(main())


async def one_paid_order(engine: perdure.Engine) -> None:
    """Entries: 1 the manifest, 2 the event, 3 the order, 4 its receipt, 5 the total."""
    await engine.send(OrderCreated("o-1", 5))
    await engine.state(total, at_least=5)


def test_the_state_of_a_cell_is_the_object_that_its_reducer_takes():
    async def story(engine: perdure.Engine) -> None:
        assert await engine.state(order, "o-1") is None

        await one_paid_order(engine)

        assert await engine.state(order, "o-1") == Order("paid", "auth-o-1")
        assert await engine.state("com.acme/order", "o-1") == Order("paid", "auth-o-1")
        assert await engine.state(total) == Total(5)
        assert await engine.state(order, "o-2") is None

    in_engine(story)


def test_the_state_at_an_entry_is_that_of_the_cell_that_there_was():
    async def story(engine: perdure.Engine) -> list[Any]:
        await one_paid_order(engine)
        await engine.send(OrderCancelled("o-1"))  # entries 6 and 7: deleted
        await engine.state(order, at_least=7)
        await engine.send(OrderCreated("o-1", 2000))  # 8 and 9, refused in 10
        await engine.state(order, at_least=10)
        return [await engine.state(order, "o-1", at=entry) for entry in range(11)]

    states = in_engine(story)

    paid = Order("paid", "auth-o-1")
    assert states[:8] == [None, None, None, Order("charging"), paid, paid, paid, None]
    assert states[8:] == [None, Order("charging"), Order("failed")]


def test_at_least_waits_for_the_journal():
    async def story(engine: perdure.Engine) -> Any:
        reader = asyncio.ensure_future(engine.state(order, "o-1", at_least=4))
        await engine.state(order, at_least=1)
        assert not reader.done()
        await engine.send(OrderCreated("o-1", 5))
        return await reader

    assert in_engine(story) == Order("paid", "auth-o-1")


def test_a_reader_of_a_closed_engine_is_told(tmp_path):
    async def story(engine: perdure.Engine) -> Any:
        return asyncio.ensure_future(engine.state(order, "o-1", at_least=100))

    async def main() -> None:
        async with perdure.open(tmp_path / "w.db", workflows=[order, total], handlers=[charge]) as engine:
            reader = await story(engine)
            await one_paid_order(engine)
        with pytest.raises(perdure.EngineClosed):
            await reader

    asyncio.run(main())


def test_another_process_reads_with_the_code_and_is_told_where_it_has_none(tmp_path):
    url = tmp_path / "w.db"
    in_engine(one_paid_order, url)

    async def main() -> Any:
        async with perdure.connect(url) as client:
            with pytest.raises(perdure.UnknownVersion, match="register it"):
                await client.state("com.acme/order", "o-1")
        async with perdure.connect(url, workflows=[order, total]) as client:
            assert await client.state(order, "o-1", at=3) == Order("charging")
            return await client.state(order, "o-1", at_least=5)

    assert asyncio.run(main()) == Order("paid", "auth-o-1")


def test_another_process_waits_for_an_entry(tmp_path):
    async def story(engine: perdure.Engine) -> Any:
        async with perdure.connect(tmp_path / "w.db", workflows=[order, total]) as client:
            reader = asyncio.ensure_future(client.state(order, "o-1", at_least=4))
            assert await client.state(order, "o-1", at_least=1) is None and not reader.done()
            await engine.send(OrderCreated("o-1", 5))
            return await reader

    assert in_engine(story, tmp_path / "w.db") == Order("paid", "auth-o-1")


def test_a_long_life_is_read_from_its_snapshot_and_from_before_it(tmp_path):
    async def main() -> None:
        async with perdure.open(tmp_path / "w.db", workflows=[words]) as engine:
            for number in range(300):
                await engine.send(Word(f"{number} " + "x" * 1000))
                await engine.state(words, at_least=3 + 2 * number)  # an event, and its delivery
            record = await engine.queries.record(Address("a/words", ""))
            assert record is not None and record.snapshot is not None
            kept = record.snapshot.seq
            for entry in {3, kept - 2, kept - 1, kept, min(kept + 1, 601), 601}:
                state = await engine.state(words, at=entry)
                assert state.text.split()[0] == str((entry - 3) // 2), entry

    asyncio.run(main())


def test_a_stuck_cell_goes_on_with_mended_code(tmp_path):
    async def stuck(engine: perdure.Engine) -> None:
        await engine.send(OrderCreated("o-1", 13))
        await engine.state(order, at_least=3)

    async def mended(engine: perdure.Engine) -> Any:
        await engine.handle(order, "o-1").retry()
        return await engine.state(order, "o-1", at_least=5)

    in_engine(stuck, tmp_path / "w.db")
    superstitious = order.function

    @functools.wraps(superstitious)
    def brave(state: Any, event: Any, ctx: Any) -> Any:
        match event:
            case OrderCreated():
                return perdure.Next(Order("charging"), effects=[Charge(event.order_id, event.cents)])
            case _:
                return superstitious(state, event, ctx)

    order.function = brave
    try:
        assert in_engine(mended, tmp_path / "w.db") == Order("paid", "auth-o-1")
    finally:
        order.function = superstitious


@pytest.mark.parametrize("given", [{"at": 99}, {"at": -1}, {"at": True}, {"at_least": "1"}])
def test_an_entry_that_is_none_is_refused(given):
    async def story(engine: perdure.Engine) -> None:
        with pytest.raises(perdure.CallerError, match=r"at(_least)?="):
            await engine.state(order, "o-1", **given)

    in_engine(story)


def test_a_reducer_that_changed_its_mind_is_a_divergence_for_readers_too(tmp_path):
    in_engine(one_paid_order, tmp_path / "w.db")
    honest = order.function

    async def main() -> None:
        async with perdure.connect(tmp_path / "w.db", workflows=[order, total]) as client:
            with pytest.raises(perdure.Divergence):
                await client.state(order, "o-1")

    order.function = functools.wraps(honest)(lambda state, event, ctx: perdure.Next(Order("failed")))
    try:
        asyncio.run(main())
    finally:
        order.function = honest


def test_a_handle_takes_a_cell():
    async def story(engine: perdure.Engine) -> None:
        await one_paid_order(engine)
        handle = engine.handle(order, "o-1")

        assert handle.workflow == "com.acme/order"
        assert await handle.status() == "waiting"
        assert [each.key for each in await engine.instances(workflow=order)] == ["o-1"]
        assert await engine.handle(total, "").status() == "waiting"

        await handle.cancel("no longer wanted")

        with pytest.raises(perdure.InstanceCancelled, match="no longer wanted"):
            await handle.result()
        assert await engine.state(order, "o-1") is None

    in_engine(story)


def test_a_stuck_cell_keeps_its_event_and_state_until_it_is_retried():
    async def story(engine: perdure.Engine) -> None:
        await engine.send(OrderCreated("o-1", 13))
        await engine.state(order, at_least=3)
        handle = engine.handle(order, "o-1")
        with pytest.raises(perdure.InstanceStuck, match="thirteen"):
            await handle.result()
        assert await engine.state(order, "o-1") is None

        await handle.retry()

        assert [line.event for line in await handle.history()] == ["made", "retry"]
        assert await handle.status() == "stuck"

    in_engine(story)


def test_a_history_tells_which_event_made_a_cell_its_effects_and_what_it_announced():
    async def story(engine: perdure.Engine) -> tuple[Any, Any]:
        await one_paid_order(engine)
        return await engine.handle(order, "o-1").history(), await engine.handle("sys/world", "main").history()

    (made, paid), (_, came) = in_engine(story)

    assert (made.event, made.location) == ("made", "com.acme/OrderCreated@1")
    assert made.value == {"order_id": "o-1", "cents": 5}
    assert made.opened == ("effect payment/charge@1 at charge/~1#1",)
    assert (paid.event, paid.location, paid.status) == ("receipt", "charge/~1#1", "ok")
    assert paid.announced == ("com.acme/OrderPaid@1",)
    assert came.announced == ("com.acme/OrderCreated@1",)


def test_a_cell_is_not_started_and_does_not_go_back():
    async def story(engine: perdure.Engine) -> None:
        with pytest.raises(perdure.CallerError, match="the first event that is routed to it makes it"):
            await engine.start(order)  # type: ignore[call-overload]
        await one_paid_order(engine)
        handle = engine.handle(order, "o-1")
        for ask in (
            lambda: handle.rewind("charge/~1#1"),
            lambda: handle.fork("charge/~1#1"),
            handle.wake,
            lambda: handle.send("com.acme/OrderCancelled@1", {"order_id": "o-1"}),
            lambda: engine.handle(order, "o-2").send("x"),
            lambda: engine.start("com.acme/order", order_id="o-2"),
        ):
            with pytest.raises(perdure.CallerError, match=r"com.acme/order is a cell"):
                await ask()
        await engine.state(order, at_least=5)
        assert await engine.state(order, "o-1") == Order("paid", "auth-o-1")

    in_engine(story)
