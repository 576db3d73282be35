"""`decode_strict` accepts what `encode` writes, refuses everything else, and survives any input."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.codec import decode_strict, encode
from perdure.errors import NotCanonical
from tests.codec.plain import plain_data

TAG = "d9d9f7"

REFUSED = [
    ("", "", "self-describe"),
    ("", "00", "self-describe"),
    ("", "a0", "self-describe"),
    (TAG, "", "cut short"),
    (TAG, "0000", "behind"),
    (TAG, "1817", "fewest bytes"),
    (TAG, "1900ff", "fewest bytes"),
    (TAG, "1a0000ffff", "fewest bytes"),
    (TAG, "1b00000000ffffffff", "fewest bytes"),
    (TAG, "3800", "fewest bytes"),
    (TAG, "580161", "fewest bytes"),
    (TAG, "9801" + "00", "fewest bytes"),
    (TAG, "b801" + "0000", "fewest bytes"),
    (TAG, "1c", "no meaning"),
    (TAG, "5f42010243030405ff", "indefinite"),
    (TAG, "7f657374726561646d696e67ff", "indefinite"),
    (TAG, "9fff", "indefinite"),
    (TAG, "bfff", "indefinite"),
    (TAG, "ff", "indefinite"),
    (TAG, "6261", "cut short"),
    (TAG, "61ff", "UTF-8"),
    (TAG, "63eda080", "UTF-8"),
    (TAG, "8201", "cut short"),
    (TAG, "5b7fffffffffffffff", "cut short"),
    (TAG, "9b7fffffffffffffff", "cut short"),
    (TAG, "bb7fffffffffffffff", "cut short"),
    (TAG, "bbffffffffffffffff00", "cut short"),
    (TAG, "a2616101616102", "twice"),
    (TAG, "a2616201616102", "out of order"),
    (TAG, "a262616101616202", "out of order"),
    (TAG, "a1f500", "a key is not"),
    (TAG, "a1f600", "a key is not"),
    (TAG, "a1f93c0000", "a key is not"),
    (TAG, "a1c24901000000000000000000", "a key is not"),
    (TAG, "a1800000", "a key is not"),
    (TAG, "f7", "undefined"),
    (TAG, "f0", "undefined"),
    (TAG, "f814", "undefined"),
    (TAG, "f8ff", "undefined"),
    (TAG, "fa7f800000", "shortest"),
    (TAG, "fb3ff0000000000000", "shortest"),
    (TAG, "fa3fc00000", "shortest"),
    (TAG, "f97e01", "shortest"),
    (TAG, "f9fe00", "shortest"),
    (TAG, "fa7fc00000", "shortest"),
    (TAG, "fb7ff8000000000001", "shortest"),
    (TAG, "c1" + "1a514b67b0", "tag 1 is not known"),
    (TAG, "d9d9f700", "tag 55799 is not known"),
    (TAG, "d81c00", "tag 28 is not known"),
    (TAG, "c24101", "only form"),
    (TAG, "c24900ffffffffffffffff", "only form"),
    (TAG, "c201", "does not hold a big int"),
    (TAG, "c06161", "does not hold a datetime"),
    (TAG, "c0" + "7819" + b"2013-03-21T20:04:00+00:00".hex(), "only form"),
    (TAG, "c0" + "73" + b"2013-03-21T20:04:00".hex(), ""),
    (TAG, "c0" + "76" + b"2013-03-21T20:04:00.5Z".hex(), "only form"),
    (TAG, "c0" + "74" + b"2013-02-30T20:04:00Z".hex(), "does not hold a datetime"),
    (TAG, "d903ec68" + b"20130321".hex(), "only form"),
    (TAG, "d903ec00", "does not hold a date"),
    (TAG, "d903eaa0", "does not hold a timedelta"),
    (TAG, "d903eaa201012500", "only form"),
    (TAG, "d903eaa20101251a000f4240", "only form"),
    (TAG, "d903eaa2010102" + "01", "only form"),
    (TAG, "d903eaa1011bffffffffffffffff", "does not hold a timedelta"),
    (TAG, "c48101", "does not hold a Decimal"),
    (TAG, "c4820161" + "31", "does not hold a Decimal"),
    (TAG, "c482f501", "does not hold a Decimal"),
    (TAG, "c4821b7fffffffffffffff01", "does not hold a Decimal"),
    (TAG, "d82541" + "00", "does not hold a UUID"),
    (TAG, "81" * 129 + "00", "deeper than 128"),
    (TAG, "81" * 1_000_000, "deeper than 128"),
    (TAG, "a100" * 1_000_000, "deeper than 128"),
    (TAG, "c2" * 1_000_000, "tag inside a tag"),
    (TAG, "c48201" * 1_000_000, "tag inside a tag"),
]


@pytest.mark.parametrize(("tag", "data", "reason"), REFUSED, ids=lambda part: str(part)[:40])
def test_what_is_not_canonical_is_refused_with_the_reason(tag, data, reason):
    with pytest.raises(NotCanonical) as refusal:
        decode_strict(bytes.fromhex(tag + data))

    assert reason in refusal.value.reason
    assert 0 <= refusal.value.offset <= len(tag + data) // 2


def survives(data):
    """Either the value of exactly these bytes, or the one error."""
    try:
        value = decode_strict(data)
    except NotCanonical:
        return
    assert encode(value) == data


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_strict_reader(data):
    survives(data)
    survives(bytes.fromhex(TAG) + data)


heads = st.sampled_from(
    [bytes([byte]) for byte in range(128)]
    + [
        bytes.fromhex(text)
        for text in ("d903ea", "d903ec", "d825", "c4", "c0", "a1", "a2", "82", "81", "f97e00", "c249")
    ]
)


@settings(max_examples=400)
@given(st.lists(st.one_of(heads, st.binary(max_size=4)), max_size=30))
def test_no_sequence_of_heads_crashes_the_strict_reader(parts):
    survives(bytes.fromhex(TAG) + b"".join(parts))


@given(plain_data, st.data())
def test_a_changed_byte_is_another_value_or_refused(value, choices):
    data = bytearray(encode(value))
    data[choices.draw(st.integers(0, len(data) - 1))] ^= choices.draw(st.integers(1, 255))

    survives(bytes(data))


@given(plain_data)
def test_every_prefix_is_refused(value):
    data = encode(value)

    for size in range(len(data)):
        with pytest.raises(NotCanonical):
            decode_strict(data[:size])


def test_a_large_number_costs_what_its_bytes_cost():
    number = 7 << 8 * 1_000_000

    assert decode_strict(encode(number)) == number
