"""The life of a cell: made by its first event, deleted by its reducer, stuck on poison, made anew."""

import asyncio

import pytest

import perdure
from perdure import Next, ReceiptOf
from perdure.cells.effects import Spawn
from perdure.codec import encode
from perdure.kernel.events import Address, Message, Retried, Started
from tests.cells.shop import Charge, Dropped, Order, Placed, book, order


async def test_a_missing_cell_is_made_by_its_first_event_with_state_none(stage):
    seen = []

    @perdure.cell("com.acme/new@1", key="order", effects=[])
    def new(state: Order | None, event: Placed) -> Next:
        seen.append(state)
        return Next(Order("made"))

    async with stage.open(new, replay=False) as live:
        await live.send(Placed("o-1"))

        assert seen[0] is None
        assert isinstance((await live.entries(new, "o-1"))[0].event, Started)


async def test_none_deletes_and_withdraws(stage):
    stopped = asyncio.Event()

    class Slow(perdure.Effect, name="com.acme/slow@1"):
        pass

    @perdure.cell("com.acme/slow-order@1", key="order", effects=[Slow, Charge])
    def slow_order(state: Order | None, event: Placed | Dropped | ReceiptOf[Slow | Charge]) -> Next:
        return Next(Order(), effects=[Slow(), Charge("o", 1)]) if isinstance(event, Placed) else Next(None)

    @perdure.effect_handler(Slow)
    async def slow(params: Slow, call: perdure.Call) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            stopped.set()

    async with stage.open(slow_order, handlers=[slow]) as live:
        await live.send(Placed("o-1"))
        assert len(await live.open(slow_order, "o-1")) == 2
        await live.send(Dropped("o-1"))

        async with asyncio.timeout(60):
            await stopped.wait()  # its executor was told
        assert await live.status(slow_order, "o-1") == "completed"
        assert await live.open(slow_order, "o-1") == []
        assert await live.state(slow_order, "o-1") is None


async def test_a_recreated_cell_starts_clean(stage):
    async with stage.open(order, book) as live:
        await live.send(Placed("o-1"), id="e-1")
        await live.answer(order, "o-1", {"auth": "a-1"})
        await live.send(Dropped("o-1"))
        assert await live.state(order, "o-1") is None
        await live.send(Placed("o-1"))

        assert await live.state(order, "o-1") == Order("charging")
        head = await live.head(order, "o-1")
        assert head is not None and head.generation == 2
        assert len(await live.open(order, "o-1")) == 1


async def test_an_event_for_a_cell_that_is_not_there_may_leave_none(stage):
    async with stage.open(order, book) as live:
        await live.send(Dropped("o-1"))

        assert await live.status(order, "o-1") == "completed"
        assert await live.state(order, "o-1") is None


broken = [True]


@perdure.cell("com.acme/poison@1", key="order", effects=[])
def poison(state: Order | None, event: Placed) -> Next:
    if event.cents == 13 and broken:
        raise ZeroDivisionError("13")
    return Next(Order("", [*(state or Order()).auths, str(event.cents)]))


@pytest.mark.parametrize("first", [True, False], ids=["its first event", "a later one"])
async def test_a_poison_event_is_kept_and_retried(stage, first):
    broken[:] = [True]
    async with stage.open(poison) as live:
        if not first:
            await live.send(Placed("o-1", 1))
        await live.send(Placed("o-1", 13))
        await live.send(Placed("o-1", 2))  # waits behind it
        await live.send(Placed("o-2", 3))  # poison does not spread
        assert await live.status(poison, "o-1") == "stuck"
        assert await live.state(poison, "o-2") == Order("", ["3"])

        await live.engine.handle("com.acme/poison", "o-1").retry()
        assert await live.status(poison, "o-1") == "stuck"
        broken.clear()
        await live.engine.handle("com.acme/poison", "o-1").retry()
        await live.rest()

        assert await live.state(poison, "o-1") == Order("", [*([] if first else ["1"]), "13", "2"])


async def test_a_poison_event_is_kept_across_a_restart(disk):
    broken[:] = [True]
    async with disk.open(poison) as live:
        await live.send(Placed("o-1", 13))
        await live.send(Placed("o-1", 2))
    broken.clear()
    async with disk.open(poison) as live:
        await live.engine.handle("com.acme/poison", "o-1").retry()
        await live.rest()

        assert await live.state(poison, "o-1") == Order("", ["13", "2"])
        events = [type(entry.event) for entry in await live.entries(poison, "o-1")]
        assert events == [Started, Retried, Message]


async def test_a_cancelled_cell_withdraws_and_is_made_anew_by_the_next_event(stage):
    async with stage.open(order, book) as live:
        await live.send(Placed("o-1"))
        await live.engine.handle("com.acme/order", "o-1").cancel()
        await live.rest()
        assert await live.status(order, "o-1") == "cancelled"
        assert await live.open(order, "o-1") == []
        await live.send(Placed("o-1"))

        assert await live.state(order, "o-1") == Order("charging")


async def test_cells_go_on_after_a_crash(disk):
    async with disk.open(order, book) as live:
        await live.send(Placed("o-1"))
        await live.send(Placed("o-2"))
        disk.crash()
        async with disk.open(order, book) as next_live:
            await next_live.answer(order, "o-1", {"auth": "a-1"})

            assert await next_live.state(order, "o-1") == Order("paid", ["a-1"])
            assert await next_live.state(order, "o-2") == Order("charging")


async def test_a_cell_is_not_started_by_hand(stage):
    async with stage.open(order, book) as live:
        before = await live.journal()
        with pytest.raises(perdure.CallerError, match=r"(?s)com.acme/order"):
            await live.engine.start("com.acme/order", key="o-1")

        assert await live.journal() == before


class Bad(BaseException):
    """No Exception: as those of asyncio, of pytest, and SystemExit."""


@pytest.mark.parametrize(
    "error", [Bad("x"), asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt(), GeneratorExit()]
)
async def test_whatever_a_reducer_raises_stops_its_own_cell_alone(stage, error):
    @perdure.cell("com.acme/bad@1", key="order", effects=[])
    def bad(state: Order | None, event: Placed) -> Next:
        if event.order == "o-1":
            raise error
        return Next(Order("made"))

    async with stage.open(bad) as live:
        await live.send(Placed("o-1"))
        await live.send(Placed("o-2"))

        assert await live.status(bad, "o-1") == "stuck"
        assert await live.state(bad, "o-2") == Order("made")


async def test_a_cell_is_not_made_by_whoever_spawns_it_nor_is_a_second_world(stage):
    class Told(perdure.Record, name="com.acme/Told@1"):
        errors: list[str]

    @perdure.cell("com.acme/mother@1", key="order", effects=[Spawn])
    def mother(state: Told | None, event: Placed | ReceiptOf[Spawn]) -> Next:
        if isinstance(event, Placed):
            return Next(Told([]), effects=[Spawn(name, "x", encode({})) for name in ("com.acme/mother", "sys/world")])
        assert state is not None and event.error is not None
        return Next(Told([*state.errors, event.error.message]))

    async with stage.open(mother) as live:
        await live.send(Placed("o-1"))

        state = await live.state(mother, "o-1")
        assert [error.partition(":")[0] for error in state.errors] == [
            "com.acme/mother is a cell",
            "there is one world",
        ]
        assert await live.head(mother, "x") is None


async def test_an_open_does_not_wait_for_cells_that_never_come_to_rest(disk, monkeypatch):
    monkeypatch.setattr("perdure.app.engine.SETTLE", 0.0)
    restless = True

    @perdure.cell("com.acme/restless@1", key="order", effects=[])
    def again(state: Order | None, event: Placed) -> Next:
        return Next(Order("made"), events=[event] if restless else [])

    async with disk.open(again):
        pass
    async with perdure.connect(disk.url) as client:
        await client.send(Placed("o-1"))

    async with asyncio.timeout(60), disk.open(again, replay=False) as live:
        restless = False  # so that it closes soon
        await live.rest()

        assert await live.status(again, "o-1") == "waiting"


class Ball(perdure.Record, name="game/Ball@1"):
    to: str
    hits: perdure.Nat = 0


class Player(perdure.Record, name="game/Player@1"):
    hits: perdure.Nat


@perdure.cell("game/player@1", key="to", effects=[])
def player(state: Player | None, event: Ball) -> Next:
    return Next(Player(event.hits), events=[Ball("b" if event.to == "a" else "a", event.hits + 1)])


async def test_a_world_that_never_rests_is_closed_at_once_and_loses_nothing(tmp_path):
    url = tmp_path / "game.db"
    async with asyncio.timeout(60), perdure.open(url, workflows=[player], drain=600) as engine:
        await engine.send(Ball("a"))

    async with perdure.connect(url, workflows=[player]) as client:
        (ball,) = await client.queries.undelivered()
        hits = [state.hits for key in "ab" if (state := await client.state(player, key)) is not None]

        assert Address(ball.workflow, ball.key) == Address("game/player", "ab"[(max(hits, default=-1) + 1) % 2])
        assert await client.queries.check() == []
