"""The format of a journal body: every event and effect comes back equal, a flipped bit is noticed."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import seal, unseal
from perdure.errors import Corrupt
from perdure.kernel.decision import Decision, Fact, Outcome, Reply, Send, Stuck
from perdure.kernel.effects import KINDS, Call, Child, Timer, Wait
from perdure.kernel.entry import Entry, decode, encode, pack
from perdure.kernel.events import (
    Address,
    CancelAsked,
    Event,
    Message,
    Parent,
    Parked,
    ReceiptArrived,
    Redelivered,
    Released,
    Retried,
    Settled,
    Started,
)
from perdure.kernel.location import Patterns, escape
from perdure.kernel.receipt import Answerer, Failure, Receipt, ReceiptSignature
from perdure.kernel.rows import inbox_row, offer_of
from perdure.kernel.status import TERMINAL

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
BYTES = st.binary(max_size=20)
NANOSECONDS = st.integers(0, 2**63 - 1)
FAILURES: st.SearchStrategy[Failure] = st.recursive(
    st.builds(Failure, TEXT, TEXT, TEXT, st.none() | BYTES, st.booleans()),
    lambda inner: st.builds(
        Failure, TEXT, TEXT, TEXT, st.none() | BYTES, st.booleans(), st.lists(inner, max_size=2).map(tuple)
    ),
    max_leaves=3,
)
STATUSES: Any = st.sampled_from(["ok", "error", "timeout", "cancelled", "unknown"])
ANSWERERS = st.builds(Answerer, TEXT, st.none() | BYTES, st.none() | st.builds(ReceiptSignature, TEXT, TEXT, BYTES))
RECEIPTS = st.builds(Receipt, STATUSES, st.none() | BYTES, st.none() | FAILURES, st.none() | ANSWERERS)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Started,
        TEXT,
        TEXT,
        BYTES,
        BYTES,
        TEXT,
        st.none() | st.builds(Parent, st.integers(1, 2**40), BYTES, st.booleans()),
        st.dictionaries(TEXT, TEXT, max_size=3),
        st.sampled_from(["", "failed", "always"]),
        st.integers(1, 9),
    ),
    st.builds(ReceiptArrived, BYTES, RECEIPTS),
    st.builds(Message, TEXT, BYTES, TEXT, TEXT),
    st.builds(CancelAsked, TEXT, BYTES),
    st.just(Retried()),
    st.builds(Settled, TEXT, RECEIPTS),
    st.builds(Redelivered, BYTES, st.booleans()),
    st.builds(Parked, BYTES),
    st.builds(Released, BYTES),
)
LOCATIONS = st.tuples(TEXT.map(escape), st.integers(0, 99)).map(lambda pair: f"{pair[0]}/~{pair[1]}/x")
EFFECTS = st.one_of(
    st.builds(Call, LOCATIONS),
    st.builds(
        Call,
        LOCATIONS,
        st.integers(1, 9),
        TEXT,
        st.none() | NANOSECONDS,
        st.integers(1, 9),
        st.none() | BYTES,
    ),
    st.builds(Timer, LOCATIONS, NANOSECONDS),
    st.builds(Wait, LOCATIONS, st.lists(TEXT, max_size=3).map(tuple), st.none() | NANOSECONDS),
    st.builds(Child, LOCATIONS, TEXT, TEXT, BYTES, st.booleans()),
)


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=3).map(tuple)


DECISIONS = st.builds(
    Decision,
    some(EFFECTS),
    some(BYTES),
    some(st.builds(Send, st.builds(Address, TEXT, TEXT), TEXT, BYTES, TEXT)),
    some(st.builds(Fact, TEXT, BYTES)),
    some(st.tuples(TEXT, BYTES)),
    st.none() | st.builds(Reply, TEXT, st.none() | BYTES),
    st.none() | st.builds(Stuck, FAILURES, TEXT, st.booleans()),
    st.none() | st.builds(Outcome, st.sampled_from(sorted(TERMINAL)), st.none() | BYTES, st.none() | FAILURES),
    some(TEXT),
    respond=some(st.tuples(TEXT, BYTES)),
)


def written(event: Event, decision: Decision, held: tuple[bytes, ...] = ()) -> tuple[Entry, bytes]:
    packed, fresh = pack(decision.open, Patterns())
    entry = Entry(7, 3, 5, 99, event, decision, held, fresh)
    return entry, encode(entry, packed)


@given(EVENTS, DECISIONS, some(BYTES))
def test_an_entry_comes_back_equal(event, decision, held):
    entry, body = written(event, decision, held)

    assert decode(7, 3, 99, body, Patterns()) == entry


@given(BYTES, RECEIPTS, st.integers(2, 10**9), st.integers(1, 10**6))
def test_a_receipt_that_leads_to_one_call_is_three_fields_and_comes_back_equal(intent, receipt, number, ordinal):
    event, decision = ReceiptArrived(intent, receipt), Decision((Call(f"add#{ordinal}"),))
    entry = Entry(7, 3, number, 99, event, decision)
    packed, fresh = pack(decision.open, Patterns(["add#"]))

    body = encode(entry, packed)

    found = decode(7, 3, 99, body, Patterns(["add#"]))
    assert not fresh and len(msgspec.msgpack.decode(unseal(body))) == 3
    assert found.plain and msgspec.structs.replace(found, plain=False) == entry


@given(EVENTS, some(EFFECTS))
def test_only_such_an_entry_is_read_as_plain(event, effects):
    packed, fresh = pack(effects, Patterns())
    entry = Entry(7, 3, 5, 99, event, Decision(effects))

    found = decode(7, 3, 99, encode(entry, packed), Patterns(fresh))

    assert found.plain == (
        type(event) is ReceiptArrived and effects == (Call(effects[0].location),) if effects else False
    )
    assert msgspec.structs.replace(found, plain=False) == entry


def test_an_entry_that_says_nothing_but_a_response_comes_back_equal():
    entry, body = written(ReceiptArrived(b"i", Receipt("ok")), Decision(respond=(("m1", b"v"),)))

    assert decode(7, 3, 99, body, Patterns()) == entry


def test_a_row_with_all_its_fields_written_out_reads_the_same():
    event, decision = ReceiptArrived(b"i" * 16, Receipt("ok", b"v")), Decision((Call("add#2"),))
    every = (5, event, ((0, (0, 2)),), (), (), (), (), (), (), None, None, None, ())

    found = decode(7, 3, 99, seal(msgspec.msgpack.encode(every)), Patterns(["add#"]))

    assert found == Entry(7, 3, 5, 99, event, decision)


def test_a_row_from_before_receipts_said_who_they_are_from_reads_the_same_and_is_one_byte_shorter():
    was = bytes.fromhex("9305") + msgspec.msgpack.encode(["r", b"i" * 16, ["ok", b"v", None]])
    was += msgspec.msgpack.encode([[0, [0, 2]]])
    event, decision = ReceiptArrived(b"i" * 16, Receipt("ok", b"v")), Decision((Call("add#2"),))
    entry = Entry(7, 3, 5, 99, event, decision)
    packed, _ = pack(decision.open, Patterns(["add#"]))

    found = decode(7, 3, 99, seal(was), Patterns(["add#"]))

    assert found.plain and msgspec.structs.replace(found, plain=False) == entry
    assert len(encode(entry, packed)) == len(seal(was)) + 1


def test_the_row_of_a_signed_receipt_reads_the_same_for_ever():
    was = bytes.fromhex(
        "9305 93a172c40169 94a26f6bc40176c0 93a3707370c40103 93a4686d6163a26b31c402abcd 91 92 00 920002".replace(
            " ", ""
        )
    )
    by = Answerer("psp", b"\x03", ReceiptSignature("hmac", "k1", b"\xab\xcd"))

    found = decode(7, 3, 99, seal(was), Patterns(["add#"]))

    assert found.event == ReceiptArrived(b"i", Receipt("ok", b"v", None, by))


@given(EVENTS, DECISIONS)
def test_the_bytes_are_determined_by_the_entry(event, decision):
    assert written(event, decision)[1] == written(event, decision)[1]


@given(EVENTS, DECISIONS, st.data())
def test_a_flipped_bit_is_corrupt(event, decision, data):
    _, body = written(event, decision)
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    damaged = bytearray(body)
    damaged[bit // 8] ^= 1 << bit % 8

    with pytest.raises(Corrupt):
        decode(7, 3, 99, bytes(damaged), Patterns())


@given(EVENTS, DECISIONS, st.data())
def test_a_cut_body_is_corrupt(event, decision, data):
    _, body = written(event, decision)

    with pytest.raises(Corrupt):
        decode(7, 3, 99, body[: data.draw(st.integers(0, len(body) - 1))], Patterns())


@given(EVENTS, st.integers(1, 2**40) | st.builds(Address, TEXT, TEXT))
def test_an_event_comes_back_from_its_inbox_row(event, to):
    offer = offer_of(inbox_row(b"id", to, event, 5))

    assert (offer.to, offer.event, offer.inbox) == (to, event, b"id")


def test_every_kind_of_effect_is_tried_above():
    assert {Call, Timer, Wait, Child} == set(KINDS)


def test_a_plain_call_costs_few_bytes():
    _, body = written(Retried(), Decision(open=(Call("charge"),)))

    assert len(body) < 40
