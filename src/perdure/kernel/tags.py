"""Tags: which ones users may give, how numbers, bools and times become texts that sort, and how they stand in an index.

A tag is kept as one text. What is no text begins with a sign that no text of a user has, then the letter of its kind:
numbers sort as numbers, times as times.
"""

from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from typing import Final

TagValue = str | bool | int | float | Decimal | datetime

RESERVED: Final = frozenset({"reference", "schedule"})
"""Tags that belong to the engine, as do those below the first: `reference.PART`."""

TAG_MAX: Final = 4096
"""Characters of a name and its value together."""

INDEXED_BYTES_MAX: Final = 512
"""A longer name or value, or one with a NUL, is indexed by its hash: an index of PostgreSQL takes 2,700 bytes, and its
texts no NUL."""

TYPED: Final = "\x1f"
BOOL, NUMBER, TIME = f"{TYPED}b", f"{TYPED}n", f"{TYPED}t"
EXPONENT_MAX: Final = 300
"""A number is between 1e-300 and 1e301, or 0, or negative."""

ZERO: Final = 500
"""What is added to an exponent."""

DIGITS_MAX: Final = 100
_COMPLEMENT: Final = str.maketrans("0123456789", "9876543210")


def objection(name: object, value: object) -> str:
    """What stands against a tag that a user gives, or removes (None); empty: nothing does."""
    if not isinstance(name, str) or not (value is None or isinstance(value, TagValue)):
        text = "a tag is a text, a number, a bool or a time, with a text as its name"
        return f"{text}, found {name!a:.80}: {value!a:.80}"
    if name in RESERVED or name.startswith("reference."):
        return f"the tag {name!a:.80} belongs to the engine: give yours another name"
    try:
        text = kept(value) if value is not None else ""
        (name + text).encode()
    except UnicodeEncodeError:
        return f"a tag is valid Unicode, found {name!a:.80}: {value!a:.80}"
    except ValueError as error:
        return f"the tag {name!a:.80} is {error}, found {value!a:.80}"
    if not name or len(name) + len(text) > TAG_MAX:
        return f"a tag has a name, and no more than {TAG_MAX:,} characters with it, found {name!a:.80}"
    return ""


def kept(value: TagValue) -> str:
    """The text that a tag is kept as. Raises `ValueError` of what none can be made of."""
    if isinstance(value, str):
        if value.startswith(TYPED):
            raise ValueError("a text that does not begin with the sign U+001F")
        return str.__str__(value)
    if isinstance(value, bool):
        return f"{BOOL}{int(value)}"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a time with a zone")
        return f"{TIME}{value.astimezone(UTC).isoformat(timespec='microseconds').removesuffix('+00:00')}Z"
    return f"{NUMBER}{_sortable(value)}"


def told(text: str) -> str | bool | int | float | datetime:
    """What a tag is, of the text that it is kept as."""
    if not text.startswith(TYPED):
        return text
    try:
        match text[1:2]:
            case "b":
                return text[2:] == "1"
            case "n":
                return _number(text[2:])
            case "t":
                return datetime.fromisoformat(text[2:])
            case _:
                pass
    except (ValueError, ArithmeticError):
        pass
    return text  # a text of old, from before there were others


def _sortable(value: int | float | Decimal) -> str:
    """Sign, exponent and digits: of negative numbers their complements, and a sign that comes after all digits."""
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise ValueError("a finite number")
    sign, digits, _ = number.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "1"
    exponent = number.adjusted()
    text = text.rstrip("0")
    if abs(exponent) > EXPONENT_MAX or len(text) > DIGITS_MAX:
        raise ValueError(f"a number of at most {DIGITS_MAX} digits, from 1e-{EXPONENT_MAX} to 1e{EXPONENT_MAX}")
    if sign:
        return f"0{ZERO - exponent:03}{text.translate(_COMPLEMENT)}~"
    return f"2{ZERO + exponent:03}{text}"


def _number(text: str) -> int | float:
    if text == "1":
        return 0
    negative = text[0] == "0"
    exponent = ZERO - int(text[1:4]) if negative else int(text[1:4]) - ZERO
    digits = text[4:].removesuffix("~").translate(_COMPLEMENT) if negative else text[4:]
    number = Decimal(f"{'-' if negative else ''}{digits[0]}.{digits[1:] or 0}e{exponent}")
    return int(number) if len(digits) <= exponent + 1 <= DIGITS_MAX else float(number)


@lru_cache(maxsize=1024)
def readings(text: str) -> tuple[str, ...]:
    """All that a word of a filter may mean, as tags are kept: the text, and what is written so."""
    found = [text]
    if text in ("true", "false"):
        found.append(kept(text == "true"))
    for read in (_read_number, _read_time):
        value = read(text)
        if value is not None:
            found.append(value)
    return tuple(found)


def _read_number(text: str) -> str | None:
    try:
        return kept(Decimal(text)) if text[:1] in "-+.0123456789" and "_" not in text and text else None
    except (ValueError, ArithmeticError):
        return None


def _read_time(text: str) -> str | None:
    try:
        time = datetime.fromisoformat(text) if "-" in text else None
        return None if time is None else kept(time if time.tzinfo is not None else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None


def indexed(name: str, value: str) -> tuple[str, str]:
    """A tag as its rows have it."""
    return _indexed(name), _indexed(value)


def _indexed(text: str) -> str:
    if "\x00" not in text and (len(text) * 4 <= INDEXED_BYTES_MAX or len(text.encode()) <= INDEXED_BYTES_MAX):
        return text
    return f"{text[:64]}\x1f{sha256(text.encode()).hexdigest()}".replace("\x00", "\x1f")
