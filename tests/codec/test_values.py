"""One value, one sequence of bytes: `encode`, `decode` and `digest` against the rules of `values.py`."""

import enum
import math
import random
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import decode, decode_strict, digest, encode
from perdure.errors import NotPlain
from tests.codec.plain import plain_data

TAG = "d9d9f7"

# RFC 8949, appendix A: those in the range of plain data.
APPENDIX_A: list[tuple[str, Any]] = [
    ("00", 0),
    ("01", 1),
    ("0a", 10),
    ("17", 23),
    ("1818", 24),
    ("1819", 25),
    ("1864", 100),
    ("1903e8", 1000),
    ("1a000f4240", 1000000),
    ("1b000000e8d4a51000", 1000000000000),
    ("1bffffffffffffffff", 18446744073709551615),
    ("c249010000000000000000", 18446744073709551616),
    ("3bffffffffffffffff", -18446744073709551616),
    ("c349010000000000000000", -18446744073709551617),
    ("20", -1),
    ("29", -10),
    ("3863", -100),
    ("3903e7", -1000),
    ("f90000", 0.0),
    ("f98000", -0.0),
    ("f93c00", 1.0),
    ("fb3ff199999999999a", 1.1),
    ("f93e00", 1.5),
    ("f97bff", 65504.0),
    ("fa47c35000", 100000.0),
    ("fa7f7fffff", 3.4028234663852886e38),
    ("fb7e37e43c8800759c", 1e300),
    ("f90001", 5.960464477539063e-08),
    ("f90400", 6.103515625e-05),
    ("f9c400", -4.0),
    ("fbc010666666666666", -4.1),
    ("f97c00", math.inf),
    ("f97e00", math.nan),
    ("f9fc00", -math.inf),
    ("f4", False),
    ("f5", True),
    ("f6", None),
    ("c074323031332d30332d32315432303a30343a30305a", datetime(2013, 3, 21, 20, 4, tzinfo=UTC)),
    ("40", b""),
    ("4401020304", b"\x01\x02\x03\x04"),
    ("60", ""),
    ("6161", "a"),
    ("6449455446", "IETF"),
    ("62225c", '"\\'),
    ("62c3bc", "\u00fc"),
    ("63e6b0b4", "\u6c34"),
    ("64f0908591", "\U00010151"),
    ("80", []),
    ("83010203", [1, 2, 3]),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("98190102030405060708090a0b0c0d0e0f101112131415161718181819", list(range(1, 26))),
    ("a0", {}),
    ("a201020304", {1: 2, 3: 4}),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("826161a161626163", ["a", {"b": "c"}]),
    ("a56161614161626142616361436164614461656145", {"a": "A", "b": "B", "c": "C", "d": "D", "e": "E"}),
]

# The tagged scalars, in the one form that values.py documents.
TAGGED: list[tuple[str, Any]] = [
    (
        "c0781b323031332d30332d32315432303a30343a30302e3530303030305a",
        datetime(2013, 3, 21, 20, 4, 0, 500000, UTC),
    ),
    ("d903ec6a323031332d30332d3231", date(2013, 3, 21)),
    ("d903eaa1013a0001517f", timedelta(days=-1)),
    ("d903eaa201012501", timedelta(seconds=1, microseconds=1)),
    ("d903eaa20120251a000f423f", timedelta(microseconds=-1)),
    ("c48221196ab3", Decimal("273.15")),
    ("c4822118" + "6e", Decimal("1.10")),
    ("c4820700", Decimal("0E+7")),
    ("d82550" + "12345678123456781234567812345678", UUID("12345678123456781234567812345678")),
]


@pytest.mark.parametrize(("encoded", "value"), APPENDIX_A + TAGGED)
def test_every_vector_is_written_and_read(encoded, value):
    data = bytes.fromhex(TAG + encoded)

    assert encode(value) == data
    for back in (decode(data), decode_strict(data)):
        assert repr(back) == repr(value)  # tells 1 from 1.0, 0.0 from -0.0, and NaN from what it is not


@pytest.mark.parametrize(
    ("value", "encoded", "name"),
    [
        ({}, "d9d9f7a0", "75bd49cb9649"),
        ({"a": 1, "b": 2}, "d9d9f7a2616101616202", "7d5fc784e8d3"),
        (["hi", 1, True, None], "d9d9f78462686901f5f6", "0e2c2f23ecde"),
    ],
)
def test_the_promised_hashes_hold(value, encoded, name):
    assert encode(value).hex() == encoded
    assert digest(encode(value)).startswith(f"sha256:{name}")
    assert len(digest(encode(value))) == len("sha256:") + 64


@given(plain_data)
def test_plain_data_comes_back_as_it_was(value):
    data = encode(value)

    assert decode(data) == value
    assert repr(decode_strict(data)) == repr(decode(data))
    assert encode(decode(data)) == data


def shuffled(value, order):
    if isinstance(value, list):
        return [shuffled(item, order) for item in value]
    if isinstance(value, dict):
        items = [(key, shuffled(item, order)) for key, item in value.items()]
        order.shuffle(items)
        return dict(items)
    return value


@given(plain_data, st.randoms(use_true_random=False))
def test_any_spelling_has_one_hash(value, order: random.Random):
    assert encode(shuffled(value, order)) == encode(value)


@given(st.floats())
def test_a_float_is_as_short_as_keeps_it(value):
    data = encode(value)

    assert repr(decode(data)) == repr(value)
    assert len(data) - 3 == next(size for size, fits in ((3, half(value)), (5, single(value)), (9, True)) if fits)


def half(value):
    return math.isnan(value) or fits(value, 11, 65504.0, 2.0**-24)


def single(value):
    return fits(value, 24, 3.4028234663852886e38, 2.0**-149)


def fits(value, precision, largest, smallest):
    """By arithmetic instead of by `struct`, so that the rule is checked by another rule."""
    if math.isinf(value) or value == 0:
        return True
    if abs(value) > largest:
        return False
    step = max(math.ldexp(1, math.frexp(value)[1] - precision), smallest)
    return math.fmod(value, step) == 0


def test_keys_are_sorted_by_length_and_then_by_bytes():
    keys = [key for key in decode(encode({"bb": 0, "a": 0, 100: 0, -1: 0, 5: 0, b"a": 0, "\u00fc": 0}))]

    assert keys == [5, -1, 100, b"a", "a", "bb", "\u00fc"]


def test_a_time_is_recorded_in_utc_wherever_it_was_read():
    berlin = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))

    assert encode(berlin) == encode(datetime(2024, 7, 1, 10, tzinfo=UTC))
    assert decode(encode(berlin)) == berlin


def test_tuples_and_subclasses_are_recorded_as_their_plain_type():
    class Level(enum.IntEnum):
        HIGH = 3

    class Name(enum.StrEnum):
        ADA = "ada"

    assert encode((1, (2,))) == encode([1, [2]])
    assert encode(OrderedDict(b=1, a=2)) == encode({"a": 2, "b": 1})
    assert encode({Name.ADA: Level.HIGH}) == encode({"ada": 3})
    assert encode([Name.ADA, Level.HIGH]) == encode(["ada", 3])


def test_a_key_is_never_mistaken_for_an_equal_one():
    assert encode({"1": 0}) != encode({1: 0})
    assert encode({1: 0}) == bytes.fromhex(TAG + "a10100")
    with pytest.raises(NotPlain):
        encode({True: 0})
    with pytest.raises(NotPlain):
        encode({1.0: 0})


class Sneaky(str):
    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


UNPLAIN = [
    (object(), "$", "type object"),
    ({"items": [1, 2, 3, {"price": 1j}]}, "$.items[3].price", "complex"),
    ({"a b": {1, 2}}, "$['a b']", "a set"),
    ([datetime(2024, 1, 1)], "$[0]", "without a time zone"),
    ({"t": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))}, "$.t", "out of range"),
    ({"d": Decimal("NaN")}, "$.d", "Decimal NaN"),
    ({"d": Decimal("Infinity")}, "$.d", "Decimal Infinity"),
    ({"d": Decimal("1E+1000000")}, "$.d", "Decimal"),
    ({"d": Decimal("1" * 1001)}, "$.d", "Decimal"),
    (["\ud800"], "$[0]", "Unicode"),
    ("\ud800", "$", "Unicode"),
    ({"\ud800": 1}, "$", "Unicode"),
    ({None: 1}, "$", "key of type NoneType"),
    ({"x": {True: 1}}, "$.x", "key of type bool"),
    ({2**64: 1}, "$", "key of type int"),
    ({(1, 2): 1}, "$", "key of type tuple"),
    ({Sneaky("a"): 1, Sneaky("a"): 2}, "$", "twice"),
    (bytearray(b"x"), "$", "bytearray"),
    (len, "$", "builtin_function"),
    (int, "$", "type type"),
]


@pytest.mark.parametrize(("value", "path", "found"), UNPLAIN)
def test_what_is_not_plain_is_refused_with_its_path(value, path, found):
    with pytest.raises(NotPlain) as refusal:
        encode(value)

    assert refusal.value.path == path
    assert found in refusal.value.found
    assert refusal.value.advice in str(refusal.value)


def test_a_cycle_is_refused_and_not_followed():
    cycle: list[object] = [1]
    cycle.append({"again": cycle})

    with pytest.raises(NotPlain, match="deeper than 128"):
        encode(cycle)


def test_depth_has_one_limit_for_writing_and_reading():
    def nested(depth):
        value: object = []
        for _ in range(depth - 1):
            value = [value]
        return value

    assert decode(encode(nested(128))) == decode_strict(encode(nested(128))) == nested(128)
    with pytest.raises(NotPlain, match="deeper than 128"):
        encode(nested(129))
    with pytest.raises(NotPlain, match="deeper than 128"):
        encode(nested(100_000))


def test_a_scalar_at_the_greatest_depth_is_read_by_both_readers():
    value: object = timedelta(seconds=1)
    for _ in range(128):
        value = [value]

    assert decode(encode(value)) == decode_strict(encode(value)) == value


def test_what_decode_returns_is_the_callers_to_change():
    data = encode({"list": [1]})

    decode(data)["list"].append(2)

    assert decode(data) == {"list": [1]}
