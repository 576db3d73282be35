"""Types as data: the manifest form, names, references, hashes, JSON Schema."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import schema as s
from perdure.codec.schema import Name, check, from_data, json_schema, parse_name, references, schema_hash, to_data
from perdure.errors import BadDefinition
from tests.codec.fuzz import SHARED, WORDS, Source

EVERY = {
    "record": {
        **{f"a_{word}": word for word in s.PRIMITIVES},
        "variant": {"variant": {"idle": "unit", "in progress": {"record": {}}}},
        "list": {"list": "text"},
        "set": {"set": "uuid"},
        "map": {"map": {"key": "hash", "value": {"option": "int"}}},
        "ref": {"ref": "com.acme/Order@1"},
    }
}


def test_every_type_is_read_and_written_in_one_form():
    schema = from_data(EVERY)

    assert to_data(schema) == EVERY
    assert from_data(to_data(schema)) == schema


def test_schemas_are_equal_by_value_and_can_be_keys():
    one, other = from_data({"record": {"a": "int", "b": "text"}}), from_data({"record": {"b": "text", "a": "int"}})

    assert one == other
    assert len({one, other, from_data({"variant": {"a": "int", "b": "text"}})}) == 2


REFUSED: list[tuple[Any, str, str, str]] = [
    (None, "$", "None", ""),
    (1, "$", "int 1", ""),
    (["text"], "$", "list", ""),
    ({}, "$", "an empty one", "record"),
    ({"list": "text", "set": "text"}, "$", "'list', 'set'", ""),
    ("txt", "$", "'txt'", "did you mean 'text'?"),
    ("string", "$", "'string'", "'text'"),
    ("float", "$", "'float'", "dec128"),
    ("list", "$", "'list' alone", '{"list": "text"}'),
    ({"text": {}}, "$", "'text'", "alone"),
    ({"lst": "text"}, "$", "'lst'", "did you mean 'list'?"),
    ("com.acme/Order@1", "$", "the name", '{"ref": "com.acme/Order@1"}'),
    ({"record": ["a"]}, "$.record", "list", ""),
    ({"record": {"a": {"list": "txt"}}}, "$.record.a.list", "'txt'", "text"),
    ({"record": {"a-b": "text"}}, "$.record", "'a-b'", "ASCII"),
    ({"record": {"$a": "text"}}, "$.record", "'$a'", "ASCII"),
    ({"record": {1: "text"}}, "$.record", "1", "ASCII"),
    ({"variant": {}}, "$.variant", "none", "no values"),
    ({"variant": {"$tag": "unit"}}, "$.variant", "'$tag'", "$"),
    ({"variant": {"a\nb": "unit"}}, "$.variant", "a", "printable"),
    ({"map": "text"}, "$.map", "str 'text'", ""),
    ({"map": {"key": "text"}}, "$.map.value", "nothing", ""),
    ({"map": {"key": "text", "value": "int", "order": 1}}, "$.map", "'order'", "known are key, value"),
    ({"map": {"keys": "text", "value": "int"}}, "$.map", "'keys'", "did you mean 'key'?"),
    ({"ref": "Order"}, "$.ref", "'Order'", "version"),
    ({"ref": {"name": "Order"}}, "$.ref", "dict", ""),
]


@pytest.mark.parametrize(("data", "path", "found", "hint"), REFUSED, ids=lambda part: str(part)[:30])
def test_what_is_no_schema_is_refused_with_its_path_and_a_hint(data, path, found, hint):
    with pytest.raises(BadDefinition) as refusal:
        from_data(data)

    assert refusal.value.path == path
    assert found in refusal.value.found
    assert hint in refusal.value.hint
    assert refusal.value.hint in str(refusal.value)


def test_the_path_begins_where_the_caller_says():
    with pytest.raises(BadDefinition, match=r"\$\.schemas\.Order\.list: expected a type, found the word 'txt'"):
        from_data({"list": "txt"}, "$.schemas.Order")


any_data = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=5), st.sampled_from(WORDS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from([*WORDS, "key", "value", "a"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(any_data)
def test_no_data_crashes_the_reader_of_schemas(data):
    try:
        schema = from_data(data)
    except BadDefinition:
        return
    assert to_data(schema) == data


@given(st.integers(0, 10**9), st.sampled_from(WORDS))
def test_a_schema_comes_back_from_its_data(seed, word):
    schema = Source(str(seed)).schema(word)

    assert from_data(to_data(schema)) == schema
    assert schema_hash(from_data(to_data(schema)), SHARED) == schema_hash(schema, SHARED)


# ---- names ----------------------------------------------------------------------------------------------


def test_a_name_has_a_namespace_a_name_and_a_version():
    assert parse_name("com.acme/OrderCreated@12") == Name("com.acme", "OrderCreated", 12)
    assert str(Name("payment", "charge", 1)) == "payment/charge@1"
    assert parse_name("sys/timer@1").reserved
    assert not parse_name("system/timer@1").reserved


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("com.acme/Order", "version is missing"),
        ("Order@1", "namespace is missing"),
        ("com.acme/Order@0", "positive"),
        ("com.acme/Order@01", "leading zeros"),
        ("com.acme/Order@-1", "positive"),
        ("com.acme/Order@1.5", "positive"),
        ("com.acme/Order@\u0661", "positive"),
        ("com.acme/Or der@1", "letters"),
        ("com..acme/Order@1", "letters"),
        ("com.acme/a/Order@1", "letters"),
        ("com.acme/Order@1\n", "positive"),
        ("", "version is missing"),
    ],
)
def test_what_is_no_name_is_refused_with_what_is_wrong(text, hint):
    with pytest.raises(BadDefinition, match="namespace/Name@version") as refusal:
        parse_name(text)

    assert hint in refusal.value.hint


def test_a_name_is_text():
    with pytest.raises(BadDefinition, match="int 5"):
        parse_name(5)


# ---- references -----------------------------------------------------------------------------------------


def test_references_are_listed_with_their_paths():
    schema = from_data({"record": {"a": {"list": {"ref": "x/A@1"}}, "b": {"map": {"key": "text", "value": EVERY}}}})

    assert list(references(schema)) == [
        ("$.record.a.list.ref", "x/A@1"),
        ("$.record.b.map.value.record.ref.ref", "com.acme/Order@1"),
    ]


def refuses(schema, refs, path, message):
    with pytest.raises(BadDefinition, match=message) as refusal:
        check(schema, refs)
    assert refusal.value.path == path


def test_a_name_that_nobody_defined_is_refused():
    refuses(s.List(s.Ref("x/Ordr@1")), {"x/Order@1": s.Text()}, "$.list", "did you mean 'x/Order@1'")


def test_a_name_that_leads_back_to_itself_is_refused():
    refs = {"x/A@1": s.Record({"b": s.Ref("x/B@1")}), "x/B@1": s.Option(s.Ref("x/A@1"))}

    refuses(s.Ref("x/A@1"), refs, "x/B@1.option", "x/A@1 -> x/B@1 -> x/A@1")
    refuses(s.Ref("x/C@1"), {"x/C@1": s.Ref("x/C@1")}, "x/C@1", "x/C@1 -> x/C@1")


def test_null_has_one_meaning():
    refs = {"x/Maybe@1": s.Option(s.Text()), "x/Nothing@1": s.Unit()}

    refuses(s.Option(s.Option(s.Text())), refs, "$.option", "two meanings")
    refuses(s.Option(s.Unit()), refs, "$.option", "two meanings")
    refuses(s.Option(s.Ref("x/Maybe@1")), refs, "$.option", "two meanings")
    refuses(s.Option(s.Ref("x/Nothing@1")), refs, "$.option", "two meanings")


@pytest.mark.parametrize("key", [s.Bool(), s.Bytes(), s.Time(), s.Dec128(), s.Unit(), s.Option(s.Text()), s.Record({})])
def test_only_some_types_are_keys(key):
    refuses(s.Map(key, s.Text()), {}, "$.map.key", "as the key of a map")
    refuses(s.Map(s.Ref("x/K@1"), s.Text()), {"x/K@1": key}, "$.map.key", "as the key of a map")


def test_types_nest_to_a_limit_also_through_names():
    def nested(depth: int, inner: s.Schema) -> s.Schema:
        for _ in range(depth):
            inner = s.List(inner)
        return inner

    refs = {"x/Half@1": nested(31, s.Text()), "x/Whole@1": nested(32, s.Ref("x/Half@1"))}

    check(s.Ref("x/Whole@1"), refs)  # 32 + 31 lists and a text
    for schema in (s.List(s.Ref("x/Whole@1")), nested(64, s.Text())):
        with pytest.raises(BadDefinition, match="at most 64"):
            check(schema, refs)
    with pytest.raises(BadDefinition, match="at most 64"):
        from_data(to_data(nested(64, s.Text())))


def test_a_long_chain_of_deep_names_is_refused_and_not_followed():
    refs: dict[str, s.Schema] = {"x/N0@1": s.Text()}
    for number in range(1, 200):
        inner: s.Schema = s.Ref(f"x/N{number - 1}@1")
        for _ in range(50):
            inner = s.List(inner)
        refs[f"x/N{number}@1"] = inner

    with pytest.raises(BadDefinition, match="at most 64"):
        check(s.Ref("x/N199@1"), refs)


def test_names_that_are_shared_are_followed_once():
    refs: dict[str, s.Schema] = {"x/N0@1": s.Text()}
    for number in range(1, 50):
        below = s.Ref(f"x/N{number - 1}@1")
        refs[f"x/N{number}@1"] = s.Record({"a": below, "b": below})  # 2^49 texts, if they were written out

    top = s.Ref("x/N49@1")

    assert len(json_schema(top, refs)["$defs"]) == 50
    assert schema_hash(top, refs).startswith("sha256:")


# ---- hashes and JSON Schema -----------------------------------------------------------------------------


def test_a_hash_covers_what_is_referred_to_and_not_the_order_of_fields():
    schema = s.List(s.Ref("x/A@1"))

    one = schema_hash(schema, {"x/A@1": s.Record({"a": s.Int(), "b": s.Text()})})
    same = schema_hash(schema, {"x/A@1": s.Record({"b": s.Text(), "a": s.Int()}), "x/B@1": s.Unit()})
    other = schema_hash(schema, {"x/A@1": s.Record({"a": s.Nat(), "b": s.Text()})})

    assert one == same != other


def test_json_schema_says_what_the_json_lens_takes():
    schema = from_data({"record": {"id": "uuid", "note": {"option": "text"}, "by": {"ref": "x/A@1"}}})

    found = json_schema(schema, {"x/A@1": s.Variant({"on": s.Unit()})})

    assert found["$schema"].endswith("2020-12/schema")
    assert found["required"] == ["id", "by"]
    assert found["additionalProperties"] is False
    assert found["properties"]["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert found["properties"]["by"] == {"$ref": "#/$defs/x~1A@1"}
    assert found["$defs"]["x/A@1"]["oneOf"][0]["properties"]["$tag"] == {"const": "on"}


@pytest.mark.parametrize("word", WORDS)
def test_every_type_has_a_json_schema(word):
    found = json_schema(Source(word).schema(word), SHARED)

    assert found.keys() & {"type", "oneOf", "anyOf", "$ref"}


def lists(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = {"list": inner}
    return inner


@pytest.mark.parametrize("shallow", [True, False], ids=["followed before", "not followed"])
def test_a_name_counts_with_all_that_is_inside_of_it_wherever_it_stands(shallow):
    refs = {"a/Deep@1": from_data(lists(40, "text"))}
    deep = {"ref": "a/Deep@1"}

    def schema(depth: int) -> s.Schema:
        return from_data({"record": {**({"first": deep} if shallow else {}), "last": lists(depth, deep)}})

    check(schema(22), refs)
    with pytest.raises(BadDefinition, match="at most 64 types inside each other"):
        check(schema(23), refs)
