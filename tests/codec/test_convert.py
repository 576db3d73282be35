"""Every supported annotation there and back, every mistake refused at its path."""

import enum
import re
import subprocess
import sys
import typing
from collections import namedtuple
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import decode, encode, from_json, from_plain, to_plain
from perdure.errors import NotConvertible, NotPlain
from tests.codec.plain import aware_datetimes, decimals, keys, plain_data, text

T = TypeVar("T")
OrderId = NewType("OrderId", str)


def repr_without_address(part: object) -> str:
    """A name for a case that is equal in every process: test runners compare them."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(part))[:50]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Opaque(enum.Enum):
    ONE = object()
    TWO = object()


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True)
class Pixel:
    x: int
    y: int = 0


@dataclass
class Tree:
    name: str
    children: "list[Tree]" = field(default_factory=list)
    size: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.size = 1 + sum(child.size for child in self.children)


@dataclass
class Box(Generic[T]):
    content: T
    more: list[T]


class Address(TypedDict):
    street: str
    zip: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: "Pair | None" = None


Loose = namedtuple("Loose", ["a", "b"])


class Money(msgspec.Struct, frozen=True, rename="camel"):
    minor_units: int
    currency_code: Literal["EUR", "USD"] = "EUR"


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True):
    lives: int = 1


class Person(pydantic.BaseModel):
    name: str
    born: date
    tags: set[str] = set()
    color: Color | None = None


class Team(pydantic.BaseModel):
    members: list[Person]


Positive = Annotated[int, msgspec.Meta(ge=1)]

points = st.builds(Point, st.integers(), st.integers())
pixels = st.builds(Pixel, st.integers(), st.integers())
colors = st.sampled_from(Color)
trees = st.recursive(
    st.builds(Tree, text), lambda inner: st.builds(Tree, text, st.lists(inner, max_size=3)), max_leaves=6
)
pairs = st.recursive(st.builds(Pair, st.integers()), lambda inner: st.builds(Pair, st.integers(), inner))
people = st.builds(Person, name=text, born=st.dates(), tags=st.sets(text, max_size=3), color=st.none() | colors)
ints = st.integers()

ROUND_TRIPS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (None, plain_data),
    (Any, plain_data),
    (object, plain_data),
    (type(None), st.none()),
    (bool, st.booleans()),
    (int, ints),
    (float, st.floats(allow_nan=False)),
    (str, text),
    (bytes, st.binary()),
    (datetime, aware_datetimes),
    (date, st.dates()),
    (timedelta, st.timedeltas()),
    (Decimal, decimals),
    (UUID, st.uuids()),
    (OrderId, text),
    (Color, colors),
    (Level, st.sampled_from(Level)),
    (Mode, st.sampled_from([Mode.READ, Mode.WRITE, Mode.READ | Mode.WRITE, Mode(0)])),
    (Opaque, st.sampled_from(Opaque)),
    (Literal["a", 1, True, None, Color.RED], st.sampled_from(["a", 1, True, None, Color.RED])),
    (list[int], st.lists(ints)),
    (list, st.lists(plain_data, max_size=3)),
    (typing.Sequence[Point], st.lists(points, max_size=3)),
    (tuple[int, ...], st.lists(ints).map(tuple)),
    (tuple[int, str], st.tuples(ints, text)),
    (tuple[()], st.just(())),
    (set[int], st.sets(ints)),
    (set[Point], st.sets(points, max_size=3)),
    (frozenset[str | int], st.frozensets(text | ints)),
    (set, st.sets(text | ints)),
    (dict[str, int], st.dictionaries(text, ints)),
    (dict, st.dictionaries(keys, plain_data, max_size=3)),
    (typing.Mapping[str, Point], st.dictionaries(text, points, max_size=3)),
    (dict[int, list[Point]], st.dictionaries(st.integers(-(2**64), 2**64 - 1), st.lists(points), max_size=3)),
    (dict[bytes, int], st.dictionaries(st.binary(), ints)),
    (dict[UUID, int], st.dictionaries(st.uuids(), ints)),
    (dict[date, int], st.dictionaries(st.dates(), ints)),
    (dict[datetime, int], st.dictionaries(aware_datetimes, ints)),
    (dict[Color, int], st.dictionaries(colors, ints)),
    (Point, points),
    (Tree, trees),
    (Box[int], st.builds(Box, ints, st.lists(ints))),
    (Box[Point], st.builds(Box, points, st.lists(points, max_size=2))),
    (Address, st.fixed_dictionaries({"street": text}, optional={"zip": ints})),
    (Pair, pairs),
    (Loose, st.builds(Loose, ints, text)),
    (Money, st.builds(Money, ints, st.sampled_from(["EUR", "USD"]))),
    (Cat | Dog, st.builds(Cat, ints) | st.builds(Dog, ints)),
    (Person, people),
    (Team, st.builds(Team, members=st.lists(people, max_size=2))),
    (Positive, st.integers(min_value=1)),
    (int | None, st.none() | ints),
    (Optional[Point], st.none() | points),  # noqa: UP045
    (int | float | bool | str, ints | st.floats(allow_nan=False) | st.booleans() | text),
    (str | datetime | date | UUID, text | aware_datetimes | st.dates() | st.uuids()),
    (Color | str, colors | text | st.sampled_from(["red", "blue"])),
    (Level | int, st.sampled_from(Level) | st.integers(0, 3)),
    (Point | Pixel | None, points | pixels | st.none()),
    (Point | dict[str, int], points | st.dictionaries(st.sampled_from(["x", "y", "$type", "$value"]), ints)),
    (Person | Point, people | points),
    (set[int] | list[int], st.sets(ints) | st.lists(ints)),
    (tuple[int, ...] | list[int], st.lists(ints).map(tuple) | st.lists(ints)),
    (list[Point | Pixel], st.lists(points | pixels, max_size=3)),
    (dict[str, Any] | str, st.dictionaries(text, plain_data, max_size=2) | text),
    (
        dict[str, list[tuple[Color, Decimal | None]]],
        st.dictionaries(text, st.lists(st.tuples(colors, decimals | st.none())), max_size=3),
    ),
]


@pytest.mark.parametrize(("annotation", "values"), ROUND_TRIPS, ids=repr_without_address)
def test_every_value_comes_back_from_its_record(annotation, values):
    @given(values)
    def there_and_back(value):
        back = from_plain(decode(encode(to_plain(value, annotation))), annotation)
        assert back == value
        assert type(back) is type(value)

    there_and_back()


@pytest.mark.parametrize("values", [points, colors, trees, people, st.sets(points), st.builds(Money, ints), pairs])
def test_without_annotation_every_known_value_has_a_plain_form(values):
    @given(values)
    def plain(value):
        assert to_plain([value]) == [to_plain(value)]
        encode(to_plain({"nested": value}))

    plain()


REFUSED = [
    ("x", int, "$", "int"),
    (True, int, "$", "int"),
    (1, bool, "$", "bool"),
    (1.5, int, "$", "int"),
    ("1.5", float, "$", "float"),
    (True, float, "$", "float"),
    (10**400, float, "$", "float"),
    (1, str, "$", "str"),
    ("x", bytes, "$", "bytes"),
    (None, str, "$", "str"),
    ("2024-01-01", date, "$", "date"),
    (datetime(2024, 1, 1, tzinfo=UTC), date, "$", "date"),
    (datetime(2024, 1, 1), datetime, "$", "datetime"),
    (1, Decimal, "$", "Decimal"),
    ("red", Color, "$", "Color"),
    (Color.RED, str, "$", "str"),
    (Level.LOW, int, "$", "int"),
    ("c", Literal["a", "b"], "$", "one of 'a', 'b'"),
    (True, Literal[1], "$", "one of 1"),
    ([1, "x"], list[int], "$[1]", "int"),
    ((1, 2), list[int], "$", "list[int]"),
    ("ab", list[str], "$", "list[str]"),
    ((1, 2, 3), tuple[int, int], "$", "length 2"),
    ({"a": {"b": ["x"]}}, dict[str, dict[str, list[int]]], "$.a.b[0]", "int"),
    ({1: 1}, dict[str, int], "$[1]", "str"),
    ({1.5: 1}, dict[float, int], "$[1.5]", "float"),
    ({"x": 1}, Point, "$", "Point"),
    (Pixel(1), Point, "$", "Point"),
    (Point("x"), Point, "$.x", "int"),  # type: ignore[arg-type]
    (Tree("a", [Tree("b", [Tree(3)])]), Tree, "$.children[0].children[0].name", "str"),  # type: ignore[arg-type]
    ({"zip": 1}, Address, "$.street", "str"),
    ({"street": "a", "zipp": 1}, Address, "$", "fields of Address"),
    (Money("x"), Money, "$.minor_units", "int"),  # type: ignore[arg-type]
    (0, Positive, "$", ">= 1"),
    ([5, 0], list[Positive], "$[1]", ">= 1"),
    ("x", int | None, "$", "None"),
    ([Point(1), Point("x")], list[Point | None], "$[1].x", "int"),  # type: ignore[arg-type]
    (object(), subprocess.Popen, "$", "can be recorded"),
    (len, typing.Callable[[int], int], "$", "can be recorded"),
]


@pytest.mark.parametrize(("value", "annotation", "path", "expected"), REFUSED, ids=repr_without_address)
def test_a_value_of_another_type_is_refused_at_its_path(value, annotation, path, expected):
    with pytest.raises(NotConvertible) as refusal:
        to_plain(value, annotation)

    assert refusal.value.path == path
    assert expected in refusal.value.expected
    assert path in str(refusal.value)


def test_a_coroutine_is_told_as_a_missing_await():
    async def pay() -> str:
        return "paid"

    with closing(pay()) as coroutine:
        with pytest.raises(NotConvertible, match="expected str, found coroutine: an await is missing"):
            to_plain(coroutine, str)
        with pytest.raises(NotPlain, match="cannot be recorded; an await is missing"):
            encode([coroutine])


UNREADABLE = [
    ("x", int, "$"),
    ([1, None], list[int], "$[1]"),
    ({"y": 1}, Point, "$.x"),
    ({"x": "1"}, Point, "$.x"),
    ([1], Point, "$"),
    ([1], Pair, "$"),
    ("green", Color, "$"),
    (9, Mode, "$"),
    ({"minorUnits": 1, "currencyCode": "GBP"}, Money, "$.currencyCode"),
    ({"type": "Cow", "lives": 1}, Cat, "$.type"),
    ({"name": "Ada", "born": "never"}, Person, "$.born"),
    ({"members": [{"name": 1, "born": date(2000, 1, 1)}]}, Team, "$.members[0].name"),
    ([[1]], set[list[int]], "$"),
    ("2024-01-01", date, "$"),
    (0, Positive, "$"),
    ({"not a uuid": 1}, dict[UUID, int], "$['not a uuid']"),
]


@pytest.mark.parametrize(("plain", "annotation", "path"), UNREADABLE, ids=repr_without_address)
def test_a_record_of_another_type_is_refused_at_its_path(plain, annotation, path):
    with pytest.raises(NotConvertible) as refusal:
        from_plain(plain, annotation)

    assert refusal.value.path == path


def test_a_class_that_refuses_its_values_says_why():
    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError(f"{self.number} is odd")

    with pytest.raises(NotConvertible, match=r"\$\[1\].*3 is odd"):
        from_plain([{"number": 2}, {"number": 3}], list[Even])


def test_without_annotation_what_has_no_plain_form_is_refused_at_its_path():
    with pytest.raises(NotPlain) as refusal:
        to_plain({"items": [1, {"price": 1j}]})

    assert refusal.value.path == "$.items[1].price"


def test_a_cycle_is_refused():
    tree = Tree("a")
    tree.children.append(tree)
    loop: list[Any] = []
    loop.append(loop)

    for value, annotation in ((tree, Tree), (tree, None), (loop, None), (loop, list[Any])):
        with pytest.raises(NotPlain, match="too deeply"):
            to_plain(value, annotation)


def test_an_int_given_for_a_float_is_the_same_value():
    assert encode(to_plain(3, float)) == encode(to_plain(3.0, float))


def test_sets_are_recorded_in_the_order_of_their_bytes():
    assert to_plain({"b", "aa", "a", 3}) == [3, "a", "b", "aa"]
    assert to_plain({30, -1, 5}, set[int]) == [5, 30, -1]


def test_a_union_means_the_same_in_either_order():
    for annotation in (Color | str, str | Color):
        assert to_plain("hello", annotation) == "hello"
        assert to_plain(Color.RED, annotation) == "red"
        assert to_plain("red", annotation) == {"$type": "str", "$value": "red"}


def test_records_in_a_union_carry_their_name():
    assert to_plain(Pixel(1), Point | Pixel) == {"$type": "Pixel", "$value": {"x": 1, "y": 0}}
    assert to_plain(Pixel(1), Pixel | None) == {"x": 1, "y": 0}


def test_a_lost_field_is_ignored_and_a_new_one_takes_its_default():
    assert from_plain({"x": 1, "z": 3}, Point) == Point(1)


def test_json_may_use_text_for_what_json_lacks():
    assert from_json("2024-01-01", date) == date(2024, 1, 1)
    assert from_json("2024-01-01T10:00:00+02:00", datetime) == datetime(2024, 1, 1, 8, tzinfo=UTC)
    assert from_json("PT90S", timedelta) == from_json(90, timedelta) == timedelta(seconds=90)
    assert from_json("1.10", Decimal) == Decimal("1.10")
    assert from_json("aGk=", bytes) == b"hi"
    assert from_json({"1": ["12345678123456781234567812345678"]}, dict[int, list[UUID]]) == {
        1: [UUID(int=0x12345678 * (1 + 2**32 + 2**64 + 2**96))]
    }
    assert from_json("2024-01-01", date | str) == "2024-01-01"
    assert from_json("2024-01-01", date | None) == date(2024, 1, 1)
    assert from_json({"name": "Ada", "born": "1815-12-10"}, Person) == Person(name="Ada", born=date(1815, 12, 10))


@pytest.mark.parametrize(
    ("plain", "annotation", "message"),
    [
        ("hi!", bytes, "base64"),
        ("2024-01-01T10:00:00", datetime, "time zone"),
        ({"x": 1, "yy": 2}, Point, "unknown field 'yy'; did you mean 'y'"),
        ("x", Decimal, "expected Decimal"),
        ({"x": 1}, dict[int, int], "expected int"),
    ],
)
def test_json_that_is_wrong_is_refused(plain, annotation, message):
    with pytest.raises(NotConvertible, match=message):
        from_json(plain, annotation)


def test_a_number_with_too_many_digits_to_be_written_is_refused_all_the_same():
    with pytest.raises(NotConvertible, match="expected str, found int of 20001 bits"):
        to_plain(1 << 20_000, str)


def test_an_annotation_that_cannot_be_hashed_works():
    annotation = Annotated[list[int], ["unhashable"]]

    assert from_plain(to_plain([1], annotation), annotation) == [1]


def test_pydantic_is_not_imported_unless_the_program_did():
    program = "import sys, perdure.codec as c; c.to_plain({'a': [1]}); sys.exit('pydantic' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ("$", ""),
        ("$.items[0].price", "/items/0/price"),
        ("$['unit price'].x", "/unit price/x"),
        ("$['a/b~c']", "/a~1b~0c"),
    ],
)
def test_a_place_has_a_json_pointer(path, pointer):
    assert NotConvertible(path, "int", "str").problems[0].where == pointer
