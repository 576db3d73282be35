"""Bad input: one typed error each, with path and hint; and the world stays as it was."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

import perdure
from perdure import Next
from perdure.cells.bound_manifest import BoundManifest
from perdure.cells.manifest import read
from perdure.codec import encode
from perdure.kernel.events import Message
from perdure.kernel.rules import RULER
from tests.cells.shop import Charge, Dropped, Order, Paid, Placed, book, order


class Stranger(perdure.Record, name="com.acme/Stranger@1"):
    order: str


class Counted(perdure.Record, name="com.acme/Counted@1"):
    number: perdure.Nat
    who: UUID


@perdure.cell("com.acme/counter@1", key="number", effects=[])
def counter(state: Order | None, event: Counted) -> Next:
    return Next(Order(str(event.number)))


PLACED, COUNTED = "com.acme/Placed@1", "com.acme/Counted@1"
WHO = "00000000-0000-0000-0000-000000000007"

SENT: dict[str, tuple[Any, type[Exception], str]] = {
    "a wrong field": (Placed(7), perdure.SchemaMismatch, r"\$\.order"),  # type: ignore[arg-type]
    "a number out of range": (Placed("o-1", -1), perdure.SchemaMismatch, r"\$\.cents"),
    "a key of the wrong type": (Counted("7", UUID(WHO)), perdure.SchemaMismatch, r"\$\.number"),  # type: ignore[arg-type]
    "data with a wrong field": (perdure.Datum(PLACED, {"order": 7, "cents": 1}), perdure.SchemaMismatch, "order"),
    "data with a missing field": (perdure.Datum(PLACED, {"order": "o-1"}), perdure.SchemaMismatch, "cents"),
    "data with a missing key": (perdure.Datum(PLACED, {"cents": 1}), perdure.SchemaMismatch, "order"),
    "data with one field too many": (
        perdure.Datum(PLACED, {"order": "o-1", "cents": 1, "more": 1}),
        perdure.SchemaMismatch,
        "more",
    ),
    "an unknown schema": (Stranger("o-1"), perdure.UnknownEvent, r"com.acme/Stranger@1.*known are|did you mean"),
    "a name that is nearly one": (perdure.Datum("com.acme/Placd@1", {}), perdure.UnknownEvent, "did you mean"),
    "data without a name": (perdure.Datum(["x"], {}), perdure.UnknownEvent, "knows no such event"),  # type: ignore[arg-type]
    "something else": ("o-1", perdure.UnknownEvent, "knows no such event: an event is a record with a name"),
    "the class of an event": (Placed, perdure.UnknownEvent, r"this is a class, write Placed\(...\)"),
}


@pytest.mark.parametrize("what", SENT)
async def test_an_event_that_is_none_is_refused(stage, what):
    event, error, text = SENT[what]
    async with stage.open(order, book, counter) as live:
        await live.send(Placed("o-1"))
        before = await live.journal()

        with pytest.raises(error, match=f"(?s){text}"):
            await live.engine.send(event)

        assert await live.journal() == before


JSON: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "a missing field": (COUNTED, {"number": 7}, perdure.SchemaMismatch, "who"),
    "a missing key": (COUNTED, {"who": WHO}, perdure.SchemaMismatch, "number"),
    "a wrong field": (COUNTED, {"number": 7, "who": "me"}, perdure.SchemaMismatch, "who"),
    "a key of the wrong type": (COUNTED, {"number": "seven", "who": WHO}, perdure.SchemaMismatch, "number"),
    "a negative key": (COUNTED, {"number": -7, "who": WHO}, perdure.SchemaMismatch, "number"),
    "an unknown field": (COUNTED, {"number": 7, "who": WHO, "x": 1}, perdure.SchemaMismatch, "x"),
    "no object": (COUNTED, [7], perdure.SchemaMismatch, ""),
    "an unknown schema": ("com.acme/Nobody@1", {}, perdure.UnknownEvent, "com.acme/Nobody@1"),
    "no name": (None, {}, perdure.UnknownEvent, "None: .* known are"),
    "an effect": ("payment/charge@1", {"order": "o", "cents": 1}, perdure.UnknownEvent, "payment/charge@1"),
    "what belongs to perdure": ("sys/Rejected@1", {}, perdure.UnknownEvent, "sys/Rejected@1"),
}


@pytest.mark.parametrize("what", JSON)
async def test_json_that_is_no_event_is_refused(stage, what):
    name, data, error, text = JSON[what]
    async with stage.open(order, book, counter) as live:
        await live.send(Placed("o-1"))
        before = await live.journal()

        with pytest.raises(error, match=f"(?s){text}"):
            await live.engine.send_json(name, data)

        assert await live.journal() == before


def parcels(*, weighed: bool) -> tuple[perdure.Cell, perdure.Record]:
    """Programs of different age: a cell, and an event for it, by what each knows of a record inside of the event."""

    class Light(perdure.Record, name="com.acme/Parcel@1"):
        order: str

    class Weighed(perdure.Record, name="com.acme/Parcel@1"):
        order: str
        grams: perdure.Nat

    class Sent(perdure.Record, name="com.acme/Sent@1"):
        parcel: Weighed if weighed else Light  # type: ignore[valid-type]

    @perdure.cell("com.acme/parcel@1", key="parcel.order", effects=[])
    def parcel(state: Order | None, event: Sent) -> Next:
        return Next(Order("sent"))

    return parcel, Sent(Weighed("o-1", 7) if weighed else Light("o-1"))


@pytest.mark.parametrize("weighed", [False, True])
async def test_an_event_with_a_record_inside_that_the_manifest_knows_otherwise_is_refused(stage, weighed):
    parcel, _ = parcels(weighed=weighed)
    _, event = parcels(weighed=not weighed)
    async with stage.open(parcel) as live:
        before = await live.journal()

        with pytest.raises(perdure.SchemaMismatch, match=r"\$\.parcel.*grams"):
            await live.engine.send(event)

        assert await live.journal() == before


@pytest.mark.parametrize("weighed", [False, True])
async def test_a_cell_is_not_told_what_its_own_definition_does_not_know(stage, weighed):
    """It is pinned to it, and the manifest in force has another schema under the same name."""
    old, first = parcels(weighed=weighed)
    new, second = parcels(weighed=not weighed)
    bound = perdure.manifest(old)
    bound.earlier = perdure.manifest(new).cells
    async with stage.open(bound) as live:
        await live.send(first)
        await perdure.Governance(live.engine).apply(perdure.manifest(new))
        await live.send(second)

        error = await live.engine.handle("com.acme/parcel", "o-1").error()
        assert error.type == "SchemaMismatch" and "grams" in error.message


@pytest.mark.parametrize("key", [7, 0, UUID(WHO), b"7", False], ids=repr)
async def test_an_explicit_key_that_is_no_text_is_refused(stage, key):
    """A cell whose key is a number is named by its digits. Nothing was found for 0, as if there were no such cell."""
    async with stage.open(counter) as live:
        await live.send(Counted(7, UUID(WHO)), key="7")

        for asked in (live.engine.send(Counted(7, UUID(WHO)), key=key), live.engine.state(counter, key)):
            with pytest.raises(perdure.CallerError, match=r"a key is a text, found .*str\(key\)"):
                await asked
        assert await live.engine.state(counter, "7") == Order("7")


@pytest.mark.parametrize("correlation", [None, 0, b"", "\ud800", "c" * 4097], ids=lambda given: repr(given)[:9])
async def test_a_correlation_that_is_no_text_is_refused(disk, correlation):
    """One that was None was recorded: the journal had an entry that nobody could read."""
    async with disk.open(order, book) as live:
        with pytest.raises(perdure.CallerError, match="a correlation is a text"):
            await live.engine.send(Placed("o-1"), correlation=correlation)
    async with disk.open(order, book) as live:
        await live.send(Placed("o-1"))

        assert await live.state(order, "o-1") == Order("charging")


async def test_an_explicit_key_that_contradicts_is_refused(stage):
    async with stage.open(order, book) as live:
        await live.send(Placed("o-1"), key="o-1")
        before = await live.journal()

        with pytest.raises(perdure.KeyMismatch, match="'o-2', and its fields say 'o-1'"):
            await live.engine.send(Placed("o-1"), key="o-2")

        assert await live.journal() == before


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"junk",
        encode({}),
        encode({"order": 7, "cents": 1}),
        encode("o-1"),
        encode({"order": "k" * 513, "cents": 1}),
        encode({"order": "\x00", "cents": 1}),
    ],
    ids=lambda body: repr(body)[:20],
)
async def test_bytes_that_another_manifest_let_through_are_refused_and_reach_nobody(stage, body):
    """As from a client that looked at an older manifest: the sender is told, and no cell hears of it."""
    async with stage.open(order, book) as live:
        with pytest.raises(perdure.CallerError, match=PLACED):
            await live.engine._connection.put(RULER, Message(PLACED, body, "id", "sha256:of another"))

        assert await live.facts() == []
        assert [each.workflow for each in await live.engine.instances()] == ["sys/world"]


@pytest.mark.parametrize(
    "name", ["", "com.acme/Nobody@1", "com.acme/Placed", "sys/Rejected@1", "sys/nothing", "sys/apply"]
)
async def test_names_that_another_manifest_let_through_are_refused_and_reach_nobody(stage, name):
    async with stage.open(order, book) as live:
        with suppress(perdure.CallerError):
            await live.engine._connection.put(RULER, Message(name, encode({}), "id", "sha256:of another"))
        await live.send(Placed("o-1"))

        assert await live.state(order, "o-1") == Order("charging")
        assert await live.status(WORLD_CELL, "main") == "waiting"


class WORLD_CELL:
    name = RULER.workflow


BODIES: list[Any] = [
    None,
    7,
    [],
    {},
    {"proposal": []},
    {"proposal": 1, "reason": 7, "report": 7},
    {"patch": 7},
    {"patch": {"base": 7}},
    {"patch": [7]},
    {"manifest": 7},
    {"manifest": b"x"},
    {"manifest": b"", "mode": []},
    {"manifest": b"", "counts": 7},
]


@pytest.mark.parametrize("verb", ["propose", "shadow", "approve", "reject", "apply", "nothing"])
async def test_rules_that_make_no_sense_do_not_stop_the_world(stage, verb):
    """All events wait behind them."""
    async with stage.open(order, book) as live:
        for number, body in enumerate([*map(encode, BODIES), b"junk"]):
            await live.engine._connection.put(RULER, Message(f"sys/{verb}", body, f"rule {number}"))
        await live.send(Placed("o-1"))

        assert await live.status(WORLD_CELL, "main") == "waiting"
        assert await live.state(order, "o-1") == Order("charging")


# ---- manifests -------------------------------------------------------------------------------------------


def data() -> dict[str, Any]:
    """A small sound manifest, as data."""
    return {
        "schemas": {
            "com.acme/Placed@1": {"record": {"order": "text", "cents": "nat"}},
            "com.acme/Other@1": {"record": {"order": "text"}},
            "com.acme/Order@1": {"record": {"status": "text"}},
        },
        "effects": {"payment/charge@1": {"params": {"record": {"order": "text"}}}},
        "cells": {
            "com.acme/order@1": {
                "state": {"ref": "com.acme/Order@1"},
                "event": {"ref": "com.acme/Placed@1"},
                "effects": ["payment/charge@1"],
                "impl": "tests.cells.test_data:note",
                "key": "text",
            }
        },
        "routing": [{"event": "com.acme/Placed@1", "cell": "com.acme/order@1", "key_field": "order"}],
    }


def changed(*path: Any, to: Any) -> dict[str, Any]:
    found: Any = data()
    *way, last = path
    inner = found
    for step in way:
        inner = inner[step]
    if to is ...:
        del inner[last]
    else:
        inner[last] = to
    return found  # type: ignore[no-any-return]


def arms(*keys: Any) -> dict[str, Any]:
    """The event is a variant, with a field of each of these types in one arm; the key is that field."""
    found = changed("routing", 0, "key_field", to="$value.order")
    variant = {f"Arm{number}": {"record": {"order": key}} for number, key in enumerate(keys)}
    found["schemas"]["com.acme/Placed@1"] = {"variant": {**variant, "Last": {"record": {"order": "text"}}}}
    return found


CELL = ("cells", "com.acme/order@1")
ROUTE = ("routing", 0)

MANIFESTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "missing reference": (
        "missing-reference",
        "$.schemas",
        changed("schemas", "com.acme/Other@1", to={"ref": "com.acme/Nobody@1"}),
    ),
    "unknown module": ("unknown-module", "impl", changed(*CELL, "impl", to="tests.cells.nobody:order")),
    "unknown function": ("unknown-module", "impl", changed(*CELL, "impl", to="tests.cells.shop:nobody")),
    "unknown schema": ("unknown-schema", "state", changed(*CELL, "state", to={"ref": "com.acme/Nobody@1"})),
    "unknown event": ("unknown-schema", "$.routing[0].event", changed(*ROUTE, "event", to="com.acme/Nobody@1")),
    "unknown effect": ("unknown-effect", "effects[0]", changed(*CELL, "effects", to=["payment/nobody@1"])),
    "unknown cell": ("unknown-cell", "$.routing[0].cell", changed(*ROUTE, "cell", to="com.acme/nobody@1")),
    "key field missing": ("key-missing", "$.routing[0].key_field", changed(*ROUTE, "key_field", to=...)),
    "key field that is none": ("key-missing", "$.routing[0].key_field", changed(*ROUTE, "key_field", to="nobody")),
    "key field with a dot too many": (
        "key-missing",
        "$.routing[0].key_field",
        changed(*ROUTE, "key_field", to="order."),
    ),
    "key field of different types": ("key-missing", "$.routing[0].key_field", arms("nat")),
    "key field that is a list in an arm": ("key-missing", "$.routing[0].key_field", arms("text", {"list": "text"})),
    "key field unexpected": ("key-unexpected", "$.routing[0].key_field", changed(*CELL, "key", to=...)),
    "key of the wrong type": ("key-type", "$.routing[0].key_field", changed(*ROUTE, "key_field", to="cents")),
    "key that can be none": ("key-type", "key", changed(*CELL, "key", to="bool")),
    "routing schema mismatch": (
        "routing-mismatch",
        "$.routing[0].event",
        changed(*ROUTE, "event", to="com.acme/Other@1"),
    ),
    "illegal event family": ("event-family", "event", changed(*CELL, "event", to="text")),
    "one event as two arms": (
        "event-family",
        "event",
        changed(*CELL, "event", to={"variant": {arm: {"ref": "com.acme/Placed@1"} for arm in "AB"}}),
    ),
    "one event as two arms of a schema": (
        "event-family",
        "event",
        changed("schemas", "com.acme/Placed@1", to={"variant": {arm: {"ref": "com.acme/Other@1"} for arm in "AB"}}),
    ),
    "unknown module of a migration": (
        "unknown-module",
        "migrate",
        changed(*CELL, "migrate", to="tests.cells.nobody:order"),
    ),
    "unknown function of a migration": (
        "unknown-module",
        "migrate",
        changed(*CELL, "migrate", to="tests.cells.shop:nobody"),
    ),
    "event of perdure": (
        "event-family",
        "event",
        changed(*CELL, "event", to={"variant": {"A": {"ref": "com.acme/Placed@1"}, "B": {"ref": "sys/Header@1"}}}),
    ),
    "routing of what perdure delivers": (
        "event-family",
        "$.routing[0].event",
        changed(*ROUTE, "event", to="sys/Rejected@1"),
    ),
    "unsupported runtime of a migration": (
        "unsupported-runtime",
        "migrate",
        changed(*CELL, "migrate", to="order.wasm"),
    ),
    "unsupported runtime": ("unsupported-runtime", "impl", changed(*CELL, "impl", to="order.wasm")),
    "two versions of a cell": (
        "two-versions",
        "$.cells['com.acme/order@2']",
        changed("cells", "com.acme/order@2", to=data()["cells"]["com.acme/order@1"]),
    ),
}


def test_the_manifest_that_the_bad_ones_are_made_from_is_sound():
    for sound in (data(), arms(), arms("text", "text")):
        assert BoundManifest(read(sound)).cells[0].name == "com.acme/order"


@pytest.mark.parametrize("what", MANIFESTS)
def test_each_of_the_eleven_errors_of_a_manifest_has_its_code_and_its_path(what):
    code, path, bad = MANIFESTS[what]

    with pytest.raises(perdure.BadManifest) as raised:
        BoundManifest(read(bad))

    assert raised.value.code == code
    assert path in raised.value.path
    assert str(raised.value).startswith("$.")


def test_all_eleven_are_there_and_one_more():
    assert len({code for code, _, _ in MANIFESTS.values()}) == 12


@pytest.mark.parametrize(
    ("path", "to", "where"),
    [
        (("more",), {}, "$"),
        ((*CELL, "more"), 1, "$.cells.com.acme/order@1"),
        ((*CELL, "effects"), ..., "$.cells.com.acme/order@1"),
        ((*CELL, "effects"), ["payment/charge@1"] * 2, "$.cells.com.acme/order@1.effects"),
        (("effects", "payment/charge@1", "more"), 1, "$.effects.payment/charge@1"),
        (("effects", "payment/charge@1", "params"), ..., "$.effects.payment/charge@1.params"),
        ((*ROUTE, "more"), 1, "$.routing[0]"),
        (("schemas", "Placed"), "text", "$.schemas.Placed"),
        (("schemas", "com.acme/Placed@0"), "text", "$.schemas"),
        (("schemas", "sys/Placed@1"), "text", "$.schemas.sys/Placed@1"),
        (("effects", "payment/charge@1", "timeout"), 0, "timeout"),
    ],
)
def test_a_manifest_that_is_not_of_its_form_is_refused_with_the_path(path, to, where):
    with pytest.raises(perdure.BadDefinition) as raised:
        read(changed(*path, to=to))

    assert where in raised.value.path


@pytest.mark.parametrize("state", ["unit", {"option": "text"}, {"ref": "com.acme/Order@1"}], ids=str)
def test_a_state_that_may_be_null_is_refused(state):
    """To return null is to delete the cell."""
    bad = changed(*CELL, "state", to=state)
    bad["schemas"]["com.acme/Order@1"] = {"option": {"ref": "com.acme/Placed@1"}}

    with pytest.raises(perdure.BadDefinition, match=r"a type without null, found .*it deletes the cell") as raised:
        BoundManifest(read(bad))

    assert raised.value.path == "$.cells['com.acme/order@1'].state"


async def test_a_bad_manifest_opens_nothing(disk):
    async with disk.open(order, book) as live:
        await live.send(Dropped("o-1"))
        before = await live.journal()
    with pytest.raises(perdure.BadManifest):
        async with disk.open(BoundManifest(read(changed(*ROUTE, "event", to="com.acme/Nobody@1")))):
            pass
    async with disk.open(order, book) as live:
        assert await live.journal() == before


# ---- authors ---------------------------------------------------------------------------------------------


def test_a_cell_that_is_none_is_refused_where_it_is_defined():
    def reducer(state: Order | None, event: Placed) -> Next:
        return Next(None)

    for name in ("order", "com.acme/order", "com.acme/order@0", "sys/order@1", "com.acme/order@x"):
        with pytest.raises(perdure.BadDefinition):
            perdure.cell(name, key="order", effects=[])(reducer)
    with pytest.raises(perdure.BadDefinition, match="the key field 'nobody'"):
        perdure.manifest(perdure.cell("com.acme/x@1", key="nobody", effects=[])(reducer))
    for path in ("", ".order", "order."):
        with pytest.raises(perdure.BadDefinition, match=f"the key field '{path}'"):
            perdure.manifest(perdure.cell("com.acme/x@1", key=path, effects=[])(reducer))
    with pytest.raises(TypeError, match="effects"):
        perdure.cell("com.acme/x@1", key="order")  # type: ignore[call-arg]
    with pytest.raises(perdure.BadDefinition, match="named effects"):
        perdure.cell("com.acme/x@1", key="order", effects=[Paid])(reducer)  # type: ignore[list-item]
    with pytest.raises(perdure.BadDefinition, match=r"a list of effects.*effects=\[...\]"):
        perdure.cell("com.acme/x@1", key="order", effects=Charge)(reducer)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [{"timeout": timedelta(seconds=1)}, {"timeout": -1}, {"timeout": "5s"}, {"once": "no"}, {"outside": 7}],
    ids=repr,
)
def test_an_effect_with_options_that_are_none_is_refused_where_it_is_defined(options):
    """A manifest with them was recorded, and no engine could read it: the world of that database was stuck."""
    with pytest.raises(perdure.BadDefinition) as raised:

        class Ask(perdure.Effect, name="com.acme/ask@1", **options):
            text: str

    assert raised.value.path == f"Ask.{next(iter(options))}"
    assert "test_bad_input.py:" in raised.value.where


def named(what: str) -> perdure.Cell:
    """A cell whose classes have the names of others, and differ from them."""
    if what == "event":

        class Placed(perdure.Record, name="com.acme/Placed@1"):
            order: str

    else:
        from tests.cells.shop import Placed  # type: ignore[assignment]

    class Charge(perdure.Effect, name="payment/charge@1"):
        order: perdure.Nat

    asked = [Charge] if what == "effect" else []
    heard = Placed | perdure.ReceiptOf[Charge] if what == "effect" else Placed

    def reducer(state: Order | None, event: heard) -> Next:  # type: ignore[valid-type]
        return Next(None)

    return perdure.cell("com.acme/order@1" if what == "cell" else "com.acme/twin@1", key="order", effects=asked)(
        reducer
    )


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("event", "one schema of the name com.acme/Placed@1, found two that differ"),
        ("effect", "one effect of the name payment/charge@1, found two that differ"),
        ("cell", "one cell of this name, found two: here and at .*shop.py"),
    ],
)
def test_one_name_for_two_definitions_is_refused(what, text):
    for cells in ((order, named(what)), (named(what), order)):
        with pytest.raises(perdure.BadDefinition, match=text.replace("shop", "(shop|test_bad_input)")) as raised:
            perdure.manifest(*cells)

        assert raised.value.where.startswith(cells[1].where)


def test_one_name_for_two_parts_of_a_cell_is_refused_where_it_is_defined():
    class Again(perdure.Record, name="com.acme/Placed@1"):
        order: str

    class Ask(perdure.Effect, name="payment/charge@1"):
        order: str

    def twice(state: Order | None, event: Placed | Again) -> Next:
        return Next(None)

    def asks(state: Order | None, event: Placed | perdure.ReceiptOf[Charge]) -> Next:
        return Next(None)

    class Rejected(perdure.Record, name="com.acme/Rejected@1"):
        order: str

    def rejects(state: Order | None, event: Rejected | perdure.Rejected) -> Next:
        return Next(None)

    with pytest.raises(perdure.BadDefinition, match=r"each event once, found two of the name com.acme/Placed@1"):
        perdure.cell("com.acme/x@1", key="order", effects=[])(twice)
    with pytest.raises(perdure.BadDefinition, match="each effect once, found two of the name payment/charge@1"):
        perdure.cell("com.acme/x@1", key="order", effects=[Charge, Ask])(asks)
    with pytest.raises(perdure.BadDefinition, match="two of the name Rejected"):
        perdure.manifest(perdure.cell("com.acme/x@1", key="order", effects=[])(rejects))


def test_a_cell_that_is_given_twice_is_one():
    assert perdure.manifest(book, order, book).manifest.bytes == perdure.manifest(book, order).manifest.bytes


@pytest.mark.parametrize("route", ["com.acme/Placed@1", (PLACED, order.name, "order")], ids=str)
def test_a_routing_of_something_else_is_refused(route):
    with pytest.raises(perdure.BadDefinition, match=r"routing\[0\]: expected a subscription, found (str|tuple)"):
        perdure.manifest(order, routing=[route])


@pytest.mark.parametrize("event", [int, Placed("o-1"), "com.acme/Placed@1"], ids=repr)
def test_events_that_are_none_are_refused(event):
    with pytest.raises(perdure.BadDefinition, match="events: expected named records"):
        perdure.manifest(order, events=[event])


def test_what_is_no_cell_is_refused():
    with pytest.raises(perdure.BadDefinition, match=r"expected cells, found .*makes a function a cell"):
        perdure.manifest(order.function)  # type: ignore[arg-type]


def test_the_events_of_a_cell_are_records_and_the_receipts_of_its_effects():
    def asks(state: Order | None, event: Placed) -> Next:
        return Next(None)

    def hears(state: Order | None, event: Placed | perdure.ReceiptOf[Charge]) -> Next:
        return Next(None)

    def answered(state: Order | None, event: perdure.ReceiptOf[Charge]) -> Next:
        return Next(None)

    def anything(state: Order | None, event: dict[str, int]) -> Next:
        return Next(None)

    for reducer, effects, text in (
        (asks, [Charge], r"the receipt of each declared effect, found no ReceiptOf\[Charge\]"),
        (hears, [], r"receipts of declared effects only, found ReceiptOf\[Charge\]; add it to effects="),
        (answered, [Charge], "at least one event"),
        (anything, [], r"named records, ReceiptOf\[...\], FrameOf\[...\] and Rejected, joined by \|, found dict"),
    ):
        with pytest.raises(perdure.BadDefinition, match=text) as raised:
            perdure.cell("com.acme/x@1", effects=effects)(reducer)
        assert "test_bad_input.py:" in raised.value.where


def test_the_state_of_a_cell_is_a_record_or_none():
    def always(state: Order, event: Placed) -> Next:
        return Next(None)

    def two(state: Order | Paid | None, event: Placed) -> Next:
        return Next(None)

    def unsaid(state, event: Placed) -> Next:
        return Next(None)

    for reducer in (always, two, unsaid):
        with pytest.raises(perdure.BadDefinition, match=r"a record or None, such as `Order \| None`"):
            perdure.cell("com.acme/x@1", effects=[])(reducer)


def test_a_reducer_has_two_parameters_or_three():
    def one(event: Placed) -> Next:
        return Next(None)

    def four(state: Order | None, event: Placed, ctx: perdure.CellContext, more: int) -> Next:
        return Next(None)

    for reducer in (one, four):
        with pytest.raises(perdure.BadDefinition, match=r"a reducer of \(state, event\).* found (1|4) parameters"):
            perdure.cell("com.acme/x@1", effects=[])(reducer)


def test_keys_of_different_types_are_refused():
    def mixed(state: Order | None, event: Placed | Counted) -> Next:
        return Next(None)

    with pytest.raises(perdure.BadDefinition, match="keys of one type"):
        perdure.manifest(perdure.cell("com.acme/x@1", key={Placed: "order", Counted: "number"}, effects=[])(mixed))


def test_two_worlds_are_refused():
    with pytest.raises(perdure.CallerError, match="one world of cells"):
        perdure.testing.World(perdure.manifest(order), perdure.manifest(book))


def test_a_reducer_that_is_async_is_refused_where_it_is_defined():
    with pytest.raises(perdure.BadDefinition, match="what takes time is an effect"):

        @perdure.cell("com.acme/later@1", key="order", effects=[])
        async def later(state: Order | None, event: Placed) -> perdure.Next:
            return perdure.Next(None)


async def test_a_key_that_no_instance_can_have_is_refused(stage):
    async with stage.open(order, lenient=True) as live:
        before = await live.journal()

        for key in ("k" * 513, "a\x00b"):
            with pytest.raises(perdure.CallerError, match="at most 512 characters without NUL"):
                await live.engine.send(Placed(key, 1))

        assert await live.journal() == before


class Timed(perdure.Record, name="com.acme/Timed@1"):
    order: str
    at: datetime


class Even(perdure.Record, name="com.acme/Even@1"):
    order: str
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError(f"{self.number} is odd")


@perdure.cell("com.acme/picky@1", key="order", effects=[])
def picky(state: Order | None, event: Timed | Even) -> Next:
    return Next(Order("seen"))


REFUSED_BY_TYPES: dict[str, tuple[str, Any, str]] = {
    "nanoseconds in a datetime": ("com.acme/Timed@1", {"order": "o-1", "at": 1}, "whole microseconds"),
    "what a record refuses itself": ("com.acme/Even@1", {"order": "o-1", "number": 7}, "7 is odd"),
}


@pytest.mark.parametrize("what", REFUSED_BY_TYPES)
async def test_what_the_types_of_a_reducer_cannot_hold_is_refused_before_it_is_acknowledged(stage, what):
    name, data, text = REFUSED_BY_TYPES[what]
    async with stage.open(picky) as live:
        with pytest.raises(perdure.CallerError, match=f"{name}: the reducer of com.acme/picky@1.*{text}"):
            await live.engine.send_json(name, data)
        await live.rest()

        assert await live.head(picky, "o-1") is None
        await live.send(Even("o-1", 8))
        assert await live.state(picky, "o-1") == Order("seen")


async def test_what_code_of_that_day_refused_stays_refused_when_later_code_would_take_it(disk):
    def cell(*, strict: bool) -> perdure.Cell:
        class Kept(perdure.Record, name="com.acme/Kept@1"):
            order: str

            def __post_init__(self) -> None:
                if strict:
                    raise ValueError("not today")

        def keep(state: Order | None, event: Kept) -> Next:
            return Next(Order("kept"))

        return perdure.cell("com.acme/keep@1", key="order", effects=[])(keep)

    async with disk.open(cell(strict=True), replay=False) as live:
        with pytest.raises(perdure.CallerError, match="not today"):
            await live.engine.send_json("com.acme/Kept@1", {"order": "o-1"})
    later = cell(strict=False)
    async with disk.open(later) as live:  # the stage replays all of it when this is closed
        assert await live.head(later, "o-1") is None
        await live.engine.send_json("com.acme/Kept@1", {"order": "o-1"})
        await live.rest()
        assert await live.state(later, "o-1") == Order("kept")


async def test_two_handlers_of_one_effect_are_refused_when_the_engine_is_opened():
    class Dig(perdure.Effect, name="com.acme/dig@1"):
        order: str

    @perdure.cell("com.acme/digger@1", key="order", effects=[Dig])
    def digger(state: Order | None, event: Placed | perdure.ReceiptOf[Dig]) -> Next:
        return Next(Order("dug"))

    @perdure.effect_handler(Dig)
    async def first(params: Dig, call: perdure.Call) -> None: ...

    @perdure.effect_handler(Dig)
    async def second(params: Dig, call: perdure.Call) -> None: ...

    with pytest.raises(perdure.CallerError, match=r"2 handlers perform com\.acme/dig@1: give one of them"):
        async with perdure.open(":memory:", workflows=[digger], handlers=[first, second]):
            pass
    async with perdure.open(":memory:", workflows=[digger], handlers=[first, first]):
        pass


async def test_the_state_of_a_cell_that_there_is_not_is_no_none(stage):
    async with stage.open(order) as live:
        assert await live.engine.state("com.acme/order", "o-1") is None

        with pytest.raises(perdure.UnknownWorkflow, match=r"did you mean 'com\.acme/order'"):
            await live.engine.state("com.acme/odrer", "o-1")
