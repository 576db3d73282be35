"""Receipts: the one answer to an effect, whatever it is, and all that comes instead of one."""

import asyncio

import pytest
from msgspec.structs import replace

import perdure
from perdure import Next, ReceiptOf
from perdure.cells.effects import Spawn
from perdure.cells.machine import CellMachine
from perdure.codec import decode, encode
from perdure.kernel.events import ReceiptArrived
from perdure.kernel.moment import Moment
from perdure.kernel.receipt import Receipt
from perdure.testing import World
from tests.cells.shop import Book, Charge, Dropped, Order, Placed, book, order


@pytest.mark.parametrize("status", ["error", "timeout", "cancelled", "unknown"])
async def test_error_timeout_cancelled_unknown(stage, status):
    async with stage.open(order, book) as live:
        await live.send(Placed("o-1"))
        await live.answer(order, "o-1", status=status)

        assert await live.state(order, "o-1") == Order(status)
        assert await live.open(order, "o-1") == []


async def test_ok(stage):
    async with stage.open(order, book) as live:
        await live.send(Placed("o-1"))
        await live.answer(order, "o-1", {"auth": "a-1"})

        assert await live.state(order, "o-1") == Order("paid", ["a-1"])
        assert await live.state(book) == Book(["o-1"])


async def test_a_cell_keeps_nothing_of_what_is_answered():
    async with perdure.open(":memory:", workflows=[order, book]) as engine:
        await engine.send(Placed("o-1"))
        (effect,) = await engine.open_effects()
        (machine,) = [each.machine for each in engine._shard.kernel.instances().values() if each.id == 3]
        assert isinstance(machine, CellMachine)
        assert list(machine._open) == [bytes.fromhex(effect.intent)]

        await engine.answer(effect, ok={"auth": "a-1"}, executor="bank")

        assert machine._open == {}


MALFORMED = {
    "no value at all": b"\x00",
    "nothing": b"",
    "another type": encode("a-1"),
    "a field is missing": encode({}),
    "a field of another type": encode({"auth": 7}),
    "a field too many": encode({"auth": "a", "more": 1}),
    "not canonical": bytes.fromhex("d9d9f7bf6461757468616 1ff".replace(" ", "")),
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_with_rejected(stage, payload):
    async with stage.open(order, book) as live:
        await live.send(Placed("o-1"))
        intent = await live.answer(order, "o-1", payload=payload)

        state = await live.state(order, "o-1")
        assert state.status.startswith(("rejected NotCanonical", "rejected SchemaMismatch"))
        assert state.status.endswith(f" {len(payload or encode(None))}")
        event = (await live.entries(order, "o-1"))[-1].event
        assert isinstance(event, ReceiptArrived)
        assert (event.intent, event.receipt) == (intent, Receipt("ok", payload))
        assert await live.open(order, "o-1") == []


class Two(perdure.Record, name="com.acme/Two@1"):
    id: str


@perdure.cell("com.acme/strict@1", key="id", effects=[Charge])
def strict(state: Order | None, event: Two | ReceiptOf[Charge]) -> Next:
    if isinstance(event, Two):
        return Next(Order("asked"), effects=[Charge("a", 1), Charge("b", 2)])
    return Next(Order("answered"))


@perdure.cell("com.acme/keeper@1", key="id", effects=[Charge])
def keeper(state: Order | None, event: Two | ReceiptOf[Charge] | perdure.Rejected) -> Next:
    match event:
        case Two():
            return Next(Order("asked"), effects=[Charge("a", 1)])
        case perdure.Rejected():
            return Next(Order(f"{event.code}: {event.message}"))
        case _:
            return Next(Order("answered"))


async def test_what_was_delivered_is_what_is_journaled_also_when_a_later_version_has_other_words(stage):
    async with stage.open(keeper) as live:
        await live.send(Two("t"))
        await live.answer(keeper, "t", {"auth": 7})
        asked, answered = await live.entries(keeper, "t")
        said = (await live.state(keeper, "t")).status

    assert answered.decision.noted == (said.replace(": ", " ", 1),)
    assert said.startswith("SchemaMismatch: ")
    for words, heard in {("SchemaMismatch", "no such form"): "SchemaMismatch: no such form", (): said}.items():
        (definition,) = perdure.manifest(keeper).cells
        machine = CellMachine(definition, "t", None)
        machine.deliver(asked.event, Moment(asked.at, b"seed", 1, None, None, asked.seq))
        then = replace(answered.decision, noted=(" ".join(words),) if words else ())
        now = machine.deliver(answered.event, Moment(answered.at, b"seed", 2, then, None, answered.seq))
        assert decode(machine.state)["status"] == heard
        assert now.noted == then.noted


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_without_rejected(stage, payload):
    """The instance fails, and its other intents are withdrawn."""
    async with stage.open(strict) as live:
        await live.send(Two("t"))
        assert len(await live.open(strict, "t")) == 2
        await live.answer(strict, "t", payload=payload)

        assert await live.status(strict, "t") == "failed"
        assert await live.open(strict, "t") == []
        (outcome,) = [entry.decision.outcome for entry in await live.entries(strict, "t") if entry.decision.outcome]
        assert "the receipt of payment/charge@1 cannot be read" in str(outcome.error)


@pytest.mark.parametrize("again", ["the same", "another"])
async def test_duplicate(stage, again):
    async with stage.open(order, book) as live:
        await live.send(Placed("o-1"))
        intent = await live.answer(order, "o-1", {"auth": "a-1"})
        before = await live.journal()
        await live.receipt(order, "o-1", intent, {"auth": "a-1" if again == "the same" else "a-2"})

        assert await live.journal() == before
        assert live.engine.counts["stale"] == 1


async def test_stale(stage):
    """Of an earlier generation: the cell was deleted meanwhile, and made anew."""
    async with stage.open(order, book) as live:
        await live.send(Placed("o-1"))
        first, old = await live.head(order, "o-1"), (await live.open(order, "o-1"))[0].id
        await live.send(Dropped("o-1"))
        await live.send(Placed("o-1"))
        before = await live.journal()

        assert first is not None
        for instance in (first.id, (await live.head(order, "o-1")).id):
            await live.engine._connection.put(instance, ReceiptArrived(old, Receipt("ok", encode({"auth": "a-1"}))))

        assert await live.journal() == before
        assert await live.state(order, "o-1") == Order("charging")


async def test_forged(stage):
    """For an intent that nobody ever opened; and for one that another cell has open."""
    async with stage.open(order, book) as live:
        await live.send(Placed("o-1"))
        await live.send(Placed("o-2"))
        before = await live.journal()
        other = (await live.open(order, "o-2"))[0].id
        for intent in (b"\x00" * 32, other):
            await live.receipt(order, "o-1", intent, {"auth": "a-1"})

        assert await live.journal() == before
        assert live.engine.counts["stale"] == 2


class Quick(perdure.Effect, name="com.acme/quick@1", timeout=1_000_000):
    class Receipt(perdure.Record):
        auth: str


class Once(perdure.Effect, name="com.acme/once@1", once=True):
    class Receipt(perdure.Record):
        auth: str


@perdure.cell("com.acme/patient@1", key="id", effects=[Quick, Once, Spawn])
def patient(state: Order | None, event: Two | ReceiptOf[Quick | Once | Spawn]) -> Next:
    if isinstance(event, Two):
        asked = {"q": Quick(), "o": Once(), "c": Spawn.of(endless, key="child"), "f": Spawn.of(failing, key="child")}
        return Next(Order("asked"), effects=[asked[event.id]])
    return Next(Order(f"{event.status} {event.error.type if event.error else ''}"))


@perdure.flow
async def endless(ctx: perdure.Context) -> None:
    await ctx.receive("never")


@perdure.flow
async def failing(ctx: perdure.Context) -> None:
    raise ValueError("no")


@perdure.effect_handler(Quick)
async def hang(params: Quick, call: perdure.Call) -> Quick.Receipt:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


@perdure.effect_handler(Once)
async def hang_too(params: Once, call: perdure.Call) -> Once.Receipt:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


BOTH = [hang, hang_too]


async def test_a_handler_that_is_too_slow_is_a_timeout(stage):
    async with stage.open(patient, endless, failing, handlers=BOTH) as live:
        await live.send(Two("q"))

        await live.until(patient, "q", lambda state: state.status.startswith("timeout "))


async def test_a_child_that_is_cancelled_or_fails_is_a_receipt_that_says_so(stage):
    async with stage.open(patient, endless, failing, handlers=BOTH) as live:
        await live.send(Two("c"))
        await live.engine.handle(endless, "child").cancel()
        await live.rest()
        await live.send(Two("f"))

        assert (await live.state(patient, "c")).status.startswith("cancelled ")
        assert (await live.state(patient, "f")).status == "error ValueError"


@pytest.mark.parametrize("cache", [4096, 0], ids=["hot", "evicted"])
def test_what_may_run_once_is_unknown_after_a_crash(cache):
    with World(patient, endless, failing, handlers=BOTH, cache=cache) as world:
        world.send(Two("o"))
        world.crash()

        assert world.state(patient, "o") == Order("unknown ProcessDied")


def test_a_handler_knows_that_a_crash_ran_its_effect_again():
    heard: list[tuple[int, str]] = []

    @perdure.effect_handler(Quick)
    async def answer(params: Quick, call: perdure.Call) -> Quick.Receipt:
        heard.append((call.delivery, call.idempotency_key))
        if call.delivery == 1:
            await asyncio.get_running_loop().create_future()
        return Quick.Receipt("a-1")

    with World(patient, endless, failing, handlers=[answer, hang_too]) as world:
        world.send(Two("q"))
        world.crash()

        assert world.state(patient, "q") == Order("ok ")
    assert [delivery for delivery, _ in heard] == [1, 2]
    assert heard[0][1] == heard[1][1]


async def test_continuations_go_to_who_asked_and_never_through_routing(stage):
    """Also where no event is routed to the cell."""

    async with stage.open(perdure.manifest(order, book, events=[Placed])) as live:
        await live.send(Placed("o-1"))
        await live.send(Placed("o-2"))
        await live.answer(order, "o-2", {"auth": "a-2"})

        assert await live.state(order, "o-1") == Order("charging")
        assert await live.state(order, "o-2") == Order("paid", ["a-2"])
