"""Effects: what a cell may ask for, the ids of what it asked, and what performs it."""

import re
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest

import perdure
from perdure import Next, ReceiptOf
from perdure.cells.effects import Alarm, Publish
from perdure.codec import encode
from perdure.errors import BadDefinition
from tests.cells.shop import Charge, Dropped, Order, Paid, Placed, book, order


class Go(perdure.Record, name="com.acme/Go@1"):
    id: str
    what: str = ""


class Ask(perdure.Effect, name="com.acme/ask@1"):
    text: str
    number: perdure.Nat = 0

    class Receipt(perdure.Record):
        text: str


@perdure.cell("com.acme/asks@1", key="id", effects=[Ask])
def asks(state: Order | None, event: Go | ReceiptOf[Ask], ctx: perdure.CellContext) -> Next:
    if isinstance(event, ReceiptOf):
        return Next(Order(event.value.text if event.ok else str(event.error)))
    match event.what:
        case "undeclared":
            return Next(Order("never"), [Paid("o", "a")], [Ask("one"), Charge("o", 1)])
        case "badly typed":
            return Next(Order("never"), [Paid("o", "a")], [Ask("one"), Ask("two", -1)])
        case "no effect":
            return Next(Order("never"), [Paid("o", "a")], [Ask("one"), "two"])
        case "a class":
            return Next(Order("never"), [Paid("o", "a")], [Ask("one"), Ask])
        case "unknown event":
            return Next(Order("never"), [Paid("o", "a"), Dropped("o")], [Ask("one")])
        case "bad event":
            return Next(Order("never"), [Paid("o", "a"), Paid("o", 7)], [Ask("one")])  # type: ignore[arg-type]
        case "bad state":
            return Next(Order("never", [7]), [Paid("o", "a")], [Ask("one")])  # type: ignore[list-item]
        case "annotations":
            return Next(Order("never"), [Paid("o", "a")], [Ask("one")], Order("a note"))
        case "bad in every part":
            return Next(Order("never", [7]), [Paid("o", 7)], [Charge("o", 1)])  # type: ignore[list-item, arg-type]
        case "other state":
            return Next(Paid("o", "a"), [Paid("o", "a")], [Ask("one")])
        case "no next":
            return Order("never")  # type: ignore[return-value]
        case "too many effects":
            return Next(Order("never"), [Paid("o", "a")], [Ask(str(n)) for n in range(65)])
        case "too many events":
            return Next(Order("never"), [Paid("o", "a")] * 257, [Ask("one")])
        case "too large":
            return Next(Order("never"), [Paid("o", "a" * (1 << 20))], [Ask("one")])
        case "no list":
            return Next(Order("never"), [Paid("o", "a")], Ask("one"))  # type: ignore[arg-type]
        case "no list of events":
            return Next(Order("never"), Paid("o", "a"), [Ask("one")])  # type: ignore[arg-type]
        case "deleted":
            return Next(None, [Paid("o", "a")], [Ask("one")])
        case "raises":
            raise ZeroDivisionError("no")
        case "timeout" | "issuer" | "key":
            return Next(Order("never"), [Paid("o", "a")], [Ask("one"), Ask("two").options(**OPTIONS[event.what])])
        case "most":
            return Next(Order("most"), [Paid("o", "a")] * 256, [Ask(str(n)) for n in range(64)])
        case "equal":
            return Next(Order("equal"), effects=[Ask("same"), Ask("same")])
        case _:
            return Next(Order("asked"), effects=[Ask(event.what)])


OPTIONS: dict[str, dict[str, Any]] = {
    "timeout": {"timeout": "5"},
    "issuer": {"issuer": 7},
    "key": {"key": "\ud800"},
}


REFUSED = {
    "timeout": r"SchemaMismatch.*options: \$.timeout: expected a positive number of nanoseconds, found str '5'",
    "issuer": r"SchemaMismatch.*options: \$.issuer: expected text, found int 7",
    "key": r"SchemaMismatch.*options: \$.key: expected text, found text that is not valid Unicode",
    "undeclared": r"BadDecision.*'payment/charge@1' is not declared; declared are: com.acme/ask@1",
    "badly typed": r"SchemaMismatch.*number",
    "no effect": r"BadDecision.*'two'.* is not declared.*an effect is a record with a name",
    "a class": r"BadDecision.*this is a class, write Ask\(\.\.\.\)",
    "unknown event": r"UnknownEvent.*com.acme/Dropped@1",
    "bad event": r"SchemaMismatch.*auth",
    "bad state": r"SchemaMismatch.*auths",
    "annotations": r"BadDecision.*it returned annotations and declares none",
    "bad in every part": r"SchemaMismatch.*auths",  # the state is looked at first
    "other state": r"SchemaMismatch.*com.acme/Order@1",
    "no next": r"BadDecision.*returns perdure.Next",
    "too many effects": r"LimitExceeded.*65 effects; the limit is 64",
    "too many events": r"LimitExceeded.*257 messages; the limit is 256",
    "too large": r"LimitExceeded.*the limit is 1048576",
    "no list": r"BadDecision.*effects=\.\.\.\) takes a list, found Ask\(.*write effects=\[\.\.\.\]",
    "no list of events": r"BadDecision.*events=\.\.\.\) takes a list, found Paid\(",
    "deleted": r"BadDecision.*deleted cell cannot ask for effects",
    "raises": r"ZeroDivisionError.*no",
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_decision_that_is_wrong_in_any_part_is_refused_whole(stage, what):
    """Undeclared, unknown or badly typed effects, output over the limits, a state that is none: nothing happens."""
    async with stage.open(asks, book, lenient=True) as live:
        await live.send(Go("g", "before"), id="1")
        await live.until(asks, "g", ASKED_IN_VAIN)
        await live.send(Go("g", what))

        assert await live.status(asks, "g") == "stuck"
        stuck = (await live.entries(asks, "g"))[-1].decision
        assert (stuck.open, stuck.announce, stuck.publish, stuck.outcome) == ((), (), (), None)
        assert stuck.stuck is not None and stuck.stuck.kept
        assert re.search(REFUSED[what], str(stuck.stuck.error), re.DOTALL)
        assert await live.state(asks, "g") == ASKED_IN_VAIN
        assert await live.open(asks, "g") == []
        assert await live.state(book) is None


ASKED_IN_VAIN = Order(
    "NoHandler: this engine has no handler for com.acme/ask@1; it has: none; open it with handlers=[...]"
)


@pytest.mark.parametrize(
    "wrong", [{"timeout": "5"}, {"timeout": 0}, {"once": 1}, {"outside": 7}, {"outside": "\ud800"}]
)
def test_options_of_an_effect_are_checked_where_it_is_defined(wrong: Any):
    with pytest.raises(BadDefinition, match=rf"Wrong\.{next(iter(wrong))}: expected "):

        class Wrong(perdure.Effect, name="com.acme/wrong@1", **wrong):
            pass


def test_effects_are_declared_in_a_list():
    with pytest.raises(BadDefinition, match=r"effects: expected a list of effects.*effects=\[\.\.\.\]"):
        perdure.cell("com.acme/one@1", key="id", effects=Ask)  # type: ignore[arg-type]


def test_a_name_means_one_thing_in_a_world():
    """The last class that bore it won: cells asked for what the manifest said was something else."""

    class Other(perdure.Effect, name="com.acme/ask@1"):
        number: int

    @perdure.cell("com.acme/others@1", key="id", effects=[Other])
    def others(state: Order | None, event: Go | ReceiptOf[Other]) -> Next:
        return Next(None)

    class Again(perdure.Record, name="com.acme/Go@1"):
        id: int

    @perdure.cell("com.acme/again@1", key="id", effects=[])
    def again(state: Order | None, event: Again) -> Next:
        return Next(None)

    for cell, name in ((others, "com.acme/ask@1"), (again, "com.acme/Go@1")):
        with pytest.raises(BadDefinition, match=rf"expected one .* {name}, found .*use the next version"):
            perdure.manifest(asks, book, cell)


async def test_as_much_as_the_limits_allow_is_allowed(stage):
    async with stage.open(asks, book, lenient=True) as live:
        await live.send(Go("g", "most"))

        first = (await live.entries(asks, "g"))[0].decision
        assert (len(first.open), len(first.announce)) == (64, 256)
        assert len((await live.state(book)).paid) == 256


@perdure.cell("com.acme/speaker@1", key="id", effects=[Publish])
def speaker(state: Order | None, event: Go) -> Next:
    return Next(Order("spoke"), effects=[Publish.of(f"n{n}", n) for n in range(int(event.what))])


async def test_what_is_published_counts_as_an_effect(stage):
    async with stage.open(speaker) as live:
        await live.send(Go("g", "64"))
        await live.send(Go("h", "65"))

        assert len((await live.entries(speaker, "g"))[0].decision.publish) == 64
        assert "65 effects; the limit is 64" in str(await live.engine.handle("com.acme/speaker", "h").error())


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"effects": 63}, "64 effects; the limit is 63"),
        ({"events": 255}, "256 messages; the limit is 255"),
        ({"bytes": 1000}, "the limit is 1000"),
    ],
)
async def test_limits_can_be_set(stage, limits, text):
    async with stage.open(perdure.manifest(asks, book, limits=limits), lenient=True) as live:
        await live.send(Go("g", "most"))

        assert text in str(await live.engine.handle("com.acme/asks", "g").error())


async def test_limits_can_be_raised_one_by_one(stage):
    async with stage.open(perdure.manifest(asks, book, limits={"effects": 65}), lenient=True) as live:
        await live.send(Go("g", "too many effects"))
        await live.send(Go("h", "too many events"))

        assert len((await live.entries(asks, "g"))[0].decision.open) == 65
        assert await live.status(asks, "h") == "stuck"


def test_limits_that_are_none_are_refused():
    for limits in ({"messages": 7}, {"effects": -1}, {"effects": 6.5}, {"bytes": "1 MiB"}):
        with pytest.raises(perdure.BadDefinition, match="limits"):
            perdure.manifest(asks, limits=limits)  # type: ignore[arg-type]


async def test_intent_ids_are_distinct_for_equal_params(stage):
    async with stage.open(asks, book, lenient=True) as live:
        for _ in range(2):
            await live.send(Go("g", "equal"))

        ids = [id for entry in await live.entries(asks, "g") for id in entry.decision.ids]
        assert len(ids) == len(set(ids)) == 4


async def test_intent_ids_are_stable_across_replay_and_restart(disk):
    async with disk.open(order, book) as live:
        await live.send(Placed("o-1"))
        before = [intent.id for intent in await live.open(order, "o-1")]
    async with disk.open(order, book) as live:
        assert [intent.id for intent in await live.open(order, "o-1")] == before
        await live.answer(order, "o-1", {"auth": "a"})

        assert await live.state(order, "o-1") == Order("paid", ["a"])


async def test_an_intent_id_is_the_hash_of_what_was_asked(stage):
    bound = perdure.manifest(order, book)
    async with stage.open(bound) as live:
        await live.send(Placed("o-1", cents=5))

        (entry,) = await live.entries(order, "o-1")
        asked = {
            "cell": "com.acme/order@1",
            "cell_hash": bound.manifest.cell_hash("com.acme/order@1"),
            "key": "o-1",
            "effect": "payment/charge@1",
            "effect_hash": bound.manifest.effect_hash("payment/charge@1"),
            "params": encode({"order": "o-1", "cents": 5}),
            "idempotency_key": "",
            "index": 1,
            "entry": entry.seq,
        }
        assert [intent.id for intent in await live.open(order, "o-1")] == [sha256(encode(asked)).digest()]


async def test_declared_but_unimplemented_is_refused_at_the_start(stage):
    with pytest.raises(perdure.NoHandler, match=r"com.acme/asks@1 declares the effect com.acme/ask@1"):
        async with stage.open(asks):
            pass


async def test_declared_but_unimplemented_may_start_and_is_refused_when_it_is_asked_for(stage):
    async with stage.open(asks, book, lenient=True) as live:
        await live.send(Go("g"))

        await live.until(asks, "g", ASKED_IN_VAIN)


@pytest.mark.parametrize("sync", [False, True], ids=["async", "thread"])
async def test_a_handler_gets_the_params_and_gives_the_receipt(stage, sync):
    calls = []

    if sync:

        @perdure.effect_handler(Ask)
        def answer(params: Ask, call: perdure.Call) -> Ask.Receipt:
            calls.append((params, call.key, call.delivery))
            return Ask.Receipt(params.text.upper())
    else:

        @perdure.effect_handler(Ask)
        async def answer(params: Ask, call: perdure.Call) -> Ask.Receipt:
            calls.append((params, call.key, call.delivery))
            return Ask.Receipt(params.text.upper())

    async with stage.open(asks, book, handlers=[answer]) as live:
        await live.send(Go("g", "hello"))
        await live.until(asks, "g", Order("HELLO"))

    assert calls == [(Ask("hello"), "g", 1)]


@pytest.mark.parametrize("sync", [False, True], ids=["async", "thread"])
async def test_what_a_handler_returns_that_is_no_receipt_is_an_error_that_names_the_handler(stage, sync):
    if sync:

        @perdure.effect_handler(Ask)
        def answer(params: Ask, call: perdure.Call) -> None: ...
    else:

        @perdure.effect_handler(Ask)
        async def answer(params: Ask, call: perdure.Call) -> None: ...

    async with stage.open(asks, book, handlers=[answer]) as live:
        await live.send(Go("g", "hello"))
        text = "what the handler of com.acme/ask@1 returned: $: expected a record of text, found None"
        await live.until(asks, "g", Order(f"SchemaMismatch: {text}"))


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
async def test_a_handler_that_wants_to_end_the_process_has_failed(stage, kind):
    @perdure.effect_handler(Ask)
    async def answer(params: Ask, call: perdure.Call) -> Ask.Receipt:
        raise kind("bye")

    async with stage.open(asks, book, handlers=[answer]) as live:
        await live.send(Go("g", "hello"))
        await live.until(asks, "g", Order(f"{kind.__name__}: bye"))


async def test_the_idempotency_key_of_the_cell_is_the_one_that_a_handler_gets(stage):
    keys = []

    @perdure.cell("com.acme/keys@1", key="id", effects=[Ask])
    def asks_with_key(state: Order | None, event: Go | ReceiptOf[Ask]) -> Next:
        if isinstance(event, Go):
            return Next(Order("asked"), effects=[Ask("a").options(key="mine", issuer="i-1"), Ask("b")])
        return Next(Order("done", [*(state or Order()).auths, event.issuer]))

    @perdure.effect_handler(Ask)
    async def answer(params: Ask, call: perdure.Call) -> Ask.Receipt:
        keys.append(call.idempotency_key)
        return Ask.Receipt("")

    async with stage.open(asks_with_key, handlers=[answer]) as live:
        await live.send(Go("g"))
        await live.until(asks_with_key, "g", Order("done", ["i-1", ""]))

    assert keys[0] == "mine" and keys[1] not in ("", "mine")


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"timeout": timedelta(seconds=1)}, "$.timeout"),
        ({"timeout": 1.5}, "$.timeout"),
        ({"timeout": True}, "$.timeout"),
        ({"timeout": 0}, "$.timeout"),
        ({"key": 7}, "$.key"),
        ({"key": None}, "$.key"),
        ({"issuer": "\ud800"}, "$.issuer"),
    ],
    ids=repr,
)
async def test_options_of_another_type_are_refused_and_the_neighbours_go_on(stage, options, path):
    """They were recorded as they were, and stopped the engine that came to use them."""

    @perdure.cell("com.acme/hasty@1", key="id", effects=[Ask])
    def hasty(state: Order | None, event: Go | ReceiptOf[Ask]) -> Next:
        return Next(Order("asked"), effects=[Ask("a").options(**options)] if event == Go("bad") else [])

    async with stage.open(hasty, lenient=True) as live:
        await live.send(Go("bad"))
        await live.send(Go("good"))

        error = await live.engine.handle("com.acme/hasty", "bad").error()
        assert error.type == "SchemaMismatch" and f"options: {path}: expected " in error.message
        assert await live.state(hasty, "good") == Order("asked")


async def test_a_handler_that_returns_something_else_is_an_error(stage):
    @perdure.effect_handler(Ask)
    async def answer(params: Ask, call: perdure.Call) -> Ask.Receipt:
        return Ask.Receipt(7)  # type: ignore[arg-type]

    async with stage.open(asks, book, handlers=[answer]) as live:
        await live.send(Go("g"))

        await live.until(asks, "g", lambda state: state.status.startswith("SchemaMismatch: "))


async def test_a_published_value_is_there_with_its_entry_and_has_no_receipt(stage):
    @perdure.cell("com.acme/publisher@1", key="id", effects=[Publish])
    def publisher(state: Order | None, event: Go) -> Next:
        return Next(Order("published"), effects=[Publish.of("what", event.what)])

    async with stage.open(publisher) as live:
        await live.send(Go("g", "news"))

        handle = live.engine.handle("com.acme/publisher", "g")
        assert await handle.read("what") == "news"
        assert await live.open(publisher, "g") == []


async def test_an_alarm_is_answered_at_its_time(stage):
    @perdure.cell("com.acme/alarms@1", key="id", effects=[Alarm])
    def alarms(state: Order | None, event: Go | ReceiptOf[Alarm], ctx: perdure.CellContext) -> Next:
        if isinstance(event, Go):
            return Next(Order("set"), effects=[Alarm(after=1000), Alarm(at=ctx.now)])
        return Next(Order("rung", [*(state or Order()).auths, event.status]))

    async with stage.open(alarms) as live:
        await live.send(Go("g"))
        await live.until(alarms, "g", Order("rung", ["ok", "ok"]))


@pytest.mark.parametrize("alarm", [Alarm(after=2**63 - 1), Alarm(at=2**63 - 1), Charge("x", 1).options(timeout=2**80)])
async def test_a_time_that_fits_into_no_row_is_the_last_one_that_does(stage, alarm):
    @perdure.cell("com.acme/far@1", key="id", effects=[Alarm, Charge])
    def far(state: Order | None, event: Go | ReceiptOf[Alarm | Charge]) -> Next:
        return Next(Order("far"), effects=[alarm])

    async with stage.open(far) as live:
        await live.send(Go("a", "x"))

        (intent,) = await live.open(far, "a")
        assert intent.effect.due == 2**63 - 1
        assert live.engine.counts.get("crashes", 0) == 0


async def test_a_timeout_that_fits_into_no_row_is_the_longest_that_does(stage):
    @perdure.cell("com.acme/calm@1", key="id", effects=[Ask])
    def calm(state: Order | None, event: Go | ReceiptOf[Ask]) -> Next:
        if isinstance(event, Go):
            return Next(Order("asked"), effects=[Ask("x").options(timeout=2**80)])
        return Next(Order(event.value.text))

    @perdure.effect_handler(Ask)
    async def ask(params: Ask, call: perdure.Call) -> Ask.Receipt:
        return Ask.Receipt(str(call.timeout))

    async with stage.open(calm, handlers=[ask]) as live:
        await live.send(Go("a"))

        await live.until(calm, "a", Order(str(2**63 - 1)))


async def test_an_alarm_in_the_past_is_answered_at_once(stage):
    @perdure.cell("com.acme/late@1", key="id", effects=[Alarm])
    def late(state: Order | None, event: Go | ReceiptOf[Alarm]) -> Next:
        if isinstance(event, Go):
            return Next(Order("asked"), effects=[Alarm(at=-5), Alarm(after=-(2**63)), Alarm()])
        assert state is not None
        return Next(Order("rung", [*state.auths, event.status]))

    async with stage.open(late) as live:
        await live.send(Go("a", "x"))

        await live.until(late, "a", Order("rung", ["ok"] * 3))
