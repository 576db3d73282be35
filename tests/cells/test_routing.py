"""Routing: which cells hear of an event, in which order, by which key."""

from collections.abc import Sequence
from enum import StrEnum
from uuid import UUID

import pytest

import perdure
from perdure import Next, ReceiptOf, Rejected
from perdure.cells.effects import Spawn
from perdure.cells.manifest import Subscription
from perdure.codec import digest, encode
from perdure.kernel.events import Message, Started
from tests.cells.shop import Book, Charge, Dropped, Order, Paid, Placed, book, order


class Heard(perdure.Record, name="com.acme/Heard@1"):
    what: list[str]


def hear(state: Heard | None, text: str, effects: Sequence[object] = ()) -> Next:
    return Next(Heard([*(state.what if state else []), text]), effects=effects)


class Note(perdure.Record):
    id: str


class Noted(perdure.Record, name="com.acme/Noted@1"):
    note: Note
    text: str = ""


class Poked(perdure.Record, name="com.acme/Poked@1"):
    id: str


@perdure.cell("com.acme/first@1", key="id", effects=[])
def first(state: Heard | None, event: Poked) -> Next:
    return hear(state, "first")


@perdure.cell("com.acme/second@1", key="id", effects=[])
def second(state: Heard | None, event: Poked) -> Next:
    return hear(state, "second")


@perdure.cell("com.acme/note@1", key={Noted: "note.id", Poked: "id"}, effects=[])
def note(state: Heard | None, event: Noted | Poked) -> Next:
    return hear(state, type(event).__name__)


async def order_of_delivery(live) -> list[str]:
    """The cells whose entries follow the world's own, in the order of the journal."""
    names = {head.id: head.workflow for head in await live.engine.instances()}
    return [names[row.instance] for row in await live.journal() if names[row.instance] != "sys/world"]


@pytest.mark.parametrize("cells", [(first, second), (second, first)], ids=["first", "second"])
async def test_manifest_order(stage, cells):
    async with stage.open(*cells) as live:
        await live.send(Poked("a"))
        await live.send(Poked("b"))

        names = [cell.name.partition("@")[0] for cell in cells]
        assert await order_of_delivery(live) == names * 2


async def test_the_routing_of_a_manifest_decides_not_the_order_of_its_cells(stage):
    routing = [Subscription(Poked.__perdure_name__, cell.name, "id") for cell in (second, first)]
    async with stage.open(perdure.manifest(first, second, routing=routing)) as live:
        await live.send(Poked("a"))

        assert await order_of_delivery(live) == ["com.acme/second", "com.acme/first"]


async def test_variant_wrap(stage):
    """A cell that takes several events gets each as what it is."""
    async with stage.open(note) as live:
        await live.send(Noted(Note("n")))
        await live.send(Poked("n"))

        assert await live.state(note, "n") == Heard(["Noted", "Poked"])


async def test_nested_key_path(stage):
    async with stage.open(note) as live:
        await live.send(Noted(Note("deep"), "x"))

        assert await live.state(note, "deep") == Heard(["Noted"])
        assert await live.state(note, "x") is None


async def test_unkeyed(stage):
    async with stage.open(book) as live:
        await live.send(Paid("o-1", "a"))
        await live.send(Paid("o-2", "b"))

        assert await live.state(book) == Book(["o-1", "o-2"])
        assert [each.key for each in await live.engine.instances(workflow="com.acme/book")] == [""]


async def test_two_subscribers(stage):
    async with stage.open(first, second, note) as live:
        await live.send(Poked("a"))

        assert await live.state(first, "a") == Heard(["first"])
        assert await live.state(second, "a") == Heard(["second"])
        assert await live.state(note, "a") == Heard(["Poked"])


async def test_unrouted_is_recorded(stage):
    async with stage.open(perdure.manifest(first, events=[Placed])) as live:
        await live.send(Placed("o-1"))

        assert await live.facts() == [("com.acme/Placed@1", {"order": "o-1", "cents": 1})]
        assert live.engine.counts["unrouted"] == 1


async def test_an_event_with_an_id_that_came_before_is_dropped(stage):
    async with stage.open(first) as live:
        for _ in range(3):
            await live.send(Poked("a"), id="e-1")
        await live.send(Poked("a"), id="e-2")

        assert await live.state(first, "a") == Heard(["first", "first"])
        assert live.engine.counts["duplicate"] == 2


async def test_an_event_with_an_id_is_dropped_by_the_next_engine_too(disk):
    async with disk.open(first) as live:
        await live.send(Poked("a"), id="e-1")
    async with disk.open(first) as live:
        await live.send(Poked("a"), id="e-1")

        assert await live.state(first, "a") == Heard(["first"])


async def test_a_correlation_goes_with_everything_that_an_event_leads_to(stage):
    """Through an emitted event, and through a receipt."""
    async with stage.open(order, book) as live:
        await live.send(Placed("o-1"), correlation="c-1")
        await live.answer(order, "o-1", {"auth": "a-1"})

        started = (await live.entries(book))[0].event
        assert isinstance(started, Started) and isinstance(started.first, Message)
        assert started.first.correlation == "c-1"


async def test_a_correlation_is_plain_text_whatever_it_was_sent_as(stage):
    """As a replay has it."""

    class Case(StrEnum):
        ONE = "c-1"

    @perdure.cell("com.acme/case@1", key="id", effects=[])
    def case(state: Heard | None, event: Poked, ctx: perdure.CellContext) -> Next:
        return hear(state, repr(ctx.correlation))

    async with stage.open(case) as live:
        await live.send(Poked("a"), id=Case.ONE, correlation=Case.ONE)

        assert await live.state(case, "a") == Heard(["'c-1'"])


async def test_domain_events_are_delivered_in_the_order_of_the_output(stage):
    class Go(perdure.Record, name="com.acme/Go@1"):
        id: str

    @perdure.cell("com.acme/source@1", key="id", effects=[])
    def source(state: Heard | None, event: Go) -> Next:
        return Next(Heard([]), events=[Paid(f"o-{n}", "") for n in range(20)])

    async with stage.open(source, book) as live:
        await live.send(Go("g"))

        assert await live.state(book) == Book([f"o-{n}" for n in range(20)])


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, -7), (perdure.Nat, 7), (UUID, UUID(int=7)), (perdure.Hash, "sha256:" + "0" * 64)],
    ids=["int", "nat", "uuid", "hash"],
)
async def test_keys_of_every_kind(stage, kind, value):
    class Event(perdure.Record, name="com.acme/Event@1"):
        id: kind  # type: ignore[valid-type]

    @perdure.cell("com.acme/keyed@1", key="id", effects=[])
    def keyed(state: Heard | None, event: Event, ctx: perdure.CellContext) -> Next:
        return hear(state, ctx.key)

    async with stage.open(keyed) as live:
        await live.send(Event(value))

        assert await live.state(keyed, value) == Heard([str(value)])


async def test_the_context_is_recorded_or_derived(stage):
    seen = []

    class Seen(perdure.Record, name="com.acme/Seen@1"):
        now: perdure.Time
        height: int
        entropy: bytes
        hashes: list[str]

    @perdure.cell("com.acme/watch@1", key="order", effects=[])
    def watch(state: Seen | None, event: Paid, ctx: perdure.CellContext) -> Next:
        seen.append(ctx)
        return Next(Seen(ctx.now, ctx.height, ctx.entropy, [ctx.event_hash, ctx.manifest_hash, ctx.cell_hash]))

    bound = perdure.manifest(order, watch)
    async with stage.open(bound) as live:
        await live.send(Placed("o-1"))
        await live.answer(order, "o-1", {"auth": "a"})  # so that it hears of an event that a cell emitted

        state, (entry,) = await live.state(watch, "o-1"), await live.entries(watch, "o-1")
        assert len(set(map(repr, seen))) == 1 and len(seen) > 1  # live and in replays
        assert (state.now, state.height, len(state.entropy)) == (entry.at, entry.seq, 64)
        assert state.hashes[0] == digest(encode({"order": "o-1", "auth": "a"}))
        assert state.hashes[1] == bound.manifest.hash
        assert state.hashes[2] == bound.manifest.cell_hash("com.acme/watch@1")
        assert (seen[0].cell, seen[0].key, seen[0].mode) == ("com.acme/watch@1", "o-1", "keyed")
        assert await live.state(order, "o-1") == Order("paid", ["a"])


async def test_the_context_of_every_delivery_is_its_own(stage):
    """Of a receipt and of a cell without keys too. No two entries have the same entropy."""
    seen: dict[int, perdure.CellContext] = {}

    @perdure.cell("com.acme/watch@1", effects=[Charge])
    def watch(state: Heard | None, event: Poked | ReceiptOf[Charge] | Rejected, ctx: perdure.CellContext) -> Next:
        seen[ctx.height] = ctx
        return hear(state, type(event).__name__, effects=[Charge(event.id, 1)] if isinstance(event, Poked) else [])

    async with stage.open(watch, first) as live:
        await live.send(Poked("a"), correlation="c-1")
        await live.answer(watch, "", {"auth": "x"})
        await live.send(Poked("b"), correlation="c-2")
        await live.answer(watch, "", payload=encode(7))

        entries = await live.entries(watch)
        contexts = [seen[entry.seq] for entry in entries]
        assert await live.state(watch) == Heard(["Poked", "ReceiptOf", "Poked", "Rejected"])
        assert [each.correlation for each in contexts] == ["c-1", "c-1", "c-2", "c-2"]
        assert [each.event_hash for each in contexts] == [
            digest(encode(value)) for value in ({"id": "a"}, {"auth": "x"}, {"id": "b"}, 7)
        ]
        assert {(each.mode, each.key, each.logical_now == each.now) for each in contexts} == {("unkeyed", "", True)}
        assert len({each.entropy for each in contexts}) == 4


@pytest.mark.parametrize("id", [None, "e-1"])
async def test_two_subscriptions_that_lead_to_one_cell_are_two_deliveries(stage, id):
    class Moved(perdure.Record, name="com.acme/Moved@1"):
        source: str
        target: str

    @perdure.cell("com.acme/account@1", key="source", effects=[])
    def account(state: Heard | None, event: Moved) -> Next:
        return hear(state, event.target)

    both = [Subscription("com.acme/Moved@1", account.name, field) for field in ("source", "target")]
    async with stage.open(perdure.manifest(account, routing=both)) as live:
        await live.send(Moved("a", "a"), id=id)
        await live.send(Moved("a", "b"), id=id and "e-2")
        await live.send(Moved("a", "a"), id=id or "e-3")

        assert await live.state(account, "a") == Heard(["a", "a", "b"] if id else ["a", "a", "b", "a", "a"])
        assert await live.state(account, "b") == Heard(["b"])


class Named(perdure.Record, name="com.acme/Named@1"):
    id: str
    times: perdure.Nat = 1


@perdure.flow
async def errand(ctx: perdure.Context) -> None:
    pass


@perdure.cell("com.acme/namer@1", effects=[Spawn])
def namer(state: Heard | None, event: Named | perdure.ReceiptOf[Spawn]) -> Next:
    if not isinstance(event, Named):
        return Next(state)
    if event.id == "child":
        return Next(Heard([]), effects=[Spawn.of(errand, key="k" * event.times)])
    return Next(Heard([]), events=[Poked(event.id * event.times)])


@pytest.mark.parametrize(
    "event", [Named("k", 513), Named("\x00"), Named("child", 513)], ids=["long", "NUL", "of a child"]
)
async def test_a_key_that_no_handle_can_name_is_a_bad_decision(stage, event):
    async with stage.open(namer, first) as live:
        await live.send(Named("k", 512))
        await live.send(event)

        assert await live.state(first, "k" * 512) == Heard(["first"])
        error = await live.engine.handle("com.acme/namer", "").error()
        assert error.type == "BadDecision"
        assert "a key is a text of at most 512 characters without NUL" in error.message
        assert [head.workflow for head in await live.engine.instances()] == [
            "com.acme/first",
            "com.acme/namer",
            "sys/world",
        ]


async def test_the_same_id_with_another_event_is_refused(stage):
    async with stage.open(order, book) as live:
        await live.send(Placed("o-1", 1), id="e-1")
        await live.send(Placed("o-1", 1), id="e-1")  # the same: taken once
        before = await live.journal()

        for other in (Placed("o-1", 2), Placed("o-2", 1), Dropped("o-1")):
            with pytest.raises(perdure.CallerError, match="another message with the id 'e-1': an id names one message"):
                await live.send(other, id="e-1")
        assert await live.journal() == before


async def test_the_same_id_with_another_event_is_refused_by_the_next_engine_too(disk):
    async with disk.open(order, book) as live:
        await live.send(Placed("o-1", 1), id="e-1")
    async with disk.open(order, book) as live:
        await live.send(Placed("o-1", 1), id="e-1")

        with pytest.raises(perdure.CallerError, match="an id names one message"):
            await live.send(Placed("o-1", 2), id="e-1")
        assert len(await live.entries(order, "o-1")) == 1
