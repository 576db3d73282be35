"""Values of generated schemas, each in two spellings, some ten thousand a second.

`fuzz("record", values=...)` makes schemas whose outermost type is that one, and holds for each value: two spellings
give one sequence of bytes; those bytes decode to the same value and encode to themselves; the JSON lens gives it back.
Beside every 32nd go damaged values and damaged bytes: refused with one of the two errors, or accepted with one form.
Hypothesis does the same in tests/codec/test_canonical.py and shrinks what it finds; this is for numbers.

    python -m tests.codec.fuzz --values 1000000
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from perdure.codec import encode
from perdure.codec import schema as s
from perdure.codec.canonical import Form, form
from perdure.errors import NotCanonical, SchemaMismatch

WORDS = [*s.PRIMITIVES, *s.COMPOSITES]
SCHEMAS = 40  # of each type; each gets its share of the values

Pair = tuple[Any, Any]  # two spellings of one value
Generator = Callable[[], Pair]

SHARED: dict[str, s.Schema] = {
    "test/Text@1": s.Text(),
    "test/Point@1": s.Record({"x": s.Int(), "y": s.Int()}),
    "test/Id@1": s.Uuid(),
}
MAP_KEYS: list[s.Schema] = [s.Int(), s.Nat(), s.Text(), s.Uuid(), s.Hash(), s.Ref("test/Id@1")]
JUNK: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**5000, 0.0, 1.5),
    *(float("nan"), float("inf"), "", "a", "0", "-0", "007", "1e5", "\ud800", "AA==", "AB=="),
    *("sha256:", "sha256:" + "0" * 64, "2024-01-01T00:00:00Z", "2024-13-01T00:00:00Z"),
    *(b"", b"\xff", bytes(16), bytearray(b"x"), [], [[]], [None], {}, {"$tag": "a"}, {"$tag": "a", "$value": None}),
    *({"$tag": ["a"], "$value": 1}, {1: 2}, {None: 1}, set(), {1, "a"}, frozenset((b"",)), (), (1, 2)),
    *(Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"), Decimal("1E+9999"), Decimal("1E-9999")),
    *(Decimal("1" * 35), datetime(2024, 1, 1), datetime.min.replace(tzinfo=UTC)),
    *(datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))), timedelta.max, timedelta.min),
    *(UUID(int=0), object(), int, len, 1j),
]


class Source:
    """Makes schemas and values: one seed, one sequence."""

    def __init__(self, seed: str) -> None:
        self.dice = random.Random(seed)

    def schema(self, word: str, depth: int = 2) -> s.Schema:
        inner = self.any_schema
        match word:
            case "record":
                return s.Record({f"f{n}": inner(depth - 1) for n in range(self.dice.randrange(4))})
            case "variant":
                return s.Variant({f"a{n}": inner(depth - 1) for n in range(self.dice.randrange(1, 4))})
            case "list":
                return s.List(inner(depth - 1))
            case "set":
                return s.Set(inner(depth - 1))
            case "map":
                return s.Map(self.dice.choice(MAP_KEYS), inner(depth - 1))
            case "option":
                item = inner(depth - 1)
                while isinstance(item, s.Option | s.Unit):
                    item = inner(depth - 1)
                return s.Option(item)
            case "ref":
                return s.Ref(self.dice.choice(list(SHARED)))
            case _:
                return s.PRIMITIVES[word]

    def any_schema(self, depth: int) -> s.Schema:
        return self.schema(self.dice.choice(WORDS if depth else [*s.PRIMITIVES, "ref"]), depth)

    def values(self, schema: s.Schema) -> Generator:
        dice, below = self.dice, self.dice.random
        match schema:
            case s.Ref(name):
                return self.values(SHARED[name])
            case s.Record(fields):
                return self.records([(n, self.values(f), isinstance(f, s.Option)) for n, f in fields.items()])
            case s.Variant(arms):
                choices = [(name, self.values(arm)) for name, arm in arms.items()]
                return lambda: variant(*choices[int(below() * len(choices))])
            case s.List(item):
                make = self.values(item)
                return lambda: lists([make() for _ in range(int(below() * 4))])
            case s.Set(item):
                make = self.values(item)
                return lambda: self.spelled_set([make() for _ in range(int(below() * 4))])
            case s.Map(key, value):
                return self.maps(self.values(key), self.values(value))
            case s.Option(item):
                make = self.values(item)
                return lambda: (None, None) if below() < 0.3 else make()
            case _:
                primitive = PRIMITIVES[type(schema)]
                return lambda: primitive(dice)

    def records(self, fields: list[tuple[str, Generator, bool]]) -> Generator:
        def make() -> Pair:
            one, other = {}, {}
            for name, field, optional in fields:
                one[name], spelled = field()
                if not optional or spelled is not None:
                    other[name] = spelled
            return one, dict(reversed(other.items()))

        return make

    def spelled_set(self, pairs: list[Pair]) -> Pair:
        other = [pair[1] for pair in pairs] + [pair[0] for pair in pairs[:1]]
        self.dice.shuffle(other)
        return [pair[0] for pair in pairs], other

    def maps(self, key: Generator, value: Generator) -> Generator:
        def make() -> Pair:
            one, other = {}, {}
            for _ in range(int(self.dice.random() * 3)):
                (left_key, right_key), (left, right) = key(), value()
                one[left_key], other[right_key] = left, right
            return one, dict(reversed(other.items()))

        return make


def variant(name: str, arm: Generator) -> Pair:
    one, other = arm()
    return {"$tag": name, "$value": one}, {"$value": other, "$tag": name}


def lists(pairs: list[Pair]) -> Pair:
    return [pair[0] for pair in pairs], tuple(pair[1] for pair in pairs)


class Number(int):
    """A spelling of an int."""


class Word(str):
    """A spelling of a text."""

    __slots__ = ()


def signed(dice: random.Random) -> int:
    return dice.getrandbits(int(dice.random() * 64)) * (1 if dice.random() < 0.5 else -1)


def a_bool(dice: random.Random) -> Pair:
    value = dice.random() < 0.5
    return value, value


def an_int(dice: random.Random) -> Pair:
    value = signed(dice)
    return value, Number(value)


def a_nat(dice: random.Random) -> Pair:
    value = dice.getrandbits(int(dice.random() * 65))
    return value, Number(value)


def a_dec128(dice: random.Random) -> Pair:
    mantissa, exponent = signed(dice), int(dice.random() * 60) - 30
    return Decimal(f"{mantissa}E{exponent}"), Decimal(f"{mantissa}000E{exponent - 3}")


def some_bytes(dice: random.Random) -> Pair:
    value = dice.randbytes(int(dice.random() * 30))
    return value, value


def a_text(dice: random.Random) -> Pair:
    value = dice.choice(WORDS_OF_TEXT) + dice.choice(WORDS_OF_TEXT)
    return value, Word(value)


def a_time(dice: random.Random) -> Pair:
    microseconds = dice.getrandbits(52) - 2**51
    zone = timezone(timedelta(minutes=int(dice.random() * 2800) - 1400))
    return microseconds * 1000, (EPOCH + timedelta(microseconds=microseconds)).astimezone(zone)


def a_duration(dice: random.Random) -> Pair:
    microseconds = dice.getrandbits(52) - 2**51
    return microseconds * 1000, timedelta(microseconds=microseconds)


def a_hash(dice: random.Random) -> Pair:
    digits = f"{dice.getrandbits(256):064x}"
    return f"sha256:{digits}", f"sha256:{digits.upper()}"


def a_uuid(dice: random.Random) -> Pair:
    value = UUID(int=dice.getrandbits(128))
    return value, dice.choice((str, capital_hex, urn, braces))(value)


def a_unit(dice: random.Random) -> Pair:
    return None, None


def capital_hex(value: UUID) -> str:
    return value.hex.upper()


def urn(value: UUID) -> str:
    return value.urn


def braces(value: UUID) -> str:
    return f"{{{value}}}"


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WORDS_OF_TEXT = ["", "a", "order", "naïve", "水", "\U00010151", "\0", "a" * 23, "b" * 24, "c" * 255, "$tag", "ä" * 128]
PRIMITIVES: dict[type, Callable[[random.Random], Pair]] = {
    s.Bool: a_bool,
    s.Int: an_int,
    s.Nat: a_nat,
    s.Dec128: a_dec128,
    s.Bytes: some_bytes,
    s.Text: a_text,
    s.Time: a_time,
    s.Duration: a_duration,
    s.Hash: a_hash,
    s.Uuid: a_uuid,
    s.Unit: a_unit,
}


# ---- what must hold -------------------------------------------------------------------------------------


def fuzz(word: str, values: int, seed: int = 0) -> None:
    source = Source(f"{word}/{seed}")
    schemas = [source.schema(word, depth=1 + n % 2) for n in range(SCHEMAS if word in s.COMPOSITES else 1)]
    for schema in schemas:
        compiled, make = form(schema, SHARED), source.values(schema)
        for number in range(values // len(schemas)):
            one, other = make()
            data = has_one_form(compiled, one, other)
            if number % 32 == 0:
                passes_the_json_lens(compiled, data)
                survives_damage(compiled, data, one, source.dice)


def has_one_form(compiled: Form, one: Any, other: Any) -> bytes:
    data = compiled.encode(one)
    assert compiled.encode(other) == data, (compiled.schema, one, other)
    plain = compiled.decode(data)
    assert encode(plain) == data, (compiled.schema, one)
    return data


def passes_the_json_lens(compiled: Form, data: bytes) -> None:
    text = json.dumps(compiled.to_json(compiled.decode(data)), allow_nan=False)
    assert encode(compiled.from_json(json.loads(text))) == data, (compiled.schema, text)


def survives_damage(compiled: Form, data: bytes, value: Any, dice: random.Random) -> None:
    junk = dice.choice(JUNK)
    is_judged(compiled, compiled.plain, junk)
    is_judged(compiled, compiled.from_json, junk)
    damaged = damage(value, junk, dice)
    is_judged(compiled, compiled.plain, damaged)
    is_judged(compiled, compiled.from_json, damaged)
    broken = bytearray(data)
    broken[dice.randrange(len(broken))] ^= 1 << dice.randrange(8)
    try:
        plain = compiled.decode(bytes(broken))
    except (NotCanonical, SchemaMismatch):
        return
    assert encode(plain) == broken, (compiled.schema, broken)


def is_judged(compiled: Form, judge: Callable[[Any], Any], value: Any) -> None:
    """Refused, or accepted with a form that is stable."""
    try:
        plain = judge(value)
    except SchemaMismatch as refusal:
        assert refusal.path.startswith("$"), refusal
        assert str(refusal)
        return
    assert compiled.decode(encode(plain)) == plain, (compiled.schema, value)


def damage(value: Any, junk: Any, dice: random.Random) -> Any:
    """The value with something else in one place of it."""
    if isinstance(value, dict) and value and dice.random() < 0.8:
        name = dice.choice(list(value))
        rest = {key: inner for key, inner in value.items() if key != name}
        return dice.choice(
            (rest, {**value, "more": junk}, {**value, name: junk}, {**value, name: damage(value[name], junk, dice)})
        )
    if isinstance(value, list) and value and dice.random() < 0.8:
        place = dice.randrange(len(value))
        return [*value[:place], damage(value[place], junk, dice), *value[place + 1 :]]
    return junk


def main() -> None:
    options = argparse.ArgumentParser(description="Fuzz the types of cells.")
    options.add_argument("--values", type=int, default=1_000_000, help="of each type")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("words", nargs="*", metavar="TYPE", help=f"of {', '.join(WORDS)}; default: all")
    chosen = options.parse_args()
    for word in chosen.words or WORDS:
        began = time.process_time()
        fuzz(word, chosen.values, chosen.seed)
        print(f"{word:9} {chosen.values:,} values, {time.process_time() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
