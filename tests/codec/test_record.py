"""Schemas written as Python classes."""

import os
import re
import subprocess
import sys
import typing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import pytest

import perdure
from perdure.codec import encode
from perdure.codec import schema as s
from perdure.codec.record import Shape, shape_of, short_name
from perdure.codec.schema import to_data
from perdure.errors import BadDefinition, SchemaMismatch
from tests.codec import later_annotations

ID = UUID("12345678-90ab-cdef-1234-567890abcdef")
HASH = "sha256:" + "0" * 64


class OrderCreated(perdure.Record, name="com.acme/OrderCreated@1"):
    order_id: str
    cents: perdure.Nat


class Cancelled(perdure.Record, name="com.acme/Cancelled@2"):
    reason: str | None = None


class Order(perdure.Record, name="com.acme/Order@1"):
    pc: Literal["idle", "charging", "done"] = "idle"


class Charge(perdure.Record, name="payment/charge@1"):
    order_id: str

    class Receipt(perdure.Record):
        auth: str


class Everything(perdure.Record, name="test/Everything@1"):
    a_bool: bool
    an_int: int
    a_nat: perdure.Nat
    a_dec128: Decimal
    some_bytes: bytes
    a_text: str
    a_datetime: datetime
    a_time: perdure.Time
    a_timedelta: timedelta
    a_duration: perdure.Duration
    a_hash: perdure.Hash
    a_uuid: UUID
    a_unit: None
    a_record: Order
    a_nested: Charge.Receipt
    a_variant: OrderCreated | Cancelled
    a_word: Literal["on", "off"]
    a_list: list[OrderCreated | Cancelled]
    a_set: set[int]
    a_frozen_set: frozenset[Order]
    a_dict: dict[str, Order]
    by_uuid: dict[UUID, datetime]
    by_nat: dict[perdure.Nat, list[str]]
    an_option: Order | None
    a_variant_or_none: OrderCreated | Cancelled | None


EVERYTHING = Everything(
    a_bool=True,
    an_int=-5,
    a_nat=2**64 - 1,
    a_dec128=Decimal("12.5"),
    some_bytes=b"\x00\xff",
    a_text="naïve",
    a_datetime=datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC),
    a_time=1_769_860_800_000_000_001,
    a_timedelta=timedelta(seconds=1.5),
    a_duration=1,
    a_hash=HASH,
    a_uuid=ID,
    a_unit=None,
    a_record=Order("done"),
    a_nested=Charge.Receipt("a-1"),
    a_variant=Cancelled("late"),
    a_word="off",
    a_list=[OrderCreated("o-1", 5), Cancelled()],
    a_set={3, 1, 2},
    a_frozen_set=frozenset((Order("idle"), Order("done"))),
    a_dict={"b": Order(), "a": Order("done")},
    by_uuid={ID: datetime(2026, 1, 31, tzinfo=UTC)},
    by_nat={7: ["x"]},
    an_option=None,
    a_variant_or_none=OrderCreated("o-2", 6),
)


def test_every_annotation_round_trips():
    shape = shape_of(Everything)

    plain = shape.plain(EVERYTHING)

    assert shape.build(plain) == EVERYTHING
    assert shape.build(shape.decode(shape.encode(EVERYTHING))) == EVERYTHING
    assert shape.build(shape.from_json(shape.to_json(plain))) == EVERYTHING
    assert shape.encode(plain) == shape.encode(EVERYTHING)  # plain data is a spelling of it, too


def test_a_class_gives_the_schema_of_its_annotations():
    shape = shape_of(Everything)

    assert shape.schema == s.Ref("test/Everything@1")
    assert to_data(shape.refs["test/Everything@1"]) == {
        "record": {
            "a_bool": "bool",
            "an_int": "int",
            "a_nat": "nat",
            "a_dec128": "dec128",
            "some_bytes": "bytes",
            "a_text": "text",
            "a_datetime": "time",
            "a_time": "time",
            "a_timedelta": "duration",
            "a_duration": "duration",
            "a_hash": "hash",
            "a_uuid": "uuid",
            "a_unit": "unit",
            "a_record": {"ref": "com.acme/Order@1"},
            "a_nested": {"record": {"auth": "text"}},
            "a_variant": VARIANT,
            "a_word": {"variant": {"on": "unit", "off": "unit"}},
            "a_list": {"list": VARIANT},
            "a_set": {"set": "int"},
            "a_frozen_set": {"set": {"ref": "com.acme/Order@1"}},
            "a_dict": {"map": {"key": "text", "value": {"ref": "com.acme/Order@1"}}},
            "by_uuid": {"map": {"key": "uuid", "value": "time"}},
            "by_nat": {"map": {"key": "nat", "value": {"list": "text"}}},
            "an_option": {"option": {"ref": "com.acme/Order@1"}},
            "a_variant_or_none": {"option": VARIANT},
        }
    }
    assert set(shape.refs) == {
        *("com.acme/OrderCreated@1", "com.acme/Cancelled@2", "com.acme/Order@1", "test/Everything@1")
    }


VARIANT = {
    "variant": {"OrderCreated": {"ref": "com.acme/OrderCreated@1"}, "Cancelled": {"ref": "com.acme/Cancelled@2"}}
}


def test_a_record_is_built_by_position_and_by_keyword_and_equal_by_value():
    assert OrderCreated("o-17", 4200) == OrderCreated(cents=4200, order_id="o-17")
    assert OrderCreated("o-17", 4200) != OrderCreated("o-17", 4201)
    assert len({Order(), Order("idle"), Order("done")}) == 2
    assert repr(Order()) == "Order(pc='idle')"


def test_a_record_cannot_be_changed():
    order: Any = Order()

    with pytest.raises(AttributeError, match="immutable"):
        order.pc = "done"


def test_records_are_matched_by_position_and_by_name():
    def told(event: OrderCreated | Cancelled) -> str:
        match event:
            case OrderCreated(order_id, cents=cents):
                return f"{order_id}: {cents}"
            case Cancelled("late"):
                return "too late"
            case Cancelled(reason=reason):
                return f"cancelled: {reason}"

    assert [told(OrderCreated("o", 1)), told(Cancelled("late")), told(Cancelled())] == [
        *("o: 1", "too late", "cancelled: None")
    ]


def test_wrong_arguments_are_errors_of_the_type_checker():
    """Run by mypy alone: each line here must need its `ignore`, or mypy says that the `ignore` is unused."""

    def never() -> None:
        OrderCreated("o-17")  # type: ignore[call-arg]
        OrderCreated("o-17", "4200")  # type: ignore[arg-type]
        OrderCreated("o-17", 4200, 1)  # type: ignore[call-arg]
        OrderCreated(order="o-17", cents=4200)  # type: ignore[call-arg]
        Order("lost")  # type: ignore[arg-type]
        Order().pc = "done"  # type: ignore[misc]

    assert callable(never)


def test_a_default_is_for_constructors_and_not_for_data():
    assert Order().pc == "idle"
    with pytest.raises(SchemaMismatch, match=r"com.acme/Order@1: \$.pc: expected this field, found nothing"):
        shape_of(Order).plain({})


def test_a_wrong_value_in_an_object_is_refused_with_its_path():
    wrong = OrderCreated("o-17", -1)

    with pytest.raises(SchemaMismatch, match=r"\$\.cents: expected nat"):
        shape_of(OrderCreated).plain(wrong)
    with pytest.raises(SchemaMismatch, match=r"\$\[1\]\.\$value\.cents: expected nat"):
        shape_of(list[OrderCreated | Cancelled]).plain([Cancelled(), wrong])


def test_an_object_of_another_class_is_refused():
    with pytest.raises(SchemaMismatch, match=r"expected com.acme/Order@1, found .*OrderCreated"):
        shape_of(Order).plain(OrderCreated("o", 1))
    with pytest.raises(SchemaMismatch, match="a variant of OrderCreated, Cancelled"):
        shape_of(OrderCreated | Cancelled).plain(Order())

    class Special(Order):
        pass

    with pytest.raises(SchemaMismatch, match=r"expected com.acme/Order@1, found .*Special"):
        shape_of(Order).plain(Special())


def test_a_word_that_is_no_arm_is_refused():
    lost: Any = "lost"

    with pytest.raises(SchemaMismatch, match=r"\$.pc.\$tag: expected one of idle, charging, done, found str 'lost'"):
        shape_of(Order).plain(Order(lost))


def test_in_data_a_word_has_the_one_form_of_a_variant():
    assert shape_of(Order).plain({"pc": {"$tag": "idle", "$value": None}}) == shape_of(Order).plain(Order())
    with pytest.raises(SchemaMismatch, match="the one form of a variant"):
        shape_of(Order).plain({"pc": "idle"})


def test_a_datetime_holds_whole_microseconds_only():
    class Seen(perdure.Record):
        at: list[datetime]
        took: timedelta

    shape = shape_of(Seen)

    with pytest.raises(SchemaMismatch, match=r"\$.at\[1\]: .* annotate the field with perdure.Time"):
        shape.build(shape.plain({"at": [1000, 1001], "took": 0}))
    with pytest.raises(SchemaMismatch, match=r"\$.took: .* annotate the field with perdure.Duration"):
        shape.build(shape.plain({"at": [], "took": 1}))


def test_what_a_class_refuses_to_hold_is_refused_with_its_path():
    class Even(perdure.Record):
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError(f"{self.number} is odd")

    shape = shape_of(dict[str, Even])

    assert shape.build({"a": {"number": 2}}) == {"a": Even(2)}
    with pytest.raises(SchemaMismatch, match=r"\$\['b'\]: expected Even, found values that it refuses: 3 is odd"):
        shape.build(shape.plain({"b": {"number": 3}}))


def test_fields_are_inherited_and_names_are_not():
    class Paid(OrderCreated):
        at: datetime

    paid = Paid("o-17", 4200, datetime(2026, 1, 31, tzinfo=UTC))
    shape = shape_of(Paid)

    assert shape.build(shape.plain(paid)) == paid
    assert to_data(shape.schema) == {"record": {"order_id": "text", "cents": "nat", "at": "time"}}
    assert short_name(Paid) == "Paid"


def test_a_field_that_a_subclass_defines_again_has_its_last_type():
    class Base(perdure.Record):
        unit: typing.ClassVar[str] = "cents"
        a: int
        b: str

    class Again(Base):
        a: Literal["x", "y"]  # type: ignore[assignment]

    again = Again(a="x", b="z")
    shape = shape_of(Again)

    assert shape.build(shape.plain(again)) == again
    assert to_data(shape.schema) == {"record": {"a": {"variant": {"x": "unit", "y": "unit"}}, "b": "text"}}


def test_annotations_may_be_text_and_name_what_stands_around_the_class():
    shape = shape_of(later_annotations.Outer)

    assert shape.build(shape.plain(later_annotations.OUTER)) == later_annotations.OUTER
    assert later_annotations.in_a_function() == {"record": {"inner": {"record": {"x": "nat"}}}}


def test_aliases_new_types_and_other_annotations_are_seen_through():
    Cents = NewType("Cents", int)

    assert shape_of(Cents).schema == s.Int()
    assert shape_of(Annotated[str, "what it is"]).schema == s.Text()
    assert shape_of(typing.Optional[typing.List[int]]).schema == s.Option(s.List(s.Int()))  # noqa: UP006, UP045
    assert shape_of(None).schema == s.Unit()


def test_a_shape_is_made_once():
    assert shape_of(list[Order]) is shape_of(list[Order])
    assert isinstance(shape_of(Order), Shape)


# ---- what is no type ------------------------------------------------------------------------------------


class Colour(Enum):
    RED = 1


@dataclass
class Point:
    x: int


class OrderAgain(perdure.Record, name="com.acme/Order@2"):
    pc: int


class Other(perdure.Record, name="com.acme/Order@1"):
    x: int


REFUSED = [
    (float, "use Decimal"),
    (Any, "every field has a type"),
    (object, "every field has a type"),
    (list, "list[str]"),
    (dict, "dict[str, int]"),
    (tuple[int, str], "list[T]"),
    (date, "datetime"),
    (Colour, "Literal['a', 'b']"),
    (Point, "perdure.Record"),
    (perdure.Record, "perdure.Record"),
    (int | str, "int in a union"),
    (int | Order, "int in a union"),
    (Literal["a", 1], "a Literal of text"),
    (Literal["$a"], "arm"),
    (Order | OrderAgain, "two of the name Order"),
    (dict[bytes, int], "key of a dict"),
    (dict[bool, int], "key of a dict"),
    (set[list[int]], "hash"),
    (set[Everything], "hash"),
    (frozenset[set[int]], "hash"),
    (typing.Callable[[], None], "expected bool, int"),
]


@pytest.mark.parametrize(("annotation", "message"), REFUSED, ids=lambda part: str(part)[:40])
def test_what_has_no_schema_is_refused_when_the_class_is_created(annotation, message):
    with pytest.raises(BadDefinition) as refusal:

        class Bad(perdure.Record):
            field: annotation  # type: ignore[valid-type]

    assert message in str(refusal.value)
    assert refusal.value.path == "Bad.field"
    assert re.search(r"test_record.py:\d+$", refusal.value.where)


def test_one_name_has_one_schema():
    with pytest.raises(BadDefinition, match=r"one schema of the name com.acme/Order@1, found two"):

        class Bad(perdure.Record):
            one: Order
            other: Other


def test_a_bad_name_is_refused_with_its_place():
    with pytest.raises(BadDefinition, match=r"test_record.py:\d+: Bad: expected a name .* version is missing"):

        class Bad(perdure.Record, name="com.acme/Bad"):
            x: int


def test_the_namespace_of_perdure_is_reserved():
    with pytest.raises(BadDefinition, match="belongs to perdure"):

        class Bad(perdure.Record, name="sys/Timer@1"):
            x: int


def test_a_default_of_the_wrong_type_is_refused():
    with pytest.raises(BadDefinition, match=r"Bad.cents: expected nat .*, found the default int -1"):

        class Bad(perdure.Record):
            ok: str | None = None
            cents: perdure.Nat = -1


def test_a_default_in_front_of_a_required_field_is_refused_with_its_place():
    with pytest.raises(BadDefinition, match=r"test_record.py:\d+: Bad: .*[Rr]equired"):

        class Bad(perdure.Record):
            a: int = 1
            b: int  # type: ignore[misc]


def test_a_class_that_is_not_there_yet_is_refused():
    with pytest.raises(BadDefinition, match="define it before this class"):

        class Bad(perdure.Record):
            inner: "NotThereYet"  # type: ignore[name-defined]  # noqa: F821


def test_an_annotation_that_is_no_type_is_refused_where_the_caller_says():
    with pytest.raises(BadDefinition, match=r"shop.py:12: \$: .* found float"):
        shape_of(float, "shop.py:12")


def test_the_bytes_of_an_object_are_those_of_its_data():
    assert shape_of(OrderCreated).encode(OrderCreated("o-17", 4200)) == encode({"order_id": "o-17", "cents": 4200})


def test_sets_are_walked_in_one_order_in_every_process():
    code = (
        "from perdure.codec.record import shape_of;"
        "made = shape_of(set[str]).build(['a', 'c', 'b', 'd', 'e']);"
        "frozen = shape_of(frozenset[str]).build(['a', 'c', 'b', 'd', 'e']);"
        "print(*made, *(made | {'f', 'g', 'h'}), *(made - {'a'}), *({'x', 'y', 'z'} | made));"
        "print(*frozen, *(frozen & made), *frozen.union('qr'))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3", "4")
    }

    assert len(printed) == 1
    assert shape_of(set[str]).build(["a"]) == {"a"} and isinstance(shape_of(set[str]).build(["a"]), set)
