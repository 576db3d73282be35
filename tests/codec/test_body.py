"""Stored bodies: what was sealed is unsealed, and damage never passes for data."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import seal, unseal
from perdure.errors import Corrupt, NewerFormat


@given(st.binary())
def test_a_payload_comes_back(payload):
    assert unseal(seal(payload)) == payload
    assert len(seal(payload)) == len(payload) + 5


@given(st.binary(max_size=100), st.data())
def test_a_flipped_bit_is_corrupt(payload, choices):
    body = bytearray(seal(payload))
    body[choices.draw(st.integers(0, len(body) - 1))] ^= 1 << choices.draw(st.integers(0, 7))

    with pytest.raises(Corrupt):
        unseal(bytes(body))


@given(st.binary(max_size=100))
def test_a_cut_body_is_corrupt(payload):
    body = seal(payload)

    for size in range(len(body)):
        with pytest.raises(Corrupt):
            unseal(body[:size])


def body_of_format(number):
    content = bytes([number]) + b"payload"
    return content + crc32(content).to_bytes(4, "big")


def test_a_body_of_a_later_format_asks_for_an_upgrade():
    with pytest.raises(NewerFormat, match=r"newer perdure.*upgrade"):
        unseal(body_of_format(2))


def test_a_format_that_never_was_is_corrupt():
    with pytest.raises(Corrupt, match="no format 0"):
        unseal(body_of_format(0))
