"""One value of a schema, one sequence of bytes; everything loose is refused with its path."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.codec import digest, encode
from perdure.codec import schema as s
from perdure.codec.canonical import form, parse_json
from perdure.codec.schema import from_data
from perdure.errors import BadDefinition, NotCanonical, SchemaMismatch
from tests.codec.fuzz import SHARED, WORDS, Source, has_one_form, is_judged, passes_the_json_lens
from tests.codec.plain import plain_data

ID = UUID("12345678-90ab-cdef-1234-567890abcdef")
HASH = "sha256:" + "0123456789abcdef" * 4
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORDER = from_data({"record": {"id": "text", "order": {"record": {"cents": "nat", "note": {"option": "text"}}}}})


class Level(IntEnum):
    LOW = -5


class Word(StrEnum):
    NAIVE = "naïve"


# ---- each type: spellings of one value, and its canonical bytes -----------------------------------------

SPELLINGS: list[tuple[Any, list[Any], str]] = [
    ("bool", [True], "f5"),
    ("int", [-5, Level.LOW], "24"),
    ("int", [-(2**63)], "3b7fffffffffffffff"),
    ("int", [2**63 - 1], "1b7fffffffffffffff"),
    ("nat", [2**64 - 1], "1bffffffffffffffff"),
    ("dec128", [Decimal("1.1"), Decimal("1.10"), Decimal("110E-2")], "c482200b"),
    ("dec128", [Decimal("1000"), Decimal("1E3"), Decimal("1000.00")], "c4820301"),
    ("dec128", [Decimal("0"), Decimal("-0"), Decimal("0E+9"), Decimal("0.000")], "c4820000"),
    ("dec128", [Decimal("1" + "0" * 40)], "c482182801"),
    ("dec128", [Decimal("9E+6144"), Decimal("90E+6143")], "c48219180009"),
    ("dec128", [Decimal("1E-6176")], "c482" + "39181f" + "01"),
    ("bytes", [b"\x00\xff"], "4200ff"),
    ("text", ["naïve", Word.NAIVE], "666e61c3af7665"),
    ("time", [1_769_860_800_000_000_000, NOON, NOON.astimezone(timezone(timedelta(hours=5)))], "1b188fcf053de38000"),
    ("time", [-1], "20"),
    ("duration", [1_500_000_000, timedelta(seconds=1.5)], "1a59682f00"),
    ("duration", [-1000, timedelta(microseconds=-1)], "3903e7"),
    ("hash", [HASH, "sha256:" + HASH[7:].upper()], "7847" + HASH.encode().hex()),
    ("uuid", [ID, str(ID), str(ID).upper(), ID.hex, ID.urn, f"{{{ID}}}"], "d82550" + ID.hex),
    ("unit", [None], "f6"),
    ({"record": {}}, [{}], "a0"),
    ({"record": {"b": "int", "a": "int"}}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], "a2616101616202"),
    ({"record": {"a": {"option": "int"}}}, [{"a": None}, {}], "a16161f6"),
    (
        {"variant": {"on": "unit", "at": "int"}},
        [{"$tag": "at", "$value": 1}, {"$value": 1, "$tag": "at"}],
        "a26424746167626174662476616c756501",
    ),
    ({"list": "int"}, [[2, 1], (2, 1)], "820201"),
    ({"set": "int"}, [[300, 2, 1], [2, 1, 300, 1], {1, 2, 300}, frozenset((1, 2, 300)), (300, 1, 2)], "83010219012c"),
    ({"set": "dec128"}, [[Decimal("1.0"), Decimal("1")], {Decimal(1)}], "81c4820001"),
    ({"set": {"list": "int"}}, [[[2], [], [1], [2]], [[1], [2], []]], "8380810181" + "02"),
    ({"map": {"key": "int", "value": "text"}}, [{-1: "a", 5: "b"}, {5: "b", -1: "a"}], "a2056162206161"),
    ({"map": {"key": "uuid", "value": "int"}}, [{ID: 1}, {str(ID): 1}, {ID.bytes: 1}], f"a150{ID.hex}01"),
    ({"map": {"key": "hash", "value": "unit"}}, [{HASH: None}, {"sha256:" + HASH[7:].upper(): None}],
     "a17847" + HASH.encode().hex() + "f6"),
    ({"option": "int"}, [None], "f6"),
    ({"option": "int"}, [3], "03"),
    ({"ref": "test/Point@1"}, [{"x": 1, "y": 2}, {"y": 2, "x": 1}], "a2617801617902"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "spellings", "encoded"), SPELLINGS, ids=lambda part: str(part)[:40])
def test_every_spelling_of_a_value_has_the_same_bytes_and_round_trips(data, spellings, encoded):
    compiled = form(from_data(data), SHARED)

    for value in spellings:
        found = compiled.encode(value)
        assert found.hex() == "d9d9f7" + encoded
        assert encode(compiled.decode(found)) == found
        assert compiled.plain(compiled.plain(value)) == compiled.plain(value)
        assert encode(compiled.from_json(json.loads(json.dumps(compiled.to_json(compiled.plain(value)))))) == found


def test_every_word_is_among_the_spellings():
    assert {data if isinstance(data, str) else next(iter(data)) for data, _, _ in SPELLINGS} == set(WORDS)


@pytest.mark.parametrize(
    ("data", "value", "encoded", "name"),
    [
        ({"record": {}}, {}, "d9d9f7a0", "75bd49cb9649"),
        ({"record": {"a": "int", "b": "nat"}}, {"b": 2, "a": 1}, "d9d9f7a2616101616202", "7d5fc784e8d3"),
        ({"map": {"key": "text", "value": "int"}}, {"b": 2, "a": 1}, "d9d9f7a2616101616202", "7d5fc784e8d3"),
    ],
)
def test_the_promised_hashes_hold_for_values_of_a_schema(data, value, encoded, name):
    found = form(from_data(data)).encode(value)

    assert found.hex() == encoded
    assert digest(found).startswith(f"sha256:{name}")


# ---- everything loose is refused ------------------------------------------------------------------------

LOOSE: list[tuple[Any, Any, str, str]] = [
    ({"record": {"a": "int"}}, {}, "$.a", "found nothing"),
    ({"record": {"a": "int"}}, {"a": 1, "b": 2}, "$", "the unknown field 'b'"),
    ({"record": {"cents": "int"}}, {"cent": 1}, "$", "did you mean 'cents'"),
    ({"record": {"a": {"option": "int"}}}, {"A": 1}, "$", "the unknown field 'A'"),
    ({"record": {"a": "int"}}, {"a": None}, "$.a", "found None"),
    ({"record": {"a": "int"}}, [("a", 1)], "$", "found list"),
    ({"record": {"a": "int"}}, {"a": 1, 5: 2}, "$", "unknown field int 5"),
    ({"variant": {"on": "unit"}}, "on", "$", 'the one form of a variant is {"$tag"'),
    ({"variant": {"on": "unit"}}, {"on": None}, "$", "the one form"),
    ({"variant": {"on": "unit"}}, {"$tag": "on"}, "$", "the one form"),
    ({"variant": {"on": "unit"}}, {"$value": None}, "$", "the one form"),
    ({"variant": {"on": "unit"}}, {"$tag": "on", "$value": None, "x": 1}, "$", "the one form"),
    ({"variant": {"on": "unit"}}, {"$tag": "off", "$value": None}, "$.$tag", "one of on"),
    ({"variant": {"on": "unit"}}, {"$tag": ["on"], "$value": None}, "$.$tag", "one of on"),
    ({"variant": {"on": "unit"}}, {"$tag": "on", "$value": 1}, "$.$value", "null"),
    ({"map": {"key": "uuid", "value": "int"}}, {ID: 1, str(ID): 2}, f"$['{ID}']", "each key once"),
    ({"map": {"key": "hash", "value": "int"}}, {HASH: 1, "sha256:" + HASH[7:].upper(): 2}, "", "each key once"),
    ({"map": {"key": "int", "value": "int"}}, {True: 1}, "$[bool True]", "found bool True"),
    ({"map": {"key": "int", "value": "int"}}, {"1": 1}, "$['1']", "found str '1'"),
    ({"map": {"key": "nat", "value": "int"}}, {-1: 1}, "$[int -1]", "nat"),
    ({"map": {"key": "text", "value": "int"}}, {b"a": 1}, "$[b'a']", "text"),
    ({"map": {"key": "text", "value": "int"}}, {"a b": "x"}, "$['a b']", "int"),
    ({"map": {"key": "uuid", "value": "int"}}, {b"short": 1}, "", "uuid"),
    ("bool", 1, "$", "found int 1"),
    ("bool", "true", "$", "found str 'true'"),
    ("int", True, "$", "a bool is not a number"),
    ("int", 1.0, "$", "found float 1.0"),
    ("int", "1", "$", "found str '1'"),
    ("int", 2**63, "$", "2^63-1"),
    ("int", -(2**63) - 1, "$", "-2^63"),
    ("int", 10**5000, "$", "bits"),
    ("nat", -1, "$", "0 to 2^64-1"),
    ("nat", 2**64, "$", "0 to 2^64-1"),
    ("nat", True, "$", "found bool True"),
    ("dec128", Decimal("NaN"), "$", "finite"),
    ("dec128", Decimal("sNaN"), "$", "finite"),
    ("dec128", Decimal("Infinity"), "$", "finite"),
    ("dec128", Decimal("1" * 35), "$", "34 digits"),
    ("dec128", Decimal("1E+6145"), "$", "dec128"),
    ("dec128", Decimal("1E-6177"), "$", "dec128"),
    ("dec128", Decimal("1E+999999999999"), "$", "dec128"),
    ("dec128", 1, "$", "write Decimal"),
    ("dec128", 1.5, "$", "write Decimal"),
    ("dec128", "1.5", "$", "write Decimal"),
    ("bytes", "text", "$", "found str 'text'"),
    ("bytes", "AA==", "$", "found str"),
    ("bytes", bytearray(b"x"), "$", "copy it with bytes()"),
    ("bytes", [1, 2], "$", "found list"),
    ("text", b"bytes", "$", "found bytes"),
    ("text", 5, "$", "found int 5"),
    ("text", "\ud800", "$", "lone surrogates"),
    ("text", None, "$", "found None"),
    ("time", datetime(2024, 1, 1), "$", "without a time zone"),
    ("time", datetime(2400, 1, 1, tzinfo=UTC), "$", "1677 and 2262"),
    ("time", 1.5, "$", "found float"),
    ("time", "2024-01-01T00:00:00Z", "$", "found str"),
    ("time", True, "$", "found bool"),
    ("duration", timedelta(days=365 * 300), "$", "292 years"),
    ("duration", 2**63, "$", "292 years"),
    ("duration", 1.5, "$", "found float"),
    ("hash", "0" * 64, "$", "sha256: and 64 hex digits"),
    ("hash", "sha256:" + "0" * 63, "$", "hash"),
    ("hash", "sha256:" + "g" * 64, "$", "hash"),
    ("hash", HASH + "\n", "$", "hash"),
    ("hash", bytes(32), "$", "hash"),
    ("uuid", "12345678-90ab-cdef-1234-567890abcde", "$", "uuid"),
    ("uuid", "1234567-890ab-cdef-1234-567890abcdef", "$", "uuid"),
    ("uuid", ID.hex[:-2] + "_1", "$", "uuid"),
    ("uuid", ID.bytes, "$", "uuid"),
    ("uuid", ID.int, "$", "uuid"),
    ("unit", False, "$", "null"),
    ({"list": "int"}, {1, 2}, "$", "found set"),
    ({"list": "int"}, "12", "$", "found str"),
    ({"list": "int"}, {0: 1}, "$", "found dict"),
    ({"list": "int"}, [1, "2"], "$[1]", "found str '2'"),
    ({"set": "int"}, {1: 1}, "$", "found dict"),
    ({"set": "int"}, [1, 1.0], "$[1]", "found float"),
    ({"option": "int"}, "", "$", "found str"),
]


@pytest.mark.parametrize(("data", "value", "path", "message"), LOOSE, ids=[str(n) for n in range(len(LOOSE))])
def test_what_is_loose_is_refused_with_its_path(data, value, path, message):
    with pytest.raises(SchemaMismatch) as refusal:
        form(from_data(data)).encode(value)

    assert refusal.value.path == path or not path
    assert message in str(refusal.value)


def test_a_refusal_names_the_path_the_type_what_was_found_and_the_schema():
    compiled = form(s.Ref("com.acme/Order@1"), {"com.acme/Order@1": ORDER})

    with pytest.raises(SchemaMismatch) as refusal:
        compiled.plain({"id": "o-17", "order": {"cents": -4, "note": None}})

    assert refusal.value.path == "$.order.cents"
    assert refusal.value.where == "com.acme/Order@1"
    assert str(refusal.value) == "com.acme/Order@1: $.order.cents: expected nat (0 to 2^64-1), found int -4"


def test_an_absent_option_becomes_explicit_null_at_every_depth():
    assert form(ORDER).plain({"id": "o-17", "order": {"cents": 1}}) == {
        "id": "o-17",
        "order": {"cents": 1, "note": None},
    }


def test_the_value_that_was_given_is_left_as_it_was():
    value = {"id": "o-17", "order": {"cents": 1}}

    plain = form(ORDER).plain(value)
    plain["order"]["cents"] = 2

    assert value == {"id": "o-17", "order": {"cents": 1}}


def test_a_schema_that_cannot_be_compiled_is_refused_before_any_value():
    with pytest.raises(BadDefinition, match="not defined"):
        form(s.Ref("x/Nobody@1"))


# ---- bytes from anywhere --------------------------------------------------------------------------------

OTHER_BYTES: list[tuple[Any, Any, str]] = [
    ({"set": "int"}, [2, 1], "$[0]"),
    ({"set": "int"}, [1, 1], "$"),
    ({"record": {"a": {"option": "int"}}}, {}, "$"),
    ({"record": {"a": {"list": {"set": "int"}}}}, {"a": [[1], [3, 2]]}, "$.a[1][0]"),
    ("dec128", Decimal("1.10"), "$"),
    ("time", NOON, "$"),
    ("duration", timedelta(1), "$"),
    ("uuid", str(ID), "$"),
    ("hash", "sha256:" + HASH[7:].upper(), "$"),
    ({"map": {"key": "uuid", "value": "int"}}, {str(ID): 1}, "$"),
    ({"variant": {"a": "time"}}, {"$tag": "a", "$value": NOON}, "$.$value"),
]


@pytest.mark.parametrize(("data", "value", "path"), OTHER_BYTES, ids=[str(n) for n in range(len(OTHER_BYTES))])
def test_bytes_of_another_spelling_are_refused(data, value, path):
    compiled = form(from_data(data))
    compiled.plain(value)  # as a value it is fine

    with pytest.raises(SchemaMismatch, match="the canonical form") as refusal:
        compiled.decode(encode(value))

    assert refusal.value.path == path


def test_bytes_of_another_type_or_of_nothing_are_refused():
    with pytest.raises(SchemaMismatch, match=r"\$: expected nat"):
        form(s.Nat()).decode(encode("text"))
    with pytest.raises(NotCanonical, match="fewest bytes"):
        form(s.Nat()).decode(bytes.fromhex("d9d9f71801"))
    with pytest.raises(NotCanonical, match="self-describe"):
        form(s.Nat()).decode(b"")


# ---- the JSON lens --------------------------------------------------------------------------------------

LENS: list[tuple[Any, Any, Any]] = [
    ("int", 5, 5),
    ("int", "-5", -5),
    ("int", "9223372036854775807", 2**63 - 1),
    ("nat", "18446744073709551615", 2**64 - 1),
    ("dec128", "12.50", Decimal("12.5")),
    ("dec128", "-1.5e3", Decimal("-1.5E3")),
    ("dec128", 7, Decimal(7)),
    ("bytes", "AP8=", b"\x00\xff"),
    ("bytes", "", b""),
    ("time", "2026-01-31T12:00:00Z", 1_769_860_800_000_000_000),
    ("time", "2026-01-31t14:30:00.000000001+02:30", 1_769_860_800_000_000_001),
    ("time", "1969-12-31T23:59:59.999999999Z", -1),
    ("time", 17, 17),
    ("duration", 17, 17),
    ("duration", "17", 17),
    ("uuid", str(ID).upper(), ID),
    ("hash", HASH, HASH),
    ({"set": "nat"}, ["2", 1, 2], [1, 2]),
    ({"map": {"key": "int", "value": "text"}}, {"-1": "a"}, {-1: "a"}),
    ({"map": {"key": "uuid", "value": "text"}}, {str(ID): "a"}, {ID.bytes: "a"}),
    ({"record": {"a": {"option": "bytes"}, "b": "bytes"}}, {"b": "AA=="}, {"a": None, "b": b"\x00"}),
]


@pytest.mark.parametrize(("data", "written", "plain"), LENS, ids=lambda part: str(part)[:40])
def test_the_json_lens_reads_what_json_can_say(data, written, plain):
    compiled = form(from_data(data))

    assert encode(compiled.from_json(written)) == encode(plain)
    assert encode(compiled.from_json(compiled.to_json(plain))) == encode(plain)


LOOSE_JSON: list[tuple[Any, Any, str]] = [
    ("int", 1.0, "float"),
    ("int", "1.0", "str"),
    ("int", "007", "str"),
    ("int", "-0", "str"),
    ("int", "+1", "str"),
    ("int", " 1", "str"),
    ("int", "1_0", "str"),
    ("int", "\u0661", "str"),
    ("int", "9223372036854775808", "2^63"),
    ("int", "9" * 5000, "str"),
    ("int", True, "bool"),
    ("nat", "-1", "nat"),
    ("dec128", 1.5, "write it as text"),
    ("dec128", "NaN", "dec128"),
    ("dec128", "1_0", "dec128"),
    ("dec128", ".5", "dec128"),
    ("dec128", "1e99999", "dec128"),
    ("dec128", True, "dec128"),
    ("dec128", 10**60 + 1, "dec128"),
    ("bytes", "text!", "base64"),
    ("bytes", "AA", "base64"),
    ("bytes", "AB==", "base64"),
    ("bytes", "A A==", "base64"),
    ("bytes", "_-8=", "base64"),
    ("bytes", [1], "base64"),
    ("time", "2026-01-31T12:00:00", "RFC 3339"),
    ("time", "2026-01-31", "RFC 3339"),
    ("time", "2026-02-30T12:00:00Z", "RFC 3339"),
    ("time", "2026-01-31T23:59:60Z", "RFC 3339"),
    ("time", "2026-01-31T12:00:00+24:00", "RFC 3339"),
    ("time", "2026-01-31T12:00:00.0000000001Z", "RFC 3339"),
    ("time", "2400-01-01T00:00:00Z", "1677"),
    ("time", "1769860800", "RFC 3339"),
    ("time", 1.5, "RFC 3339"),
    ("duration", 1.5, "duration"),
    ("duration", "PT5S", "duration"),
    ({"map": {"key": "int", "value": "int"}}, {"1.0": 1}, "digits"),
    ({"map": {"key": "nat", "value": "int"}}, {"-1": 1}, "nat"),
    ({"map": {"key": "uuid", "value": "int"}}, {str(ID): 1, ID.hex: 2}, "each key once"),
    ({"record": {"a": "int"}}, {"a": 1, "b": 1}, "unknown field"),
    ({"record": {"a": "int"}}, {}, "nothing"),
    ({"variant": {"on": "unit"}}, "on", "the one form"),
]


@pytest.mark.parametrize(("data", "written", "message"), LOOSE_JSON, ids=[str(n) for n in range(len(LOOSE_JSON))])
def test_the_json_lens_is_as_strict(data, written, message):
    with pytest.raises(SchemaMismatch) as refusal:
        form(from_data(data)).from_json(written)

    assert message in str(refusal.value)


def test_the_json_lens_writes_what_others_can_read():
    fields = {"i": "int", "big": "nat", "d": "dec128", "b": "bytes", "t": "time", "u": "uuid"}
    everything = from_data({"record": {**fields, "m": {"map": {"key": "uuid", "value": "int"}}}})
    plain = {"i": -5, "big": 2**60, "d": Decimal("1E+3"), "b": b"\x00", "t": 1, "u": ID, "m": {ID.bytes: 1}}

    assert form(everything).to_json(plain) == {
        "i": -5,
        "big": "1152921504606846976",
        "d": "1000",
        "b": "AA==",
        "t": "1970-01-01T00:00:00.000000001Z",
        "u": str(ID),
        "m": {str(ID): 1},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "'a' twice"),
        ('{"x": [{"b": 1, "b": 1}]}', "'b' twice"),
        ("NaN", "found NaN"),
        ("[-Infinity]", "found -Infinity"),
        ("{", "JSON"),
        (b"\xff", "JSON"),
        ("[" * 100_000, "JSON"),
        ("9" * 5000, "JSON"),
    ],
    ids=lambda part: str(part)[:20],
)
def test_json_text_is_read_by_the_letter(text, message):
    with pytest.raises(SchemaMismatch) as refusal:
        parse_json(text)

    assert message in str(refusal.value)


def test_json_text_that_is_right_is_read():
    assert parse_json('{"a": [1, "x", null, true]}') == parse_json(b'{"a": [1, "x", null, true]}')


# ---- any schema, any value ------------------------------------------------------------------------------


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.sampled_from(WORDS))
def test_values_of_any_schema_have_one_form(seed, word):
    source = Source(str(seed))
    schema = source.schema(word, depth=4)
    compiled = form(schema, SHARED)

    data = has_one_form(compiled, *source.values(schema)())

    passes_the_json_lens(compiled, data)


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.sampled_from(WORDS), plain_data)
def test_no_value_crashes_a_form(seed, word, value):
    compiled = form(Source(str(seed)).schema(word), SHARED)

    is_judged(compiled, compiled.plain, value)
    is_judged(compiled, compiled.from_json, value)


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.sampled_from(WORDS), st.one_of(st.binary(max_size=60), plain_data.map(encode)))
def test_no_bytes_crash_a_form(seed, word, data):
    compiled = form(Source(str(seed)).schema(word), SHARED)

    for found in (data, bytes.fromhex("d9d9f7") + data):
        try:
            plain = compiled.decode(found)
        except (NotCanonical, SchemaMismatch):
            continue
        assert encode(plain) == found
