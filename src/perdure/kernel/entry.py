"""Entries: one journal row is one event and the decision that answered it.

`encode` and `decode` are the format of a journal body. The envelope is a MessagePack array of fixed shape (its bytes
are determined by the entry alone); values inside are canonical CBOR already. `codec.body` adds version and checksum.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from perdure.codec import seal, unseal

from .decision import Decision, Fact, Outcome, Reply, Send, Stuck
from .effects import KINDS, NUMBERS, Call, Effect, Wait
from .events import Event, ReceiptArrived, Tagged
from .location import Patterns

Packed = tuple[Any, ...]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """`seq` is the place in the shard's total order, `number` the place in the instance's history (from 1)."""

    seq: int
    instance: int
    number: int
    at: int
    event: Event
    decision: Decision
    held: tuple[bytes, ...] = ()  # opened intents that the gate deferred
    patterns: tuple[str, ...] = ()  # location patterns used for the first time
    intents: tuple[bytes, ...] = ()  # ids of what the decision opens, if known: derived, so not written
    plain: bool = False  # read from a row that has no more than a receipt and the one default call that it led to
    behind: int = 0  # how far the clock was behind the journal's time `at`: it had been set back

    @property
    def clock(self) -> int:
        """What the clock showed."""
        return self.at - self.behind


class _Body(msgspec.Struct, array_like=True, gc=False):
    """What stands in the row besides its columns. Append fields at the end only, with a default."""

    number: int
    event: Event
    open: tuple[tuple[Any, ...], ...] = ()
    patterns: tuple[str, ...] = ()
    withdraw: tuple[bytes, ...] = ()
    held: tuple[bytes, ...] = ()
    send: tuple[Send, ...] = ()
    announce: tuple[Fact, ...] = ()
    publish: tuple[tuple[str, bytes], ...] = ()
    reply: Reply | None = None
    stuck: Stuck | None = None
    outcome: Outcome | None = None
    noted: tuple[str, ...] = ()
    respond: tuple[tuple[str, bytes], ...] = ()
    ids: tuple[bytes, ...] = ()
    state: bytes = b""
    begin: bytes = b""
    behind: int = 0
    tags: tuple[tuple[str, str | None], ...] = ()
    undo: bool = False


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Body)
_short_decoder = msgspec.msgpack.Decoder(tuple[int, Event, tuple[tuple[Any, ...], ...]])
_SHORT = 0x93  # the head of an array of three: a body that leaves out the rest, because there is nothing more
_NOTHING_MORE = ((), (), (), (), (), (), None, None, None, ())
_CALL = NUMBERS[Call]
_WAIT = NUMBERS[Wait]
_CALL_DEFAULTS = msgspec.structs.astuple(Call(""))[1:]


def pack(effects: tuple[Effect, ...], patterns: Patterns) -> tuple[tuple[Packed, ...], tuple[str, ...]]:
    """The effects as they stand in a body, and the patterns that the instance meets here for the first time."""
    fresh: dict[str, int] = {}
    if len(effects) == 1:  # nearly always
        packed: tuple[Packed, ...] = (_pack(effects[0], patterns, fresh),)
    else:
        packed = tuple([_pack(effect, patterns, fresh) for effect in effects])
    return packed, tuple(fresh)


def encode(entry: Entry, packed: tuple[Packed, ...]) -> bytes:
    """The sealed body of an entry whose effects were packed before."""
    decision = entry.decision
    rest = (
        entry.patterns,
        decision.withdraw,
        entry.held,
        decision.send,
        decision.announce,
        decision.publish,
        decision.reply,
        decision.stuck,
        decision.outcome,
        decision.noted,
    )
    last: tuple[object, ...] = ()
    if decision.undo:
        many = (decision.respond, decision.ids, decision.state, decision.begin, entry.behind, decision.tags)
        last = (*many, decision.undo)
    elif decision.tags:
        last = (decision.respond, decision.ids, decision.state, decision.begin, entry.behind, decision.tags)
    elif entry.behind:
        last = (decision.respond, decision.ids, decision.state, decision.begin, entry.behind)
    elif decision.begin:
        last = (decision.respond, decision.ids, decision.state, decision.begin)
    elif decision.ids or decision.state:
        last = (decision.respond, decision.ids, decision.state)
    elif decision.respond:
        last = (decision.respond,)
    elif rest == _NOTHING_MORE:
        return seal(_encoder.encode((entry.number, entry.event, packed)))
    return seal(_encoder.encode((entry.number, entry.event, packed, *rest, *last)))


def decode(seq: int, instance: int, at: int, body: bytes, patterns: Patterns) -> Entry:
    """The entry of a row. Rows are read in order: `patterns` is the reader's registry and learns from each."""
    payload = unseal(body)
    if body[1] == _SHORT:
        number, event, opened = _short_decoder.decode(payload)
        if len(opened) == 1 and len(opened[0]) == 2 and type(event) is ReceiptArrived:  # nearly always
            call = Call(patterns.text(opened[0][1]))  # only a default call needs no more than its location
            return Entry(seq, instance, number, at, event, Decision((call,)), (), (), (), True)
    raw = _decoder.decode(payload)
    if raw.patterns:
        patterns.learn(raw.patterns)
    decision = Decision(
        tuple([unpack(packed, patterns) for packed in raw.open]) if raw.open else (),
        raw.withdraw,
        raw.send,
        raw.announce,
        raw.publish,
        raw.reply,
        raw.stuck,
        raw.outcome,
        raw.noted,
        respond=raw.respond,
        ids=raw.ids,
        state=raw.state,
        begin=raw.begin,
        tags=raw.tags,
        undo=raw.undo,
    )
    return Entry(seq, instance, raw.number, at, raw.event, decision, raw.held, raw.patterns, behind=raw.behind)


def event_of(body: bytes) -> Event:
    """The event of a row alone: it needs no registry, so rows may be read from the middle on."""
    payload = unseal(body)
    return _short_decoder.decode(payload)[1] if body[1] == _SHORT else _decoder.decode(payload).event


def encode_run(deliveries: Iterable[tuple[int, int, Event, Decision]]) -> Iterator[bytes]:
    """Bodies of deliveries (number, time, event, decision) that are kept by themselves, outside of a journal."""
    patterns = Patterns()
    for number, at, event, decision in deliveries:
        packed, fresh = pack(decision.open, patterns)
        yield encode(Entry(0, 0, number, at, event, decision, (), fresh), packed)
        patterns.learn(fresh)


def decode_run(bodies: Iterable[tuple[int, bytes]]) -> Iterator[Entry]:
    """What `encode_run` wrote, with the time of each."""
    patterns = Patterns()
    for at, body in bodies:
        yield decode(0, 0, at, body, patterns)


def _pack(effect: Effect, patterns: Patterns, fresh: dict[str, int]) -> Packed:
    location = patterns.compact(effect.location, fresh)
    fields = msgspec.structs.astuple(effect)[1:]
    if type(effect) is Call and fields == _CALL_DEFAULTS:
        return (_CALL, location)
    return (NUMBERS[type(effect)], location, *fields)


def changes_tags(body: bytes) -> bool:
    """Whether an entry changed the tags of its instance. The entry needs not those before it."""
    payload = unseal(body)
    if body[1] == _SHORT:
        return type(_short_decoder.decode(payload)[1]) is Tagged
    raw = _decoder.decode(payload)
    return bool(raw.tags) or type(raw.event) is Tagged


def unpack(packed: Packed, patterns: Patterns) -> Effect:
    number, location, *fields = packed
    if number == _WAIT:  # names are a tuple in memory and an array on disk
        fields[0] = tuple(fields[0])
    return KINDS[number](patterns.text(location), *fields)
