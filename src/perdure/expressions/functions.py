"""The built-in functions, one name and one implementation each, for both readers.

A function declares what it takes, so that one place checks arguments at run time and `check` finds certain mistakes
before. The words of a signature are kinds; `a|b` is either, `?` may be left out, `*` may stand any number of times.
Every function gets the meter first and charges what it makes before it makes it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import operator
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from perdure.codec import is_text

from .budget import BITS_MAX, DEPTH_MAX, ENTRY, ITEM, SCAN, Failure, Meter, Run
from .values import KINDS, Ref, equal, json_of, keys_of, kind, measure, opened, text_of, text_size

Apply = Callable[..., Any]
_F = TypeVar("_F", bound=Apply)


class Function(msgspec.Struct, frozen=True):
    name: str
    signature: str
    apply: Apply
    takes: tuple[frozenset[str] | None, ...]  # None: any kind; the last one counts for all further arguments
    least: int
    most: int | None
    gives: str  # a kind, or "any"
    each: bool  # its last argument may be a body for each element
    processes: bool  # whether processes know it by this name

    @property
    def about(self) -> str:
        return (self.apply.__doc__ or "").strip()


FUNCTIONS: Final[dict[str, Function]] = {}

_LAZY: Final = {
    "and": "Whether all are true. Reads no further than the first that is not.",
    "or": "Whether one is true. Reads no further than that.",
    "not": "Whether it is false.",
    "if": "The second if the first is true, else the third. The other one is not computed.",
    "coalesce": "The first that is not null.",
}


def described() -> list[tuple[str, str, str]]:
    """The functions that processes know: name, what it gives, what it does. Those of users are not among them."""
    found = [(name, each.gives, each.about) for name, each in FUNCTIONS.items() if each.processes]
    lazy = [(name, "any" if name in ("if", "coalesce") else "boolean", about) for name, about in _LAZY.items()]
    return found + lazy


def function(
    name: str, signature: str, gives: str, *, each: bool = False, processes: bool = True
) -> Callable[[_F], _F]:
    words = signature.split()
    takes = tuple(None if (word := w.rstrip("?*")) == "any" else frozenset(word.split("|")) for w in words)
    least = sum(not w.endswith(("?", "*")) for w in words)
    most = None if signature.endswith("*") else len(words)

    def add(apply: _F) -> _F:
        FUNCTIONS[name] = Function(name, signature, apply, takes, least, most, gives, each, processes)
        return apply

    return add


# ---- comparison ------------------------------------------------------------------------------------------------

_ORDERED: Final = frozenset(("number", "text", "datetime", "date", "duration"))


def _one_kind(meter: Meter, one: Any, two: Any) -> None:
    first, second = kind(one), kind(two)
    if first != second or first not in _ORDERED:
        raise Failure(f"a {first} and a {second} have no order")
    if first == "number":
        _unmixed(one, two)
    elif first == "text":
        meter.spend(min(len(one), len(two)) >> SCAN)


def _comparison(compare: Callable[[Any, Any], Any]) -> Apply:
    def apply(meter: Meter, one: Any, two: Any) -> bool:
        if not (type(one) is int and type(two) is int):
            one, two = opened(one), opened(two)
            _one_kind(meter, one, two)
        return bool(compare(one, two))

    return apply


@function("eq", "any any", "boolean")
def eq(meter: Meter, one: Any, two: Any) -> bool:
    """Whether both are equal. Values of unlike kinds are not."""
    return equal(meter, one, two)


@function("ne", "any any", "boolean")
def ne(meter: Meter, one: Any, two: Any) -> bool:
    """Whether they are not equal."""
    return not equal(meter, one, two)


for _name, _compare, _about in (
    ("lt", operator.lt, "Whether the first is less. Both are of one kind: number, text, datetime, date, duration."),
    ("le", operator.le, "Whether the first is less or equal."),
    ("gt", operator.gt, "Whether the first is greater."),
    ("ge", operator.ge, "Whether the first is greater or equal."),
):
    _apply = _comparison(_compare)
    _apply.__doc__ = _about
    function(_name, "any any", "boolean")(_apply)


# ---- numbers ---------------------------------------------------------------------------------------------------

_DECIMAL: Final = Context(
    prec=34, rounding=ROUND_HALF_EVEN, Emin=-6143, Emax=6144, traps=[InvalidOperation, DivisionByZero, Overflow]
)


def _unmixed(one: Any, two: Any) -> None:
    if {type(one), type(two)} == {Decimal, float}:
        raise Failure("a decimal and a float do not mix: convert one, for example with decimal()")


def _checked(value: Any) -> Any:
    if type(value) is int:
        if value.bit_length() > BITS_MAX:
            raise Failure(f"the number has more than {BITS_MAX:,} bits", "budget")
    elif type(value) is float and not math.isfinite(value):
        raise Failure("the number is too large or not a number")
    elif type(value) is complex:
        raise Failure("the result is not a real number")
    return value


def _arithmetic(plain: Callable[[Any, Any], Any], exact: Callable[[Any, Any], Any]) -> Apply:
    def apply(meter: Meter, one: Any, two: Any) -> Any:
        if type(one) is Decimal or type(two) is Decimal:
            _unmixed(one, two)
            return exact(Decimal(_checked(one)), Decimal(_checked(two)))
        return _checked(plain(_checked(one), _checked(two)))

    return apply


def _modulo(one: Decimal, two: Decimal) -> Decimal:
    rest = _DECIMAL.remainder(one, two)
    return _DECIMAL.add(rest, two) if rest and (rest < 0) != (two < 0) else rest


def _floor_division(one: Decimal, two: Decimal) -> Decimal:
    return _DECIMAL.divide_int(_DECIMAL.subtract(one, _modulo(one, two)), two)


def _power(one: Any, two: Any) -> Any:
    if type(one) is int and type(two) is int and two > 0 and one.bit_length() * two > BITS_MAX + two:
        raise Failure(f"the number has more than {BITS_MAX:,} bits", "budget")
    return one**two


for _name, _plain, _exact, _about, _public in (
    ("add", operator.add, _DECIMAL.add, "The sum of two numbers.", True),
    ("sub", operator.sub, _DECIMAL.subtract, "The first number less the second.", True),
    ("mul", operator.mul, _DECIMAL.multiply, "The product of two numbers.", True),
    ("div", operator.truediv, _DECIMAL.divide, "The first number by the second; of whole numbers a float.", True),
    ("mod", operator.mod, _modulo, "The rest of a division, with the sign of the divisor.", True),
    ("floordiv", operator.floordiv, _floor_division, "The whole quotient, rounded down.", False),
    ("pow", _power, _DECIMAL.power, "The first number to the power of the second.", False),
):
    _apply = _arithmetic(_plain, _exact)
    _apply.__doc__ = _about
    function(_name, "number number", "number", processes=_public)(_apply)

ADD: Final = FUNCTIONS["add"].apply


@function("plus", "number|text|list number|text|list", "any", processes=False)
def plus(meter: Meter, one: Any, two: Any) -> Any:
    """Two numbers added, or two texts or two lists joined."""
    first, second = kind(one), kind(two)
    if first != second:
        raise Failure(f"a {first} and a {second} cannot be joined")
    return ADD(meter, one, two) if first == "number" else concat(meter, one, two)


@function("neg", "number", "number")
def neg(meter: Meter, value: Any) -> Any:
    """The number with the other sign."""
    return _DECIMAL.minus(value) if type(value) is Decimal else -_checked(value)


@function("abs", "number", "number")
def absolute(meter: Meter, value: Any) -> Any:
    """The number without its sign."""
    return _DECIMAL.abs(value) if type(value) is Decimal else abs(_checked(value))


@function("round", "number number?", "number")
def rounded(meter: Meter, value: Any, digits: Any = 0) -> Any:
    """The number with so many digits after the point (0), of its own kind; a half goes to the even digit."""
    if type(digits) is not int or abs(digits) > 300:
        raise Failure("the digits are a whole number from -300 to 300")
    if type(value) is Decimal:
        return value.quantize(Decimal(1).scaleb(-digits, _DECIMAL), context=_DECIMAL)
    return _checked(round(_checked(value), digits))


def _whole(value: Any, by: Callable[[Any], int]) -> int:
    if type(value) is Decimal and value.adjusted() > 300:
        raise Failure(f"the number has more than {BITS_MAX:,} bits", "budget")
    return int(_checked(by(value)))


@function("floor", "number", "number")
def floor(meter: Meter, value: Any) -> int:
    """The next whole number below."""
    return _whole(value, math.floor)


@function("ceil", "number", "number")
def ceil(meter: Meter, value: Any) -> int:
    """The next whole number above."""
    return _whole(value, math.ceil)


def _extreme(meter: Meter, name: str, values: tuple[Any, ...]) -> Any:
    items = opened(values[0]) if len(values) == 1 else values
    if not isinstance(items, list | tuple):
        raise Failure(f"{name} takes a list, or several values")
    meter.spend(len(items))
    less = FUNCTIONS["lt"].apply
    best = items[0] if items else None
    if len(items) == 1:
        _one_kind(meter, best, best)
    for item in items[1:]:
        if less(meter, item, best) if name == "min" else less(meter, best, item):
            best = item
    return best


@function("min", "any any*", "any")
def least(meter: Meter, *values: Any) -> Any:
    """The least of a list, or of several values; null of an empty list."""
    return _extreme(meter, "min", values)


@function("max", "any any*", "any")
def greatest(meter: Meter, *values: Any) -> Any:
    """The greatest of a list, or of several values; null of an empty list."""
    return _extreme(meter, "max", values)


@function("sum", "list number|text|list?", "any")
def total(meter: Meter, items: list[Any], start: Any = 0) -> Any:
    """The sum of a list, from a start (0). From a text or a list, all of them joined."""
    meter.spend(len(items))
    if kind(start) != "number":
        return concat(meter, start, *items)
    for item in items:
        if kind(item) != "number":
            raise Failure(f"the list has a {kind(item)} in it")
        start = ADD(meter, start, item)
    return start


# ---- texts -----------------------------------------------------------------------------------------------------


@function("concat", "text|list text|list*", "any")
def concat(meter: Meter, *values: Any) -> Any:
    """Texts, or lists, one after the other. No value is converted: see text()."""
    kinds = {kind(value) for value in values}
    if kinds == {"text"}:
        meter.make(sum(text_size(value) for value in values))
        return "".join(values)
    if kinds == {"list"}:
        parts = [opened(value) for value in values]
        meter.make(ITEM * sum(len(part) for part in parts))
        return [item for part in parts for item in part]
    raise Failure(f"only texts or only lists can be joined, not {' and '.join(sorted(kinds))}")


def _recased(meter: Meter, value: str) -> None:
    meter.make(text_size(value) if value.isascii() else 3 * text_size(value))


@function("upper", "text", "text")
def upper(meter: Meter, value: str) -> str:
    """The text in upper case."""
    _recased(meter, value)
    return value.upper()


@function("lower", "text", "text")
def lower(meter: Meter, value: str) -> str:
    """The text in lower case."""
    _recased(meter, value)
    return value.lower()


@function("trim", "text", "text")
def trim(meter: Meter, value: str) -> str:
    """The text without white space at both ends."""
    meter.make(text_size(value))
    return value.strip()


@function("length", "text|list|object|bytes", "number")
def length(meter: Meter, value: Any) -> int:
    """How many characters, elements, entries or bytes it has."""
    return value.length if isinstance(value, Ref) and value.length is not None else len(value)


@function("contains", "text|list|object any", "boolean")
def contains(meter: Meter, whole: Any, part: Any) -> bool:
    """Whether a text has the part in it, a list the element, an object the key."""
    if isinstance(whole, list):
        meter.spend(len(whole))
        return any(equal(meter, item, part) for item in whole)
    if not isinstance(part, str):
        raise Failure(f"a {kind(whole)} contains texts, no {kind(part)}")
    if isinstance(whole, str):
        meter.spend(len(whole) >> 6)
    return part in whole


@function("starts", "text text", "boolean")
def starts(meter: Meter, value: str, start: str) -> bool:
    """Whether the text begins with another."""
    meter.spend(len(start) >> SCAN)
    return value.startswith(start)


@function("ends", "text text", "boolean")
def ends(meter: Meter, value: str, end: str) -> bool:
    """Whether the text ends with another."""
    meter.spend(len(end) >> SCAN)
    return value.endswith(end)


@function("replace", "text text text", "text")
def replace(meter: Meter, value: str, old: str, new: str) -> str:
    """The text with every `old` in it replaced."""
    if not old:
        raise Failure("the text to be replaced is empty")
    meter.spend(len(value) >> 6)
    meter.make(text_size(value) + value.count(old) * text_size(new))
    return value.replace(old, new)


@function("split", "text text?", "list")
def split(meter: Meter, value: str, separator: str | None = None) -> list[str]:
    """The parts of a text between separators, or between white space."""
    if separator == "":
        raise Failure("the separator is empty")
    meter.make(text_size(value))
    most = meter.bytes // ENTRY
    parts = value.split(separator, most)
    meter.make(ENTRY * len(parts))
    return parts


@function("join", "list text?", "text")
def join(meter: Meter, items: list[Any], separator: str = "") -> str:
    """A list of texts as one text, with a separator between them."""
    meter.spend(len(items))
    for item in items:
        if type(item) is not str:
            raise Failure(f"the list has a {kind(item)} in it, and only texts can be joined")
        meter.make(text_size(item) + text_size(separator))
    return separator.join(items)


@function("is_blank", "any", "boolean")
def is_blank(meter: Meter, value: Any) -> bool:
    """Whether it is null, an empty list or object, or a text of white space."""
    value = opened(value)
    if isinstance(value, str):
        meter.spend(len(value) >> SCAN)
        return not value or value.isspace()
    return value is None or (isinstance(value, list | dict) and not value)


# ---- lists -----------------------------------------------------------------------------------------------------


@function("first", "list|text", "any")
def first(meter: Meter, items: Any) -> Any:
    """The first element; null if there is none."""
    return items[0] if items else None


@function("last", "list|text", "any")
def last(meter: Meter, items: Any) -> Any:
    """The last element; null if there is none."""
    return items[-1] if items else None


@function("at", "list|object|null number|text", "any")
def at(meter: Meter, value: Any, key: Any) -> Any:
    """The element at an index (from the end if negative), or the value at a key; null if there is none."""
    if isinstance(value, dict):
        return value.get(key)
    if value is None:
        return None
    if type(key) is not int:
        raise Failure("the index of a list is a whole number")
    return value[key] if -len(value) <= key < len(value) else None


@function("slice", "list|text number number|null?", "any")
def part(meter: Meter, value: Any, start: Any, end: Any = None) -> Any:
    """The elements or characters from an index up to, without, another; to the end if that is left out."""
    if type(start) is not int or type(end) not in (int, type(None)):
        raise Failure("the ends of a slice are whole numbers")
    meter.make(
        text_size(value) if isinstance(value, str) else ITEM * len(range(*slice(start, end).indices(len(value))))
    )
    return value[start:end]


@function("map", "list", "list", each=True)
def mapped(meter: Meter, items: list[Any], made: list[Any]) -> list[Any]:
    """A list of what the body makes of each element."""
    return made


@function("filter", "list", "list", each=True)
def filtered(meter: Meter, items: list[Any], kept: list[Any]) -> list[Any]:
    """The elements for which the body is true."""
    meter.make(ITEM * len(items))
    return [item for item, keep in zip(items, _booleans(kept), strict=True) if keep]


@function("any", "list", "boolean", each=True)
def some(meter: Meter, items: list[Any], found: list[Any] | None = None) -> bool:
    """Whether the body, or without one the element, is true for one element or more."""
    meter.spend(len(items))
    return any(_booleans(items if found is None else found))


@function("all", "list", "boolean", each=True)
def every(meter: Meter, items: list[Any], found: list[Any] | None = None) -> bool:
    """Whether the body, or without one the element, is true for every element."""
    meter.spend(len(items))
    return all(_booleans(items if found is None else found))


def _booleans(values: list[Any]) -> list[bool]:
    for value in values:
        if type(value) is not bool:
            raise Failure(f"a condition is a boolean, not a {kind(value)}")
    return values


@function("sort", "list boolean?", "list", each=True)
def sort(meter: Meter, items: list[Any], keys: Any = None, reverse: bool = False) -> list[Any]:
    """The list in ascending order of its elements, or of what the body makes of each."""
    if type(keys) is bool:
        keys, reverse = None, keys
    keys = [opened(key) for key in (items if keys is None else keys)]
    meter.spend(len(items) * len(items).bit_length())
    meter.make(2 * ITEM * len(items))
    for key in keys:
        _one_kind(meter, keys[0], key)
    meter.spend(sum(len(key) for key in keys if type(key) is str) * len(items).bit_length() >> SCAN)
    if {Decimal, float} <= {type(key) for key in keys}:
        raise Failure("decimals and floats do not mix")
    return [items[index] for index in sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)]


@function("unique", "list", "list", each=True)
def unique(meter: Meter, items: list[Any], keys: list[Any] | None = None) -> list[Any]:
    """The list without elements that are equal to an earlier one."""
    meter.make(2 * ENTRY * len(items))
    seen: set[Any] = set()
    out = []
    for item, key in zip(items, items if keys is None else keys, strict=True):
        mark = _identity(meter, key)
        if mark not in seen:
            seen.add(mark)
            out.append(item)
    return out


def _identity(meter: Meter, value: Any, depth: int = 0) -> Any:
    """What is equal for equal values, and safe to hash: no input can choose numbers whose hashes collide."""
    value = opened(value)
    meter.spend(1)
    if depth > DEPTH_MAX:
        raise Failure(f"it has more than {DEPTH_MAX} levels", "budget")
    if isinstance(value, list):
        return ("list", *(_identity(meter, item, depth + 1) for item in value))
    if isinstance(value, dict):
        return ("object", *((key, _identity(meter, value[key], depth + 1)) for key in keys_of(value)))
    if isinstance(value, str):
        meter.spend(len(value) >> SCAN)
    if kind(value) == "number":
        if abs(value) < 2**63 and value == int(value):
            return "number", int(value)
        return type(value).__name__, str(value.normalize(_DECIMAL) if type(value) is Decimal else value)
    return kind(value), value


@function("reverse", "list|text", "any", processes=False)
def reverse(meter: Meter, value: Any) -> Any:
    """The list or text from its end."""
    meter.make(text_size(value) if isinstance(value, str) else ITEM * len(value))
    return value[::-1]


@function("range", "number number? number?", "list")
def numbers(meter: Meter, *ends: Any) -> list[int]:
    """Whole numbers from 0, or from the first, up to, without, the end; in steps of 1, or of the third."""
    if any(type(end) is not int for end in ends) or (len(ends) == 3 and ends[2] == 0):
        raise Failure("a range has whole numbers, and a step that is not 0")
    found = range(*(_checked(end) for end in ends))
    size = max(0, (found.stop - found.start + found.step - (1 if found.step > 0 else -1)) // found.step)
    meter.make((ITEM + 32) * size)
    return list(found)


# ---- objects ---------------------------------------------------------------------------------------------------


@function("keys", "object", "list")
def keys(meter: Meter, value: dict[Any, Any]) -> list[Any]:
    """The keys of an object, in order."""
    meter.make(ITEM * len(value))
    meter.spend(len(value))
    return keys_of(value)


@function("values", "object", "list")
def values(meter: Meter, value: dict[Any, Any]) -> list[Any]:
    """The values of an object, in the order of their keys."""
    return [value[key] for key in keys(meter, value)]


@function("items", "object", "list", processes=False)
def items(meter: Meter, value: dict[Any, Any]) -> list[Any]:
    """The entries of an object as lists of key and value, in the order of the keys."""
    meter.make(2 * ENTRY * len(value))
    return [[key, value[key]] for key in keys(meter, value)]


@function("list", "list|object|text", "list", processes=False)
def as_list(meter: Meter, value: Any) -> list[Any]:
    """A list as it is; of an object its keys, in order; of a text its characters."""
    if isinstance(value, str):
        meter.make(ITEM * len(value))
        return list(value)
    return keys(meter, value) if isinstance(value, dict) else value


def _names(given: tuple[Any, ...]) -> set[str]:
    names = given[0] if len(given) == 1 and isinstance(given[0], list) else list(given)
    if not all(isinstance(name, str) for name in names):
        raise Failure("the names of keys are texts")
    return set(names)


@function("pick", "object text|list text*", "object")
def pick(meter: Meter, value: dict[str, Any], *names: Any) -> dict[str, Any]:
    """The object with only these keys, given one by one or as a list."""
    meter.make(ENTRY * len(value))
    wanted = _names(names)
    return {key: item for key, item in value.items() if key in wanted}


@function("omit", "object text|list text*", "object")
def omit(meter: Meter, value: dict[str, Any], *names: Any) -> dict[str, Any]:
    """The object without these keys, given one by one or as a list."""
    meter.make(ENTRY * len(value))
    unwanted = _names(names)
    return {key: item for key, item in value.items() if key not in unwanted}


@function("merge", "object object*", "object")
def merge(meter: Meter, *values: dict[str, Any]) -> dict[str, Any]:
    """All entries of several objects; where two have a key, the later one counts."""
    meter.make(ENTRY * sum(len(value) for value in values))
    return {key: item for value in values for key, item in value.items()}


# ---- conversion ------------------------------------------------------------------------------------------------

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,310}")
_REAL: Final = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,5})?")


@function("text", "any", "text")
def text(meter: Meter, value: Any) -> str:
    """A text as it is; any other value as JSON."""
    return text_of(meter, value)


@function("number", "number|text", "number")
def number(meter: Meter, value: Any) -> Any:
    """The number that a text spells: whole, or a float."""
    if not isinstance(value, str):
        return value
    meter.spend(len(value) >> SCAN)
    found = value.strip()
    if _WHOLE.fullmatch(found):
        return _checked(int(found))
    if _REAL.fullmatch(found):
        return _checked(float(found))
    raise Failure("the text spells no number")


@function("decimal", "number|text", "number")
def decimal(meter: Meter, value: Any) -> Decimal:
    """The decimal that a text spells, or that equals a number as it is written."""
    if isinstance(value, str):
        meter.spend(len(value) >> SCAN)
        if not _REAL.fullmatch(value := value.strip()):
            raise Failure("the text spells no number")
        return _DECIMAL.create_decimal(value)
    return _DECIMAL.create_decimal(repr(_checked(value)) if type(value) is float else value)


@function("int", "any any?", "any", processes=False)
def whole(meter: Meter, value: Any, *default: Any) -> Any:
    """The whole number in a number, boolean or text, cut after the point; a default instead of an error."""
    return _converted(meter, value, default, lambda found: _whole(found, math.trunc))


@function("float", "any any?", "any", processes=False)
def real(meter: Meter, value: Any, *default: Any) -> Any:
    """The float in a number, boolean or text; a default instead of an error."""
    return _converted(meter, value, default, lambda found: _checked(float(found)))


def _converted(meter: Meter, value: Any, default: tuple[Any, ...], by: Callable[[Any], Any]) -> Any:
    value = opened(value)
    try:
        if kind(value) not in ("number", "text", "boolean"):
            raise Failure(f"a {kind(value)} is no number")
        return by(int(value) if type(value) is bool else number(meter, value))
    except (Failure, ArithmeticError, ValueError) as error:
        if not default or (isinstance(error, Failure) and error.code == "budget"):
            raise
        return default[0]


@function("tojson", "any", "text", processes=False)
def tojson(meter: Meter, value: Any) -> str:
    """The value as JSON, keys in order."""
    return json_of(meter, value)


@function("fromjson", "text", "any", processes=False)
def fromjson(meter: Meter, value: str) -> Any:
    """The value that a text of JSON spells."""
    meter.make(text_size(value))
    meter.spend(len(value) >> 6)
    try:
        found = json.loads(value, parse_int=_json_int, parse_float=_json_float, parse_constant=_json_float)
    except RecursionError:
        raise Failure("it has too many levels", "budget") from None
    except ValueError as error:
        raise Failure(f"the text is no JSON: {error}") from None
    measure(found, meter.bytes)
    if not is_text(value) or ("\\u" in value and not is_text(json.dumps(found, ensure_ascii=False))):
        raise Failure("the text has half a surrogate pair in it")
    return found


def _json_int(digits: str) -> int:
    if len(digits) > 310:
        raise Failure(f"the number has more than {BITS_MAX:,} bits", "budget")
    return int(_checked(int(digits)))


def _json_float(digits: str) -> float:
    return float(_checked(float(digits)))


@function("b64encode", "text|bytes", "text", processes=False)
def b64encode(meter: Meter, value: str | bytes) -> str:
    """The UTF-8 of a text, or bytes, in Base64."""
    meter.make(2 * (text_size(value) if isinstance(value, str) else len(value)))
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


@function("b64decode", "text", "text", processes=False)
def b64decode(meter: Meter, value: str) -> str:
    """The text whose UTF-8 is in Base64."""
    meter.make(text_size(value))
    return base64.b64decode(value, validate=True).decode()


@function("sha256", "text|bytes", "text")
def sha256(meter: Meter, value: str | bytes) -> str:
    """The SHA-256 of a text in UTF-8, or of bytes, as 64 hex digits."""
    meter.make(text_size(value) if isinstance(value, str) else len(value))
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()


# ---- time ------------------------------------------------------------------------------------------------------

_UNITS: Final = {
    "weeks": timedelta(weeks=1),
    "days": timedelta(days=1),
    "hours": timedelta(hours=1),
    "minutes": timedelta(minutes=1),
    "seconds": timedelta(seconds=1),
}
_FORMATS: Final = {
    "%Y": "{0:%Y}",
    "%m": "{0:%m}",
    "%d": "{0:%d}",
    "%H": "{0:%H}",
    "%M": "{0:%M}",
    "%S": "{0:%S}",
    "%f": "{0:%f}",
    "%j": "{0:%j}",
    "%%": "%",
}


def _unit(name: str) -> timedelta:
    if name not in _UNITS:
        raise Failure(f"the unit is one of {', '.join(_UNITS)}")
    return _UNITS[name]


@function("date_add", "datetime|date duration|number text?", "any")
def date_add(meter: Meter, when: Any, amount: Any, unit: str | None = None) -> Any:
    """A time or date later by a duration, or by so many weeks, days, hours, minutes or seconds."""
    if (unit is None) == (kind(amount) == "number"):
        raise Failure("give a duration, or a number and its unit")
    if unit is not None:
        amount = _unit(unit) * (float(amount) if type(amount) is Decimal else amount)
    if type(when) is date and amount % _UNITS["days"]:
        raise Failure("a date moves by whole days")
    return when + amount


@function("date_diff", "datetime|date datetime|date text?", "any")
def date_diff(meter: Meter, one: Any, two: Any, unit: str | None = None) -> Any:
    """The duration from the second time to the first, or its whole weeks, days, hours, minutes or seconds."""
    if kind(one) != kind(two):
        raise Failure("give two times or two dates")
    return one - two if unit is None else (one - two) // _unit(unit)


@function("format_date", "datetime|date text", "text")
def format_date(meter: Meter, when: Any, pattern: str) -> str:
    """The time in UTC, or date, as text. The pattern knows %Y %m %d %H %M %S %f %j %%."""
    meter.make(4 * text_size(pattern))
    when = when.astimezone(UTC) if isinstance(when, datetime) else datetime(when.year, when.month, when.day)

    def piece(found: re.Match[str]) -> str:
        if found[0] not in _FORMATS:
            raise Failure(f"the pattern has {found[0]}, and knows only {' '.join(_FORMATS)}")
        return f"{when.year:04}" if found[0] == "%Y" else _FORMATS[found[0]].format(when)

    return re.sub("%.?", piece, pattern, flags=re.DOTALL)


@function("now", "", "datetime")
def now(run: Run) -> datetime:
    """The recorded time of the entry; in a playbook as text."""
    if run.now is None:
        raise Failure("there is no time here")
    return run.now


@function("random", "", "number")
def random(run: Run) -> float:
    """Recorded dice: a float from 0 up to, without, 1."""
    return (run.draw() >> 75) / 2**53


@function("uuid", "", "uuid")
def uuid(run: Run) -> UUID:
    """Recorded dice: a random UUID; in a playbook as text."""
    return UUID(int=run.draw(), version=4)


VOLATILE: Final = frozenset(("now", "random", "uuid"))  # another value in another entry

# ---- tests of Jinja --------------------------------------------------------------------------------------------


def _is(*kinds: str) -> Apply:
    def apply(meter: Meter, value: Any) -> bool:
        return kind(value) in kinds

    apply.__doc__ = f"Whether it is {' or '.join(kinds)}."
    return apply


for _name, _kinds in (
    ("is_none", ("null",)),
    ("is_string", ("text",)),
    ("is_number", ("number",)),
    ("is_mapping", ("object",)),
    ("is_sequence", ("list", "text")),
):
    function(_name, "any", "boolean", processes=False)(_is(*_kinds))


def argument(meter: Meter, function: Function, index: int, value: Any) -> Any:
    """An argument of the kind that the function takes, with references opened; anything else is a failure."""
    wanted = function.takes[min(index, len(function.takes) - 1)]
    found = KINDS.get(type(value))
    if found is None:
        if wanted is None or (function.name == "length" and isinstance(value, Ref) and value.length is not None):
            return value
        value = opened(value)
        found = kind(value)
    if wanted is not None and found not in wanted:
        raise Failure(f"{function.name}() takes {' or '.join(sorted(wanted))} here, and found {found}")
    return value
