"""Replay: the journal alone gives every state back, and a reducer that changed its mind is noticed."""

import pytest

import perdure
from perdure import Next, ReceiptOf
from perdure.cells.effects import Alarm
from perdure.cells.world import WorldWorkflow
from perdure.codec import decode, encode
from perdure.kernel.decision import Decision, Fact, Reply
from perdure.kernel.events import Address
from perdure.kernel.replay import fold, rebuild
from perdure.kernel.rules import RULER
from perdure.testing import World, replay
from tests.cells.shop import Book, Charge, Dropped, Order, Paid, Placed, book, order


class Ticked(perdure.Record, name="com.acme/Ticked@1"):
    order: str
    height: int


class Clock(perdure.Record, name="com.acme/Clock@1"):
    ticks: list[int] = []  # noqa: RUF012  # a struct copies it
    dice: bytes = b""


@perdure.cell("com.acme/clock@1", key="order", effects=[Alarm])
def clock(state: Clock | None, event: Placed | ReceiptOf[Alarm], ctx: perdure.CellContext) -> Next:
    ticks = [*(state or Clock()).ticks, ctx.now]
    again = [] if len(ticks) > 3 else [Alarm(after=1000)]
    return Next(Clock(ticks, ctx.entropy), [Ticked(ctx.key, ctx.height)], again)


class Ticks(perdure.Record, name="com.acme/Ticks@1"):
    heights: list[int] = []  # noqa: RUF012  # a struct copies it


@perdure.cell("com.acme/ticks@1", effects=[])
def ticks(state: Ticks | None, event: Ticked) -> Next:
    return Next(Ticks([*(state or Ticks()).heights, event.height]))


async def live_states(live) -> dict[str, bytes]:
    """The machines in memory, if any."""
    found = live.engine._shard.kernel.instances().values()
    return {str(each.address): each.machine.snapshot() for each in found if each.machine is not None}


async def test_full_replay_with_receipts_timers_and_emitted_events_gives_equal_state(stage):
    async with stage.open(order, book, clock, ticks) as live:
        for n in range(5):
            await live.send(Placed(f"o-{n}"), id=f"e-{n}")
        for n in range(3):
            await live.answer(order, f"o-{n}", {"auth": f"a-{n}"})
        await live.send(Dropped("o-3"))
        while len((await live.state(ticks)).heights) < 20:
            await live.rest()

        in_memory = await live_states(live)
        assert in_memory or stage.cache == 0
        for head in await live.engine.instances(limit=1000):
            workflow = live._workflows.of(head.workflow, head.version)
            rows = await live.engine.queries.history(head.id)
            machine = rebuild(fold(Address(head.workflow, head.key), None, rows), workflow)
            name = f"{head.workflow}/{head.key}"
            if head.status == "waiting" and name in in_memory:
                assert machine.snapshot() == in_memory[name]
        assert await live.state(book) == Book(["o-0", "o-1", "o-2"])


async def test_another_engine_comes_to_the_same_states(disk):
    async with disk.open(order, book, clock, ticks) as live:
        await live.send(Placed("o-1"))
        await live.answer(order, "o-1", {"auth": "a"})
        while len((await live.state(ticks)).heights) < 4:
            await live.rest()
        before = [await live.state(*each) for each in [(order, "o-1"), (book,), (clock, "o-1"), (ticks,)]]
    async with disk.open(order, book, clock, ticks) as live:
        assert [await live.state(*each) for each in [(order, "o-1"), (book,), (clock, "o-1"), (ticks,)]] == before


changed = [""]


@perdure.cell("com.acme/fickle@1", key="order", effects=[Charge])
def fickle(state: Order | None, event: Placed | ReceiptOf[Charge]) -> Next:
    match changed[0]:
        case "state":
            return Next(Order("other"))
        case "effects":
            return Next(Order("same"), effects=[Charge("other", 1)])
        case "events":
            return Next(Order("same"), events=[Paid("o", "a")])
        case "end":
            return Next(None)
        case _:
            return Next(Order("same"))


FICKLE = perdure.manifest(fickle, book)


@pytest.mark.parametrize("change", ["state", "effects", "events", "end"])
async def test_a_changed_reducer_is_a_divergence(disk, change):
    changed[:] = [""]
    async with disk.open(FICKLE) as live:
        await live.send(Placed("o-1"))
    changed[:] = [change]
    async with disk.open(FICKLE, replay=False) as live:
        if disk.cache == 0:  # it left its state when it went to sleep, and is woken from that: only a replay notices
            with pytest.raises(perdure.Divergence, match=r"fickle/o-1, entry 1"):
                await live.state(fickle, "o-1")
            return
        await live.send(Placed("o-1"))

        assert await live.status(fickle, "o-1") == "stuck"
        (stuck,) = [entry.decision.stuck for entry in await live.entries(fickle, "o-1") if entry.decision.stuck]
        assert stuck.error.type == "Divergence"
        assert "give the cell the next version" in stuck.error.message
        with pytest.raises(perdure.Divergence, match=r"fickle/o-1, entry 1"):
            await live.state(fickle, "o-1")

        changed[:] = [""]
        await live.engine.handle("com.acme/fickle", "o-1").retry()
        assert await live.state(fickle, "o-1") == Order("same")


def test_other_words_for_a_refusal_of_the_world_are_no_divergence():
    def answered(code: str, text: str) -> Decision:
        return Decision(respond=(("m-1", encode({"refused": code, "text": text})),))

    def refused(text: str, value: bytes | None = None) -> Decision:
        return Decision(reply=Reply(text, value))

    differs = WorldWorkflow().differs
    assert not differs(answered("blocked", "the world is not empty"), answered("blocked", "somebody is there"))
    assert not differs(refused("no such event"), refused("unknown event"))

    assert differs(answered("blocked", "no"), answered("migrating", "no"))
    assert differs(answered("blocked", "no"), Decision(respond=(("m-1", encode({"proposal": 1})),)))
    assert differs(refused("no such event"), refused(""))
    assert differs(refused("no such event"), Decision(announce=(Fact("com.acme/Placed@1", b""),)))
    assert differs(refused("no", b"1"), refused("no", b"2"))


def test_an_exported_history_of_a_cell_is_replayed(tmp_path):
    changed[:] = [""]
    with World(order, book, clock, ticks) as world:
        world.send(Placed("o-0"))
        world.send(Placed("o-1"))
        world.receipt(Charge("o-1", 1), ok=Charge.Receipt("a"))
        world.send(Dropped("o-1"))
        world.run()
        for cell, key in [(order, "o-1"), (clock, "o-1"), (ticks, "")]:
            world.handle(cell, key).export(tmp_path / f"{cell.__name__}.json")

    assert len(replay(tmp_path, order, book, clock, ticks)) == 3


def test_an_exported_history_finds_a_changed_reducer(tmp_path):
    changed[:] = [""]
    with World(FICKLE) as world:
        world.send(Placed("o-1"))
        world.handle(fickle, "o-1").export(tmp_path / "fickle.json")
    changed[:] = ["state"]

    with pytest.raises(perdure.Divergence, match=r"recorded is state .* but the code now asks for state"):
        replay(tmp_path / "fickle.json", FICKLE)
    changed[:] = [""]


@pytest.mark.parametrize("cache", [4096, 0], ids=["hot", "evicted"])
def test_replays_do_not_call_handlers(cache):
    calls = []

    class Ask(perdure.Effect, name="com.acme/ask@1"):
        pass

    @perdure.cell("com.acme/asker@1", key="order", effects=[Ask])
    def asker(state: Order | None, event: Placed | ReceiptOf[Ask]) -> Next:
        return Next(Order("asked"), effects=[Ask()]) if isinstance(event, Placed) else Next(Order("answered"))

    @perdure.effect_handler(Ask)
    async def answer(params: Ask, call: perdure.Call) -> None:
        calls.append(call.key)

    with World(asker, handlers=[answer], cache=cache) as world:
        world.send(Placed("o-1"))
        for _ in range(3):
            world.crash()
            assert world.state(asker, "o-1") == Order("answered")

    assert calls == ["o-1"]


async def test_the_manifest_is_in_the_journal(stage):
    bound = perdure.manifest(order, book)
    async with stage.open(bound) as live:
        head = await live.engine.queries.head(RULER)
        assert head is not None
        (row, *_) = await live.engine.queries.history(head.id)
        assert row.seq == 1
        published = await live.engine.queries.published(head.id, "definitions")
        assert published is not None and decode(published) == bound.manifest.data()


async def test_an_open_with_another_manifest_is_refused_and_changes_nothing(disk):
    async with disk.open(order, book) as live:
        await live.send(Placed("o-1"))
        before = await live.journal()
    with pytest.raises(perdure.ManifestChanged, match="apply it"):
        async with disk.open(book):
            pass
    async with disk.open(order, book) as live:
        assert await live.journal() == before


class NewOrder(perdure.Record, name="com.acme/Order@2"):
    status: str = "new"


@perdure.cell("com.acme/order@2", key="order", effects=[Charge])
def new_order(state: NewOrder | None, event: Placed | Dropped | ReceiptOf[Charge]) -> Next:
    if isinstance(event, Dropped):
        return Next(None)
    return Next(NewOrder("asked"), effects=[Charge(event.order, 2)]) if isinstance(event, Placed) else Next(NewOrder())


async def test_after_a_manifest_change_each_cell_goes_on_with_the_definition_that_it_began_with(disk):
    """Receipts and emitted events of both; a later engine replays them all."""
    both = perdure.manifest(order, new_order, book)
    async with disk.open(order, book) as live:
        await live.send(Placed("o-1"))
    async with disk.open(both) as live:
        await perdure.Governance(live.engine).apply(both)
        await live.send(Placed("o-2"))
        await live.answer(order, "o-1", {"auth": "a"})
        await live.answer(order, "o-2", {"auth": "b"})
    async with disk.open(both) as live:
        assert await live.state(order, "o-1") == Order("paid", ["a"])
        assert await live.state(order, "o-2") == NewOrder("new")
        assert await live.state(book) == Book(["o-1"])

        await live.send(Dropped("o-1"))
        await live.send(Placed("o-1"))  # made anew: by what is in force now
        assert await live.state(order, "o-1") == NewOrder("asked")


async def test_events_in_another_order_are_a_divergence_that_names_the_first_of_them(disk):
    turned = False

    @perdure.cell("com.acme/lists@1", key="order", effects=[])
    def lists(state: Order | None, event: Placed) -> perdure.Next:
        paid = [Paid("a", ""), Paid("b", "")]
        return perdure.Next(Order("listed"), events=paid[::-1] if turned else paid)

    async with disk.open(lists, book, replay=False) as live:
        await live.send(Placed("o-1"))
        turned = True

        with pytest.raises(perdure.Divergence, match=r"recorded is event 1, com\.acme/Paid@1 .*'a'.* asks for .*'b'"):
            await live.state(lists, "o-1")
