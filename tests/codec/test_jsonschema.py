"""JSON Schema: made from annotations, and data read by it."""

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import from_plain
from perdure.codec.jsonschema import Field, checked, read, schema_of, to_json
from perdure.errors import BadSchema, Misfit

KEYWORDS = [
    "type",
    "properties",
    "items",
    "prefixItems",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "$defs",
    "enum",
    "default",
    "format",
    "required",
    "additionalProperties",
    "a",
]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Purchase:
    """Of a form: fields in order, with defaults."""

    what: Annotated[str, Field(title="What to buy", help="One line", widget="textarea")]
    price: Decimal
    items: list[Item] = field(default_factory=list)
    wanted: date | None = None


class Address(TypedDict):
    street: str
    zip: NotRequired[str]


class Point(NamedTuple):
    x: int
    y: int


class Node(msgspec.Struct):
    value: int
    next: "Node | None" = None


class Model(pydantic.BaseModel):
    name: str
    age: int = 3


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (Decimal, {"type": "string", "format": "decimal"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (bytes, {"type": "string", "format": "byte"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Annotated[int, msgspec.Meta(ge=1, le=5)], {"type": "integer", "minimum": 1, "maximum": 5}),
        (Annotated[list[Any], msgspec.Meta(max_length=3)], {"type": "array", "maxItems": 3}),
    ],
)
def test_the_schema_of_an_annotation(annotation: Any, schema: dict[str, Any]):
    assert schema_of(annotation) == schema


def test_a_form_has_its_fields_in_order_with_titles_and_defaults():
    schema = schema_of(Purchase)

    assert list(schema["properties"]) == ["what", "price", "items", "wanted"]
    assert schema["properties"]["what"] == {
        "type": "string",
        "title": "What to buy",
        "description": "One line",
        "x-widget": "textarea",
    }
    assert schema["properties"]["items"]["default"] == []
    assert schema["required"] == ["what", "price"]
    assert schema["additionalProperties"] is False


def test_a_class_that_refers_to_itself_has_a_definition():
    schema = schema_of(Node)

    assert schema["$ref"] == "#/$defs/Node"
    assert read(schema, {"value": 1, "next": {"value": 2}}) == {"value": 1, "next": {"value": 2, "next": None}}
    with pytest.raises(Misfit):
        read(schema, {"value": 1, "next": {"value": "two"}})


def test_pydantic_models_typed_dicts_and_named_tuples_have_schemas():
    assert read(schema_of(Model), {"name": "n"}) == {"name": "n", "age": 3}
    assert read(schema_of(Address), {"street": "s"}) == {"street": "s"}
    assert read(schema_of(Point), [1, 2]) == [1, 2]
    with pytest.raises(Misfit):
        read(schema_of(Point), [1])


def test_what_is_read_has_defaults_and_typed_values():
    found = read(schema_of(Purchase), {"what": "chairs", "price": "12.50", "items": [{"name": "leg"}]})

    assert found == {
        "what": "chairs",
        "price": Decimal("12.50"),
        "items": [{"name": "leg", "count": 1}],
        "wanted": None,
    }
    assert from_plain(found, Purchase) == Purchase("chairs", Decimal("12.50"), [Item("leg")])


def test_typed_values_are_taken_as_they_are():
    value = {
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "on": date(2026, 1, 1),
        "span": timedelta(minutes=5),
        "id": UUID(int=7),
        "raw": b"\x00\xff",
        "price": Decimal("1.10"),
    }
    kinds = {"at": datetime, "on": date, "span": timedelta, "id": UUID, "raw": bytes, "price": Decimal}
    schema = {"type": "object", "properties": {name: schema_of(kind) for name, kind in kinds.items()}}

    assert read(schema, value) == value
    assert read(schema, to_json(value)) == value


def test_every_problem_is_named_with_its_pointer():
    with pytest.raises(Misfit) as caught:
        read(schema_of(Purchase), {"price": "dear", "items": [{"name": 7}], "a/b": 1})

    found = {problem.where: problem.text for problem in caught.value.problems}
    assert set(found) == {"", "/price", "/items/0/name"}
    assert '"what" is a required property' in str(caught.value)


def test_a_key_that_is_no_text_is_named_with_its_pointer():
    with pytest.raises(Misfit) as caught:
        read({"type": "object", "additionalProperties": {"type": "object"}}, {"a/b": {1: 2}, 3: {}})

    assert [each.where for each in caught.value.problems] == ["", "/a~1b"]


@pytest.mark.parametrize(
    "bad", [{"type": "nothing"}, {"minimum": "low"}, {"$ref": "https://example.com/schema"}, {1: object()}]
)
def test_a_mapping_that_is_no_schema_is_refused(bad: dict[Any, Any]):
    with pytest.raises(BadSchema):
        checked(bad)


@pytest.mark.parametrize(
    "endless",
    [
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"allOf": [{"$ref": "#"}]},
    ],
)
def test_a_schema_that_refers_to_itself_without_end_is_read_all_the_same(endless: dict[str, Any]):
    assert read(endless, "x") == "x"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["string", "object", "#", "#/$defs/a", "x", "date"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(KEYWORDS), JSON, max_size=5), JSON)
def test_whatever_comes_is_read_or_refused(schema: dict[str, Any], data: Any):
    try:
        checked(schema)
    except BadSchema:
        return
    try:
        read(schema, data)
    except Misfit as misfit:
        assert misfit.problems


def test_an_annotation_without_a_schema_is_refused():
    with pytest.raises(BadSchema, match="use a dataclass"):
        schema_of(object())


def test_a_pattern_takes_linear_time():
    schema = {"type": "string", "pattern": "^(a+)+$"}

    with pytest.raises(Misfit):
        read(schema, "a" * 5000 + "!")
