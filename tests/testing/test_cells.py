"""The test kit for cells: `World` with cells in it, and `reduce`."""

import asyncio
from datetime import timedelta
from typing import Literal

import pytest

import perdure
from perdure import Next, ReceiptOf, Rejected
from perdure.cells.effects import Alarm, PersonAsked, Spawn
from perdure.codec import decode
from perdure.testing import World, reduce


class Placed(perdure.Record, name="com.acme/Placed@1"):
    order: str
    cents: perdure.Nat


class Paid(perdure.Record, name="com.acme/Paid@1"):
    order: str


class Charge(perdure.Effect, name="payment/charge@1"):
    order: str
    cents: perdure.Nat

    class Receipt(perdure.Record):
        auth: str


class Order(perdure.Record, name="com.acme/Order@1"):
    step: Literal["charging", "failed", "waiting"] = "charging"
    tries: perdure.Nat = 1


@perdure.cell("com.acme/order@1", key="order", effects=[Charge, Alarm])
def order(
    state: Order | None,
    event: Placed | ReceiptOf[Charge | Alarm] | Rejected,
    ctx: perdure.CellContext,
) -> Next:
    match event:
        case Placed():
            return Next(Order(), effects=[Charge(event.order, event.cents)])
        case ReceiptOf(effect=effect, ok=True) if effect is Charge:
            return Next(None, events=[Paid(ctx.key)])
        case ReceiptOf(effect=effect, status="error") if effect is Charge and state is not None:
            return Next(Order("waiting", state.tries), effects=[Alarm(after=60_000_000_000)])
        case ReceiptOf(effect=effect) if effect is Alarm and state is not None:
            return Next(Order("charging", state.tries + 1), effects=[Charge(ctx.key, 1)])
        case _:
            return Next(Order("failed"))


class Book(perdure.Record, name="com.acme/Book@1"):
    paid: list[str] = []  # noqa: RUF012  # a struct copies it


@perdure.cell("com.acme/book@1", effects=[])
def book(state: Book | None, event: Paid) -> Next:
    return Next(Book([*(state.paid if state else []), event.order]))


@perdure.effect_handler(Charge)
async def charge(params: Charge, call: perdure.Call) -> Charge.Receipt:
    await asyncio.sleep(5)
    return Charge.Receipt(f"auth of {params.order}")


@perdure.flow
async def greet(ctx: perdure.Context, name: str) -> str:
    return f"hello {name}"


# ---- World -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", [4096, 0], ids=["hot", "evicted"])
def test_an_effect_without_a_handler_stays_open_until_the_test_answers_it(cache):
    with World(perdure.manifest(order, book), cache=cache) as world:
        world.send(Placed("o-1", 42))
        (found,) = world.pull_effects()
        assert (found.effect, found.cell, found.key) == (Charge("o-1", 42), "com.acme/order@1", "o-1")
        assert found.params == {"order": "o-1", "cents": 42}
        assert world.pull_effects() == [found]
        assert world.state(order, "o-1") == Order("charging")

        world.receipt(found, ok=Charge.Receipt("a-1"))

        assert world.pull_effects() == []
        assert world.state(order, "o-1") is None
        assert world.state(book) == Book(["o-1"])


@pytest.mark.parametrize("answer", [{"error": "no funds"}, {"error": OSError("down")}])
def test_an_error_is_answered_and_time_is_skipped(answer):
    with World(order, book) as world:
        world.send_json("com.acme/Placed@1", {"order": "o-1", "cents": 42})
        world.receipt(Charge("o-1", 42), **answer)
        assert world.state(order, "o-1") == Order("waiting")
        assert world.pull_effects() == []  # a timer is answered by time alone

        world.advance(timedelta(seconds=60))

        assert world.state(order, "o-1") == Order("charging", 2)
        assert [found.effect for found in world.pull_effects()] == [Charge("o-1", 1)]


@pytest.mark.parametrize("answer", [{"status": "timeout"}, {"status": "cancelled"}, {"status": "unknown"}])
def test_other_receipts_have_a_status_alone(answer):
    with World(order, book) as world:
        world.send(Placed("o-1", 42))
        world.receipt(world.pull_effects()[0].intent, **answer)

        assert world.state(order, "o-1") == Order("failed")


@pytest.mark.parametrize(("payload", "told"), [(b"\x00", b"\x00"), ({"no": "receipt"}, {"no": "receipt"})])
def test_a_payload_that_nobody_checked_may_be_rejected(payload, told):
    with World(order, book) as world:
        world.send(Placed("o-1", 42))
        world.receipt(Charge("o-1", 42), payload=payload)

        assert world.state(order, "o-1") == Order("failed")
        assert world.handle(order, "o-1").history()[-1].value == told


@pytest.mark.parametrize("times", [1, 3])
def test_open_effects_outlive_a_crash_and_answer_once(times):
    with World(order, book) as world:
        world.send(Placed("o-1", 42))
        before = world.pull_effects()
        for _ in range(times):
            world.crash()

        assert world.pull_effects() == before
        world.receipt(before[0], ok=Charge.Receipt("a-1"))
        assert world.state(book) == Book(["o-1"])


def test_a_handler_runs_like_a_step_does():
    with World(order, book, handlers=[charge]) as world:
        world.send(Placed("o-1", 42), id="e-1")
        world.send(Placed("o-1", 42), id="e-1")
        assert world.pull_effects() == []
        assert world.state(order, "o-1") == Order("charging")

        world.advance(5)

        assert world.state(book) == Book(["o-1"])
        (run,) = world.runs("charge")
        assert run.args[0] == Charge("o-1", 42)
        assert run.status == "ok"


def test_a_crash_in_a_handler_runs_it_again():
    with World(order, book, handlers=[charge]) as world:
        world.send(Placed("o-1", 42))
        world.advance(3)
        world.crash()
        world.run()

        assert world.state(book) == Book(["o-1"])
        assert [run.delivery for run in world.runs("charge")] == [1, 2]
        assert len({run.idempotency_key for run in world.runs("charge")}) == 1


def test_cells_join_a_world_that_runs_already_and_flows_run_beside_them(world):
    world.register(order, book, handlers=[charge])
    handle = world.start(greet, "Ada")
    world.send(Placed("o-1", 42))
    world.run()

    assert handle.result() == "hello Ada"
    assert world.state(book) == Book(["o-1"])


def test_a_cell_spawns_a_flow_that_stands_in_its_module():
    class Asked(perdure.Record, name="com.acme/Asked@1"):
        name: str

    class Greeted(perdure.Record, name="com.acme/Greeted@1"):
        result: bytes

    @perdure.cell("com.acme/host@1", key="name", effects=[Spawn])
    def host(state: Greeted | None, event: Asked | ReceiptOf[Spawn]) -> Next:
        if isinstance(event, Asked):
            return Next(Greeted(b""), effects=[Spawn.of(greet, event.name, key=f"greet-{event.name}")])
        return Next(Greeted(event.value.result))

    with World(host) as world:
        world.send(Asked("Ada"))

        assert world.handle(greet, "greet-Ada").result() == "hello Ada"
        assert decode(world.state(host, "Ada").result) == "hello Ada"


def test_an_effect_that_is_answered_outside_waits_for_the_test_too():
    class Asked(perdure.Record, name="com.acme/Question@1"):
        name: str

    class Answer(perdure.Record, name="com.acme/Answer@1"):
        text: str = ""

    @perdure.cell("com.acme/desk@1", key="name", effects=[PersonAsked])
    def desk(state: Answer | None, event: Asked | ReceiptOf[PersonAsked]) -> Next:
        if isinstance(event, Asked):
            return Next(Answer(), effects=[PersonAsked(f"greet {event.name}?")])
        return Next(Answer(event.value.answer))

    with World(desk) as world:
        world.send(Asked("Ada"))
        world.crash()
        world.receipt(PersonAsked("greet Ada?"), ok=PersonAsked.Receipt("yes"))

        assert world.state(desk, "Ada") == Answer("yes")
        assert world.pull_effects() == []


# ---- what a test may get wrong ---------------------------------------------------------------------------


def test_what_is_not_open_cannot_be_answered():
    with World(order, book) as world:
        with pytest.raises(perdure.UnknownIntent, match=r"no effect .* waits for an answer; open are: none"):
            world.receipt(Charge("o-1", 42), ok=Charge.Receipt("a"))
        world.send(Placed("o-1", 42))
        world.send(Placed("o-1", 42))
        with pytest.raises(perdure.CallerError, match="2 open effects are Charge"):
            world.receipt(Charge("o-1", 42), ok=Charge.Receipt("a"))


def test_an_answer_is_one_of_ok_error_status_and_payload_and_of_its_schema():
    with World(order, book) as world:
        world.send(Placed("o-1", 42))
        for wrong in ({}, {"ok": Charge.Receipt("a"), "error": "x"}, {"status": "lost"}):
            with pytest.raises(perdure.CallerError, match=r"takes one of|status is one of"):
                world.receipt(Charge("o-1", 42), **wrong)
        with pytest.raises(perdure.SchemaMismatch, match="auth"):
            world.receipt(Charge("o-1", 42), ok={"auth": 1})

        assert world.state(order, "o-1") == Order("charging")


def test_who_asks_for_the_result_of_a_cell_hears_what_it_waits_for():
    with World(order, book) as world:
        world.send(Placed("o-1", 42))

        with pytest.raises(perdure.NotYet, match=r"the answer to payment/charge@1 at charge/~1#1 .*: world.receipt"):
            world.handle(order, "o-1").result()


def test_a_world_without_cells_says_so(world):
    with pytest.raises(perdure.CallerError, match="this database has no cells: open it with"):
        world.send(Placed("o-1", 42))
    with pytest.raises(perdure.CallerError, match="no cell"):
        world.state(order, "o-1")


def test_a_second_manifest_is_refused():
    with World(order) as world, pytest.raises(perdure.CallerError, match="another manifest"):
        world.register(book)


# ---- reduce ----------------------------------------------------------------------------------------------


def test_a_reducer_is_called_by_itself():
    assert reduce(order, None, Placed("o-1", 42)) == (Order("charging"), [], [Charge("o-1", 42)])


def test_a_receipt_leads_to_events_and_the_end_of_the_cell():
    receipt: ReceiptOf[Charge] = ReceiptOf(effect=Charge, status="ok", value=Charge.Receipt("a-1"))

    state, events, effects = reduce(order, Order(), receipt, key="o-1")

    assert (state, events, effects) == (None, [Paid("o-1")], [])


def test_other_receipts_and_rejections_are_events_too():
    assert reduce(order, Order(), ReceiptOf(effect=Charge, status="error")).effects == [Alarm(after=60_000_000_000)]
    rejected = Rejected("SchemaMismatch", "no auth", "payment/charge@1", "00", "sha256:" + "0" * 64, 4)
    assert reduce(order, Order(), rejected).state == Order("failed")


def test_what_goes_in_is_checked():
    with pytest.raises(perdure.UnknownEvent):
        reduce(order, None, Paid("o-1"))
    with pytest.raises(perdure.SchemaMismatch, match="cents"):
        reduce(order, None, Placed("o-1", -1))
    with pytest.raises(perdure.SchemaMismatch, match="tries"):
        reduce(order, Order("charging", -1), Placed("o-1", 1))
    with pytest.raises(perdure.SchemaMismatch, match="auth"):
        reduce(order, Order(), ReceiptOf(effect=Charge, status="ok", value={"auth": 1}))
    with pytest.raises(perdure.CallerError, match="gets no receipt of sys/task@1"):
        reduce(order, Order(), ReceiptOf(effect=PersonAsked, status="ok"))
    with pytest.raises(perdure.CallerError, match="no 'hour'; it has: now, height"):
        reduce(order, None, Placed("o-1", 1), hour=3)


def test_what_comes_out_is_checked():
    @perdure.cell("com.acme/careless@1", key="order", effects=[])
    def careless(state: Order | None, event: Placed) -> Next:
        match event.order:
            case "effect":
                return Next(Order(), effects=[Charge("o-1", 1)])
            case "state":
                return Next(Order("charging", -1))
            case "events":
                return Next(Order(), events=[Paid("o-1")] * 257)
            case "event":
                return Next(Order(), events=[Paid(17)])  # type: ignore[arg-type]
            case _:
                return Order()  # type: ignore[return-value]

    for wrong, error in {
        "effect": perdure.BadDecision,
        "state": perdure.SchemaMismatch,
        "events": OverflowError,
        "event": perdure.SchemaMismatch,
        "nothing": perdure.BadDecision,
    }.items():
        with pytest.raises(error):
            reduce(careless, None, Placed(wrong, 1))


def test_the_context_is_what_the_test_says():
    @perdure.cell("com.acme/clock@1", key="order", effects=[])
    def clock(state: Order | None, event: Placed, ctx: perdure.CellContext) -> Next:
        return Next(Order(tries=ctx.now), events=[Paid(f"{ctx.key} {ctx.correlation} {ctx.height} {ctx.mode}")])

    assert reduce(clock, None, Placed("o-1", 1)).events == [Paid("o-1  1 keyed")]
    state, events, _ = reduce(clock, None, Placed("o-1", 1), now=7, correlation="c", height=3, key="k")
    assert (state, events) == (Order(tries=7), [Paid("k c 3 keyed")])


def test_equal_worlds_have_equal_snapshots() -> None:
    def lived(*cents: int) -> str:
        with World(order) as world:
            for n, each in enumerate(cents):
                world.send(Placed(f"o-{n}", each))
            return world.snapshot().hash

    assert lived(1, 2) == lived(1, 2) != lived(1, 3)
