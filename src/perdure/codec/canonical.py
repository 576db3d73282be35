"""One value of a schema, one sequence of bytes.

`form(schema, refs)` compiles a schema to a `Form`: it turns whatever spells a value of the schema into the one plain
data that stands for it, and refuses all else with `SchemaMismatch`. Canonical bytes are `encode` of that data, so
equal values have equal bytes and equal hashes.

    type          plain data                      what `plain` takes as well
    bool          True, False
    int nat       int                             subclasses of int, but never bool
    dec128        Decimal without trailing zeros  any digits of the same number
    bytes         bytes
    text          str, valid Unicode
    time          int, nanoseconds                datetime with a time zone
    duration      int, nanoseconds                timedelta
    hash          str, sha256: and 64 hex digits  capital hex digits
    uuid          UUID                            its text: with or without dashes, in braces, urn:uuid:, capitals
    unit          None
    record        dict of all fields              an absent option, which becomes None
    variant       {"$tag": name, "$value": value}
    list          list                            tuple
    set           list, sorted by canonical       set, frozenset; any list: it is sorted, duplicates are left out
                  bytes, without duplicates
    map           dict                            keys as above; a key that is spelled twice is refused
                  (a key that is a uuid is its 16 bytes)
    option        None or the value

The JSON lens (`from_json`, `to_json`) takes and gives JSON data, which has fewer types. It is as strict, and differs
in what JSON cannot say:

    int nat       a whole number, or its digits as text; written as text beyond 2^53, where others lose digits
    dec128        text of a decimal number, or a whole number; never a fraction, which had been rounded by then
    bytes         base64 as text: standard alphabet, padded
    time          RFC 3339 as text, with an offset and at most nine digits of a second; or a number, nanoseconds
    duration      nanoseconds, as an int is
    uuid, hash    text
    map           an object: its keys are the text forms above, ints as digits
    set           an array

The closures below judge and build in one pass. A refusal carries no path; each container adds its part on the way
out, so that a good value does not pay for it.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow
from typing import Any, Final, NoReturn, TypeAlias
from uuid import UUID

from perdure.codec import schema as types
from perdure.codec.converters.frame import described, did_you_mean
from perdure.codec.schema import Refs, Schema, check, label, resolve
from perdure.codec.strict import decode_strict
from perdure.codec.values import encode, join
from perdure.errors import SchemaMismatch

Convert: TypeAlias = Callable[[Any], Any]


class Form:
    """A compiled schema: judges values, and gives them their only form."""

    def __init__(self, schema: Schema, refs: Refs | None = None) -> None:
        refs = {} if refs is None else refs
        check(schema, refs)
        self.schema = schema
        self.refs = refs
        self.name = schema.name if isinstance(schema, types.Ref) else ""
        self._plain = _Compiler(refs, _PLAIN, _PLAIN_KEYS).compile(schema)
        self._from_json: Convert | None = None
        self._to_json: Convert | None = None

    def plain(self, value: Any) -> Any:
        """The canonical plain data of a value. Raises `SchemaMismatch` with the path of what does not fit."""
        return self.judge(value)

    def judge(self, value: Any) -> Any:
        """`plain`, of plain data alone."""
        try:
            return self._plain(value)
        except NoFit as refusal:
            raise refusal.error(self.name) from None

    def encode(self, value: Any) -> bytes:
        """The canonical bytes of a value. Raises `SchemaMismatch`."""
        return encode(self.plain(value))

    def decode(self, data: bytes) -> Any:
        """The plain data of canonical bytes from anywhere.

        Raises `NotCanonical` for bytes that are not the encoding of any value, and `SchemaMismatch` for those of
        another type, or of another spelling than the only one that this schema has for the value.
        """
        value = decode_strict(data)
        plain = self.judge(value)
        if encode(plain) != data:
            path = _difference(value, plain, "$")
            hint = "encode it again by its schema"
            raise SchemaMismatch(path, "the canonical form", "another spelling of the value", hint, self.name)
        return plain

    def from_json(self, data: Any) -> Any:
        """The canonical plain data of JSON data. Raises `SchemaMismatch`."""
        if self._from_json is None:
            self._from_json = _Compiler(self.refs, _JSON, _JSON_KEYS).compile(self.schema)
        try:
            return self._from_json(data)
        except NoFit as refusal:
            raise refusal.error(self.name) from None

    def to_json(self, plain: Any) -> Any:
        """JSON data of canonical plain data, as `from_json` reads it."""
        if self._to_json is None:
            self._to_json = _JsonWriter(self.refs).compile(self.schema)
        return self._to_json(plain)


def form(schema: Schema, refs: Refs | None = None) -> Form:
    """Compiles a schema. Raises `BadDefinition` if it is none: a name that leads nowhere or back to itself."""
    return Form(schema, refs)


def parse_json(text: str | bytes) -> Any:
    """The data of JSON text, by the letter: a name twice in an object, NaN and infinities are refused."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    except NoFit as refusal:
        raise refusal.error("") from None
    except ValueError as error:  # also of text that is not UTF-8, and of numbers with thousands of digits
        raise SchemaMismatch("$", "JSON", f"something else: {error}"[:200]) from None
    except RecursionError:
        raise SchemaMismatch("$", "JSON of sensible depth", "data nested too deeply", "flatten it") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NoFit("each name of an object once", f"{twice!r} twice"[:100], "remove one of them")
    return found


def _no_number(word: str) -> NoReturn:
    raise NoFit("a number", word)


# ---- refusals ------------------------------------------------------------------------------------------------------


class NoFit(Exception):
    """A part of a value does not fit. Its path is added on the way out."""

    def __init__(self, expected: str, found: str, hint: str = "") -> None:
        self.expected = expected
        self.found = found
        self.hint = hint
        self.parts: list[str] = []

    def below(self, part: str) -> NoFit:
        self.parts.append(part)
        return self

    def error(self, where: str) -> SchemaMismatch:
        return SchemaMismatch("$" + "".join(reversed(self.parts)), self.expected, self.found, self.hint, where)


def found(value: Any) -> str:
    """How a refusal names a value: short, whatever it is."""
    if isinstance(value, bytes | list | tuple | dict | set | frozenset):
        return f"{described(value)} of length {len(value)}"
    return described(value)


# ---- primitives: what `plain` takes ----------------------------------------------------------------------------------


def _bool(value: Any) -> Any:
    if value is True or value is False:
        return value
    raise NoFit("bool", found(value))


def _int(value: Any) -> Any:
    if type(value) is int:
        if -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
            return value
    elif isinstance(value, int) and type(value) is not bool:
        return _int(int.__int__(value))
    raise NoFit("int (-2^63 to 2^63-1)", found(value), _number_hint(value))


def _nat(value: Any) -> Any:
    if type(value) is int:
        if 0 <= value <= 0xFFFF_FFFF_FFFF_FFFF:
            return value
    elif isinstance(value, int) and type(value) is not bool:
        return _nat(int.__int__(value))
    raise NoFit("nat (0 to 2^64-1)", found(value), _number_hint(value))


def _number_hint(value: Any) -> str:
    if type(value) is float:
        return "convert it with int(), if its fraction may go"
    if type(value) is bool:
        return "a bool is not a number here"
    return ""


def _dec128(value: Any) -> Any:
    if isinstance(value, Decimal):
        try:
            normal = _DECIMAL128.normalize(value)
        except (DecimalException, ValueError):
            raise NoFit(_DEC128, f"Decimal {str(value)[:60]}", "round it first") from None
        if normal.is_finite():
            return normal or _ZERO  # -0 is 0
    hint = "write Decimal('...')" if type(value) in (int, float, str) else ""
    raise NoFit(_DEC128, found(value), hint)


def _bytes(value: Any) -> Any:
    if type(value) is bytes:
        return value
    if isinstance(value, bytes):
        return bytes(value)
    hint = "encode it, for example .encode()" if isinstance(value, str) else ""
    hint = "copy it with bytes()" if isinstance(value, bytearray | memoryview) else hint
    raise NoFit("bytes", found(value), hint)


def _text(value: Any) -> Any:
    if isinstance(value, str):
        if type(value) is not str:
            value = str.__str__(value)
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            raise NoFit("text", "text that is not valid Unicode", "replace its lone surrogates") from None
        return value
    raise NoFit("text", found(value), "decode it, for example .decode()" if isinstance(value, bytes) else "")


def _time(value: Any) -> Any:
    if type(value) is int:
        if -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
            return value
    elif isinstance(value, datetime):
        if value.utcoffset() is None:
            raise NoFit("time", "a datetime without a time zone", "give it one, for example tzinfo=UTC")
        return _time(_nanoseconds(value - _EPOCH))
    elif isinstance(value, int) and type(value) is not bool:
        return _time(int.__int__(value))
    raise NoFit(_TIME, found(value), "give a datetime with a time zone, or whole nanoseconds")


def _duration(value: Any) -> Any:
    if type(value) is int:
        if -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
            return value
    elif isinstance(value, timedelta):
        return _duration(_nanoseconds(value))
    elif isinstance(value, int) and type(value) is not bool:
        return _duration(int.__int__(value))
    raise NoFit(_DURATION, found(value), "give a timedelta, or whole nanoseconds")


def _nanoseconds(value: timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 1_000_000_000 + value.microseconds * 1000


def _hash(value: Any) -> Any:
    if isinstance(value, str) and (match := _HASH(value)) is not None:
        return match[0].lower()
    raise NoFit("hash (sha256: and 64 hex digits)", found(value))


def _uuid(value: Any) -> Any:
    if type(value) is UUID:
        return value
    if isinstance(value, UUID):
        return UUID(int=value.int)
    if isinstance(value, str) and _UUID(value) is not None:
        return UUID(value)
    raise NoFit("uuid", found(value))


def _unit(value: Any) -> Any:
    if value is None:
        return None
    raise NoFit("null, the only value of unit", found(value))


def _uuid_key(value: Any) -> Any:
    if type(value) is bytes and len(value) == 16:
        return value
    return _uuid(value).bytes


_ZERO: Final = Decimal(0)
_DECIMAL128: Final = Context(prec=34, Emin=-6143, Emax=6144, traps=[Inexact, InvalidOperation, Overflow])
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DEC128: Final = "dec128 (a finite decimal of at most 34 digits)"
_TIME: Final = "time (between the years 1677 and 2262)"
_DURATION: Final = "duration (less than 292 years)"
_HASH: Final = re.compile("sha256:[0-9a-fA-F]{64}").fullmatch
_HEX: Final = "[0-9a-fA-F]"
_DASHED: Final = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_UUID: Final = re.compile(rf"(?:urn:uuid:)?{_DASHED}|\{{{_DASHED}\}}|{_HEX}{{32}}").fullmatch

_PLAIN: Final[dict[type, Convert]] = {
    types.Bool: _bool,
    types.Int: _int,
    types.Nat: _nat,
    types.Dec128: _dec128,
    types.Bytes: _bytes,
    types.Text: _text,
    types.Time: _time,
    types.Duration: _duration,
    types.Hash: _hash,
    types.Uuid: _uuid,
    types.Unit: _unit,
}
_PLAIN_KEYS: Final[dict[type, Convert]] = {
    types.Int: _int,
    types.Nat: _nat,
    types.Text: _text,
    types.Hash: _hash,
    types.Uuid: _uuid_key,
}

# ---- primitives: what JSON data may say instead ----------------------------------------------------------------------


def _digits(judge: Convert) -> Convert:
    """A whole number, or its digits as text."""

    def convert(data: Any) -> Any:
        if type(data) is str and _DIGITS(data) is not None:
            return judge(int(data))
        return judge(data)

    return convert


def _digits_key(judge: Convert) -> Convert:
    def convert(data: Any) -> Any:
        if type(data) is str and _DIGITS(data) is not None:
            return judge(int(data))
        raise NoFit("a key of digits", found(data))

    return convert


def _json_dec128(data: Any) -> Any:
    if type(data) is str:
        if len(data) <= 200 and _DECIMAL(data) is not None:
            return _dec128(Decimal(data))
        raise NoFit(_DEC128, found(data))
    if type(data) is int and -(2**128) < data < 2**128:
        return _dec128(Decimal(data))
    raise NoFit(_DEC128, found(data), "write it as text: '12.50'" if type(data) is float else "")


def _json_bytes(data: Any) -> Any:
    if type(data) is str:
        try:
            value = b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            value = None
        if value is not None and b64encode(value).decode() == data:
            return value
        hint = "standard alphabet (+ and /), padded with ="
        raise NoFit("bytes as base64", found(data), hint)
    raise NoFit("bytes as base64", found(data))


def _json_time(data: Any) -> Any:
    if type(data) is not str:
        return _time(data) if type(data) is int else _refuse_time(data)
    match = _RFC3339(data)
    if match is None:
        _refuse_time(data)
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = match.groups()
    try:
        whole = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
        if sign is not None and (int(hours) > 23 or int(minutes) > 59):
            raise ValueError
    except ValueError:
        _refuse_time(data)
    nanoseconds = _nanoseconds(whole - _EPOCH) + int((fraction or "").ljust(9, "0"))
    if sign is not None:
        offset = (int(hours) * 3600 + int(minutes) * 60) * 1_000_000_000
        nanoseconds += offset if sign == "-" else -offset
    if not -0x8000_0000_0000_0000 <= nanoseconds <= 0x7FFF_FFFF_FFFF_FFFF:
        _refuse_time(data)
    return nanoseconds


def _refuse_time(data: Any) -> NoReturn:
    hint = "write RFC 3339, such as 2026-01-31T08:00:00Z, or whole nanoseconds"
    raise NoFit(_TIME, found(data), hint)


def _json_uuid_key(data: Any) -> Any:
    return _uuid(data).bytes


_DIGITS: Final = re.compile("0|-?[1-9][0-9]{0,19}").fullmatch
_DECIMAL: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,5})?").fullmatch
_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
).fullmatch

_JSON: Final[dict[type, Convert]] = {
    **_PLAIN,
    types.Int: _digits(_int),
    types.Nat: _digits(_nat),
    types.Dec128: _json_dec128,
    types.Bytes: _json_bytes,
    types.Time: _json_time,
    types.Duration: _digits(_duration),
}
_JSON_KEYS: Final[dict[type, Convert]] = {
    types.Int: _digits_key(_int),
    types.Nat: _digits_key(_nat),
    types.Text: _text,
    types.Hash: _hash,
    types.Uuid: _json_uuid_key,
}

# ---- composites ------------------------------------------------------------------------------------------------------


class _Compiler:
    """Schemas to closures, over one table of primitives. A name is compiled once, however often it is referred to."""

    def __init__(self, refs: Refs, primitives: dict[type, Convert], keys: dict[type, Convert]) -> None:
        self.refs = refs
        self.primitives = primitives
        self.keys = keys
        self.named: dict[str, Convert] = {}

    def compile(self, schema: Schema, name: str = "") -> Convert:
        match schema:
            case types.Ref(name):
                if name not in self.named:
                    self.named[name] = self.compile(self.refs[name], name)
                return self.named[name]
            case types.Record(fields):
                optional = {key for key, field in fields.items() if isinstance(resolve(field, self.refs), types.Option)}
                compiled = [(key, self.compile(field)) for key, field in fields.items()]
                return _record(compiled, optional, name or label(schema))
            case types.Variant(arms):
                return _variant({key: self.compile(arm) for key, arm in arms.items()}, name or label(schema))
            case types.List(item):
                return _list(self.compile(item), label(schema))
            case types.Set(item):
                return _set(self.compile(item), label(schema))
            case types.Map(key, value):
                judge_key = self.keys[type(resolve(key, self.refs))]
                return _map(judge_key, self.compile(value), label(schema))
            case types.Option(item):
                return _option(self.compile(item))
            case _:
                return self.primitives[type(schema)]


def _record(fields: list[tuple[str, Convert]], optional: set[str], expected: str) -> Convert:
    count = len(fields)

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            value = _as_dict(value, expected)
        plain: dict[str, Any] = {}
        name = ""
        try:
            for name, field in fields:  # the handlers want to know where it stopped
                plain[name] = field(value[name])
        except NoFit as refusal:
            raise refusal.below("." + name) from None
        except KeyError:
            return with_absent(value)
        if len(value) != count:
            refuse_unknown(value)
        return plain

    def with_absent(value: dict[Any, Any]) -> Any:
        refuse_unknown(value)  # first: a misspelled field is also an absent one
        plain: dict[str, Any] = {}
        for name, field in fields:
            if name in value:
                try:
                    plain[name] = field(value[name])
                except NoFit as refusal:
                    raise refusal.below("." + name) from None
            elif name in optional:
                plain[name] = None
            else:
                raise NoFit("this field", "nothing", f"{expected} needs all its fields").below("." + name)
        return plain

    def refuse_unknown(value: dict[Any, Any]) -> None:
        names = [name for name, _ in fields]
        for name in value:
            if name not in names:
                hint = did_you_mean(name, names)[2:] if isinstance(name, str) else "names of fields are text"
                raise NoFit(expected, f"the unknown field {_short(name)}", hint)

    return convert


def _variant(arms: dict[str, Convert], expected: str) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not dict:
            value = _as_dict(value, expected, _ARM)
        if len(value) != 2 or "$tag" not in value or "$value" not in value:
            keys = ", ".join(_short(key) for key in list(value)[:5])
            raise NoFit(expected, f"a dict of {keys}" if keys else "an empty dict", _ARM)
        tag = value["$tag"]
        if isinstance(tag, str) and type(tag) is not str:
            tag = str.__str__(tag)
        arm = arms.get(tag) if type(tag) is str else None
        if arm is None:
            hint = did_you_mean(tag, arms)[2:] if type(tag) is str else ""
            raise NoFit(f"one of {', '.join(arms)}", found(tag), hint).below(".$tag")
        try:
            return {"$tag": tag, "$value": arm(value["$value"])}
        except NoFit as refusal:
            raise refusal.below(".$value") from None

    return convert


def _list(item: Convert, expected: str) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise NoFit(expected, found(value), "sort it into a list" if isinstance(value, set | frozenset) else "")
        return _items(value, item)

    return convert


def _set(item: Convert, expected: str) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple | set | frozenset):
            raise NoFit(expected, found(value))
        by_bytes = {encode(plain): plain for plain in _items(value, item)}
        return [by_bytes[data] for data in sorted(by_bytes)]

    return convert


def _items(values: Iterable[Any], item: Convert) -> list[Any]:
    items: list[Any] = []
    try:
        for value in values:
            items.append(item(value))
    except NoFit as refusal:
        raise refusal.below(f"[{len(items)}]") from None
    return items


def _map(judge_key: Convert, judge: Convert, expected: str) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not dict:
            value = _as_dict(value, expected)
        plain: dict[Any, Any] = {}
        key: Any = None
        try:
            for key, inner in value.items():  # the handler wants to know where it stopped
                name = judge_key(key)
                if name in plain:
                    raise NoFit("each key once", "the same key in another spelling")
                plain[name] = judge(inner)
        except NoFit as refusal:
            raise refusal.below(f"[{_short(key)}]" if not isinstance(key, str) else join("", key[:60])) from None
        return plain

    return convert


def _option(item: Convert) -> Convert:
    def convert(value: Any) -> Any:
        return None if value is None else item(value)

    return convert


def _as_dict(value: Any, expected: str, hint: str = "") -> dict[Any, Any]:
    if isinstance(value, dict):
        return dict(dict.items(value))
    raise NoFit(expected, found(value), hint)


def _short(key: Any) -> str:
    return repr(key)[:60] if isinstance(key, str | bytes | UUID) else found(key)


_ARM: Final = 'the one form of a variant is {"$tag": name, "$value": value}'

# ---- bytes in another spelling ---------------------------------------------------------------------------------------


def _difference(one: Any, other: Any, path: str) -> str:
    """Where two values that are not the same first differ. They have one schema, so it ends."""
    if type(one) is dict and type(other) is dict and one.keys() == other.keys():
        for key in one:
            if encode(one[key]) != encode(other[key]):
                part = f".{key}" if key in ("$tag", "$value") else join("", key)
                return _difference(one[key], other[key], path + part)
    if type(one) is list and type(other) is list and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            if encode(left) != encode(right):
                return _difference(left, right, f"{path}[{index}]")
    return path


# ---- writing JSON data -----------------------------------------------------------------------------------------------


class _JsonWriter:
    """Schemas to closures that write canonical plain data as JSON data. They trust what they get."""

    def __init__(self, refs: Refs) -> None:
        self.refs = refs
        self.named: dict[str, Convert] = {}

    def compile(self, schema: Schema) -> Convert:
        match schema:
            case types.Ref(name):
                if name not in self.named:
                    self.named[name] = self.compile(self.refs[name])
                return self.named[name]
            case types.Record(fields):
                compiled = [(name, self.compile(field)) for name, field in fields.items()]
                return lambda plain: {name: write(plain[name]) for name, write in compiled}
            case types.Variant(arms):
                writers = {name: self.compile(arm) for name, arm in arms.items()}
                return lambda plain: {"$tag": plain["$tag"], "$value": writers[plain["$tag"]](plain["$value"])}
            case types.List(item) | types.Set(item):
                write_item = self.compile(item)
                return lambda plain: [write_item(value) for value in plain]
            case types.Map(key, value):
                write_key = _uuid_key_to_json if isinstance(resolve(key, self.refs), types.Uuid) else str
                write_value = self.compile(value)
                return lambda plain: {write_key(name): write_value(inner) for name, inner in plain.items()}
            case types.Option(item):
                write_item = self.compile(item)
                return lambda plain: None if plain is None else write_item(plain)
            case _:
                return _TO_JSON.get(type(schema), _same)


def _same(plain: Any) -> Any:
    return plain


def _int_to_json(plain: int) -> int | str:
    return plain if -(2**53) < plain < 2**53 else str(plain)


def _dec128_to_json(plain: Decimal) -> str:
    digits = format(plain, "f") if -40 < plain.adjusted() < 40 else str(plain)
    return digits if len(digits) <= 80 else str(plain)


def _bytes_to_json(plain: bytes) -> str:
    return b64encode(plain).decode()


def _time_to_json(plain: int) -> str:
    seconds, nanoseconds = divmod(plain, 1_000_000_000)
    whole = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    fraction = f".{nanoseconds:09}".rstrip("0") if nanoseconds else ""
    return f"{whole}{fraction}Z"


def _uuid_key_to_json(plain: bytes) -> str:
    return str(UUID(bytes=plain))


_TO_JSON: Final[dict[type, Convert]] = {
    types.Int: _int_to_json,
    types.Nat: _int_to_json,
    types.Dec128: _dec128_to_json,
    types.Bytes: _bytes_to_json,
    types.Time: _time_to_json,
    types.Duration: _int_to_json,
    types.Uuid: str,
}
